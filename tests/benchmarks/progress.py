"""How many lines of progress a log of 200,000 rows gets, and how right the time left at 25 % is.

Each verb of bertctl is a process whose stderr is a pipe. A line is held against what came: the
seconds from that line to the end of its phase, which the next line of other talk (or the end of the
process) shows.
"""

import argparse
import itertools
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LINE = re.compile(r"^(?P<phase>\w+) \d+/\d+ \((?P<share>\d+) %\), (?P<left>[^,]*) left  ")
ANY_LINE = re.compile(r"^(training|evaluating|predicting|rows|texts)( \(\d+ %\), .*,)? [\w ]*\d+")
UNITS = {"d": 86400, "h": 3600, "min": 60, "s": 1}
BERTCTL = [sys.executable, "-m", "bertctl"]


def main() -> None:
    """Parses the options, measures, prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--file", type=Path, required=True, help="one text per line")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--verbs", default="predict,extract-features,tokenize,finetune")
    parser.add_argument("--quick", action="store_true", help="64 rows, to see that it works")
    options = parser.parse_args()
    rows = 64 if options.quick else options.rows
    lines = [line for line in options.file.read_text(encoding="utf-8").splitlines() if line.strip()]
    few = ["--max-train-rows", "32", "--max-eval-rows", "32", "--epochs", "1"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = folder / "texts.txt"
        table = folder / "rows.csv"
        given = list(itertools.islice(itertools.cycle(lines), rows))
        texts.write_text("".join(f"{text}\n" for text in given), encoding="utf-8")
        quoted = (text.replace('"', '""') for text in given)
        table.write_text(
            "text,label\n" + "".join(f'"{text}",{"ab"[i % 2]}\n' for i, text in enumerate(quoted))
        )
        subprocess.run(
            [*BERTCTL, "finetune", "demo", "-q", "-o", folder / "run", *few],
            check=True,
            capture_output=True,
        )
        commands = {
            "predict": ["predict", folder / "run", texts, "-o", folder / "answers.jsonl"],
            "extract-features": [
                "extract-features",
                texts,
                "--model",
                "minilm",
                "-o",
                folder / "vectors.npy",
            ],
            "tokenize": [
                "tokenize",
                "--file",
                texts,
                "--model",
                "minilm",
                "-o",
                folder / "tokens.jsonl",
            ],
            "finetune": [
                "finetune",
                table,
                "--model",
                "minilm",
                "--epochs",
                "1",
                "-o",
                folder / "mine",
            ],
        }
        print(
            f"{rows:,} "
            f"rows{'':14}{'seconds':>9}{'lines':>7}{'at':>6}{'said':>8}{'came':>8}{'off':>8}"
        )
        for verb in options.verbs.split(","):
            show(verb, [*BERTCTL, *map(str, commands[verb])])


def show(verb: str, command: list[str]) -> None:
    """Runs a command and prints its row."""
    started = time.perf_counter()
    heard: list[tuple[float, str]] = []
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=os.environ
    ) as one:
        assert one.stderr is not None
        heard += [(time.perf_counter() - started, line.rstrip("\n")) for line in one.stderr]
    if one.returncode:
        raise SystemExit("\n".join(line for _, line in heard))
    heard.append((time.perf_counter() - started, ""))
    progress = [i for i, (_, line) in enumerate(heard) if ANY_LINE.match(line)]
    quarter = next(
        (i for i in progress if (found := LINE.match(heard[i][1])) and int(found["share"]) >= 25),
        None,
    )
    row = f"bertctl {verb:16}{heard[-1][0]:9.1f}{len(progress):7}"
    if quarter is None:  # too short for a line
        print(row)
        return
    found = LINE.match(heard[quarter][1])
    assert found is not None
    over = next(at for i, (at, _) in enumerate(heard) if i > quarter and i not in progress)
    said = sum(
        float(number) * UNITS[unit]
        for number, unit in re.findall(r"([\d.]+) (d|h|min|s)\b", found["left"])
    )
    came = over - heard[quarter][0]
    print(f"{row}{found['share'] + ' %':>6}{said:8.0f}{came:8.0f}{said / came - 1:+8.1%}")


if __name__ == "__main__":
    main()
