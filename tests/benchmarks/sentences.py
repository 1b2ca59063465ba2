"""Pairs/s of training vectors of texts.

Bertctl against sentence-transformers' own trainer, for two losses.

Lines of the file are taken two by two as pairs, with scores drawn at random. Both sides draw
batches of one size from all pairs, and have AdamW and a linear schedule; the peer has its defaults
otherwise (fp32, rows of all lengths in a batch, padded to the longest). Its real trainer runs;
after each of its steps ours catch up, so both take turns. The weights are thrown away.
"""

import argparse
import itertools
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import sentence_transformers
import torch
import transformers
from sentence_transformers.sentence_transformer import losses

from bertctl.catalog.models import locate_model
from bertctl.config.load import load_recipe
from bertctl.training.estimate import Rehearsal
from bertctl.training.job import prepare

WARM_UP = 2  # steps of each side that do not count
ARMS = {
    "cosine": losses.CosineSimilarityLoss,
    "multiple-negatives": losses.MultipleNegativesRankingLoss,
}


class Ours:
    """A run of `bertctl finetune` that takes its steps one by one."""

    def __init__(self, file: Path, loss: str, batch: int, scratch: Path) -> None:
        fields = {
            "data.train_file": str(file),
            "data.validation_fraction": 0.1,
            "model.name": "minilm",
            "training.batch_size": batch,
            "training.group_by_length": loss
            == "cosine",  # the other one tells texts of a batch apart
            "sentence_embeddings.loss": loss,
        }
        job = prepare(load_recipe("sentence-embeddings", options=fields))
        self.precision = job.compute.precision
        self._rehearsal = Rehearsal(job, scratch)
        self._batches = itertools.cycle(self._rehearsal.plan)
        self.pairs = 0
        self.seconds = 0.0
        for indices in itertools.islice(self._batches, WARM_UP):
            self._rehearsal.step(indices)

    def catch_up(self, pairs: int) -> None:
        """Takes steps until so many pairs have been read."""
        while self.pairs < pairs:
            indices = next(self._batches)
            self.seconds += self._rehearsal.step(indices)
            self.pairs += len(indices)


class Turns(transformers.TrainerCallback):
    """Times the steps of a trainer, its waiting for batches too.

    It lets ours work between them.
    """

    def __init__(self, batch: int, other: Ours) -> None:
        self._batch = batch
        self._other = other
        self.pairs = 0
        self.seconds = 0.0
        self._since = 0.0

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Stops the clock, and starts it again when both have read as much."""
        if state.global_step > WARM_UP:
            self.seconds += time.perf_counter() - self._since
            self.pairs += self._batch
            self._other.catch_up(self.pairs)
        self._since = time.perf_counter()


def main() -> None:
    """Parses the options, measures, prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--file", type=Path, required=True, help="one text per line")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument(
        "--steps", type=int, default=60, help="timed steps of the peer, for each loss"
    )
    parser.add_argument("--quick", action="store_true", help="a step, to see that it works")
    options = parser.parse_args()
    texts = [line for line in options.file.read_text(encoding="utf-8").splitlines() if line.strip()]
    scores = np.random.default_rng(0).random(len(texts)).round(3).tolist()
    pairs = [
        {"text": a, "pair": b, "score": s}
        for a, b, s in zip(texts[::2], texts[1::2], scores, strict=False)
    ]
    steps = 1 if options.quick else options.steps
    for loss in ARMS:
        with tempfile.TemporaryDirectory() as scratch:
            measure(loss, pairs, steps, options.batch, Path(scratch))


def measure(loss: str, pairs: list[dict[str, Any]], steps: int, batch: int, scratch: Path) -> None:
    """Trains both sides in turns and prints what they did."""
    columns = ("text", "pair", "score") if loss == "cosine" else ("text", "pair")
    file = scratch / "pairs.jsonl"
    file.write_text(
        "".join(json.dumps({name: row[name] for name in columns}) + "\n" for row in pairs)
    )
    ours = Ours(file, loss, batch, scratch / "ours")
    theirs = trained(
        loss, [{name: row[name] for name in columns} for row in pairs], steps, batch, ours, scratch
    )
    rates = {"sentence-transformers' trainer, fp32": theirs.pairs / theirs.seconds}
    rates[f"bertctl, {ours.precision}"] = ours.pairs / ours.seconds
    title = f"{loss}, batch {batch}, {torch.get_num_threads()} threads"
    print(f"{title:44}{'pairs/s':>12}{'ratio':>10}")
    for name, rate in rates.items():
        print(f"{name:44}{rate:12.1f}{rate / next(iter(rates.values())):8.2f} x")


def trained(
    loss: str, rows: list[dict[str, Any]], steps: int, batch: int, other: Ours, scratch: Path
) -> Turns:
    """Trains as the peer's documents do, ours in between, and returns what was timed."""
    model = sentence_transformers.SentenceTransformer(str(locate_model("minilm")), device="cpu")
    model.max_seq_length = 128
    turns = Turns(batch, other)
    trainer = sentence_transformers.SentenceTransformerTrainer(
        model=model,
        args=sentence_transformers.SentenceTransformerTrainingArguments(
            str(scratch / "theirs"),
            max_steps=steps + WARM_UP,
            per_device_train_batch_size=batch,
            learning_rate=2e-5,
            warmup_steps=1,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=datasets.Dataset.from_list(rows),
        loss=ARMS[loss](model),
        callbacks=[turns],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    return turns


if __name__ == "__main__":
    main()
