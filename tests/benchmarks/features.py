"""Rows/s of mean-pooled vectors.

`bertctl extract-features` against `SentenceTransformer.encode`, both with minilm.

Each side is a process of its own from start to file; the two take turns. What a process needs to
start is measured with a few rows and taken off, so the rates are those of long files; the wall
clock of the whole file stands beside them.
"""

import argparse
import itertools
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bertctl.catalog.models import locate_model

THEIRS = """
import sys, numpy
from pathlib import Path
from sentence_transformers import SentenceTransformer
# a bare encoder gets mean pooling
model = SentenceTransformer(sys.argv[1], device=sys.argv[4] or None)
numpy.save(sys.argv[3], model.encode(Path(sys.argv[2]).read_text().splitlines(), batch_size=32))
"""
FEW = 16


def main() -> None:
    """Parses the options, measures, prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--file", type=Path, required=True, help="one text per line")
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="", help="such as cpu or cuda")
    parser.add_argument("--quick", action="store_true", help="32 rows once, to see that it works")
    options = parser.parse_args()
    rows, rounds = (2 * FEW, 1) if options.quick else (options.rows, options.rounds)
    lines = [line for line in options.file.read_text(encoding="utf-8").splitlines() if line.strip()]
    with tempfile.TemporaryDirectory() as folder:
        files = {count: Path(folder) / f"{count}.txt" for count in (FEW, rows)}
        for count, file in files.items():
            file.write_text(
                "\n".join(itertools.islice(itertools.cycle(lines), count)) + "\n", encoding="utf-8"
            )
        device = ["--device", options.device] if options.device else []
        model = str(locate_model("minilm"))
        ours = [
            sys.executable,
            "-m",
            "bertctl",
            "extract-features",
            "-q",
            "--model",
            "minilm",
            "--overwrite",
            *device,
        ]
        seconds: dict[tuple[str, int], list[float]] = {}
        for _ in range(rounds):
            for count, file in files.items():
                target = str(Path(folder) / "vectors.npy")
                commands = {
                    "sentence-transformers": [
                        sys.executable,
                        "-c",
                        THEIRS,
                        model,
                        str(file),
                        target,
                        options.device,
                    ],
                    "bertctl, fp32": [*ours, "--precision", "fp32", str(file), "-o", target],
                    "bertctl, default": [*ours, str(file), "-o", target],
                    "bertctl, --backend auto": [
                        *ours,
                        "--backend",
                        "auto",
                        str(file),
                        "-o",
                        target,
                    ],
                }
                for name, command in commands.items():
                    started = time.perf_counter()
                    subprocess.run(command, check=True)
                    seconds.setdefault((name, count), []).append(time.perf_counter() - started)
    show(seconds, rows)


def show(seconds: dict[tuple[str, int], list[float]], rows: int) -> None:
    """Prints a line per side; the first one is what the others are compared with."""
    whole = {
        name: sum(times) / len(times) for (name, count), times in seconds.items() if count == rows
    }
    start = {
        name: sum(times) / len(times) for (name, count), times in seconds.items() if count == FEW
    }
    # With a few rows, or on a busy machine, the difference of two wall clocks may be nothing.
    rates = {name: (rows - FEW) / max(whole[name] - start[name], 0.1) for name in whole}
    reference = next(iter(rates.values()))
    print(f"{rows} rows{'':20}{'rows/s':>10}{'ratio':>8}{'wall clock':>12}{'its start':>12}")
    for name, rate in rates.items():
        print(
            f"{name:29}{rate:10.0f}{rate / reference:7.2f}x{whole[name]:10.1f} "
            f"s{start[name]:10.1f} s"
        )


if __name__ == "__main__":
    main()
