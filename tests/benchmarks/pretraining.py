"""Tokens/s of masked-word training.

Bertctl against transformers' Trainer as `run_mlm.py` sets it up.

The peer has that script's defaults: texts tokenized, put end to end and cut into blocks of the
model's 512 tokens, batches of 8, DataCollatorForLanguageModeling, the Trainer's own optimizer and
clipping, fp32. Its real Trainer runs; after each of its steps ours catch up with its tokens, so
both work in turns. bertctl has its own defaults, with next sentences and without, and then the
peer's objective, length and batch. Counted are tokens of text, special ones left out. The weights
are thrown away.
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
import torch
import transformers
from tokenizers import BertWordPieceTokenizer

from bertctl.catalog.models import locate_model
from bertctl.config.load import load_recipe
from bertctl.training.estimate import Rehearsal
from bertctl.training.pretrain import prepare

BLOCK = 512
WARM_UP = 2  # steps of each side that do not count
SMALL = {
    "num_hidden_layers": 4,
    "hidden_size": 128,
    "num_attention_heads": 2,
    "intermediate_size": 512,
}
"""A tiny BERT, with a vocabulary of its own."""
ARMS: dict[str, dict[str, Any]] = {
    "bertctl, default": {},
    "bertctl, no next sentences": {"pretraining.objective": "mlm"},
    f"bertctl, no next sentences, 8 x {BLOCK}": {
        "pretraining.objective": "mlm",
        "model.max_length": BLOCK,
        "training.batch_size": 8,
    },
}


class Ours:
    """A run of `bertctl pretrain` that takes its steps one by one."""

    def __init__(self, fields: dict[str, Any], scratch: Path) -> None:
        job = prepare(load_recipe("pretrain", options=fields))
        self._rehearsal = Rehearsal(job, scratch)
        self._special = job.features["train"].layout.special
        self._batches = itertools.cycle(self._rehearsal.plan)
        self.precision = job.compute.precision
        self.tokens = 0
        self.seconds = 0.0
        for batch in itertools.islice(self._batches, WARM_UP):
            self._rehearsal.step(batch)

    def catch_up(self, tokens: int) -> None:
        """Takes steps until so many tokens of text have been read."""
        while self.tokens < tokens:
            batch = next(self._batches)
            self.seconds += self._rehearsal.step(batch)
            self.tokens += int((self._rehearsal.features.lengths[batch] - self._special).sum())


class Turns(transformers.TrainerCallback):
    """Times the steps of a Trainer, its waiting for batches too.

    It lets the others work between them.
    """

    def __init__(self, tokens: float, others: list[Ours]) -> None:
        self._each = tokens
        self._others = others
        self.tokens = 0.0
        self.seconds = 0.0
        self._since = 0.0

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Stops the clock, and starts it again when all have read as much."""
        if state.global_step > WARM_UP:
            self.seconds += time.perf_counter() - self._since
            self.tokens += self._each
            for other in self._others:
                other.catch_up(int(self.tokens))
        self._since = time.perf_counter()


