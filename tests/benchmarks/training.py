"""Training examples/s: bertctl's default against a plain transformers loop in fp32.

The loop is as in `run_glue_no_trainer.py`.

The arms take turns batch by batch, each in a process of its own, so that none has the other's
settings or memory. All train the same rows of the recipe's training split with AdamW, clipping and
dropout: bertctl in batches of like lengths and the precision that it chooses for this machine, the
others in random batches, padded to `--max-length` or to the longest example of the batch. One arm
is bertctl with the layers of transformers and the whole word table, to see what its own layers are
worth; `--beside` adds the bertctl of other checkouts. The weights are thrown away.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import transformers

from bertctl.config.load import load_recipe
from bertctl.config.schema import Recipe
from bertctl.training.estimate import Rehearsal
from bertctl.training.job import Job, prepare

Step = Callable[[np.ndarray], Any]
PADDED, LONGEST, THEIR_LAYERS, OURS = range(4)


def main() -> None:
    """Parses the options, measures, prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recipe", default="sst2", help="of text classification")
    parser.add_argument(
        "--model", default="minilm", help="`random-bert-base` has bert-base's shape, random weights"
    )
    parser.add_argument("--data-dir")
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--min-words", type=int, default=0, help="only rows with more words")
    parser.add_argument("--batches", type=int, default=30, help="timed batches per arm")
    parser.add_argument(
        "--beside", type=Path, action="append", default=[], help="a checkout of another commit"
    )
    parser.add_argument("--quick", action="store_true", help="two batches, to see that it works")
    parser.add_argument("--arm", type=int, help=argparse.SUPPRESS)  # in an arm's process
    options = parser.parse_args()
    if options.quick:
        options.batches = 2
    if options.arm is not None:
        serve(options)
        return
    positions = {
        f"transformers, fp32, padded to {options.max_length}": (PADDED, None),
        "transformers, fp32, padded to the longest": (LONGEST, None),
        "bertctl, layers of transformers": (THEIR_LAYERS, None),
        **{f"bertctl of {folder}": (OURS, folder) for folder in options.beside},
        "bertctl, like lengths": (OURS, None),
    }
    with contextlib.ExitStack() as stack:
        arms = {
            name: stack.enter_context(arm_process(arm, folder))
            for name, (arm, folder) in positions.items()
        }
        seconds = in_turns(arms, options.batches)
    show(seconds)


def serve(options: argparse.Namespace) -> None:
    """Makes an arm ready and says what it is.

    Then takes a step for each number that it reads, and says its seconds.
    """
    with tempfile.TemporaryDirectory() as scratch:
        model = (
            random_bert_base(Path(scratch))
            if options.model == "random-bert-base"
            else options.model
        )
        fields = {
            "model.name": model,
            "model.max_length": options.max_length,
            "data.data_dir": options.data_dir,
        }
        recipe = load_recipe(
            options.recipe, options={name: value for name, value in fields.items() if value}
        )
        theirs = options.arm == THEIR_LAYERS
        with (
            patch("bertctl.modeling.build.bert_to_train", return_value=None)
            if theirs
            else contextlib.nullcontext()
        ):
            job = prepare(recipe)
        rows = enough_words(job, options.min_words)
        step: Step
        if options.arm in (PADDED, LONGEST):
            step = PlainLoop(job, pad_to=options.max_length if options.arm == PADDED else None).step
            batches = mixed(recipe, rows, options.batches)
        else:
            batches = like_lengths(job, rows, options.batches)
            with contextlib.ExitStack() as stack:
                if theirs:
                    for name in (
                        "packed_encoder.use_packed_encoder",
                        "used_tokens.train_used_rows",
                    ):
                        stack.enter_context(
                            patch(f"bertctl.modeling.fast.{name}", return_value=None)
                        )
                step = Rehearsal(job, Path(scratch)).step
        for batch in [
            *batches,
            *batches,
        ]:  # each twice before, as shapes recur in a run, and a GPU records them
            step(batch)
        about = (
            f"{options.recipe}, {options.model}, batch {recipe.training.batch_size}, "
            f"{job.compute.precision}"
        )
        print(f"{about}, {job.compute.why}", flush=True)
        for line in sys.stdin:
            started = time.perf_counter()
            step(batches[int(line)])
            print(len(batches[int(line)]), time.perf_counter() - started, flush=True)


@contextlib.contextmanager
def arm_process(arm: int, folder: Path | None) -> Any:
    """Starts an arm, with the bertctl of a checkout if one is given.

    Yields what it has said it is, and its process.
    """
    path = os.pathsep.join(
        [str(entry.resolve()) for entry in [folder] if entry] + [os.environ.get("PYTHONPATH", "")]
    )
    command = [sys.executable, __file__, *sys.argv[1:], "--arm", str(arm)]
    environment = {**os.environ, "PYTHONPATH": path, "TQDM_DISABLE": "1"}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, text=True, bufsize=1, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process
        process.stdin.close()


