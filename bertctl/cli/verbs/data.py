"""`bertctl data`: faults of a data set, and the bundled rows as files of one's own."""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertctl.cli.framework.completion import bundled_names, recipe_names
from bertctl.cli.framework.next_command import say_next, training_command
from bertctl.cli.framework.option_names import as_options
from bertctl.cli.framework.output import Output, Shown, plain_table
from bertctl.cli.framework.pipelines import ReportFiles, publish_checks, takes_report_files
from bertctl.cli.framework.recipe_options import takes_recipe, without
from bertctl.cli.framework.recipe_requests import RecipeRequest
from bertctl.config.recipe_files import is_data_file
from bertctl.errors import DataError, UsageError
from bertctl.reporting.findings import Check, Verdict
from bertctl.words import count, unknown

if TYPE_CHECKING:
    from bertctl.checking.findings import DataReport, Finding
    from bertctl.config.schema import Recipe

_SPLITS = ("train", "validation", "test")
_TEST_NAME = re.compile(r"(?<![a-z])test(?![a-z])", re.IGNORECASE)


@takes_recipe(
    *without("data", "--max-train-rows", "--max-eval-rows"),
    "model",
    "long_texts",
    has_recipe_argument=False,
)
@takes_report_files("gitlab_metrics")
def check(
    out: Output,
    files: ReportFiles,
    settings: RecipeRequest,
    subject: Annotated[
        list[str], typer.Argument(metavar="RECIPE|FILES", autocompletion=recipe_names)
    ],
    task: Annotated[str | None, typer.Option("--task", metavar="TASK")] = None,
    strict: Annotated[bool, typer.Option("--strict")] = False,
) -> None:
    """Look for faults in a data set before a model is trained on it.

    It looks for duplicates inside and across splits; conflicting, missing, rare and misspelt
    labels; words and columns that predict the label; wrong encodings, markup and other languages;
    texts that are too long for the model; spans that do not match their words; and answers that are
    not at their offsets. Each finding has a count, places and a remedy.

    The exit code is 3 if there are errors: training would refuse the rows, or learn something
    wrong.

    Args:
        out: Prints the answer and messages.
        files: Files for pipelines to write, as they were typed.
        settings: Options of recipe fields, as they were typed.
        subject: A built-in recipe or a YAML file; or your own files: training, then validation,
            then test rows. A second file named test has test rows.
        task: Task of files of your own. Default: guessed, else text-classification.
        strict: Exit with code 3 on warnings, too.

    Examples:
        bertctl data check train.csv validation.csv --text-column review
        bertctl data check sst2 --data-dir glue
    """
    recipe = _recipe(out, settings, subject, task)
    from bertctl.checking.check import check_data

    with out.third_party_kept():
        report = _named_as_options(check_data(recipe, listener=out))
    out.answer(_document(recipe, report), *_tables(report))
    title = f"data check {' '.join(subject)}"
    publish_checks(
        out,
        _as_checks(title, report, strict=strict),
        files,
        title=title,
        headline=f"{recipe.name}: {_tally(report)}",
        notes=report.skipped,
        passed=[
            Check(code, title, "pass", "nothing found")
            for code in report.checked
            if code not in report.codes()
        ],
        default_file=subject[0],
    )
    _verdict(report, strict=strict)
    say_next(out, _training_on(settings, subject, recipe.task, has_task=task is not None))


def _training_on(
    settings: RecipeRequest, subject: Sequence[str], task: str, *, has_task: bool
) -> str:
    """Returns the command that trains on the rows that were checked.

    Args:
        settings: What was typed.
        subject: A recipe, or files.
        task: Task of the rows.
        has_task: Whether `--task` was typed, so that the task is not guessed again.
    """
    if not is_data_file(subject[0]):
        return training_command(settings, subject[0], task)
    by_split = dict(zip(_splits_of(subject), subject, strict=True))
    if has_task:
        # `finetune TASK --train-file FILE ...`
        name = task
    else:
        # `finetune FILE ...`
        name = by_split.pop("train")
    files: dict[str, object] = {f"{split}_file": file for split, file in by_split.items()}
    return training_command(settings, name, task, **files)


