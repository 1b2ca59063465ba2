"""Seconds from Enter to the answer about one text.

`bertctl predict` against transformers' pipeline, each a process.

The processes take turns; the table has the median of each and its ratio to ours. `--beside` adds
the bertctl of other checkouts. What is measured is mostly what is imported, so let the disk's cache
be warm: a first round is not counted.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

THEIRS = """
import sys, transformers
print(transformers.pipeline("text-classification", sys.argv[1])(sys.argv[2]))
"""
TEXT = "not bad at all"


def main() -> None:
    """Parses the options, measures, prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--run", type=Path, help="of text classification; the demo is trained where it is left out"
    )
    parser.add_argument(
        "--beside", type=Path, action="append", default=[], help="a checkout of another commit"
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="one round, to see that it works")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        run = options.run.resolve() if options.run else trained(Path(scratch))
        ours = [sys.executable, "-m", "bertctl", "predict", str(run), TEXT, "-q"]
        arms: dict[str, tuple[list[str], Path | None]] = {
            "transformers.pipeline": (
                [sys.executable, "-c", THEIRS, str(run / "model"), TEXT],
                None,
            ),
            **{f"bertctl predict of {folder}": (ours, folder) for folder in options.beside},
            "bertctl predict": (ours, None),
        }
        seconds: dict[str, list[float]] = {name: [] for name in arms}
        for _ in range(1 + (1 if options.quick else options.rounds)):
            for name, (command, folder) in arms.items():
                seconds[name].append(timed(command, folder, Path(scratch)))
    medians = {name: statistics.median(second[1:]) for name, second in seconds.items()}
    print(f"{'one text':36}{'median':>10}{'ours is':>11}")
    for name, median in medians.items():
        print(f"{name:36}{median:8.2f} s{median / medians['bertctl predict']:9.2f} x")


def trained(folder: Path) -> Path:
    """Returns a run of the demo with a few steps."""
    run = folder / "run"
    command = [sys.executable, "-m", "bertctl", "finetune", "demo", "-q", "-o", str(run)]
    subprocess.run(
        [*command, "--set", "training.max_steps=2"], check=True, stdout=subprocess.DEVNULL
    )
    return run


def timed(command: list[str], checkout: Path | None, elsewhere: Path) -> float:
    """Returns the seconds of a process, with the bertctl of a checkout if one is given."""
    path = os.pathsep.join(
        [str(entry.resolve()) for entry in [checkout] if entry] + [os.environ.get("PYTHONPATH", "")]
    )
    started = time.perf_counter()
    # Not here: the folder in which a process starts comes first among those that it imports from.
    streams = dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)
    subprocess.run(
        command, check=True, cwd=elsewhere, env={**os.environ, "PYTHONPATH": path}, **streams
    )
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
