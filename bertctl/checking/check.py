"""`check_data`: runs the table of checks over what a recipe names.

It reads that, and sorts what the checks found.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

from tokenizers import Tokenizer

from bertctl.checking.answers import check_answers
from bertctl.checking.choices import check_choices
from bertctl.checking.duplicates import check_duplicates
from bertctl.checking.fields import check_fields
from bertctl.checking.findings import WORST_FIRST, DataReport, Finding, codes_of
from bertctl.checking.labels import check_labels
from bertctl.checking.languages import check_languages
from bertctl.checking.leakage import check_leakage
from bertctl.checking.reading import read_data, refusal
from bertctl.checking.scores import check_scores
from bertctl.checking.spans import check_spans
from bertctl.checking.subject import Subject
from bertctl.checking.tagging import check_tagging
from bertctl.checking.text import check_text
from bertctl.checking.tokens import check_tokens
from bertctl.config.schema import Recipe
from bertctl.data.packed_columns import is_many
from bertctl.data.recipe_splits import groups_of, held_out_by_recipe
from bertctl.data.rows import Rows
from bertctl.errors import DataError, UnavailableError
from bertctl.progress import SILENT, Listener
from bertctl.tasks.registry import TASKS
from bertctl.tokenization.tokenizer_files import DEFAULT_MODEL, open_tokenizer

CHECKS: Mapping[str, Callable[[Subject], Iterator[Finding]]] = {
    "fields": check_fields,
    "labels": check_labels,
    "scores": check_scores,
    "tags": check_tagging,
    "spans": check_spans,
    "answers": check_answers,
    "choices": check_choices,
    "duplicates": check_duplicates,
    "leakage": check_leakage,
    "letters": check_text,
    "languages": check_languages,
    "tokens": check_tokens,
}
"""The families by name, in the order in which findings of like severity are listed."""

_OF_ANY_TASK = frozenset({"fields", "duplicates", "leakage", "letters", "languages", "tokens"})
"""Families for every task; the others run if the task's `Answers.checks` names them."""


def check_data(recipe: Recipe, *, listener: Listener = SILENT) -> DataReport:
    """Checks the rows that a recipe names, and returns what is wrong with them or worth knowing.

    Nothing is trained, and torch is not used.

    Args:
        recipe: Names the data, the task, the labels, the model whose tokenizer is used, and its
            longest input.
        listener: Receives messages on what is guessed or can't be checked, and progress.

    Raises:
        UsageError: no data, an unknown data set or model, columns that can't be guessed.
        UnavailableError: a file that is named can't be had. (A model that can't be had only skips
            its check.)
    """
    splits, labels, findings = read_data(recipe, listener=listener)
    if splits:
        tokenizer, skipped = _tokenizer(recipe, listener)
    else:
        tokenizer = None
        skipped = ()
    subject = Subject(recipe, splits, labels, tokenizer)
    findings += run_checks(subject, listener=listener)
    findings += _refusals(subject, findings)
    checked_families = [name for name in _families(subject) if name != "tokens" or tokenizer]
    return DataReport(
        splits={split: _summary(subject, split) for split in subject.splits},
        findings=tuple(sorted(findings, key=lambda finding: WORST_FIRST.index(finding.severity))),
        skipped=skipped,
        checked=codes_of("files", *checked_families),
    )


def run_checks(subject: Subject, *, listener: Listener = SILENT) -> list[Finding]:
    """Returns what the families of checks for the task find, in the order of the table.

    Args:
        subject: The rows.
        listener: Receives progress.
    """
    findings: list[Finding] = []
    chosen = _families(subject)
    for number, name in enumerate(chosen):
        listener.advance("checking", number, len(chosen), {"now": name})
        findings += CHECKS[name](subject)
    listener.finish("checking")
    return findings


def _families(subject: Subject) -> list[str]:
    """Returns the names of the checks for this task, in the order of `CHECKS`."""
    return [name for name in CHECKS if name in _OF_ANY_TASK or name in subject.checks]


def _tokenizer(recipe: Recipe, listener: Listener) -> tuple[Tokenizer | None, tuple[str, ...]]:
    """Returns the model's tokenizer, or None with the reason why there is none.

    The second value has the reason, for the report; it is empty if there is a tokenizer.
    """
    name = recipe.model.name
    # If the files of the default model are not on this disk, None opens a copy of its vocabulary.
    requested_name = None if name == DEFAULT_MODEL else name
    try:
        opened = open_tokenizer(requested_name, listener=listener)
    except (UnavailableError, DataError) as error:
        reason = (
            f"length and unknown tokens: the tokenizer of {name} can't be had: "
            f"{error.message.splitlines()[0]}"
        )
        listener.warn(
            f"not checked: {reason} (`model.name=minilm` has one that comes with bertctl[offline])"
        )
        return None, (reason,)
    return opened.tokenizer, ()


def _refusals(subject: Subject, findings: list[Finding]) -> Iterator[Finding]:
    """Yields what training would refuse although no check has found an error.

    Whatever training checks before it computes is tried on the rows. So data without an error in
    the report can be trained on.

    Args:
        subject: The rows.
        findings: What the checks have found.
    """
    train = subject.splits.get("train")
    if train is None or not train.has("label"):
        return
    splits_with_errors = {finding.split for finding in findings if finding.severity == "error"}
    # An error is reported already for the training rows, or for all splits (the empty name).
    if "train" in splits_with_errors or "" in splits_with_errors:
        return
    try:
        task = TASKS[subject.recipe.task].from_data(subject.recipe, train, subject.official_labels)
    except UnavailableError:
        # The task needs files of the model that can't be had. That is no fault of the rows.
        return
    except DataError as error:
        yield refusal(error, "train", code="refused")
        return
    for split, rows in subject.splits.items():
        if split not in splits_with_errors and rows.has("label"):
            try:
                task.check(rows)
            except DataError as error:
                yield refusal(error, split, code="refused")
                splits_with_errors.add(split)
    if not splits_with_errors:
        yield from _refusal_of_hold_out(subject, train)


def _refusal_of_hold_out(subject: Subject, train: Rows) -> Iterator[Finding]:
    """Yields what training would refuse once it has held out a part of its rows for validation."""
    recipe = subject.recipe
    has_validation = any(split.startswith("validation") for split in subject.splits)
    # Trying the hold-out on a very large file would take too long.
    if has_validation or is_many(len(train)):
        return
    try:
        groups = groups_of(train, recipe, {}, required=False)
        learned, held_out, _ = held_out_by_recipe(train, recipe, groups)
        task = TASKS[recipe.task].from_data(recipe, learned, subject.official_labels)
        task.check(held_out)
    except DataError as error:
        message = (
            f"{error.message}, once a part of the {len(train)} rows is held out for validation"
        )
        remedy = f"{error.remedy} Or name validation rows: `data.validation_file=FILE`."
        yield refusal(DataError(message, remedy=remedy), "train", code="refused")


def _summary(subject: Subject, split: str) -> dict[str, Any]:
    """Returns where a split is from, its number of rows, and how often each label or tag occurs.

    Scores and spans are not counted.
    """
    rows = subject.splits[split]
    counts: Counter[str] = Counter()
    sets = subject.label_sets[split]
    if sets is not None:
        counts.update(chain.from_iterable(sets))
    elif rows.has("label") and "scores" not in subject.checks:
        for label in rows.columns["label"]:
            if isinstance(label, list | tuple):
                counts.update(map(str, label))
            elif not isinstance(label, Mapping):
                counts[str(label)] += 1
    return {"source": rows.source, "rows": len(rows), "labels": dict(counts.most_common())}