class PlainLoop:
    """A training step as everybody writes it: transformers, torch's AdamW, fp32."""

    def __init__(self, job: Job, *, pad_to: int | None) -> None:
        folder = job.source.folder
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self._network = transformers.AutoModelForSequenceClassification.from_pretrained(
            folder, num_labels=len(job.data.labels or ("",))
        ).to(job.compute.device)
        self._network.train()
        self._optimizer = torch.optim.AdamW(self._network.parameters(), lr=2e-5, weight_decay=0.01)
        columns = job.data.splits["train"].columns
        texts = [list(columns["text"])] + ([list(columns["pair"])] if "pair" in columns else [])
        # Tokenized before the clock starts, as `datasets.map` does it.
        self._encoded = self._tokenizer(
            *texts, truncation=True, max_length=job.recipe.model.max_length
        )
        self._labels = job.features["train"].labels
        self._padding = (
            {"padding": True} if pad_to is None else {"padding": "max_length", "max_length": pad_to}
        )
        self._device = job.compute.device

    def step(self, indices: np.ndarray) -> None:
        """Takes one step on these rows."""
        rows = [{name: values[i] for name, values in self._encoded.items()} for i in indices]
        batch = self._tokenizer.pad(rows, return_tensors="pt", **self._padding).to(self._device)
        labels = torch.as_tensor(np.asarray(self._labels)[indices]).to(self._device)
        self._network(**batch, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(self._network.parameters(), 1.0).item()
        self._optimizer.step()
        self._optimizer.zero_grad()
        if self._device == "cuda":
            torch.cuda.synchronize()


def random_bert_base(folder: Path) -> str:
    """Writes a model folder of bert-base-uncased's shape (that of `BertConfig()`).

    It has minilm's equal vocabulary.
    """
    from bertctl.catalog.models import locate_model

    target = folder / "bert-base"
    config = transformers.BertConfig(architectures=["BertModel"])
    transformers.BertModel(config).save_pretrained(target)
    equal: Any = locate_model("minilm")
    tokenizer = getattr(equal, "folder", equal)  # earlier commits have it there
    transformers.AutoTokenizer.from_pretrained(tokenizer).save_pretrained(target)
    return str(target)


def enough_words(job: Job, words: int) -> np.ndarray:
    """Returns the numbers of the training rows with more words than this."""
    texts = job.data.splits["train"].columns["text"]
    counts = [len(str(text).split()) for text in texts]
    return np.flatnonzero(np.array(counts) > words)


def mixed(recipe: Recipe, rows: np.ndarray, batches: int) -> list[np.ndarray]:
    """Returns random batches."""
    rng = np.random.default_rng(0)
    shuffled = rng.permutation(rows)
    table = np.resize(shuffled, (batches, recipe.training.batch_size))
    return list(table)


def like_lengths(job: Job, rows: np.ndarray, batches: int) -> list[np.ndarray]:
    """Returns batches as the loop forms them.

    They are picked evenly from the shortest to the longest of an epoch.
    """
    from bertctl.runtime.batching import training_plan

    lengths = job.features["train"].lengths[rows]
    plan = training_plan(lengths, job.recipe.training.batch_size, seed=0, epoch=0)
    plan = sorted(
        (rows[batch] for batch in plan),
        key=lambda batch: int(job.features["train"].lengths[batch].max()),
    )
    picked = [plan[int((i + 0.5) * len(plan) / batches)] for i in range(batches)]
    return [picked[i] for i in np.random.default_rng(0).permutation(batches)]


def in_turns(arms: dict[str, tuple[str, Any]], batches: int) -> dict[str, tuple[str, float]]:
    """Returns what each arm says it is, and its examples/s."""
    counted = {name: np.zeros(2) for name in arms}
    rng = np.random.default_rng(0)
    for turn in range(batches):
        for name in rng.permutation(list(arms)):
            process = arms[name][1]
            process.stdin.write(f"{turn}\n")
            counted[name] += np.array(process.stdout.readline().split(), dtype=np.float64)
    return {
        name: (message, counted[name][0] / counted[name][1]) for name, (message, _) in arms.items()
    }


def show(expected: dict[str, tuple[str, float]]) -> None:
    """Prints a line per arm; the last one is ours."""
    message, ours = expected[list(expected)[-1]]
    print(message)
    print(f"{'':44}{'examples/s':>12}{'ours is':>10}")
    for name, (_, rate) in expected.items():
        print(f"{name:44}{rate:12.1f}{ours / rate:8.2f} x")


if __name__ == "__main__":
    main()
