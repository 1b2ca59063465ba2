"""`python -m tests.fuzz --inputs 100000 --seed 1 --jobs 2`.

The long run, its figures, and what failed by its cause.
"""

import argparse
import math
import sys
from collections import defaultdict

from tests.fuzz.crew import Figures, taken
from tests.fuzz.worker import Told


def main() -> int:
    """Returns 0 where nothing failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", type=int, default=2_000)
    parser.add_argument(
        "--first",
        type=int,
        default=0,
        help="number of the first input; one number is one input again",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--kind", default="light", help="which table of tests/fuzz/targets.py")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="stop then, with the figures so far"
    )
    supplied = parser.parse_args()
    figures = taken(**vars(supplied))
    sys.stdout.write(f"{figures}\n{by_cause(figures)}")
    for target, count in figures.targets.most_common():
        sys.stdout.write(f"{count:7} {1000 * figures.costs[target] / count:6.1f} ms {target}\n")
    return bool(figures.failed)


def by_cause(figures: Figures) -> str:
    """The failures, those of one kind together, with the inputs that show them."""
    groups: dict[str, list[Told]] = defaultdict(list)
    for options in figures.failed:
        message = options.said.partition("\n")[0][:200]
        groups[
            f"{options.target.split(' ')[0]} | {', '.join(options.wrong)[:150]} | {message}"
        ].append(options)
    lines = []
    for cause, members in sorted(groups.items(), key=lambda group: -len(group[1])):
        entry = members[0]
        numbers = ",".join(str(member.number) for member in members[:5])
        lines.append(
            f"{len(members):5} {cause}\n        inputs {numbers}: {entry.what}: {entry.command}\n"
        )
    return "".join(lines)


if __name__ == "__main__":
    sys.exit(main())
