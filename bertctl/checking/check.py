"""`check_data`: read what a recipe names, run the table of checks over it, sort what they found."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tokenizers import Tokenizer

from bertctl.checking.answers import check_answers
from bertctl.checking.choices import check_choices
from bertctl.checking.duplicates import check_duplicates
from bertctl.checking.fields import check_fields
from bertctl.checking.findings import WORST_FIRST, Finding, Report, SplitSummary
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
from bertctl.errors import DataError, UnavailableError
from bertctl.progress import SILENT, Listener
from bertctl.tokenization.load import DEFAULT_MODEL, open_tokenizer


class Check(NamedTuple):
    """One family of checks.

    Attributes:
        name: what is said while it runs.
        run: what finds; it looks for itself at the columns that it needs.
    """

    name: str
    run: Callable[[Subject], Iterator[Finding]]


CHECKS = (
    Check("fields", check_fields),
    Check("labels", check_labels),
    Check("scores", check_scores),
    Check("tags", check_tagging),
    Check("spans", check_spans),
    Check("answers", check_answers),
    Check("choices", check_choices),
    Check("duplicates", check_duplicates),
    Check("leakage", check_leakage),
    Check("letters", check_text),
    Check("languages", check_languages),
    Check("tokens", check_tokens),
)
"""The families, in the order in which findings of like severity are listed."""


def check_data(recipe: Recipe, *, listener: Listener = SILENT) -> Report:
    """Everything that is wrong, or worth knowing, about the rows a recipe names. Nothing is trained, torch is not used.

    Args:
        recipe: its data, task, labels, `model.name` (for the tokenizer) and `model.max_length` are read.
        listener: told of what is guessed, of what can't be checked, and of progress.

    Raises:
        UsageError: no data, an unknown data set or model, columns that can't be guessed.
        UnavailableError: a file that is named can't be had. (A model that can't be had only skips its check.)
    """
    read = read_data(recipe, listener=listener)
    tokenizer, skipped = _tokenizer(recipe, listener) if read.splits else (None, ())
    subject = Subject(recipe, read.splits, read.validation_splits, read.labels, tokenizer)
    findings = [*read.findings, *run_checks(subject, listener=listener)]
    findings += _refusals(subject, findings)
    return Report(
        splits=tuple(_summary(subject, split) for split in subject.splits),
        findings=tuple(sorted(findings, key=lambda finding: WORST_FIRST.index(finding.severity))),
        skipped=skipped,
    )


def run_checks(subject: Subject, *, listener: Listener = SILENT) -> list[Finding]:
    """The table of checks over rows that were read, in its order.

    Args:
        subject: the rows.
        listener: told of progress.
    """
    findings: list[Finding] = []
    for number, check in enumerate(CHECKS):
        listener.advance("checking", number, len(CHECKS), {"now": check.name})
        findings += check.run(subject)
    listener.finish("checking")
    return findings


def _tokenizer(recipe: Recipe, listener: Listener) -> tuple[Tokenizer | None, tuple[str, ...]]:
    """The model's tokenizer, or why there is none. Where BERT-base is meant and not here, its vocabulary stands in."""
    name = recipe.model.name
    try:
        opened = open_tokenizer(None if name == DEFAULT_MODEL else name, listener=listener)
    except (UnavailableError, DataError) as error:
        reason = f"length and unknown tokens: the tokenizer of {name} can't be had: {error.message.splitlines()[0]}"
        listener.warn(f"not checked: {reason} (--model minilm has one that comes with bertctl[offline])")
        return None, (reason,)
    return opened.tokenizer, ()


def _refusals(subject: Subject, findings: list[Finding]) -> Iterator[Finding]:
    """What training would refuse and no check has found: so that data without an error can be trained on."""
    from bertctl.tasks.registry import task_from_data

    if subject.train is None or not subject.train.has("label"):
        return
    blamed = {finding.split for finding in findings if finding.severity == "error"}
    if "train" in blamed or "" in blamed:
        return
    try:
        task = task_from_data(subject.recipe, subject.train, subject.official_labels)
    except DataError as error:
        yield refusal(error, "train", code="refused")
        return
    for split, rows in subject.splits.items():
        if split not in blamed and rows.has("label"):
            try:
                task.check(rows)
            except DataError as error:
                yield refusal(error, split, code="refused")


def _summary(subject: Subject, split: str) -> SplitSummary:
    rows = subject.splits[split]
    counts: Counter[str] = Counter()
    names = subject.label_sets(split)
    if names is not None:
        counts.update(name for of_row in names for name in of_row)
    elif rows.has("label") and subject.task == "token-classification":
        counts.update(str(tag) for tags in rows.columns["label"] for tag in tags)
    elif rows.has("label") and subject.task == "multiple-choice":
        counts.update(map(str, rows.columns["label"]))
    return SplitSummary(split, rows.source, len(rows), dict(counts.most_common()))
