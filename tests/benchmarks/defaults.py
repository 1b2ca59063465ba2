"""Scores of the defaults on many data sets.

What `bertctl finetune FILE` gives without any option, and what peers give.

Each set is a training file and a test file, and nothing else is given: a tenth of the training rows
is held out, as a new user would have it. The peers are the default before `training.preset: auto`
(3 epochs at 5e-5, batch 16, a random head), the default now, the linear probe on the frozen
encoder, TF-IDF with logistic (ridge) regression, a plain transformers loop with the values of
`run_classification.py` (3 epochs at 5e-5, batch 8, no warm-up, linear decay), the best of a sweep
of 12 settings by its validation score, and AutoGluon with the same encoder, where
`--autogluon-python` is a Python that has it (`pip install autogluon.multimodal` in an environment
of its own).

Every score is a line of the results file as soon as it is known. A script that is started again
goes on where it was.
"""

import argparse
import csv
import itertools
import json
import os
import re
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault(
    "GOMP_SPINCOUNT", "4000"
)  # as the command does; before anything imports torch

import numpy as np

import bertctl

Row = dict[str, Any]
Record = dict[str, Any]

OLD_DEFAULT = {
    "training.epochs": 3,
    "training.batch_size": 16,
    "optimizer.learning_rate": 5e-5,
    "model.head_start": "random",
    "training.preset": None,
    "evaluation.baselines": False,
}
"""Fields of the generic recipes before they had a preset."""

RATES = (5e-5, 1e-4, 2e-4, 4e-4)
EPOCHS = (3, 6, 10)
SWEEP = [
    {"training.epochs": epochs, "optimizer.learning_rate": rate}
    for epochs in EPOCHS
    for rate in RATES
]
"""The 12 settings of the sweep."""


class Split(NamedTuple):
    """Rows to train on and rows to score."""

    train: list[Row]
    test: list[Row]


@dataclass(frozen=True)
class BenchmarkSet:
    """One data set of the table.

    Attributes:
        task: Task of bertctl, which is also the generic recipe's name.
        metric: What is compared.
        about: One line for the table.
        read: Reads the rows of the folder with the data.
    """

    task: str
    metric: str
    about: str
    read: Callable[[Path], Split]


def main() -> None:
    """Parses the options, measures what is missing, prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data-dir", type=Path, required=True, help="folder with glue, squad, ud-english-ewt, ..."
    )
    parser.add_argument("--model", default="minilm")
    parser.add_argument(
        "--sets",
        nargs="+",
        default=list(SETS),
        choices=list(SETS),
        metavar="SET",
    )
    parser.add_argument(
        "--seeds",
        nargs="+",
        type=int,
        default=[42, 43, 44],
    )
    parser.add_argument(
        "--peers", nargs="+", default=list(PEERS), choices=list(PEERS), metavar="PEER"
    )
    parser.add_argument(
        "--set", action="append", default=[], dest="fields", help="a field for the peer `now`"
    )
    parser.add_argument(
        "--name", default="now", help="what the peer `now` is called, with other fields"
    )
    parser.add_argument("--max-rows", type=int, help="train on at most this many rows of each set")
    parser.add_argument(
        "--max-test-rows", type=int, help="score at most this many rows of each set"
    )
    parser.add_argument(
        "--threads", type=int, help="of torch; 1 is best on a machine that others use too"
    )
    parser.add_argument(
        "--autogluon-python", type=Path, help="Python of an environment that has AutoGluon"
    )
    parser.add_argument(
        "--results", type=Path, default=Path("defaults.jsonl"), help="scores, a line each"
    )
    parser.add_argument("--json", type=Path, help="write the table as JSON too")
    parser.add_argument("--table-only", action="store_true", help="measure nothing")
    parser.add_argument(
        "--quick", action="store_true", help="60 rows of a set, to see that it works"
    )
    options = parser.parse_args()
    if options.quick:
        options.max_rows = 60
        options.max_test_rows = 60
        options.seeds = options.seeds[:1]
    if not options.table_only:
        measure(options)
    records = [record for record in read_records(options.results) if record["set"] in options.sets]
    print(markdown(records))
    if options.json is not None:
        options.json.write_text(json.dumps(table_rows(records), indent=2) + "\n", encoding="utf-8")


def measure(options: argparse.Namespace) -> None:
    """Measures every set, seed and peer that the results file does not have yet."""
    known = {record_key(record) for record in read_records(options.results)}
    for name, seed in [(name, seed) for seed in options.seeds for name in options.sets]:
        for peer in options.peers:
            if peer in ONCE and seed != options.seeds[0]:
                continue
            for about, run in peer_runs(peer, options):
                record = {
                    "set": name,
                    "seed": seed,
                    "peer": about,
                    "model": options.model,
                    "rows": options.max_rows,
                }
                if record_key(record) in known:
                    continue
                with tempfile.TemporaryDirectory(prefix="defaults-") as folder:
                    limits = (options.max_rows, options.max_test_rows)
                    files = write_files(SETS[name], options.data_dir, Path(folder), limits)
                    scored = run(
                        Trial(SETS[name], files, options.model, seed, Path(folder), options.threads)
                    )
                if scored is None:
                    continue
                with options.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record | scored) + "\n")
                print(
                    f"{name:<14} {about:<40} {scored['score']:.4f} {scored['seconds']:7.1f} s",
                    flush=True,
                )


def read_records(file: Path) -> list[Record]:
    """Returns the lines of a results file."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def record_key(record: Record) -> tuple[Any, ...]:
    """Returns what a record is about."""
    return tuple(record[name] for name in ("set", "seed", "peer", "model", "rows"))