def cp(
    out: Output,
    name: Annotated[str, typer.Argument(metavar="NAME", autocompletion=bundled_names)],
    folder: Annotated[Path, typer.Argument(metavar="DIR")],
    overwrite: Annotated[bool, typer.Option("--overwrite")] = False,
) -> None:
    """Copy a data set that comes with bertctl to files of your own, to look at, edit and train on.

    Args:
        out: Prints the answer and messages.
        name: Name of a bundled data set: demo, demo-ner, demo-qa, demo-corpus.
        folder: Folder for its files.
        overwrite: Replace existing files.

    Examples:
        bertctl data cp demo reviews
    """
    files = copy_bundled(name, folder, overwrite=overwrite)
    command = shlex.join(["bertctl", *_command_on(files)])
    paths = [str(path) for path in files.values()]
    out.answer({"data": name, "files": paths, "command": command}, *paths)
    say_next(out, command)


def copy_bundled(name: str, folder: Path, *, overwrite: bool = False) -> dict[str, Path]:
    """Copies the files of a bundled data set into a folder.

    Args:
        name: Name of the data set.
        folder: The folder. It is created if it does not exist.
        overwrite: Whether existing files are replaced.

    Returns:
        Split -> file; a corpus has only a split `corpus`.

    Raises:
        UsageError: No bundled data set has this name, or a file exists.
        UnavailableError: A file can't be written.
    """
    from bertctl.catalog.datasets import BUNDLED_CORPORA, builtin_datasets, bundled_folder
    from bertctl.writing import write_text

    row = builtin_datasets().get(name)
    if name in BUNDLED_CORPORA:
        sources = {"corpus": next(BUNDLED_CORPORA[name].glob("*.txt"))}
    elif row is not None and row.bundled:
        sources = {split.name: bundled_folder(row) / split.files[0] for split in row.splits}
    else:
        bundled = bundled_names("")
        if row is None:
            message = unknown("bundled data set", name, bundled)
        else:
            message = f"the files of '{name}' are not in bertctl"
        raise UsageError(
            message, remedy=f"Bundled: {', '.join(bundled)}. Others: bertctl fetch NAME."
        )

    targets = {split: folder / source.name for split, source in sources.items()}
    existing = [str(path) for path in targets.values() if path.exists()]
    if existing and not overwrite:
        raise UsageError(
            f"{existing[0]} exists", remedy="Name another folder, or add --overwrite to replace it."
        )
    for split, source in sources.items():
        write_text(targets[split], source.read_text(encoding="utf-8"))
    return targets


def _command_on(files: Mapping[str, Path]) -> list[str]:
    """Returns the command that trains on copied files."""
    if "corpus" in files:
        return ["pretrain", str(files["corpus"])]
    return ["finetune", str(files["train"]), "--validation-file", str(files["validation"])]


def _recipe(
    out: Output, settings: RecipeRequest, subject: Sequence[str], task: str | None
) -> "Recipe":
    """Returns the recipe to check: the named one, or a generic one around the given files.

    Args:
        out: Prints messages.
        settings: The options of the command line.
        subject: What was typed: one recipe, or up to three data files.
        task: Task of the files; None guesses it from the columns.
    """
    files = [name for name in subject if is_data_file(name)]
    if files:
        _check_files(subject, files)
        return _recipe_of_files(out, settings, files, task)
    if len(subject) > 1:
        message = f"one recipe is checked at a time, not {len(subject)}: {', '.join(subject)}"
        raise UsageError(
            message,
            remedy="Give one recipe, or files: bertctl data check train.csv validation.csv.",
        )
    if task is not None:
        raise UsageError(
            "--task goes with files; a recipe says its task itself", remedy="Leave --task out."
        )
    return settings.load(subject[0])


