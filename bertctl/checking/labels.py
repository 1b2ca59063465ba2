"""Labels of text classification.

They are missing, unknown, misspelt, rare, on one side only, or unevenly spread.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np

from bertctl.checking.findings import Example, Finding, FindingRules, examples_at, listed
from bertctl.checking.subject import Subject
from bertctl.data.label_cells import joined_labels, spelt_alike
from bertctl.data.packed_columns import codes_of, different_values, mapped_values
from bertctl.data.rows import Rows
from bertctl.words import count_of, did_you_mean, percent

_RULES = FindingRules("labels")

RARE = 10
"""Training rows below which a label can hardly be learned, nor its score be told from chance."""

_MOSTLY = 0.9  # share of one label from which accuracy says little
_UNEVEN = 20  # times as many rows of the most frequent label as of the rarest
# total variation distance between two splits; rows below which it is chance
_SHIFT = 0.15
_SHIFT_ROWS = 50
_SORTED_ROWS = 50


def check_labels(subject: Subject) -> Iterator[Finding]:
    """Yields everything about labels."""
    counts: dict[str, Counter[str]] = {}
    for split in subject.splits:
        sets = subject.label_sets[split]
        if sets is not None:
            counts[split] = _counted(sets)
            yield from _missing(subject, split, sets)
    if not counts:
        return
    yield from _spelling(subject, counts)
    yield from _unknown(subject, counts)
    if "train" in counts:
        joined = list(_joined(subject, counts["train"]))
    else:
        joined = []
    yield from joined
    if "train" in counts and not joined:
        yield from _number_of_labels(subject, counts["train"])
        yield from _rare(subject, counts["train"])
        yield from _imbalance(subject, counts["train"])
        yield from _sorted_by_label(subject)
        for split in counts:
            if split != "train":
                yield from _one_side(subject, counts, split)
                yield from _shift(subject, counts, split)


def _counted(sets: Sequence[tuple[str, ...]]) -> Counter[str]:
    """Returns how many rows have each label, in the order in which the labels come."""
    counts: Counter[str] = Counter()
    for names, n_rows in Counter(sets).items():
        for name in names:
            counts[name] += n_rows
    return counts


def _missing(subject: Subject, split: str, sets: Sequence[tuple[str, ...]]) -> Iterator[Finding]:
    rows = subject.splits[split]
    without = [i for i, names in enumerate(sets) if not any(name.strip() for name in names)]
    if subject.several_labels:
        code = "no-label-applies"
    else:
        code = "missing-label"
    yield from _RULES.of_rows(
        code,
        rows,
        split,
        without,
        _shown_of(rows),
    )


def _spelling(subject: Subject, counts: dict[str, Counter[str]]) -> Iterator[Finding]:
    total: Counter[str] = sum(counts.values(), Counter())
    for usual, others in spelt_alike(total):
        rows_by_split = {}
        for split in counts:
            rows_with_others = _rows_with(subject, split, set(others))
            if rows_with_others:
                rows_by_split[split] = rows_with_others
        first = next(iter(rows_by_split))
        number = sum(map(len, rows_by_split.values()))
        where = "" if len(rows_by_split) > 1 else first
        of = (number, sum(map(len, subject.splits.values())))
        examples = _shown(subject.splits[first], rows_by_split[first])
        remedy = f"Write them all as {usual!r}."
        both = f"{listed(others)} ({number:,} rows) and {usual!r} ({total[usual]:,} rows)"
        message = f"{both} differ only in case or spacing, and count as different labels"
        yield _RULES.finding(
            "label-spelling",
            where,
            of,
            examples,
            message=message,
            remedy=remedy,
        )


def _unknown(subject: Subject, counts: dict[str, Counter[str]]) -> Iterator[Finding]:
    known_labels = subject.labels
    if known_labels is None:
        return
    for split, label_counts in counts.items():
        unknown = [name for name in label_counts if name not in known_labels and name.strip()]
        if unknown:
            hint = _with_hint(unknown, known_labels)
            says = f"have a label that is none of {listed(known_labels)}: {hint}"
            rows = subject.splits[split]
            indices = _rows_with(subject, split, set(unknown))
            yield from _RULES.of_rows(
                "unknown-label",
                rows,
                split,
                indices,
                _shown_of(rows),
                says=says,
            )
    train = counts.get("train", Counter())
    absent = [name for name in known_labels if train and not train[name]]
    if absent:
        total = len(subject.splits["train"])
        counts_of = (len(absent), len(known_labels))
        message = (
            f"no training row has the label {listed(absent)}, though it is one of the "
            f"{len(known_labels)} "
            "that are named"
        )
        remedy = f"Add rows with it (there are {total:,} of the others), or leave the label out."
        yield _RULES.finding(
            "label-without-rows",
            "train",
            counts_of,
            message=message,
            remedy=remedy,
        )


def _joined(subject: Subject, train: Counter[str]) -> Iterator[Finding]:
    """Yields that labels look like several in one field.

    Their parts are fewer than they are: `a`, `b`, `a|b`.
    """
    if subject.several_labels:
        joined = None
    else:
        joined = joined_labels(train)
    if joined is None:
        return
    separator, parts = joined
    rows = subject.splits["train"]
    matches = _rows_with(subject, "train", {name for name in train if separator in name})
    says = (
        f"have '{separator}' in their label: {len(train):,} labels, or {len(parts):,} with it "
        "between"
    )
    yield _RULES.finding(
        "several-labels-in-one",
        "train",
        (len(matches), len(rows)),
        _shown(rows, matches),
        says=says,
        remedy=f"Where it separates labels: `text_classification.label_separator='{separator}'`.",
    )


def _number_of_labels(subject: Subject, train: Counter[str]) -> Iterator[Finding]:
    rows = subject.splits["train"]
    several = any(len(names) > 1 for names in different_values(subject.label_sets["train"] or ()))
    if len(train) < 2 and not several:
        if train:
            only = f"one label only, {next(iter(train))!r}"
        else:
            only = "no label at all"
        message = f"the training rows have {only}: nothing can be learned"
        yield _RULES.finding("one-label", "train", (len(rows), len(rows)), message=message)
    if subject.labels is None and len(train) > max(50, train.total() // 2):
        message = (
            f"{len(train):,} different labels in {len(rows):,} training rows: "
            f"{listed(list(train), limit=4)}"
        )
        of = (len(train), len(rows))
        examples = _shown(rows, range(3))
        yield _RULES.finding(
            "too-many-labels",
            "train",
            of,
            examples,
            message=message,
        )


def _rare(subject: Subject, train: Counter[str]) -> Iterator[Finding]:
    if len(train) > max(50, train.total() // 2):
        return  # said already: these are no labels
    rare = {
        name: count
        for name, count in sorted(train.items(), key=lambda item: item[1])
        if count < RARE
    }
    rows = subject.splits["train"]
    if rare and len(rows) > RARE * len(train):
        examples = _shown(rows, _rows_with(subject, "train", set(rare)))
        rare_counts = ", ".join(f"{name!r}: {count}" for name, count in list(rare.items())[:8])
        message = (
            f"{count_of(len(rare), len(train), 'label')} have fewer than {RARE} training rows "
            f"({rare_counts})"
        )
        yield _RULES.finding(
            "rare-label",
            "train",
            (len(rare), len(train)),
            examples,
            message=message,
        )


def _imbalance(subject: Subject, train: Counter[str]) -> Iterator[Finding]:
    if len(train) < 2 or subject.several_labels:
        return
    most, count = train.most_common()[0]
    least, fewest = train.most_common()[-1]
    total = sum(train.values())
    if count <= _MOSTLY * total and (count <= _UNEVEN * fewest or fewest < RARE):
        return
    shares = (
        f"{most!r} has {percent(count, total)} of the training rows, {least!r} "
        f"{percent(fewest, total)}"
    )
    if count > _MOSTLY * total:
        severity = "warning"
    else:
        severity = "note"
    instead = (
        "look at F1 or Matthews instead (`evaluation.primary_metric=f1_macro`), and at the "
        "rows of each label"
    )
    remedy = f"Always saying {most!r} scores accuracy {count / total:.3f}: {instead}."
    yield _RULES.finding(
        "imbalance",
        "train",
        (count, total),
        message=shares,
        severity=severity,
        remedy=remedy,
    )


def _one_side(subject: Subject, counts: dict[str, Counter[str]], split: str) -> Iterator[Finding]:
    train = counts["train"]
    other = counts[split]
    unseen = [name for name in other if name not in train and name.strip()]
    if unseen and train:
        says = f"have a label that no training row has: {_with_hint(unseen, train)}"
        if subject.labels is None:
            severity = "error"
        else:
            severity = "warning"
        rows = subject.splits[split]
        row_numbers = _rows_with(subject, split, set(unseen))
        counts_of = (len(row_numbers), len(rows))
        examples = _shown(rows, row_numbers)
        yield _RULES.finding(
            "label-not-in-train",
            split,
            counts_of,
            examples,
            says=says,
            severity=severity,
        )
    absent = [name for name in train if name not in other and name.strip()]
    if absent and other and train.total() > 0 and len(absent) < len(train):
        of = (len(absent), len(train))
        examples = _shown(subject.splits["train"], _rows_with(subject, "train", set(absent)))
        message = f"no row of {split} has the label {listed(absent)}"
        remedy = (
            "Split the rows anew, stratified by label: how well it is learned can't be seen on "
            f"{split}."
        )
        yield _RULES.finding(
            "label-only-in-train",
            split,
            of,
            examples,
            message=message,
            remedy=remedy,
        )


def _shift(subject: Subject, counts: dict[str, Counter[str]], split: str) -> Iterator[Finding]:
    train = counts["train"]
    other = counts[split]
    if min(train.total(), other.total()) < _SHIFT_ROWS:
        return
    differences = {
        name: other[name] / other.total() - train[name] / train.total()
        for name in set(train) | set(other)
    }
    distance = sum(map(abs, differences.values())) / 2
    if distance < _SHIFT:
        return
    name = max(differences, key=lambda label: (abs(differences[label]), label))
    rows = subject.splits[split]
    shares = percent(other[name], other.total()), percent(train[name], train.total())
    spread = f"{name!r} has {shares[0]} of its rows, in train {shares[1]}"
    message = f"the labels of {split} are spread otherwise than in train: {spread}"
    yield _RULES.finding(
        "label-shift", split, (round(distance * len(rows)), len(rows)), message=message
    )


def _sorted_by_label(subject: Subject) -> Iterator[Finding]:
    sets = subject.label_sets["train"] or []
    if len(sets) < _SORTED_ROWS or not 2 <= len(set(sets)) <= len(sets) // 10:
        return
    numbers = codes_of(mapped_values(sets, " ".join)).codes
    runs = int((np.diff(numbers) != 0).sum()) + 1
    if runs > 2 * len(set(sets)):
        return
    rows = subject.splits["train"]
    examples = _shown(rows, [0, len(rows) - 1])
    message = (
        f"the training rows are sorted by label: {runs} runs of like labels in {len(rows):,} rows"
    )
    yield _RULES.finding(
        "sorted-by-label",
        "train",
        (len(rows), len(rows)),
        examples,
        message=message,
    )


def _rows_with(subject: Subject, split: str, names: set[str]) -> list[int]:
    return [
        i
        for i, label_set in enumerate(subject.label_sets[split] or ())
        if names.intersection(label_set)
    ]


def _with_hint(names: list[str], known: Collection[str]) -> str:
    hint = did_you_mean(names[0], known)
    return listed(names) + (f"; {hint}" if hint else "")


def _shown(rows: Rows, indices: Sequence[int]) -> tuple[Example, ...]:
    return examples_at(rows, indices, _shown_of(rows))


def _shown_of(rows: Rows) -> Callable[[int], str]:
    """Returns what is shown of a row."""
    texts = rows.columns.get("text", [""] * len(rows))
    return lambda i: f"label {rows.columns['label'][i]!r}: {texts[i]}"
