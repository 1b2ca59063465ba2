"""Processor time of a training step.

Families without a fused attention (SDPA), against a BERT of the same shape.

The steps are bertctl's own, forward, backward and optimizer, each on one batch of one width; the
families take turns batch by batch. Weights are random, and thrown away. 1.6 is what a family may
take without a line that says why: those above it must stand in `slow_step` of
`bertctl/modeling/families.py`, and the others must not.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import transformers

sys.path.append(str(Path(__file__).resolve().parents[1] / "contract"))
from families import TRIED, encoder_config, make_encoder

from bertctl.config.load import load_recipe
from bertctl.modeling.families import only_fp32, slow_step
from bertctl.training.estimate import Rehearsal
from bertctl.training.job import prepare

MOST = 1.6
_WIDTH = 192
_HEADS = 4
_SHAPE = {
    "hidden_size": _WIDTH,
    "num_attention_heads": _HEADS,
    "num_hidden_layers": 4,
    "intermediate_size": 4 * _WIDTH,
    "max_position_embeddings": 514,
    "block_size": 64,
    "attention_window": 512,
    "pooler_hidden_size": _WIDTH,
}
_OWN: dict[str, dict[str, Any]] = {
    "funnel": {
        "d_model": _WIDTH,
        "n_head": _HEADS,
        "d_head": _WIDTH // _HEADS,
        "d_inner": 4 * _WIDTH,
        "block_sizes": [2, 1, 1],
        "block_repeats": [1, 1, 1],
    },
    "xlnet": {"d_model": _WIDTH, "n_layer": 4, "n_head": _HEADS, "d_inner": 4 * _WIDTH},
    **{name: {"emb_dim": _WIDTH, "n_layers": 4, "n_heads": _HEADS} for name in ("flaubert", "xlm")},
    "squeezebert": {"embedding_size": _WIDTH},
}


def shape(family: str) -> dict[str, Any]:
    """The fields of BERT's shape that the family's config has, by its own names."""
    personal = _OWN.get(family, {})
    known = encoder_config(family, 99).to_dict()
    return (
        personal
        if "d_model" in personal
        else {n: v for n, v in _SHAPE.items() if n in known or n in _SIZES} | personal
    )


_SIZES = ("hidden_size", "num_attention_heads", "num_hidden_layers", "max_position_embeddings")


def without_kernel() -> list[str]:
    """Families to which transformers gives no fused attention."""
    return [name for name in TRIED if not _network_class(name)._supports_sdpa]


def _network_class(family: str) -> Any:
    actual = transformers.AutoModel._model_mapping[type(encoder_config(family, 99))]
    return actual[0] if isinstance(actual, tuple) else actual


def main() -> None:
    """Parses the options, measures, prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--families", nargs="*", default=without_kernel())
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--quick", action="store_true", help="two families, two rounds, to see that it works"
    )
    options = parser.parse_args()
    families, rounds = (
        (["mpnet", "xlnet"], 2) if options.quick else (options.families, options.rounds)
    )
    with tempfile.TemporaryDirectory() as scratch:
        steps = {name: step_of(name, Path(scratch) / name, options) for name in ("bert", *families)}
        seconds = {name: [] for name in steps}
        for _ in range(rounds + 1):
            for name, step in steps.items():
                started = (
                    time.process_time()
                )  # of one thread: what else the machine does counts for little
                step()
                seconds[name].append(time.process_time() - started)
    best = {
        name: min(second[1:]) for name, second in seconds.items()
    }  # in the first round kernels are made
    print(
        f"bertctl, {options.rows} rows of {options.tokens} tokens, precision {options.precision}, "
        f"best of {rounds}"
    )
    print(f"{'family':16} {'ms a step':>9} {'to BERT':>8}")
    for name, least in best.items():
        ratio = least / best["bert"]
        reason = slow_step({"model_type": name}) or only_fp32({"model_type": name})
        verdict = "" if ratio <= MOST else reason or "OVER, AND NOTHING SAYS WHY"
        print(f"{name:16} {1000 * least:>9.0f} {ratio:>8.2f}  {verdict}")


def step_of(family: str, folder: Path, options: argparse.Namespace) -> Callable[[], object]:
    """One step of a family's run, on its own batch."""
    model = make_encoder(family, folder / "model", **shape(family))
    data = folder / "rows.csv"
    text = "the film was good " * options.tokens
    data.write_text(
        "text,label\n" + "".join(f"{text},{'yn'[i % 2]}\n" for i in range(options.rows))
    )
    fields = {
        "data.train_file": str(data),
        "data.validation_file": str(data),
        "model.name": str(model),
        "model.max_length": options.tokens,
        "training.batch_size": options.rows,
        "runtime.device": "cpu",
        "runtime.precision": options.precision,
        "runtime.threads": 1,
    }
    rehearsal = Rehearsal(prepare(load_recipe("text-classification", options=fields)), folder)
    return lambda: rehearsal.step(rehearsal.plan[0])


if __name__ == "__main__":
    main()