def _check_files(subject: Sequence[str], files: Sequence[str]) -> None:
    """Refuses files beside a recipe, and more files than there are splits.

    Args:
        subject: What was typed.
        files: The data files of `subject`.
    """
    if len(files) < len(subject):
        recipe_name = next(name for name in subject if name not in files)
        message = f"'{recipe_name}' is not a data file, and a recipe and files can't be mixed"
        command = f"bertctl data check {recipe_name} --train-file FILE."
        raise UsageError(message, remedy=f"For a recipe with other files: {command}")
    if len(files) > len(_SPLITS):
        message = f"{len(files)} files, but there are three splits"
        raise UsageError(message, remedy="Give training, validation and test rows.")


def _recipe_of_files(
    out: Output, settings: RecipeRequest, files: Sequence[str], task: str | None
) -> "Recipe":
    """Returns the generic recipe of a task, with these files as its splits.

    Args:
        out: Prints which split each file is, if their names change the usual order.
        settings: The options of the command line.
        files: One to three files.
        task: Task of the files; None guesses it from the columns.
    """
    from bertctl.config.task_names import task_names
    from bertctl.data.file_names import SUFFIXES, suffix_of

    splits = _splits_of(files)
    if splits != _SPLITS[: len(files)]:
        splits_text = ", ".join(
            f"{file} as {split}" for split, file in zip(splits, files, strict=True)
        )
        out.say(f"by their names, the files are checked so: {splits_text}")
    for split in splits:
        if f"data.{split}_file" in settings.options:
            raise UsageError(
                f"the {split} file is given twice", remedy=f"Leave --{split}-file out."
            )
    if task and task not in task_names():
        raise UsageError(
            unknown("task", task, task_names()), remedy=f"Tasks: {', '.join(task_names())}."
        )
    held_out = {
        f"data.{split}_file": file for split, file in zip(splits[1:], files[1:], strict=True)
    }
    try:
        return settings.load(
            files[0],
            held_out,
            listener=out,
            task=task or "",
        )
    except (DataError, UsageError) as error:
        # A task that was typed is never replaced.
        if task:
            raise
        # Rows that fit no task are checked as well, to show what is wrong with them. For that a
        # task is needed: the one that was guessed before a row turned out to be wrong, else the
        # first of all tasks.
        guessed_task = error.task
        is_readable = suffix_of(Path(files[0])) in SUFFIXES
        if not guessed_task and not is_readable:
            raise
        return settings.load(files[0], held_out, task=guessed_task or task_names()[0])


def _splits_of(files: Sequence[str]) -> tuple[str, ...]:
    """Returns the split of each file: train, validation and test in the order of the files.

    If only the second one has a name like `test.csv`, it is the test split, and a third file is the
    validation split.
    """
    train, validation, test = _SPLITS
    is_test_name = [_TEST_NAME.search(Path(file).name) is not None for file in files]
    if is_test_name[1:] in ([True], [True, False]):
        return (train, test, validation)[: len(files)]
    return _SPLITS[: len(files)]


def _document(recipe: "Recipe", report: "DataReport") -> dict[str, Any]:
    """Returns the JSON document of the answer."""
    return {
        "schema": 1,
        "recipe": recipe.name,
        "task": recipe.task,
        "counts": {severity: len(report.of(severity)) for severity in ("error", "warning", "note")},
        "splits": report.splits,
        "findings": [asdict(finding) for finding in report.findings],
        "skipped": list(report.skipped),
    }


def _tables(report: "DataReport") -> list[Shown]:
    """Returns a table of the splits, then each finding with its examples and what to do."""
    from rich.text import Text

    splits = plain_table(
        "split",
        "rows",
        "labels",
        "source",
        right=("rows",),
    )
    for split, facts in report.splits.items():
        labels = facts["labels"]
        counts_text = ", ".join(f"{name}: {rows:,}" for name, rows in list(labels.items())[:8])
        if len(labels) > 8:
            more = f", … ({len(labels)} in all)"
        else:
            more = ""
        splits.add_row(
            split, f"{facts['rows']:,}", Text(counts_text + more), Text(_from_here(facts["source"]))
        )
    parts: list[Shown] = [splits]
    styles = {"error": "bold red", "warning": "bold yellow", "note": "bold blue"}
    for finding in report.findings:
        parts.append(
            Text.assemble(
                "\n",
                (finding.severity, styles[finding.severity]),
                f" {finding.code}: {finding.message}",
            )
        )
        parts += [
            Text(f"    {_from_here(example.where)}: {example.text}") for example in finding.examples
        ]
        if finding.remedy:
            parts.append(Text(f"  → {finding.remedy}"))
    parts.append(
        Text(
            f"\n{_tally(report)}" if report.findings else "\nnothing to complain about",
            style="bold",
        )
    )
    return parts