# ---- The peers


@dataclass(frozen=True)
class Trial:
    """A set on the disk, for one peer.

    Attributes:
        benchmark: The set.
        files: Split -> file.
        model: Name of the encoder.
        seed: Of the training.
        folder: Scratch space.
        threads: Of torch; None for all cores.
    """

    benchmark: BenchmarkSet
    files: Mapping[str, Path]
    model: str
    seed: int
    folder: Path
    threads: int | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """Returns the fields that all runs of bertctl share; they are a new user's."""
        return {
            "data.train_file": str(self.files["train"]),
            "data.test_file": str(self.files["test"]),
            "evaluation.splits": ["validation", "test"],
            "model.name": self.model,
            "training.seed": self.seed,
            "training.checkpoint_every": "off",
            "runtime.threads": self.threads,
        }

    def rows(self, split: str) -> list[Row]:
        """Returns the rows of a split."""
        return [
            json.loads(line) for line in self.files[split].read_text(encoding="utf-8").splitlines()
        ]


Peer = Callable[[Trial], Record | None]


def finetuned(fields: Mapping[str, Any]) -> Peer:
    """Returns a peer: the generic recipe with some fields, everything else left to bertctl."""

    def run(trial: Trial) -> Record:
        output = trial.folder / "run"
        model_section = bertctl.Recipe.model_fields["model"].annotation
        later = {} if "head_start" in model_section.model_fields else {"model.head_start"}
        own_fields = {name: value for name, value in fields.items() if name not in later}
        started = time.perf_counter()
        cpu_before = cpu_seconds()
        bertctl.finetune(trial.benchmark.task, trial.fields | own_fields, output=output)
        cpu = cpu_seconds() - cpu_before
        seconds = time.perf_counter() - started
        return scored_run(output, trial.benchmark.metric, seconds) | {"cpu": round(cpu, 2)}

    return run


def probe(trial: Trial) -> Record | None:
    """Scores the linear probe on the frozen encoder, as `bertctl probe` has it without options."""
    from bertctl.errors import DataError
    from bertctl.features.probe import prepare, run
    from bertctl.run_folder import RunFolder

    if trial.benchmark.task not in (
        "text-classification",
        "text-regression",
        "token-classification",
    ):
        return None
    rarest = rarest_label(trial.rows("train"))
    fields = trial.fields
    if rarest is not None:
        fields["probe.folds"] = max(2, min(5, rarest - 1))
    started = time.perf_counter()
    recipe = bertctl.load_recipe(trial.benchmark.task, fields)
    job = prepare(recipe)
    folder = RunFolder.create(trial.folder / "probe", overwrite=False)
    try:
        run(job, folder)
    except DataError as error:
        print(f"no probe: {error.message}")
        return None
    return scored_run(folder.path, trial.benchmark.metric, time.perf_counter() - started)


def cpu_seconds() -> float:
    """Returns the processor seconds of this process and its children.

    A busy machine hardly changes them.
    """
    return sum(os.times()[:4])


def rarest_label(rows: Sequence[Row]) -> int | None:
    """Returns how many rows the rarest label has; None where labels are no names."""
    labels = [row["label"] for row in rows if isinstance(row.get("label"), str)]
    return min(Counter(labels).values(), default=None)


