"""Rows/s of integrated gradients.

`bertctl explain` against what transformers-interpret does, on the same classifier.

transformers-interpret takes one text after the other: the predicted class, then captum's
LayerIntegratedGradients of its probability over the token table, 50 steps in one batch. Where
captum is not installed, the same arithmetic is written out here. Ours halves its steps until each
sum is right; faithfulness, which theirs does not measure, is left out. The sides take turns.
"""

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from bertctl.catalog.models import locate_model
from bertctl.inference.rows_to_answer import text_rows
from bertctl.inference.trained import open_run
from bertctl.interpretability.explain import Asked, Explainer

STEPS = 50


def written_out(network: Any, ids: torch.Tensor, empty: torch.Tensor, label: int) -> torch.Tensor:
    """Integrated gradients of a text, (T,), as captum computes them."""
    table = network.get_input_embeddings()
    with torch.no_grad():
        here = table(ids)
        others = table(empty)
        network(inputs_embeds=here), network(inputs_embeds=others)  # the convergence delta
    nodes, weights = np.polynomial.legendre.leggauss(STEPS)
    shares = torch.tensor((1 + nodes) / 2, dtype=torch.float32)[:, None, None]
    points = (others + shares * (here - others)).requires_grad_()
    scores = network(inputs_embeds=points).logits.softmax(dim=1)[:, label]
    (gradients,) = torch.autograd.grad(scores.sum(), points)
    part = torch.tensor(weights / 2, dtype=torch.float32)[:, None, None]
    return ((gradients * part).sum(dim=0) * (here - others)[0]).sum(dim=1)


def by_captum(network: Any, ids: torch.Tensor, empty: torch.Tensor, label: int) -> torch.Tensor:
    """The same, by captum."""
    from captum.attr import LayerIntegratedGradients

    method = LayerIntegratedGradients(
        lambda given: network(given).logits.softmax(dim=1)[:, label], network.get_input_embeddings()
    )
    actual, _ = method.attribute(ids, baselines=empty, n_steps=STEPS, return_convergence_delta=True)
    return actual.sum(dim=2)[0]


def one_by_one(folder: Path) -> tuple[str, Callable[[Sequence[str]], None]]:
    """Their side, and its name."""
    try:
        import captum

        integrate = by_captum
        name = f"captum {captum.__version__}, {STEPS} steps, one row at a time"
    except ImportError:
        integrate = written_out
        name = f"written out, {STEPS} steps, one row at a time"
    network = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def explain(texts: Sequence[str]) -> None:
        for text in texts:
            ids = tokenizer(text, return_tensors="pt", truncation=True, max_length=128)["input_ids"]
            empty = ids.clone()
            empty[:, 1:-1] = tokenizer.pad_token_id
            label = int(network(ids).logits.argmax())
            integrate(network, ids, empty, label)

    return name, explain


def main() -> None:
    """Parses the options, measures, prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--file", type=Path, required=True, help="one text per line")
    parser.add_argument(
        "--run", type=Path, help="a run of text classification; else minilm with a random head"
    )
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0, help="0: all cores")
    parser.add_argument("--quick", action="store_true", help="2 rows once, to see that it works")
    options = parser.parse_args()
    rows, rounds = (2, 1) if options.quick else (options.rows, options.rounds)
    lines = [line for line in options.file.read_text(encoding="utf-8").splitlines() if line.strip()]
    texts = list(itertools.islice(itertools.cycle(lines), rows))
    with tempfile.TemporaryDirectory() as made:
        run = options.run or Path(made)
        if options.run is None:
            bare = locate_model("minilm")
            torch.manual_seed(0)
            transformers.AutoModelForSequenceClassification.from_pretrained(bare).save_pretrained(
                run
            )
            transformers.AutoTokenizer.from_pretrained(bare).save_pretrained(run)
        threads = {"runtime.threads": options.threads} if options.threads else {}
        explainer = Explainer(
            open_run(run, options={**threads, "model.max_length": 128}), Asked(faithful_rows=0)
        )
        _ = explainer.engine

        def ours(texts: Sequence[str]) -> None:
            list(explainer.explain([text_rows(explainer.run, texts, [])]))

        sides = dict([one_by_one(run / "model" if (run / "model").is_dir() else run)]) | {
            "bertctl explain": ours
        }
        wall: dict[str, list[float]] = {name: [] for name in sides}
        busy: dict[str, list[float]] = {name: [] for name in sides}
        for turn in range(rounds + 1):
            for name, side in sides.items():
                started = time.perf_counter(), time.process_time()
                side(texts if turn else texts[:2])  # the first turn warms up
                if turn:
                    wall[name].append(time.perf_counter() - started[0])
                    busy[name].append(time.process_time() - started[1])
    first_side = next(iter(sides))
    reference_seconds = min(wall[first_side])
    reference_cpu = min(busy[first_side])
    print(f"{rows} rows, best of {rounds}{'':24}{'rows/s':>8}{'ratio':>8}{'CPU s':>8}{'ratio':>8}")
    for name in sides:
        seconds = min(wall[name])
        cpu = min(busy[name])
        speed_columns = f"{rows / seconds:8.2f}{reference_seconds / seconds:7.2f}x"
        cpu_columns = f"{cpu:8.1f}{reference_cpu / cpu:7.2f}x"
        print(f"{name:44}{speed_columns}{cpu_columns}")


if __name__ == "__main__":
    main()
