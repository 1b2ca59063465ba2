"""Seconds and peak memory of verbs by the rows of their file.

A file of 80 bytes a row goes through each verb, in sizes that grow tenfold. The peak is that of the
whole process tree, each shared page counted once; a tree that takes more than `--limit` is ended.
`growth` is the time per row beside that of the size before: 1.00 is linear. What the verbs leave in
the folder of temporary files is counted too.
"""

import argparse
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

ROW_BYTES = 80
N_WORDS = 3000
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 128,
}
VERBS = ("data check", "tokenize", "predict", "finetune --dry-run", "evaluate")
MOST_SCORED = 200_000
PREDICTED_SHARE = 100
"""One row of so many is computed by `predict`; all are read."""

SAMPLED_SECONDS = 0.2


@dataclass(frozen=True)
class Measured:
    """What one command took.

    Attributes:
        seconds: From its start to its end.
        cpu_seconds: Processor time of the tree, user and system.
        peak_gb: Of its process tree, in 10^9 bytes.
        returncode: Exit code; negative for a signal.
        last_line: Of stderr.
    """

    seconds: float
    cpu_seconds: float
    peak_gb: float
    returncode: int
    last_line: str


def main() -> None:
    """Parses the options, makes the files, measures, prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default="100000,1000000,10000000", help="sizes of the file")
    parser.add_argument("--verbs", default=",".join(VERBS))
    parser.add_argument("--limit", type=float, default=4.0, help="GB at which a tree is ended")
    parser.add_argument("--beside", type=Path, help="another checkout, measured in turns")
    parser.add_argument("--folder", type=Path, help="where the files are kept for the next time")
    parser.add_argument("--quick", action="store_true", help="few rows, to see that it works")
    options = parser.parse_args()
    sizes = [int(size) for size in options.rows.split(",")]
    if options.quick:
        sizes = [300, 600]
    arms: dict[str, Path | None] = {"bertctl": None}
    if options.beside:
        arms["beside"] = options.beside.resolve()
    with tempfile.TemporaryDirectory() as scratch:
        folder = (options.folder or Path(scratch)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        # A process that has torch in it would give its own size to those that it starts.
        maker = multiprocessing.get_context("spawn").Process(target=make_run, args=(folder,))
        maker.start()
        maker.join()
        print(
            f"{'':28}{'rows':>12}{'seconds':>10}{'CPU s':>9}{'peak GB':>9}{'growth':>8}"
            f"{'exit':>6}{'left':>6}",
            flush=True,
        )
        for verb in options.verbs.split(","):
            before: dict[str, tuple[int, float]] = {}
            for n_rows in sizes:
                n_given = min(n_rows, MOST_SCORED) if verb == "evaluate" else n_rows
                table = make_table(folder, n_given)
                for name, checkout in arms.items():
                    with tempfile.TemporaryDirectory(dir=scratch) as outputs:
                        command = command_of(verb, folder, table, Path(outputs))
                        show(f"{name} {verb}", n_given, command, checkout, options.limit, before)


def show(
    title: str,
    n_rows: int,
    command: list[str],
    checkout: Path | None,
    limit: float,
    before: dict[str, tuple[int, float]],
) -> None:
    """Runs a command and prints its row of the table."""
    with tempfile.TemporaryDirectory() as temporary:
        measured = run_within(command, checkout, limit, Path(temporary))
        n_left = len(list(Path(temporary).iterdir()))
    growth = ""
    if title in before and before[title][0] < n_rows:
        earlier_rows, earlier_seconds = before[title]
        growth = f"{measured.cpu_seconds / n_rows / (earlier_seconds / earlier_rows):.2f}"
    before[title] = (n_rows, measured.cpu_seconds)
    print(
        f"{title:28}{n_rows:12,}{measured.seconds:10.1f}{measured.cpu_seconds:9.1f}"
        f"{measured.peak_gb:9.2f}{growth:>8}{measured.returncode:6}{n_left:6}",
        flush=True,
    )
    if measured.returncode:
        print(f"    {measured.last_line}", flush=True)


def run_within(
    command: list[str], checkout: Path | None, limit: float, temporary: Path
) -> Measured:
    """Runs a command; its tree is ended where it takes more memory than the limit, in GB."""
    environment = {**os.environ, "TMPDIR": str(temporary), "HF_HUB_OFFLINE": "1"}
    if checkout is not None:
        environment["PYTHONPATH"] = str(checkout)
    started = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=checkout,  # `python -m` looks there first
        start_new_session=True,
    )
    stderr = process.stderr
    assert stderr is not None
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(stderr))
    reader.start()
    peak = 0
    usage = None
    status = 0
    while usage is None:
        peak = max(peak, sum(map(proportional_bytes, tree(process.pid))))
        if peak > limit * 1e9:
            os.killpg(process.pid, signal.SIGKILL)
        pid, status, of_child = os.wait4(process.pid, os.WNOHANG)
        if pid:
            usage = of_child
        else:
            time.sleep(SAMPLED_SECONDS)
    process.returncode = os.waitstatus_to_exitcode(status)
    reader.join()
    return Measured(
        seconds=time.perf_counter() - started,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        peak_gb=max(peak, usage.ru_maxrss * 1024) / 1e9,
        returncode=process.returncode,
        last_line=lines[-1].strip() if lines else "",
    )


def tree(root: int) -> Iterator[int]:
    """Yields a process and its descendants."""
    yield root
    try:
        children = Path(f"/proc/{root}/task/{root}/children").read_text(encoding="ascii")
    except OSError:
        return
    for child in children.split():
        yield from tree(int(child))


def proportional_bytes(process: int) -> int:
    """Returns the memory of a process, its share of what it has in common with others (PSS)."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return 0
    sizes = [line.split()[1] for line in text.splitlines() if line.startswith("Pss:")]
    return 1024 * int(sizes[0]) if sizes else 0


