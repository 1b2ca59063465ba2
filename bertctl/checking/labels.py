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
    """Yields labels that are missing, unknown, misspelt, rare, on one side only, or uneven."""
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
    # If a label is a list of labels in one string ("a, b"), the frequencies of the strings say
    # nothing about the labels.
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
    """Yields the rows without a label; in multi-label data, the rows that no label applies to."""
    rows = subject.splits[split]
    unlabelled = [i for i, names in enumerate(sets) if not any(name.strip() for name in names)]
    if subject.several_labels:
        code = "no-label-applies"
    else:
        code = "missing-label"
    yield from _RULES.of_rows(
        code,
        rows,
        split,
        unlabelled,
        _shown_of(rows),
    )


def _spelling(subject: Subject, counts: dict[str, Counter[str]]) -> Iterator[Finding]:
    """Yields labels that differ only in case or spacing, each with its usual spelling.

    `counts` has the rows of each label, by split.
    """
    total: Counter[str] = sum(counts.values(), Counter())
    for usual, unusual in spelt_alike(total):
        rows_by_split = {}
        for split in counts:
            rows_with_unusual = _rows_with(subject, split, set(unusual))
            if rows_with_unusual:
                rows_by_split[split] = rows_with_unusual
        first_split = next(iter(rows_by_split))
        n_unusual = sum(map(len, rows_by_split.values()))
        only_split = "" if len(rows_by_split) > 1 else first_split
        of_rows = (n_unusual, sum(map(len, subject.splits.values())))
        examples = _shown(subject.splits[first_split], rows_by_split[first_split])
        remedy = f"Write them all as {usual!r}."
        spellings = f"{listed(unusual)} ({n_unusual:,} rows) and {usual!r} ({total[usual]:,} rows)"
        message = f"{spellings} differ only in case or spacing, and count as different labels"
        yield _RULES.finding(
            "label-spelling",
            only_split,
            of_rows,
            examples,
            message=message,
            remedy=remedy,
        )


