"""A command line of every verb that is refused at once, for tables of verbs x cases.

Each is typed in a folder of its own that holds nothing; the code is that of the refusal.
"""

REFUSED: dict[str, tuple[list[str], int]] = {
    "finetune": (["nowhere.yaml"], 4),
    "pretrain": (["nowhere.txt"], 4),
    "distill": (["nowhere", "--layers", "2"], 4),
    "adapt": (["nowhere.txt", "--then", "nowhere.yaml"], 4),
    "sweep": (["nowhere.yaml", "--grid", "training.epochs=1,2"], 4),
    "sweep-merge": (["nowhere", "elsewhere", "-o", "merged"], 4),
    "probe": (["nowhere.yaml"], 4),
    "evaluate": (["nowhere"], 4),
    "predict": (["nowhere", "x.csv", "--split", "test"], 2),
    "export": (["nowhere", "-o", "x"], 4),
    "extract-features": (["nowhere.txt", "--model", "minilm", "-o", "x.npy"], 4),
    "similarity": (["nowhere.txt"], 4),
    "index": (["nowhere.txt", "-o", "x"], 4),
    "search": (["nowhere", "a film"], 4),
    "mine": (["nowhere.txt"], 4),
    "cluster": (["nowhere.txt"], 4),
    "fill-mask": (["./nowhere", "a [MASK]"], 4),
    "score": (["./nowhere", "a film"], 4),
    "report": (["nowhere"], 4),
    "push": (["nowhere", "me/mine"], 4),
    "gate": (["nowhere", "--min", "accuracy=0.9"], 4),
    "compare": (["nowhere", "elsewhere"], 4),
    "fetch": (["nowhere.yaml"], 4),
    "recipes ls": (["--surprise"], 2),
    "recipes show": (["nowhere.yaml"], 4),
    "recipes diff": (["nowhere.yaml", "demo"], 4),
    "recipes cp": (["nowhere", "x.yaml"], 2),
    "recipes validate": (["nowhere.yaml"], 4),
    "recipes schema": (["surplus"], 2),
    "runs ls": (["nowhere"], 4),
    "runs rm": (["nowhere"], 2),
    "runs gc": (["nowhere", "--keep-best", "1"], 4),
    "data check": (["nowhere.csv"], 4),
    "data cp": (["nowhere", "x"], 2),
    "doctor": (["nowhere.yaml"], 4),
    "estimate": (["nowhere.yaml"], 4),
    "lr-find": (["nowhere.yaml"], 4),
    "tokenize": (["--file", "nowhere.txt", "-o", "x.jsonl"], 4),
    "vocab show": (["./nowhere"], 4),
    "vocab search": (["qqqqq", "minilm"], 3),
    "vocab stats": (["./nowhere"], 4),
    "vocab coverage": (["nowhere.txt"], 4),
    "vocab diff": (["./nowhere", "minilm"], 4),
    "vocab neighbours": (["king", "./nowhere"], 4),
    "vocab train": (["nowhere.txt"], 2),
    "vocab grow": (["./nowhere", "x.txt", "-o", "grown"], 4),
    "vocab shrink": (["./nowhere", "x.txt", "-o", "shrunk"], 4),
    "inspect": (["./nowhere"], 4),
    "attention": (["/nowhere", "a film"], 4),
    "explain": (["nowhere", "a film"], 4),
    "docs": (["qqqqq"], 2),
}


def typed(verb: str) -> list[str]:
    """What is typed after `bertctl`."""
    return [*verb.split(), *REFUSED[verb][0]]