def scored_run(folder: Path, metric: str, seconds: float) -> Record:
    """Returns the scores of a run folder on its test rows."""
    document = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    metrics = document["metrics"]
    record = {
        "score": metrics["test"][metric]["value"],
        "validation": metrics.get("validation", {}).get(metric, {}).get("value"),
        "seconds": round(seconds, 2),
    }
    lines = (folder / "predictions" / "test.jsonl").read_text(encoding="utf-8").splitlines()
    answers = [json.loads(line) for line in lines]
    if metric == "accuracy" and not isinstance(answers[0]["gold"], list):
        record["right"] = "".join(
            "1" if answer["prediction"] == answer["gold"] else "0" for answer in answers
        )
    history = folder / "history.jsonl"
    if history.exists():
        lines = [json.loads(line) for line in history.read_text(encoding="utf-8").splitlines()]
        record["curve"] = [
            (line["step"], value_of(line, metric)) for line in lines if value_of(line, metric)
        ]
        record["losses"] = [
            (line["step"], round(line[name], 4), name == "loss")
            for line in lines
            for name in ("loss", "validation_loss")
            if name in line
        ]
    record["warned"] = "still_improving" in document
    if "average" in document:
        record["average"] = document["average"]
    record["baselines"] = {
        name: [baseline["metrics"].get("test", {}).get(metric), baseline["differences"].get("test")]
        for name, baseline in document.get("baselines", {}).items()
    }
    performance = folder / "performance.json"
    if not performance.exists():  # of a probe, which has no schedule either
        return record

    seconds = json.loads(performance.read_text(encoding="utf-8"))["seconds"]
    record["phases"] = {name: round(value, 1) for name, value in seconds.items()}
    recipe = bertctl.load_recipe(folder / "recipe.yaml")
    record["chosen"] = {
        "learning_rate": recipe.optimizer.learning_rate,
        "epochs": recipe.training.epochs,
        "batch_size": recipe.training.batch_size,
        "layer_decay": recipe.optimizer.layer_decay,
    }
    return record


def value_of(line: Record, metric: str) -> float | None:
    """Returns the validation score of a line of history.jsonl."""
    value = line.get(f"validation_{metric}")
    return None if value is None else round(value, 4)