def command_of(verb: str, folder: Path, table: Path, outputs: Path) -> list[str]:
    """Returns the command that sends a file through a verb."""
    bertctl = [sys.executable, "-m", "bertctl"]
    run = str(folder / "run")
    model = str(folder / "model")
    answers = str(outputs / "answers.jsonl")
    arguments = {
        "data check": ["data", "check", str(table)],
        "tokenize": ["tokenize", "--file", str(table), "--model", model, "-o", answers],
        "predict": [
            *("predict", run, str(table), "-o", answers),
            *("--shard", f"1/{PREDICTED_SHARE}"),
        ],
        "finetune --dry-run": ["finetune", str(table), "--model", model, "--dry-run"],
        "evaluate": [
            *("evaluate", run, "--file", str(table)),
            *("-o", str(outputs / "scores")),
        ],
    }
    return [*bertctl, *arguments[verb]]


def make_run(folder: Path) -> None:
    """Makes a run of a tiny model, trained on few rows, where it is not there."""
    import torch
    import transformers
    from tokenizers import BertWordPieceTokenizer

    run = folder / "run"
    if (run / "metrics.json").is_file():
        return
    texts = [text for text, _ in rows_of(20_000)]
    model = folder / "model"
    model.mkdir(exist_ok=True)
    tokenizer = BertWordPieceTokenizer()
    tokenizer.train_from_iterator(texts, vocab_size=4000, show_progress=False)
    tokenizer.save_model(str(model))
    transformers.BertTokenizerFast.from_pretrained(model, model_max_length=128).save_pretrained(
        model
    )
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=tokenizer.get_vocab_size(), **SIZES)
    transformers.BertModel(config).save_pretrained(model)
    table = make_table(folder, 400)
    command = ["finetune", str(table), "--model", str(model), "--epochs", "1", "-q", "-o", str(run)]
    subprocess.run([sys.executable, "-m", "bertctl", *command], check=True, capture_output=True)


def make_table(folder: Path, n_rows: int) -> Path:
    """Returns a CSV file with so many rows of 80 bytes, which is made where it is not there."""
    path = folder / f"rows-{n_rows}.csv"
    if not path.is_file():
        aside = path.with_suffix(".part")
        with aside.open("w", encoding="ascii") as file:
            file.write("text,label\n")
            file.writelines(f"{text},{label}\n" for text, label in rows_of(n_rows))
        aside.rename(path)
    return path


def rows_of(n_rows: int) -> Iterator[tuple[str, str]]:
    """Yields texts of words that recur as in a language, and their labels.

    A text is three parts of a stock of words, each begun at random: with one part, the files of ten
    million rows would have ten near duplicates of each row, and those of a million none.
    """
    rng = random.Random(0)  # noqa: S311 - rows, no secrets
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(N_WORDS)]
    likelihoods = [1 / (rank + 3) for rank in range(N_WORDS)]
    stock = rng.choices(words, likelihoods, k=1_000_000)
    for number in range(n_rows):
        label = ("negative", "positive")[number * 7 % 13 % 2]
        starts = [rng.randrange(len(stock) - 10) for _ in range(3)]
        words_of_text = chain.from_iterable(stock[start : start + 5] for start in starts)
        text = f"{number} {' '.join(words_of_text)}"
        yield text[: ROW_BYTES - len(label) - 2].rstrip().ljust(40, "x"), label


if __name__ == "__main__":
    main()
