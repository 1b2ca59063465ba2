"""Words of short and long sentences weigh the same in training.

They do although batches hold sentences of like lengths.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import Run


def test_the_losses_of_an_epoch_are_the_mean_over_its_words(
    bertctl: Run, tiny_model: Path, tmp_path: Path
) -> None:
    """A rate of nothing leaves the model as it is.

    What training saw on the whole is what evaluation sees.
    """
    rng = np.random.default_rng(0)
    words = ["film", "food", "good", "bad", "the", "was"]
    sentences = [[str(word) for word in rng.choice(words, 1 + i % 12)] for i in range(96)]
    tagged = "\n\n".join(
        "\n".join(
            f"{word} {'B-THING' if word in ('film', 'food') and len(words) < 4 else 'O'}"
            for word in words
        )
        for words in sentences
    )
    (tmp_path / "rows.conll").write_text(tagged + "\n")
    sets = [
        "model.dropout=0.0",
        "model.head_start=random",
        "training.preset=null",
        "training.log_every=1",
        "training.batch_size=16",
        "optimizer.learning_rate=1e-30",
    ]
    done = bertctl(
        "finetune",
        "token-classification",
        "--train-file",
        "rows.conll",
        "--validation-file",
        "rows.conll",
        "--model",
        tiny_model,
        "--max-length",
        32,
        "--epochs",
        1,
        "--precision",
        "fp32",
        "-o",
        "run",
        *(word for entry in sets for word in ("--set", entry)),
    )
    assert done.returncode == 0, done.stderr
    history = [
        json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    ]
    losses = [line["loss"] for line in history if "loss" in line]
    assert len(losses) == 6
    [complete] = [line["validation_loss"] for line in history if "validation_loss" in line]
    assert np.mean(losses) == pytest.approx(complete, rel=1e-5)
    assert max(losses) > 3 * min(losses), (
        "the premise: batches of long sentences weigh more than those of short ones"
    )
