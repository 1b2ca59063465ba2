"""Training with a large vocabulary.

Examples/s and peak memory of `bertctl finetune`, each run a process.

The model is made: XLM-R's kind with 250,002 pieces, 2 layers and 256 numbers, weights drawn at
random. Its pieces are the words of the file and others that no text has. `--beside` adds the
bertctl of other checkouts; they take turns.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import transformers

PIECES = 250_002
_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
_LETTERS = [*"abcdefghijklmnopqrstuvwxyz"]


def main() -> None:
    """Parses the options, measures, prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--file", type=Path, required=True, help="tab-separated: text and label, as those of SST-2"
    )
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument(
        "--beside", type=Path, action="append", default=[], help="a checkout of another commit"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--quick", action="store_true", help="few pieces and rows, to see that it works"
    )
    options = parser.parse_args()
    rows, pieces = (96, 8000) if options.quick else (options.rows, PIECES)
    lines = options.file.read_text(encoding="utf-8").splitlines()
    arms: dict[str, Path | None] = {
        **{f"bertctl of {folder}": folder for folder in options.beside},
        "bertctl": None,
    }
    actual: dict[str, list[tuple[float, float]]] = {name: [] for name in arms}
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        for name, some in (
            ("train.tsv", lines[1 : rows + 1]),
            ("validation.tsv", lines[rows + 1 : rows + 301]),
        ):
            (place / name).write_text("\n".join([lines[0], *some, ""]), encoding="utf-8")
        make_model(place / "model", [line.split("\t")[0] for line in lines[1:]], pieces)
        for _ in range(1 if options.quick else options.rounds):
            for name, checkout in arms.items():
                actual[name].append(trained(place, checkout))
    ours = [statistics.median(entry) for entry in zip(*actual["bertctl"], strict=True)]
    print(f"{'':28}{'examples/s':>12}{'ours':>9}{'memory':>12}{'ours':>9}")
    for name, value in actual.items():
        rate, memory = (statistics.median(entry) for entry in zip(*value, strict=True))
        print(
            f"{name:28}{rate:12.0f}{ours[0] / rate:7.1f} x{memory / 1e6:9.0f} "
            f"MB{ours[1] / memory:7.2f} x"
        )


def make_model(folder: Path, texts: Sequence[str], pieces: int) -> None:
    """Saves a model with so many pieces, among them the words of some texts and their letters."""
    drawn = np.random.default_rng(0)
    words = Counter(word for text in texts for word in text.split())
    known = dict.fromkeys(
        [
            *(f"▁{word}" for word in words),
            *sorted({letter for word in words for letter in word}),
            "▁",
        ]
    )
    known = dict.fromkeys(list(known)[: pieces - len(_SPECIAL) - 1])
    while len(known) < pieces - len(_SPECIAL) - 1:
        known[
            "▁" * int(drawn.integers(2))
            + "".join(drawn.choice(_LETTERS, size=drawn.integers(4, 10)))
        ] = None
    scored = [(piece, -5.0 - number / PIECES) for number, piece in enumerate(known)]
    vocabulary = [*((token, 0.0) for token in _SPECIAL), *scored, ("<mask>", 0.0)]
    transformers.XLMRobertaTokenizer(vocab=vocabulary).save_pretrained(folder)
    sizes = {
        "hidden_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 1024,
    }
    config = transformers.XLMRobertaConfig(
        vocab_size=pieces, max_position_embeddings=514, type_vocab_size=1, **sizes
    )
    transformers.XLMRobertaModel(config).save_pretrained(folder)


def trained(place: Path, checkout: Path | None) -> tuple[float, float]:
    """Returns the examples/s and the peak memory, in bytes, of one epoch.

    It runs the bertctl of a checkout, if given.
    """
    path = os.pathsep.join(
        [str(entry.resolve()) for entry in [checkout] if entry] + [os.environ.get("PYTHONPATH", "")]
    )
    command = [
        sys.executable,
        "-m",
        "bertctl",
        "finetune",
        "train.tsv",
        "--validation-file",
        "validation.tsv",
        "-q",
    ]
    more = ["--model", "./model", "--epochs", "1", "--batch-size", "32", "-o", "run", "--overwrite"]
    environment = {**os.environ, "PYTHONPATH": path}
    subprocess.run(
        [*command, *more], check=True, cwd=place, env=environment, stdout=subprocess.DEVNULL
    )
    document = json.loads((place / "run" / "performance.json").read_text(encoding="utf-8"))
    return float(document["examples_per_second"]), float(document["peak_memory_bytes"])


if __name__ == "__main__":
    main()
