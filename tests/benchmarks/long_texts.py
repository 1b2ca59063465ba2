"""Accuracy on long reviews by mode.

The first tokens alone against all of it in windows, where the evidence stands at the start, in the
middle, or at the end.

Each review is one sentence of SST-2 among medical sentences, which say nothing about its label.
Both modes read the same reviews with the same longest input; the difference is paired by review,
with its 95 % interval.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

PLACES = ("start", "middle", "end")


def main() -> None:
    """Parses the options, measures, prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--file", type=Path, required=True, help="sentence TAB label, such as SST-2's"
    )
    parser.add_argument(
        "--filler", type=Path, help="one document per line, such as medical abstracts"
    )
    parser.add_argument("--rows", type=int, default=2000, help="reviews to train on")
    parser.add_argument("--scored", type=int, default=1500, help="reviews to score")
    parser.add_argument("--length", type=int, default=48, help="longest input in tokens")
    parser.add_argument(
        "--words", type=int, default=110, help="words of medical sentences in a review"
    )
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--places", default=",".join(PLACES))
    parser.add_argument("--poolings", default="attention")
    parser.add_argument("--quick", action="store_true", help="a few reviews, to see that it works")
    options = parser.parse_args()
    if options.quick:
        options.rows = 16
        options.scored = 16
        options.words = 30
        options.epochs = 1
    lines = [
        line.rpartition("\t")[::2] for line in options.file.read_text(encoding="utf-8").splitlines()
    ]
    pairs = [
        (text, label) for text, label in lines if label in ("0", "1") and len(text.split()) >= 5
    ]
    pairs = pairs or [("a good film", "1"), ("a bad film", "0")]
    documents = (
        options.filler.read_text(encoding="utf-8").splitlines()
        if options.filler
        else ["the patients were well."]
    )
    rng = np.random.default_rng(0)
    count = options.rows + options.scored
    chosen = [
        pair
        for pair, _ in zip(
            cycle([pairs[i] for i in rng.permutation(len(pairs))]), range(count), strict=False
        )
    ]
    print(
        f"{'evidence':10}{'head':>8}{'window':>17}{'difference':>12}  95 % interval   (bertctl, "
        "minilm)"
    )
    with tempfile.TemporaryDirectory() as folder:
        for place in options.places.split(","):
            rows = [
                (_review(text, documents, place, options.words, rng), label)
                for text, label in chosen
            ]
            files = {"train": rows[: options.rows], "validation": rows[options.rows :]}
            for split, part in files.items():
                text = "".join(
                    json.dumps({"text": entry, "label": label}) + "\n" for entry, label in part
                )
                (Path(folder) / f"{split}.jsonl").write_text(text, encoding="utf-8")
            head = _run(Path(folder), f"{place}-head", options)
            for pooling in options.poolings.split(","):
                extra = ["--long-text", "window", "--window-pooling", pooling]
                window = _run(Path(folder), f"{place}-{pooling}", options, *extra)
                show(place, pooling, _bertctl("compare", head, window, "--json"))


def show(place: str, pooling: str, compared: dict[str, Any]) -> None:
    """Prints a line of the table."""
    head, window = (run["value"] for run in compared["metrics"]["accuracy"])
    first = next(
        difference for difference in compared["differences"] if difference["metric"] == "accuracy"
    )
    interval = f"{first['low']:+.4f} to {first['high']:+.4f}"
    print(
        f"{place:10}{head:8.4f}{pooling:>10}{window:7.4f}{first['value']:+12.4f}  {interval}",
        flush=True,
    )


def _review(
    text: str, documents: list[str], place: str, words: int, rng: np.random.Generator
) -> str:
    """Returns a sentence among about so many words of others."""
    others: list[str] = []
    while sum(len(other.split()) for other in others) < words:
        sentences = documents[int(rng.integers(len(documents)))].lower().split(". ")
        others.append(sentences[int(rng.integers(len(sentences)))])
    at = {"start": 0, "middle": len(others) // 2, "end": len(others)}[place]
    return " . ".join([*others[:at], text, *others[at:]])


def _run(folder: Path, name: str, options: argparse.Namespace, *extra: str) -> str:
    """Returns the folder of a run that was trained and scored."""
    files = [
        "--train-file",
        f"{folder}/train.jsonl",
        "--validation-file",
        f"{folder}/validation.jsonl",
    ]
    fields = [
        "--max-length",
        str(options.length),
        "--epochs",
        str(options.epochs),
        "--learning-rate",
        "1e-4",
    ]
    target = f"{folder}/{name}"
    _bertctl(
        "finetune",
        "text-classification",
        "--model",
        "minilm",
        "-o",
        target,
        "--json",
        *files,
        *fields,
        *extra,
    )
    return target


def _bertctl(*words: str) -> Any:
    command = [sys.executable, "-m", "bertctl", *words]
    done = subprocess.run(
        command,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    return json.loads(done.stdout)


if __name__ == "__main__":
    main()
