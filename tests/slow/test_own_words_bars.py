"""`vocab grow` with 5,000 medical words.

Shorter texts, and a better start than transformers' own resizing.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch.nn.functional import cross_entropy

from bertctl.catalog.models import locate_model
from bertctl.modeling.own_vocabulary import grow
from bertctl.tokenization.stream import TextChunk

STEPS = 400
LINES = 16
LENGTH = 64
CLS = 101
SEP = 102
MASK = 103


def lines_of(file: Path) -> list[str]:
    lines = file.read_text(encoding="utf-8").split("\n")
    return [line for line in lines if line.strip()]


def learn_masked_words(folder: Path, lines: list[str]) -> Path:
    """MiniLM with a tied head, trained on masked words.

    Enough to know which words are common and which go together.
    """
    source = locate_model("minilm")
    torch.manual_seed(0)
    network = transformers.BertForMaskedLM.from_pretrained(source)
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    tokenizer.save_pretrained(folder)
    flat = torch.tensor(
        [i for ids in tokenizer(lines, add_special_tokens=False)["input_ids"] for i in ids]
    )
    head = {id(parameter) for parameter in network.cls.parameters()} - {
        id(network.get_input_embeddings().weight)
    }
    groups = [
        {
            "params": [
                parameter
                for parameter in network.parameters()
                if (id(parameter) in head) == personal
            ],
            "lr": rate,
        }
        for personal, rate in ((True, 1e-3), (False, 1e-4))
    ]
    optimizer = torch.optim.AdamW(groups)
    network.train()
    for _ in range(STEPS):
        starts = torch.randint(len(flat) - LENGTH, (LINES,)).tolist()
        ids = torch.stack([flat[start : start + LENGTH] for start in starts])
        ids[:, 0] = CLS
        ids[:, -1] = SEP
        masked = masked_places(ids)
        loss = masked_losses(network, {"input_ids": ids}, masked).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    network.save_pretrained(folder)
    return folder


def masked_places(ids: torch.Tensor) -> torch.Tensor:
    is_drawn = torch.rand(ids.shape) < 0.15
    is_special = (ids == 0) | (ids == CLS) | (ids == SEP)
    return is_drawn & ~is_special


def masked_losses(
    network: Any, inputs: dict[str, torch.Tensor], masked: torch.Tensor
) -> torch.Tensor:
    ids = inputs["input_ids"]
    hidden = network.bert(
        **{**inputs, "input_ids": ids.masked_fill(masked, MASK)}
    ).last_hidden_state
    return cross_entropy(network.cls(hidden[masked]), ids[masked], reduction="none")


def start_of(network: Any, tokenizer: Any, lines: list[str], first: int) -> float:
    """The masked loss on texts with new words, whose ids begin at `first`."""
    torch.manual_seed(1)
    results = []
    for i in range(0, len(lines), 8):
        inputs = tokenizer(
            lines[i : i + 8], truncation=True, max_length=128, padding=True, return_tensors="pt"
        )
        new = (inputs["input_ids"] >= first).any(dim=1)
        inputs = {name: value[new] for name, value in inputs.items()}
        with torch.inference_mode():
            results.append(
                masked_losses(network.eval(), inputs, masked_places(inputs["input_ids"]))
            )
    return float(torch.cat(results).mean())


@pytest.mark.slow
def test_grown_words_save_pieces_and_start_well(shared_data: Path, tmp_path: Path) -> None:
    train, held_out = (
        lines_of(shared_data / "mlm-medical" / f"{name}.txt") for name in ("train", "heldout")
    )
    old = learn_masked_words(tmp_path / "old", train)
    check_bars(old, train, held_out, tmp_path / "new")


def check_bars(old: Path, train: list[str], held_out: list[str], new: Path) -> None:
    grow(str(old), [TextChunk(train)], new, words=5000)
    before = transformers.AutoTokenizer.from_pretrained(old)
    after = transformers.AutoTokenizer.from_pretrained(new)
    pieces = [
        sum(map(len, entry(held_out, add_special_tokens=False)["input_ids"]))
        for entry in (before, after)
    ]
    assert pieces[1] <= 0.88 * pieces[0]
    ours = transformers.AutoModelForMaskedLM.from_pretrained(new)
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(old)
    torch.manual_seed(0)
    theirs.resize_token_embeddings(len(after))
    losses = [start_of(entry, after, held_out, len(before)) for entry in (ours, theirs)]
    assert losses[0] <= losses[1] - 0.2, losses
