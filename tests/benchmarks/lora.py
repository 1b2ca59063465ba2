"""Processor time and memory of a training step with LoRA, against one that trains all weights.

    python tests/benchmarks/lora.py                              # BERT-base, random weights
    python tests/benchmarks/lora.py --model minilm --batch-size 16

Each kind is a process of its own, which takes the same steps on the same made-up texts: its peak
memory is that of the whole process. The last line has the ratios.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

KINDS = {"all weights": {}, "LoRA": {"lora.rank": 8}}
STEPS = 6
WORDS = ["the", "film", "was", "good", "fine", "dull", "bad", "never", "so", "very", "long", "town"]


def main() -> None:
    """Runs both kinds and prints their figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="Model. Default: BERT-base with random weights.")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--words", type=int, default=30, help="Words of a text.")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="minilm, to see that it works")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.model = "minilm"
    if arguments.kind is not None:
        print(json.dumps(measure(arguments)))
        return

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_texts(folder / "texts.csv", arguments.words)
        if arguments.model is None:
            make = "from tests.benchmarks.lora import make_bert_base as make; import sys; "
            make += "from pathlib import Path; make(Path(sys.argv[1]))"
            subprocess.run([sys.executable, "-c", make, str(folder / "bert-base")], check=True)
        results = {}
        for kind in KINDS:
            words = [*sys.argv, "--kind", kind, "--folder", name]
            done = subprocess.run(
                [sys.executable, *words], check=True, stdout=subprocess.PIPE, text=True
            )
            results[kind] = json.loads(done.stdout.splitlines()[-1])
            print(f"{kind}: {results[kind]}")
    full = results["all weights"]
    lora = results["LoRA"]
    print(
        f"bertctl with LoRA: {lora['bytes'] / full['bytes']:.2f} of the memory, "
        f"{full['seconds'] / lora['seconds']:.2f} times as fast"
    )


def measure(arguments: argparse.Namespace) -> dict[str, float]:
    """Takes some steps, and returns their time and memory.

    They are the median of the steps' processor seconds and the peak memory in bytes.
    """
    from bertctl.config.load import load_recipe
    from bertctl.training.estimate import Rehearsal
    from bertctl.training.job import prepare
    from bertctl.training.step_memory import peak_memory_bytes

    options = {
        "data.train_file": str(arguments.folder / "texts.csv"),
        "data.validation_file": str(arguments.folder / "texts.csv"),
        "model.name": arguments.model or str(arguments.folder / "bert-base"),
        "model.max_length": 64,
        "training.batch_size": arguments.batch_size,
        "training.checkpoint_every": "off",
        "runtime.precision": arguments.precision,
        "runtime.device": "cpu",
        "runtime.threads": arguments.threads,
        **KINDS[arguments.kind],
    }
    job = prepare(load_recipe("text-classification", options=options))
    rehearsal = Rehearsal(job, arguments.folder / "run")
    seconds = []
    for number in range(STEPS):
        started = time.process_time()
        rehearsal.step(rehearsal.plan[number % len(rehearsal.plan)])
        seconds.append(time.process_time() - started)
    trained = sum(weight.numel() for weight in job.loaded.trainable_parameters().values())
    return {
        "seconds": round(float(np.median(seconds[1:])), 3),
        "bytes": peak_memory_bytes(),
        "trained": trained,
        "told_bytes": job.memory,
    }


def write_texts(file: Path, n_words: int) -> None:
    """Writes 64 texts of two labels."""
    rng = np.random.default_rng(0)
    lines = [f"{' '.join(rng.choice(WORDS, n_words))},{'ab'[i % 2]}" for i in range(64)]
    file.write_text("text,label\n" + "\n".join(lines) + "\n", encoding="utf-8")


def make_bert_base(folder: Path) -> None:
    """Saves BERT-base with random weights, and the tokenizer of `minilm`."""
    import torch
    import transformers

    from bertctl.config.load import load_recipe
    from bertctl.modeling.source import inspect_model

    torch.manual_seed(0)
    transformers.BertModel(transformers.BertConfig()).save_pretrained(folder)
    recipe = load_recipe("text-classification", options={"model.name": "minilm"})
    source = inspect_model(recipe.model).folder
    transformers.AutoTokenizer.from_pretrained(source).save_pretrained(folder)


if __name__ == "__main__":
    main()