def tfidf(trial: Trial) -> Record | None:
    """Scores TF-IDF of words and pairs of words with logistic regression.

    Of scores it takes ridge regression.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.metrics import f1_score
    from sklearn.pipeline import make_pipeline

    task = trial.benchmark.task
    if task not in ("text-classification", "text-regression"):
        return None
    train = trial.rows("train")
    test = trial.rows("test")
    started = time.perf_counter()
    is_regression = task == "text-regression"
    head = Ridge() if is_regression else LogisticRegression(max_iter=1000)
    pipeline = make_pipeline(TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), head)
    pipeline.fit([joined(row) for row in train], [row["label"] for row in train])
    predictions = pipeline.predict([joined(row) for row in test])
    seconds = time.perf_counter() - started
    gold = np.array([row["label"] for row in test])
    if is_regression:
        return {"score": float(np.corrcoef(predictions, gold)[0, 1]), "seconds": seconds}
    right = predictions == gold
    score = float(right.mean())
    if trial.benchmark.metric == "f1_macro":
        score = float(f1_score(gold, predictions, average="macro"))
    return {
        "score": score,
        "seconds": seconds,
        "right": "".join("01"[int(value)] for value in right),
    }


def joined(row: Row) -> str:
    """Returns the text or the pair of texts of a row as one text."""
    return f"{row['text']} {row.get('pair', '')}".strip()


def plain_loop(trial: Trial) -> Record | None:
    """Scores a plain transformers loop with the values that `run_classification.py` has by itself.

    It trains on all training rows, as it needs none to choose an epoch: its last weights count.
    """
    import torch
    from sklearn.metrics import f1_score
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        get_linear_schedule_with_warmup,
    )

    if trial.benchmark.task not in ("text-classification", "text-regression"):
        return None
    train = trial.rows("train")
    test = trial.rows("test")
    is_regression = trial.benchmark.task == "text-regression"
    names = sorted({row["label"] for row in train})
    targets = [float(row["label"]) if is_regression else names.index(row["label"]) for row in train]
    folder = model_folder(trial.model)
    torch.manual_seed(trial.seed)
    if trial.threads is not None:
        torch.set_num_threads(trial.threads)
    started = time.perf_counter()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=1 if is_regression else len(names)
    )

    def batch_of(rows: Sequence[Row]) -> Any:
        pairs = [row["pair"] for row in rows] if "pair" in rows[0] else None
        texts = [row["text"] for row in rows]
        return tokenizer(
            texts, pairs, truncation=True, max_length=128, padding=True, return_tensors="pt"
        )

    batch_size = 8
    epochs = 3
    n_batches = -(-len(train) // batch_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.0)
    schedule = get_linear_schedule_with_warmup(optimizer, 0, epochs * n_batches)
    order = np.random.default_rng(trial.seed)
    model.train()
    for _ in range(epochs):
        for chosen in np.array_split(order.permutation(len(train)), n_batches):
            labels = torch.tensor([targets[index] for index in chosen])
            model(**batch_of([train[index] for index in chosen]), labels=labels).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    model.eval()
    parts = [test[first : first + 64] for first in range(0, len(test), 64)]
    with torch.inference_mode():
        outputs = [model(**batch_of(rows)).logits.numpy() for rows in parts]
    seconds = time.perf_counter() - started
    logits = np.concatenate(outputs)
    gold = [row["label"] for row in test]
    if is_regression:
        return {"score": float(np.corrcoef(logits[:, 0], gold)[0, 1]), "seconds": seconds}
    predictions = [names[index] for index in logits.argmax(axis=1)]
    right = [prediction == label for prediction, label in zip(predictions, gold, strict=True)]
    score = float(np.mean(right))
    if trial.benchmark.metric == "f1_macro":
        score = float(f1_score(gold, predictions, average="macro"))
    return {"score": score, "seconds": seconds, "right": "".join("01"[value] for value in right)}


def autogluon(python: Path | None) -> Peer:
    """Returns a peer: AutoGluon's defaults with the same encoder, in a Python of its own."""

    def run(trial: Trial) -> Record | None:
        if python is None or trial.benchmark.task not in ("text-classification", "text-regression"):
            return None
        request = {
            "train": str(trial.files["train"]),
            "test": str(trial.files["test"]),
            "task": trial.benchmark.task,
            "metric": trial.benchmark.metric,
            "model": model_folder(trial.model),
            "seed": trial.seed,
            "threads": trial.threads,
            "folder": str(trial.folder),
        }
        request_file = trial.folder / "request.json"
        request_file.write_text(json.dumps(request), encoding="utf-8")
        script = Path(__file__).with_name("autogluon_peer.py")
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        process = subprocess.run(
            [str(python), str(script), str(request_file)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        record: Record = json.loads(process.stdout.splitlines()[-1])
        return record

    return run


def model_folder(name: str) -> str:
    """Returns where the files of a model lie."""
    from bertctl.modeling.source import inspect_model

    recipe = bertctl.load_recipe("text-classification", {"model.name": name})
    return str(inspect_model(recipe.model).folder)


ONCE = ("probe", "tfidf")
"""Peers that no seed of the training moves: measured with the first seed alone."""

PEERS = ("old", "now", "probe", "tfidf", "plain", "sweep", "autogluon")
"""Names of the peers."""


def peer_runs(peer: str, options: argparse.Namespace) -> Iterator[tuple[str, Peer]]:
    """Yields what a peer runs, each with its name in the results file."""
    if peer == "sweep":
        for setting in SWEEP:
            output = ",".join(
                f"{name.partition('.')[2]}={value:g}" for name, value in setting.items()
            )
            yield f"sweep {output}", finetuned(setting | {"evaluation.baselines": False})
        return
    if peer == "now":
        yield options.name, finetuned(dict(typed_field(text) for text in options.fields))
        return
    if peer == "old":
        yield "old", finetuned(OLD_DEFAULT)
        return
    if peer == "autogluon":
        yield "autogluon", autogluon(options.autogluon_python)
        return
    yield peer, {"probe": probe, "tfidf": tfidf, "plain": plain_loop}[peer]


def typed_field(text: str) -> tuple[str, Any]:
    """Returns the name and the value of `section.field=value`."""
    from bertctl.config.load import read_field

    name, _, value = text.partition("=")
    return name, read_field(name, value)[0]


# ---- The table


def table_rows(records: Sequence[Record]) -> list[Record]:
    """Returns a row for each set.

    Mean and deviation of each peer's scores, the ratio of processor seconds, and the differences
    that the bars are about.
    """
    by_set: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_set[record["set"]].append(record)
    rows: list[Record] = []
    for name, group in by_set.items():
        row: Record = {
            "set": name,
            "metric": SETS[name].metric,
            "about": SETS[name].about,
            "scores": {},
        }
        peers = dict.fromkeys(
            record["peer"] for record in group if not record["peer"].startswith("sweep ")
        )
        for peer in peers:
            same = [record for record in group if record["peer"] == peer]
            row["scores"][peer] = float(np.mean([record["score"] for record in same]))
            if len(same) > 1:
                deviation = float(np.std([record["score"] for record in same], ddof=1))
                row.setdefault("deviations", {})[peer] = deviation
        row["cpu"] = cpu_ratio(group)
        swept = best_settings(group)
        if swept:
            row["scores"]["sweep"] = float(np.mean([record["score"] for record in swept]))
        row["differences"] = paired_differences(group)
        rows.append(row)
    return rows


def cpu_ratio(records: Sequence[Record]) -> float | None:
    """Returns the processor seconds of `now` as a multiple of those of `old`.

    The median of the seeds that have both.
    """
    seconds: dict[int, dict[str, float]] = defaultdict(dict)
    for record in records:
        if "cpu" in record:
            seconds[record["seed"]][record["peer"]] = record["cpu"]
    pairs = [peers for peers in seconds.values() if {"now", "old"} <= peers.keys()]
    ratios = [peers["now"] / peers["old"] for peers in pairs]
    return float(np.median(ratios)) if ratios else None


def best_settings(records: Sequence[Record]) -> list[Record]:
    """Returns the best setting of each seed's sweep, by the validation score."""
    by_seed: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        if record["peer"].startswith("sweep "):
            by_seed[record["seed"]].append(record)
    return [max(group, key=lambda record: record["validation"]) for group in by_seed.values()]


def paired_differences(records: Sequence[Record]) -> dict[str, tuple[float, float]]:
    """Returns the mean difference of `now` to the other peers on the same rows.

    With it comes half of its 95 % interval.

    A peer that has no seed was scored once, and is compared with `now` of each seed. Where rows
    have no right or wrong, the frozen encoder's classifier beside the run stands for the probe,
    with the interval of metrics.json.
    """
    by_peer: dict[str, dict[int, np.ndarray]] = defaultdict(dict)
    for record in records:
        if "right" in record:
            row_scores = np.array(list(record["right"]), dtype=int)
            by_peer[record["peer"]][record["seed"]] = row_scores
    personal = by_peer.pop("now", {})
    intervals = {}
    for peer, of_seed in by_peer.items():
        if peer in ONCE:
            first = next(iter(of_seed.values()))
            of_seed = dict.fromkeys(personal, first) | of_seed
        rows_of_seeds = [personal[seed] - of_seed[seed] for seed in personal if seed in of_seed]
        if peer.startswith("sweep ") or not rows_of_seeds:
            continue
        mean_of_row = np.mean(rows_of_seeds, axis=0)
        half = 1.96 * float(mean_of_row.std()) / len(mean_of_row) ** 0.5
        intervals[peer] = (float(mean_of_row.mean()), half)
    if not personal:
        intervals |= beside_differences(records)
    return intervals


def beside_differences(records: Sequence[Record]) -> dict[str, tuple[float, float]]:
    """Returns the mean difference of `now` to the baselines that ran beside it.

    It is by the peer they stand for, with the mean half of its 95 % interval.
    """
    peer_of = {"frozen": "probe", "tfidf": "tfidf"}
    differences: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for record in records:
        for name, (_, difference) in record.get("baselines", {}).items():
            if record["peer"] == "now" and name in peer_of and difference:
                half = (difference["high"] - difference["low"]) / 2
                differences[peer_of[name]].append((difference["value"], half))
    return {
        peer: (float(np.mean(pairs, axis=0)[0]), float(np.mean(pairs, axis=0)[1]))
        for peer, pairs in differences.items()
    }


def markdown(records: Sequence[Record]) -> str:
    """Returns the table of the sets."""
    rows = table_rows(records)
    peers = list(dict.fromkeys(peer for row in rows for peer in row["scores"]))
    compared = [peer for peer in peers if any(peer in row["differences"] for row in rows)]
    differences = [f"now - {peer}" for peer in compared]
    lines = [
        f"| set | metric | {' | '.join([*peers, *differences])} | CPU |",
        f"|---|---|{'--:|' * (len(peers) + len(differences) + 1)}",
    ]
    for row in rows:
        scores = [shown_score(row, peer) for peer in peers]
        intervals = [shown_interval(row["differences"].get(peer)) for peer in compared]
        ratio = "" if row["cpu"] is None else f"{row['cpu']:.2f}"
        lines.append(
            f"| {row['about']} | {row['metric']} | {' | '.join([*scores, *intervals])} | {ratio} |"
        )
    return "\n".join(lines)


def shown_score(row: Record, peer: str) -> str:
    """Returns the mean score of a peer with its deviation over seeds."""
    if peer not in row["scores"]:
        return ""
    score = f"{row['scores'][peer]:.3f}"
    deviation = row.get("deviations", {}).get(peer)
    return score if deviation is None else f"{score} ± {deviation:.3f}"


def shown_interval(interval: tuple[float, float] | None) -> str:
    """Returns a difference in points with half of its interval."""
    if interval is None:
        return ""
    return f"{100 * interval[0]:+.1f} ± {100 * interval[1]:.1f}"


# ---- The sets


def write_files(
    benchmark: BenchmarkSet, data_dir: Path, folder: Path, limits: tuple[int | None, int | None]
) -> dict[str, Path]:
    """Writes the files of a set, JSON Lines, and returns them by split.

    Args:
        benchmark: The set.
        data_dir: Where its data lie.
        folder: Where the files go.
        limits: Most rows to train on and to score.
    """
    split = benchmark.read(data_dir)
    train = split.train[: limits[0]]
    labels = {row["label"] for row in train if isinstance(row.get("label"), str)}
    test = [row for row in split.test if not labels or row["label"] in labels]
    files = {"train": folder / "rows.jsonl", "test": folder / "test.jsonl"}
    for name, rows in (("train", train), ("test", test[: limits[1]])):
        files[name].write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return files


def shuffled(rows: Iterable[Row]) -> list[Row]:
    """Returns rows in a fixed random order."""
    listed = list(rows)
    return [listed[index] for index in np.random.default_rng(1).permutation(len(listed))]


def tsv(file: Path, *, header: bool) -> list[list[str]]:
    """Returns the cells of an official file of GLUE, whose quotes mean nothing."""
    lines = file.read_text(encoding="utf-8-sig").splitlines()
    return [line.split("\t") for line in lines[int(header) :]]


def reviews(data_dir: Path, *, n_train: int = 1000) -> Split:
    """Sentences of film reviews, two labels."""
    names = {"0": "negative", "1": "positive"}
    folder = data_dir / "sst2-sentences"
    train, test = [
        shuffled(
            {"text": text, "label": names[label]}
            for text, label in tsv(folder / f"{name}.tsv", header=False)
        )
        for name in ("train", "dev")
    ]
    return Split(train[:n_train], test[:800])


def few_reviews(data_dir: Path) -> Split:
    """Sixty sentences of film reviews."""
    return reviews(data_dir, n_train=60)


def rare_reviews(data_dir: Path) -> Split:
    """Sentences of film reviews, one positive in 51."""
    rows = reviews(data_dir, n_train=6920).train
    negative = [row for row in rows if row["label"] == "negative"]
    positive = [row for row in rows if row["label"] == "positive"]
    train = shuffled(negative[:1500] + positive[:30])
    return Split(train, shuffled(negative[1500:3000] + positive[30:60]))


def acceptability(data_dir: Path) -> Split:
    """Sentences of linguists, acceptable or not (CoLA)."""
    names = {"0": "unacceptable", "1": "acceptable"}
    folder = data_dir / "glue" / "CoLA"
    train, test = [
        shuffled(
            {"text": row[3], "label": names[row[1]]}
            for row in tsv(folder / f"{name}.tsv", header=False)
        )
        for name in ("train", "dev")
    ]
    return Split(train[:2000], test)


def paraphrases(data_dir: Path) -> Split:
    """Pairs of sentences, paraphrases or not (MRPC)."""
    names = {"0": "different", "1": "paraphrase"}
    folder = data_dir / "glue" / "MRPC"
    train, test = [
        shuffled(
            {"text": row[3], "pair": row[4], "label": names[row[0]]}
            for row in tsv(folder / f"{name}.tsv", header=True)
        )
        for name in ("train", "dev")
    ]
    return Split(train[:1200], test + train[1200:1600])


def abstracts(data_dir: Path) -> Split:
    """Medical abstracts of five classes, many of them disputed."""
    file = data_dir / "medical-abstracts" / "medical_tc_test.csv"
    with file.open(encoding="utf-8", newline="") as stream:
        rows = shuffled(
            {"text": row["medical_abstract"], "label": f"class {row['condition_label']}"}
            for row in csv.DictReader(stream)
        )
    return Split(rows[:1000], rows[2088:])


def squad_paragraphs(data_dir: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Yields the title, the context and the questions of each paragraph of SQuAD.

    The paragraphs are those of the development set.
    """
    articles = json.loads((data_dir / "squad" / "dev-v1.1.json").read_text(encoding="utf-8"))[
        "data"
    ]
    for article in articles:
        for paragraph in article["paragraphs"]:
            yield (
                article["title"],
                paragraph["context"],
                [entry["question"] for entry in paragraph["qas"]],
            )


def titles(data_dir: Path) -> Split:
    """Questions, each with the title of its article (48 labels)."""
    rows = shuffled(
        {"text": question.strip(), "label": title}
        for title, _, questions in squad_paragraphs(data_dir)
        for question in questions
    )
    return Split(rows[:3000], rows[9000:])


def paragraphs(data_dir: Path) -> Split:
    """Questions, each with its paragraph: 200 labels of four rows each."""
    train: list[Row] = []
    test: list[Row] = []
    labels = 0
    for _, _, questions in shuffled_paragraphs(data_dir):
        if len(questions) < 5:
            continue
        rows = [
            {"text": question.strip(), "label": f"paragraph {labels}"} for question in questions[:5]
        ]
        train += rows[:4]
        test += rows[4:]
        labels += 1
        if labels == 200:
            break
    return Split(shuffled(train), test)


def shuffled_paragraphs(data_dir: Path) -> list[tuple[str, str, list[str]]]:
    """Returns SQuAD's paragraphs in a fixed random order."""
    paragraphs = list(squad_paragraphs(data_dir))
    order = np.random.default_rng(1).permutation(len(paragraphs))
    return [paragraphs[index] for index in order]


def genres(data_dir: Path) -> Split:
    """Sentences of five genres of the web (UD English EWT)."""
    train, test = [
        shuffled(genre_rows(data_dir / "ud-english-ewt" / f"en_ewt-ud-{name}.conllu"))
        for name in ("train", "dev")
    ]
    return Split(train[:2000], test[:1200])


def genre_rows(file: Path) -> Iterator[Row]:
    """Yields the sentences of a CoNLL-U file with the genre that their ids begin with."""
    genre = ""
    for line in file.read_text(encoding="utf-8").splitlines():
        document = re.match(r"# sent_id = ([a-z]+)-", line)
        if document is not None:
            genre = document[1]
        elif line.startswith("# text = "):
            yield {"text": line.removeprefix("# text = "), "label": genre}


def scores(data_dir: Path) -> Split:
    """Pairs of sentences with a score from 0 to 5 (STS-B)."""
    folder = data_dir / "glue" / "STS-B"
    train, test = [
        shuffled(
            {"text": row[7], "pair": row[8], "label": float(row[9])}
            for row in tsv(folder / f"{name}.tsv", header=True)
        )
        for name in ("train", "dev")
    ]
    return Split(train[:1500], test[:800])


def entities(data_dir: Path) -> Split:
    """Entities of emerging kinds (WNUT-17)."""
    train = shuffled(tagged_rows(data_dir / "wnut17" / "wnut17train.conll"))
    test = shuffled(tagged_rows(data_dir / "wnut17" / "emerging.dev.conll"))
    return Split(train[:1200], test[:600])


def tagged_rows(file: Path) -> Iterator[Row]:
    """Yields the sentences of a file with a word and its tag in each line."""
    text = file.read_text(encoding="utf-8").strip()
    for block in re.split(r"\n\s*\n", text):
        words = []
        tags = []
        for line in block.splitlines():
            if line.strip():
                cells = line.split("\t")
                words.append(cells[0])
                tags.append(cells[-1])
        yield {"words": words, "tags": tags}


def substances(data_dir: Path) -> Split:
    """Chemicals and diseases in medical abstracts (BC5CDR), their tags as IOB2."""
    train, test = [
        shuffled(column_rows(data_dir / "bc5cdr" / f"{name}.txt")) for name in ("train", "dev")
    ]
    return Split(train[:1000], test[:800])


def column_rows(file: Path) -> Iterator[Row]:
    """Yields the sentences of a file in columns whose last one has tags in no pure scheme."""
    for block in re.split(r"\n\s*\n", file.read_text(encoding="utf-8").strip()):
        cells = [line.split("\t") for line in block.splitlines() if not line.startswith("-DOC")]
        if not cells:
            continue
        tags: list[str] = []
        for tag in (cell[-1] for cell in cells):
            begins = tag.startswith("I-") and (not tags or tags[-1] == "O")
            tags.append(f"B-{tag[2:]}" if begins else tag)
        yield {"words": [cell[0] for cell in cells], "tags": tags}


def word_classes(data_dir: Path) -> Split:
    """Part of speech of each word of web texts (UD English EWT)."""
    train, test = [
        shuffled(conllu_rows(data_dir / "ud-english-ewt" / f"en_ewt-ud-{name}.conllu"))
        for name in ("train", "dev")
    ]
    return Split(train[:1000], test[:800])


def conllu_rows(file: Path) -> Iterator[Row]:
    """Yields the sentences of a CoNLL-U file with the word classes (UPOS) of their words."""
    for block in file.read_text(encoding="utf-8").strip().split("\n\n"):
        words = []
        tags = []
        for line in block.splitlines():
            cells = line.split("\t")
            if cells[0].isdecimal():  # no comment, range or empty node
                words.append(cells[1])
                tags.append(cells[3])
        yield {"words": words, "tags": tags}


def choices(data_dir: Path) -> Split:
    """Sentences with four endings (CODAH)."""
    train, test = [
        shuffled(
            {"context": row[1], "choices": row[2:6], "label": int(row[6])}
            for row in tsv(data_dir / "codah" / f"{name}.tsv", header=False)
        )
        for name in ("train", "test")
    ]
    return Split(train[:800], test)


def answers(data_dir: Path) -> Split:
    """Questions to paragraphs of Wikipedia (SQuAD 1.1), those to score from other articles."""
    data = json.loads((data_dir / "squad" / "dev-v1.1.json").read_text(encoding="utf-8"))["data"]
    n_test_articles = 12
    train = shuffled(itertools.chain.from_iterable(map(answered_rows, data[n_test_articles:])))
    test = shuffled(itertools.chain.from_iterable(map(answered_rows, data[:n_test_articles])))
    return Split(train[:1500], test[:800])


def answered_rows(article: Mapping[str, Any]) -> Iterator[Row]:
    """Yields the questions of an article of SQuAD, each with its context and its answers."""
    for paragraph in article["paragraphs"]:
        for entry in paragraph["qas"]:
            yield {
                "id": entry["id"],
                "question": entry["question"],
                "context": paragraph["context"],
                "answers": {
                    "text": [answer["text"] for answer in entry["answers"]],
                    "answer_start": [answer["answer_start"] for answer in entry["answers"]],
                },
            }


CLASSES = "text-classification"
SETS = {
    "reviews": BenchmarkSet(CLASSES, "accuracy", "reviews, 2 labels, 1,000 rows", reviews),
    "few-reviews": BenchmarkSet(CLASSES, "accuracy", "reviews, 2 labels, 60 rows", few_reviews),
    "rare-reviews": BenchmarkSet(
        CLASSES, "f1_macro", "reviews, 1 positive in 51, 1,530 rows", rare_reviews
    ),
    "acceptability": BenchmarkSet(CLASSES, "accuracy", "CoLA, 2 labels, 2,000 rows", acceptability),
    "paraphrases": BenchmarkSet(CLASSES, "accuracy", "MRPC, pairs, 1,200 rows", paraphrases),
    "abstracts": BenchmarkSet(
        CLASSES, "accuracy", "medical abstracts, 5 disputed labels, 1,000 rows", abstracts
    ),
    "genres": BenchmarkSet(CLASSES, "accuracy", "genres of the web, 5 labels, 2,000 rows", genres),
    "titles": BenchmarkSet(CLASSES, "accuracy", "questions, 48 labels, 3,000 rows", titles),
    "paragraphs": BenchmarkSet(CLASSES, "accuracy", "questions, 200 labels, 800 rows", paragraphs),
    "scores": BenchmarkSet(
        "text-regression", "pearson", "STS-B, scores of pairs, 1,500 rows", scores
    ),
    "entities": BenchmarkSet(
        "token-classification", "entity_f1", "WNUT-17, entities, 1,200 sentences", entities
    ),
    "substances": BenchmarkSet(
        "token-classification", "entity_f1", "BC5CDR, entities, 1,000 sentences", substances
    ),
    "word-classes": BenchmarkSet(
        "token-classification", "accuracy", "UD EWT, word classes, 1,000 sentences", word_classes
    ),
    "choices": BenchmarkSet("multiple-choice", "accuracy", "CODAH, 4 choices, 800 rows", choices),
    "answers": BenchmarkSet("question-answering", "f1", "SQuAD, spans of 1,500 questions", answers),
}
"""Name -> set."""


if __name__ == "__main__":
    main()
