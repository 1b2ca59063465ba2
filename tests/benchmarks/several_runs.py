"""Processor time of two runs that answer together, against one after the other.

    python tests/benchmarks/several_runs.py                      # BERT-base, random weights
    python tests/benchmarks/several_runs.py --model minilm

Each kind is a process of its own. Two networks have a head each on one encoder, of which the upper
layers are changed in the second one, as after a training with frozen lower layers. The last line
has the ratios.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.lora import WORDS, make_bert_base


def main() -> None:
    """Runs all kinds and prints their figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="Model. Default: BERT-base with random weights.")
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--words", type=int, default=30, help="Words of a text.")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="minilm, to see that it works")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.model = "minilm"
        arguments.rows = 16
    if arguments.kind is not None:
        print(json.dumps(measure(arguments)))
        return

    with tempfile.TemporaryDirectory() as name:
        shares = make_pairs(Path(name), arguments.model)
        ratios = []
        for share in shares:
            figures = {}
            for kind in ("together", "apart"):
                options = ["--kind", f"{kind} {share}", "--folder", name]
                options += ["--rows", str(arguments.rows), "--words", str(arguments.words)]
                options += ["--precision", arguments.precision]
                done = subprocess.run(
                    [sys.executable, __file__, *options],
                    check=True,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                figures[kind] = json.loads(done.stdout.splitlines()[-1])
                print(f"{share}, {kind}: {figures[kind]}")
            share_of_time = figures["together"]["seconds"] / figures["apart"]["seconds"]
            ratios.append(f"{share}: {share_of_time:.2f} of the time")
    print(f"bertctl with two runs: {'; '.join(ratios)}")


def make_pairs(folder: Path, model: str | None) -> list[str]:
    """Saves a first network and three second ones, and returns the names of the latter."""
    import torch
    import transformers

    from bertctl.config.load import load_recipe
    from bertctl.modeling.source import inspect_model

    torch.manual_seed(0)
    if model is None:
        base = folder / "base"
        make_bert_base(base)
    else:
        recipe = load_recipe("text-classification", options={"model.name": model})
        base = inspect_model(recipe.model).folder
    network: Any = transformers.AutoModelForSequenceClassification.from_pretrained(base)
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    layers = network.base_model.encoder.layer
    kinds = {
        "all layers shared": len(layers),
        "two thirds shared": len(layers) * 2 // 3,
        "none shared": 0,
    }
    for name, shared in {"first": len(layers), **kinds}.items():
        for layer in layers[shared:]:
            for parameter in layer.parameters():
                parameter.data = parameter.data + 0.01
        network.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return list(kinds)


def measure(arguments: argparse.Namespace) -> dict[str, float]:
    """Answers texts with two networks, and returns processor seconds."""
    from bertctl import load_run, load_runs

    kind, _, share = arguments.kind.partition(" ")
    paths = [arguments.folder / "first", arguments.folder / share]
    fields = {
        "runtime.device": "cpu",
        "runtime.threads": 1,
        "runtime.precision": arguments.precision,
        "model.max_length": 128,
    }
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, arguments.words)) for _ in range(arguments.rows)]
    runs: list[Any] = [load_runs(paths, fields)]
    if kind == "apart":
        runs = [load_run(path, fields) for path in paths]
    for run in runs:
        run.predict(texts[:8])
    started = time.process_time()
    for run in runs:
        run.predict(texts)
    seconds = time.process_time() - started
    return {"seconds": round(seconds, 2)}


if __name__ == "__main__":
    main()