def _tally(report: "DataReport") -> str:
    """Returns how many findings there are, such as `1 error, 2 warnings, 0 notes`."""
    return ", ".join(
        count(len(report.of(severity)), severity) for severity in ("error", "warning", "note")
    )


def _from_here(path: str) -> str:
    """Returns a path relative to the current folder, if it is below it.

    GitHub and GitLab need such paths to mark the files of a repository.
    """
    return path.removeprefix(f"{Path.cwd()}{os.sep}")


def _as_checks(group: str, report: "DataReport", *, strict: bool) -> list[Check]:
    """Returns a check that tells how many rows were read, and one for each finding.

    The first is there because most viewers of test results take a suite without cases for broken.

    Args:
        group: Name that the checks have in common.
        report: The findings.
        strict: Whether warnings fail, too.
    """
    rows = (
        ", ".join(f"{facts['rows']:,} {split}" for split, facts in report.splits.items())
        or "none could be read"
    )
    read = Check("rows", group, "pass", f"rows: {rows}")
    return [read, *(_as_check(group, finding, strict=strict) for finding in report.findings)]


def _named_as_options(report: "DataReport") -> "DataReport":
    """Returns a report whose messages name settings as options: `--max-length N`."""
    findings = tuple(
        replace(finding, message=as_options(finding.message), remedy=as_options(finding.remedy))
        for finding in report.findings
    )
    return replace(report, findings=findings, skipped=tuple(map(as_options, report.skipped)))


def _as_check(group: str, finding: "Finding", *, strict: bool) -> Check:
    """Returns a finding as a check, the form that the files for pipelines are written from.

    Args:
        group: Name that all checks of the report have in common.
        finding: The finding. Its file and line are those of its first example.
        strict: Whether a warning fails, too.
    """
    if finding.examples:
        where = finding.examples[0].where
    else:
        where = ""
    file, _, line = where.rpartition(":")
    has_line = bool(file) and line.isdigit()
    examples = [f"{_from_here(example.where)}: {example.text}" for example in finding.examples]
    if finding.severity == "error" or (strict and finding.severity == "warning"):
        verdict: Verdict = "fail"
    elif finding.severity == "warning":
        verdict = "warning"
    else:
        verdict = "pass"
    return Check(
        name=f"{finding.code} {finding.split}".strip(),
        group=group,
        verdict=verdict,
        message=finding.message,
        detail="\n".join([*examples, finding.remedy]).strip(),
        file=_from_here(file) if has_line else None,
        line=int(line) if has_line else None,
    )


def _verdict(report: "DataReport", *, strict: bool) -> None:
    """Ends the command with an error if the data has errors, or with `strict` if it has warnings.

    Raises:
        DataError: The data has errors, or warnings that `strict` refuses.
    """
    errors = report.of("error")
    warnings = report.of("warning")
    if errors:
        codes = ", ".join(dict.fromkeys(finding.code for finding in errors))
        raise DataError(
            f"the data has {count(len(errors), 'error')}: {codes}", remedy="See the findings above."
        )
    if strict and warnings:
        codes = ", ".join(dict.fromkeys(finding.code for finding in warnings))
        message = f"the data has {count(len(warnings), 'warning')}, which --strict refuses: {codes}"
        raise DataError(message, remedy="See the findings above, or leave --strict out.")


COMMANDS = {"check": check, "cp": cp}