def main() -> None:
    """Parses the options, measures, prints the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--file", type=Path, required=True, help="one document per line")
    parser.add_argument(
        "--steps", type=int, default=12, help="timed steps of the peer, of 8 x 512 tokens"
    )
    parser.add_argument(
        "--networks", nargs="+", default=["minilm", "tiny"], choices=["minilm", "tiny"]
    )
    parser.add_argument("--threads", type=int, help="of both sides")
    parser.add_argument(
        "--quick", action="store_true", help="a step of the tiny network, to see that it works"
    )
    options = parser.parse_args()
    texts = [line for line in options.file.read_text(encoding="utf-8").splitlines() if line.strip()]
    fields = {"runtime.threads": options.threads}
    for network in ["tiny"] if options.quick else options.networks:
        with tempfile.TemporaryDirectory() as folder:
            measure(network, texts, 1 if options.quick else options.steps, Path(folder), fields)


def measure(
    network: str, texts: list[str], steps: int, scratch: Path, given: dict[str, Any]
) -> None:
    """Trains both sides in turns and prints a line per arm."""
    corpus = scratch / "corpus.txt"
    corpus.write_text("\n".join(texts) + "\n", encoding="utf-8")
    theirs = tiny(texts, scratch / "tiny") if network == "tiny" else locate_model("minilm")
    fields: dict[str, Any] = {"pretraining.corpus": [str(corpus)], "model.name": network}
    if network == "tiny":
        fields = {
            "pretraining.corpus": [str(corpus)],
            "pretraining.from_scratch": str(theirs / "config.json"),
            "pretraining.vocab": str(theirs),
        }
    ours = {
        name: Ours({**given, **fields, **more}, scratch / str(i))
        for i, (name, more) in enumerate(ARMS.items())
    }
    turns = run_mlm(
        theirs, texts, steps, list(ours.values()), scratch / "trainer", new=network == "tiny"
    )
    reference = turns.tokens / turns.seconds
    print(
        f"{network}, {torch.get_num_threads()} threads{'':28}"[:44]
        + f"{'tokens/s':>12}{'ratio':>10}"
    )
    print(f"{f'run_mlm.py, fp32, 8 x {BLOCK}':44}{reference:12.0f}{1.0:8.2f} x")
    for name, arm in ours.items():
        rate = arm.tokens / arm.seconds
        print(f"{f'{name}, {arm.precision}':44}{rate:12.0f}{rate / reference:8.2f} x")


def run_mlm(
    folder: Path, texts: list[str], steps: int, others: list[Ours], scratch: Path, *, new: bool
) -> Turns:
    """Trains as the script does at its defaults, and returns what was timed.

    The others work in between.
    """
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    encoded = tokenizer(texts, return_special_tokens_mask=True)
    # Enough of them for all steps, however few the texts: the script leaves out what is left behind
    # the last block.
    needed = 8 * BLOCK * (steps + WARM_UP)
    columns = {
        name: list(itertools.islice(itertools.cycle(itertools.chain(*each)), needed))
        for name, each in encoded.items()
    }
    blocks = {
        name: [each[i : i + BLOCK] for i in range(0, needed, BLOCK)]
        for name, each in columns.items()
    }
    config = transformers.AutoConfig.from_pretrained(folder)
    network = (
        transformers.AutoModelForMaskedLM.from_config(config)
        if new
        else transformers.AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32)
    )
    turns = Turns(8 * BLOCK * (1 - float(np.mean(columns["special_tokens_mask"]))), others)
    trainer = transformers.Trainer(
        model=network,
        args=transformers.TrainingArguments(
            str(scratch),
            max_steps=steps + WARM_UP,
            save_strategy="no",
            disable_tqdm=True,
            logging_strategy="no",
        ),
        train_dataset=datasets.Dataset.from_dict(blocks),
        processing_class=tokenizer,
        data_collator=transformers.DataCollatorForLanguageModeling(
            tokenizer=tokenizer, mlm_probability=0.15
        ),
        callbacks=[turns],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    return turns


def tiny(texts: list[str], folder: Path) -> Path:
    """Writes the folder of a tiny BERT without weights.

    It has a vocabulary of 8,000 tokens trained on the texts.
    """
    made = BertWordPieceTokenizer()
    made.train_from_iterator(texts, vocab_size=8000, show_progress=False)
    folder.mkdir()
    made.save_model(str(folder))
    transformers.BertTokenizerFast.from_pretrained(folder, model_max_length=BLOCK).save_pretrained(
        folder
    )
    config = transformers.BertConfig(vocab_size=made.get_vocab_size(), **SMALL)
    (folder / "config.json").write_text(json.dumps(config.to_dict()), encoding="utf-8")
    return folder


if __name__ == "__main__":
    main()