def _unknown(subject: Subject, counts: dict[str, Counter[str]]) -> Iterator[Finding]:
    """Yields labels that are none of the named ones, and named ones that no training row has."""
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
            f"{len(known_labels)} that are named"
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
    """Yields a finding if labels look like several labels in one field, with a separator.

    Labels look so if their parts are fewer than the labels themselves: the three labels `a`, `b`
    and `a|b` have the two parts a and b.
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
    """Yields a finding if there is only one label, or if there are nearly as many labels as rows.

    `train` has the number of training rows of each label.
    """
    rows = subject.splits["train"]
    has_several_labels = any(
        len(names) > 1 for names in different_values(subject.label_sets["train"] or ())
    )
    if len(train) < 2 and not has_several_labels:
        if train:
            which = f"one label only, {next(iter(train))!r}"
        else:
            which = "no label at all"
        message = f"the training rows have {which}: nothing can be learned"
        yield _RULES.finding("one-label", "train", (len(rows), len(rows)), message=message)
    # The recipe has no list of labels, so the column may be a wrong one, such as the texts.
    if subject.labels is None and _are_too_many(train):
        message = (
            f"{len(train):,} different labels in {len(rows):,} training rows: "
            f"{listed(list(train), limit=4)}"
        )
        counts = (len(train), len(rows))
        examples = _shown(rows, range(3))
        yield _RULES.finding(
            "too-many-labels",
            "train",
            counts,
            examples,
            message=message,
        )


def _are_too_many(train: Counter[str]) -> bool:
    """Returns whether labels are so many that they are hardly labels: more than every second row.

    Args:
        train: How many training rows each label has.
    """
    return len(train) > max(50, train.total() // 2)


def _rare(subject: Subject, train: Counter[str]) -> Iterator[Finding]:
    """Yields the labels with too few training rows to be learned, the rarest first.

    Args:
        subject: The splits that are checked.
        train: How many training rows each label has.
    """
    if _are_too_many(train):
        return  # nearly all of them would be rare
    rare = {
        name: count
        for name, count in sorted(train.items(), key=lambda item: item[1])
        if count < RARE
    }
    rows = subject.splits["train"]
    # In small data every label is rare: a finding is for labels that are rarer than most.
    has_enough_rows = len(rows) > RARE * len(train)
    if rare and has_enough_rows:
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
    """Yields a finding if one label is far more frequent than the rest, or than the rarest one.

    Its remedy has the accuracy of always answering the most frequent label.
    """
    if len(train) < 2 or subject.several_labels:
        return
    most_frequent, count = train.most_common()[0]
    rarest, rarest_count = train.most_common()[-1]
    total = sum(train.values())
    has_most_rows = count > _MOSTLY * total
    # Labels with very few rows have a finding of their own: `_rare`.
    is_uneven = count > _UNEVEN * rarest_count and rarest_count >= RARE
    if not has_most_rows and not is_uneven:
        return
    message = (
        f"{most_frequent!r} has {percent(count, total)} of the training rows, {rarest!r} "
        f"{percent(rarest_count, total)}"
    )
    if has_most_rows:
        severity = "warning"
    else:
        severity = "note"
    other_metrics = (
        "look at F1 or Matthews instead (`evaluation.primary_metric=f1_macro`), and at the "
        "rows of each label"
    )
    remedy = (
        f"Always saying {most_frequent!r} scores accuracy {count / total:.3f}: {other_metrics}."
    )
    yield _RULES.finding(
        "imbalance",
        "train",
        (count, total),
        message=message,
        severity=severity,
        remedy=remedy,
    )


def _one_side(subject: Subject, counts: dict[str, Counter[str]], split: str) -> Iterator[Finding]:
    """Yields findings on labels that only train has, and on labels that only another split has.

    Args:
        subject: The splits that are checked.
        counts: Rows of each label, by split.
        split: The other split.
    """
    train = counts["train"]
    split_counts = counts[split]
    only_in_split = [name for name in split_counts if name not in train and name.strip()]
    if only_in_split and train:
        says = f"have a label that no training row has: {_with_hint(only_in_split, train)}"
        if subject.labels is None:
            # Nobody has named the labels, so training knows only those of train and refuses others.
            severity = "error"
        else:
            severity = "warning"
        rows = subject.splits[split]
        row_numbers = _rows_with(subject, split, set(only_in_split))
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
    only_in_train = [name for name in train if name not in split_counts and name.strip()]
    if only_in_train and split_counts and train.total() > 0 and len(only_in_train) < len(train):
        n_of_train = (len(only_in_train), len(train))
        examples = _shown(subject.splits["train"], _rows_with(subject, "train", set(only_in_train)))
        message = f"no row of {split} has the label {listed(only_in_train)}"
        remedy = (
            "Split the rows anew, stratified by label: how well it is learned can't be seen on "
            f"{split}."
        )
        yield _RULES.finding(
            "label-only-in-train",
            split,
            n_of_train,
            examples,
            message=message,
            remedy=remedy,
        )


def _shift(subject: Subject, counts: dict[str, Counter[str]], split: str) -> Iterator[Finding]:
    """Yields a finding if labels are more or less frequent in a split than in train.

    The total variation distance measures it: the share of rows that would need another label for
    equal frequencies.

    Args:
        subject: The splits that are checked.
        counts: Rows of each label, by split.
        split: A split other than train.
    """
    train = counts["train"]
    split_counts = counts[split]
    has_few_rows = min(train.total(), split_counts.total()) < _SHIFT_ROWS
    if has_few_rows:  # frequencies differ by chance
        return
    share_differences = {
        label: split_counts[label] / split_counts.total() - train[label] / train.total()
        for label in set(train) | set(split_counts)
    }
    distance = sum(map(abs, share_differences.values())) / 2
    if distance < _SHIFT:
        return
    most_shifted = max(share_differences, key=lambda label: (abs(share_differences[label]), label))
    rows = subject.splits[split]
    shares = (
        percent(split_counts[most_shifted], split_counts.total()),
        percent(train[most_shifted], train.total()),
    )
    spread = f"{most_shifted!r} has {shares[0]} of its rows, in train {shares[1]}"
    message = f"the labels of {split} are spread otherwise than in train: {spread}"
    yield _RULES.finding(
        "label-shift", split, (round(distance * len(rows)), len(rows)), message=message
    )


def _sorted_by_label(subject: Subject) -> Iterator[Finding]:
    """Yields a finding if the training rows are sorted by label."""
    sets = subject.label_sets["train"] or []
    n_different = len(set(sets))
    # With few rows, or fewer than 10 for each label, a sorted order may be chance.
    has_few_rows = len(sets) < _SORTED_ROWS or n_different > len(sets) // 10
    if has_few_rows or n_different < 2:
        return
    label_codes = codes_of(mapped_values(sets, " ".join)).codes
    # Sorted rows have as many runs as labels; shuffled ones have nearly as many as rows.
    runs = int((np.diff(label_codes) != 0).sum()) + 1
    if runs > 2 * n_different:
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
    """Returns the numbers of a split's rows that have one of these labels."""
    return [
        i
        for i, label_set in enumerate(subject.label_sets[split] or ())
        if names.intersection(label_set)
    ]


def _with_hint(names: list[str], known: Collection[str]) -> str:
    """Returns names as a list, and for the first the known name that it may be meant for."""
    hint = did_you_mean(names[0], known)
    return listed(names) + (f"; {hint}" if hint else "")


def _shown(rows: Rows, indices: Sequence[int]) -> tuple[Example, ...]:
    """Returns the first of some rows as examples, each with its label and text."""
    return examples_at(rows, indices, _shown_of(rows))


def _shown_of(rows: Rows) -> Callable[[int], str]:
    """Returns a function that gives the label and the text of the row at an index."""
    texts = rows.columns.get("text", [""] * len(rows))
    return lambda i: f"label {rows.columns['label'][i]!r}: {texts[i]}"
