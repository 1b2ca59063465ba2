"""Label Studio's JSON (labelstud.io/guide/export).

A list of tasks, each with data and what annotators gave.

People's annotations are gold. Skipped and rejected ones, drafts and the predictions of models are
not; see `annotators.py` for what counts where several people annotated one task.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TextIO

from bertctl.data.annotations.annotators import PREDICTIONS, Annotation, agreed_label
from bertctl.data.annotations.document import Document, Span, part, show_spans
from bertctl.data.annotations.surface import same_words
from bertctl.data.names import TEXT_NAMES
from bertctl.data.read_options import ReadOptions
from bertctl.data.table import Table
from bertctl.data.unlabelled import NoLabel, UnusableLabel
from bertctl.errors import DataError, UsageError
from bertctl.words import command, hinted, shorten
from bertctl.writing import write_array

Task = Mapping[str, Any]

_ANNOTATION_FIELDS = ("annotations", "completions", "predictions")
"""What a task has beside its data; old versions say `completions`."""
_REJECTING_ACTIONS = frozenset({"skipped", "rejected"})
"""Last actions after which an annotation is no label."""
_HTML_TYPES = frozenset({"hypertextlabels", "paragraphlabels"})
_WHOLE_TEXT_TYPES = {
    "choices": "choices",
    "taxonomy": "taxonomy",
    "rating": "rating",
    "number": "number",
}
"""Types of results for a whole text, and where their value stands."""
_COMPARED_TASKS = 200
"""Tasks whose regions show which part of the data is the text."""
_PATH_SEPARATOR = "/"
"""Parts the levels of a taxonomy in the name of a label."""


class _Spans(NamedTuple):
    """Spans of an annotation, and the text that stands beside each."""

    spans: list[Span]
    surfaces: list[str | None]


def is_task(entry: Any) -> bool:
    """Returns whether an object is one of Label Studio's tasks: `{"data": {...}, ...}`."""
    has_data = isinstance(entry, Mapping) and isinstance(entry.get("data"), Mapping)
    return has_data and _has_names_of_tasks(entry)


def has_tasks(table: Table) -> bool:
    """Returns whether the rows of a table, one object per line, are tasks."""
    columns = table.columns
    is_likely = "data" in columns and _has_names_of_tasks(columns)
    return is_likely and all(isinstance(data, Mapping) for data in columns["data"])


def _has_names_of_tasks(names: Collection[str]) -> bool:
    """Returns whether the fields beside `data` are those of a task.

    A task has annotations or predictions. A task that nobody has annotated has neither, but it has
    no field that could be a text or a label, as rows with a column `data` have.
    """
    has_annotations = any(name in names for name in _ANNOTATION_FIELDS)
    has_text_or_label = any(name in names for name in ("text", "label", "labels"))
    return has_annotations or not has_text_or_label


def documents_of(tasks: Sequence[Task], source: str, options: ReadOptions) -> Iterator[Document]:
    """Yields the texts of tasks with the spans that people agree on.

    Args:
        tasks: The tasks of one file.
        source: Its name.
        options: Which part of the data is the text, and whose labels count.

    Raises:
        DataError: A task without a text, or a region that is no span.
        UsageError: Several parts of the data could be the text.
    """
    key = _text_key(tasks, source, options)
    for number, task in enumerate(tasks, start=1):
        where = f"{source}, task {number}"
        data = part(task, "data", dict, where)
        if not isinstance(data.get(key), str):
            remedy = (
                f"Name the text: `data.text_column=NAME`. There are: "
                f"{shorten(', '.join(data), 300)}."
            )
            raise DataError(f"{where}: no text '{key}' in its data", remedy=remedy)
        text = data[key]
        # Its spans, or why it has none: nobody annotated it, or annotators disagree.
        label = _agreed(task, partial(_spans_of, where=where), options, show=_show_spans)
        name = str(task.get("id", number - 1))
        if isinstance(label, _Spans):
            yield Document(
                id=name,
                text=text,
                spans=label.spans,
                scores=[],
                surfaces=label.surfaces,
            )
        else:
            yield Document(
                id=name,
                text=text,
                spans=[],
                scores=[],
                problem=label,
            )


def _text_key(tasks: Sequence[Task], source: str, options: ReadOptions) -> str:
    """Returns the key of the text among a task's data: `data.text_column`, or a guess.

    Raises:
        DataError: The user named a key for this file that it does not have.
        UsageError: Several keys could be the text.
    """
    data = part(tasks[0], "data", dict, f"{source}, task 1")
    text_column = options.settings.text_column
    if text_column in data:
        return str(text_column)
    # A hint was named for another file, such as the training file, so this file may lack it.
    is_hint = "text_column" in options.hints
    if text_column is not None and not is_hint:
        raise DataError(
            hinted(f"{source} has no '{text_column}' in the data of its tasks", text_column, data)
        )
    if "text" in data:
        return "text"
    # Of several texts, the marked words show which one people annotated.
    texts = [name for name, value in data.items() if isinstance(value, str)]
    fitting = [name for name in texts if _fits(tasks, name)] or texts
    usual = [name for name in TEXT_NAMES if name in fitting]
    if usual or len(fitting) == 1:
        key = (usual or fitting)[0]
        options.listener.say(f"{source}: text from '{key}' of the tasks' data (guessed)")
        return key
    message = f"{source}: which part of a task's data is the text can't be told"
    raise UsageError(
        message,
        remedy=f"Name it: `data.text_column=NAME`. There are: {shorten(', '.join(data), 300)}.",
    )


def _fits(tasks: Sequence[Task], key: str) -> bool:
    """Returns whether a part of the tasks' data is the text in which people marked regions.

    It is if in this part, each region of the first tasks has the words that the file gives for it.
    """
    n_compared = 0
    for task in tasks[:_COMPARED_TASKS]:
        text = task["data"].get(key)
        for surface, start, end in _marked_words(task):
            n_compared += 1
            if not isinstance(text, str) or not same_words(text[start:end], surface):
                return False
    return n_compared > 0


def _marked_words(task: Task) -> Iterator[tuple[str, int, int]]:
    """Yields the words that a task's regions have beside them, with their start and end."""
    for annotation in _annotations(task):
        for result in annotation.get("result") or ():
            value = result.get("value") or {}
            surface = value.get("text")
            start = value.get("start")
            end = value.get("end")
            if isinstance(surface, str) and type(start) is int and type(end) is int:
                yield surface, start, end


def have_spans(entries: Any) -> bool:
    """Returns whether entries of a file are tasks in which people or models marked spans."""
    if not isinstance(entries, list) or not entries or not all(map(is_task, entries)):
        return False
    results = _results_of(entries, with_predictions=True)
    types = {result.get("type") for result in results if isinstance(result, Mapping)}
    return not types.isdisjoint({"labels", *_HTML_TYPES})


def require_spans(tasks: Sequence[Task], source: str) -> None:
    """Refuses tasks that have annotations without spans, such as labels of whole texts.

    Raises:
        DataError: with the types of the results.
    """
    results = _results_of(tasks, with_predictions=False)
    types = {str(result.get("type")) for result in results}
    if types == {"choices"}:
        remedy = command("finetune text-classification", train_file=source)
        raise DataError(
            f"{source}: its annotations are choices for whole texts, and no spans", remedy=remedy
        )
    if types and not types & {"labels", *_HTML_TYPES}:
        listed = ", ".join(sorted(types))
        remedy = 'Spans are regions of <Labels>, with "type": "labels".'
        raise DataError(f"{source}: its annotations are {listed}, and no spans", remedy=remedy)


def rows_of(tasks: Sequence[Task], source: str, options: ReadOptions) -> list[dict[str, Any]]:
    """Returns tasks as rows: their data, and as `label` what people agree on for the whole text.

    A label is a choice, a list of several, or a number. Where tasks ask several questions, the
    labels of each have a column of the question's name.

    Args:
        tasks: The tasks of one file.
        source: Its name.
        options: Whose labels count, and whether the rows need labels.

    Raises:
        UsageError: Labels are needed, and the annotations have none of whole texts.
    """
    results = filter(_is_of_text, _results_of(tasks, with_predictions=True))
    questions = list(dict.fromkeys(str(result.get("from_name", "label")) for result in results))
    if len(questions) == 1:
        columns = {questions[0]: "label"}
    else:
        columns = {question: question for question in questions}
    if options.label_needed and not columns:
        _require_labels(tasks, source, options)
    rows = []
    for task in tasks:
        row = {"id": task["id"]} if "id" in task else {}
        row.update(task["data"])  # an id in the data itself replaces that of the task
        for question, column in columns.items():
            row[column] = _agreed(task, partial(_choice, question=question), options, show=str)
        rows.append(row)
    for column in columns.values():
        _write_lists(rows, column)
    return rows


def _write_lists(rows: Sequence[dict[str, Any]], column: str) -> None:
    """Makes each label of a question a list if people chose several labels for some text."""
    if not any(isinstance(row[column], list) for row in rows):
        return
    for row in rows:
        label = row[column]
        if label is None:
            row[column] = []
        elif not isinstance(label, list | NoLabel | UnusableLabel):
            row[column] = [label]


def _require_labels(tasks: Sequence[Task], source: str, options: ReadOptions) -> None:
    """Refuses tasks whose annotations have no label of a whole text.

    Tasks without any annotation or prediction pass: their label may be in their data. So may all
    tasks if `data.label_column` names a part of their data.

    Raises:
        UsageError: With the types of the results.
    """
    if options.settings.label_column is not None:
        return
    results = _results_of(tasks, with_predictions=False)
    types: Counter[Any] = Counter()
    for result in results:
        # The caller has found no choice for a whole text, so this one is for a region.
        is_choice_of_region = result.get("type") in _WHOLE_TEXT_TYPES
        if is_choice_of_region:
            types["choices of regions"] += 1
        else:
            types[result.get("type")] += 1
    if not types and any(task.get("predictions") for task in tasks):
        raise UsageError(
            f"{source}: nobody annotated its tasks; there are predictions of a model alone",
            remedy=f"To learn those: `data.annotator=predictions`, with the task "
            f"(`{command('finetune token-classification', train_file='FILE')}` for spans).",
        )
    if not types:
        return
    listed = ", ".join(f"{name} ({number})" for name, number in types.items())
    has_spans = bool(types.keys() & {"labels", "choices of regions"})
    raise UsageError(
        f"{source}: Label Studio's annotations hold no label of a whole text, but {listed}",
        remedy="Labels of texts are <Choices>, <Taxonomy>, <Rating> and <Number>. "
        + ("Spans are learned by token-classification. " if has_spans else "")
        + "To learn a part of the tasks' data, name it: `data.label_column=NAME`.",
    )


def short_rows(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns rows of Label Studio's short JSON with several choices for one text as a list.

    `{"label": {"choices": ["a", "b"]}}` -> `{"label": ["a", "b"]}`; in the other rows of such a
    column a single choice is a list, too. Other rows are returned as they are.
    """
    if not all("annotation_id" in row for row in rows):
        return list(rows)
    columns_of_lists: set[str] = set()
    for row in rows:
        columns_of_lists.update(name for name, value in row.items() if _are_choices(value))
    rows_with_lists: list[Mapping[str, Any]] = []
    for row in rows:
        new_row: dict[str, Any] = dict(row)
        for name in columns_of_lists:
            value: Any = row.get(name)
            if _are_choices(value):
                new_row[name] = value["choices"]
            else:
                new_row[name] = _as_list(value)
        rows_with_lists.append(new_row)
    return rows_with_lists


def _as_list(value: Any) -> list[Any]:
    """Returns a label as a list; no label as an empty one."""
    if value is None or value == "":
        return []
    if isinstance(value, list):
        return value
    return [value]


def with_listed_choices(table: Table) -> Table:
    """Returns a table of Label Studio's short CSV with lists for cells that write choices as JSON.

    In a column with such cells (`{"choices":["a","b"]}`) a single choice is a list, too. Other
    tables are returned as they are.
    """
    if "annotation_id" not in table.columns:
        return table
    columns: dict[str, Sequence[Any]] = {}
    for name, values in table.columns.items():
        labels = [_written_choices(value) for value in values]
        has_written_choices = any(
            isinstance(label, list) and not isinstance(value, list)
            for label, value in zip(labels, values, strict=True)
        )
        if has_written_choices:
            columns[name] = [_as_list(label) for label in labels]
        else:
            columns[name] = values
    return replace(table, columns=columns)


def _written_choices(value: Any) -> Any:
    """Returns the list that a cell such as `{"choices":["a"]}` writes; another cell as it is."""
    if not isinstance(value, str) or not value.startswith('{"choices"'):
        return value
    try:
        written = json.loads(value)
    except ValueError:
        return value
    if _are_choices(written):
        return written["choices"]
    return value


def _are_choices(value: Any) -> bool:
    """Returns whether a value is an object with nothing but a list of choices."""
    return (
        isinstance(value, Mapping)
        and value.keys() == {"choices"}
        and isinstance(value["choices"], list)
    )


def _is_of_text(result: Mapping[str, Any]) -> bool:
    """Returns whether a result is about the whole text, not about a region of it."""
    return result.get("type") in _WHOLE_TEXT_TYPES and "start" not in (result.get("value") or {})


def _choice(results: Sequence[Mapping[str, Any]], question: str) -> Any:
    """Returns an annotator's answer to a question: a choice, a list of several, a number, or None.

    Args:
        results: The results of one annotation.
        question: Name of the control in the labelling interface.
    """
    answers: list[Any] = []
    for result in results:
        if _is_of_text(result) and str(result.get("from_name", "label")) == question:
            value_key = _WHOLE_TEXT_TYPES[result["type"]]
            value = result["value"][value_key]
            if result["type"] == "taxonomy":  # each choice is a path of levels
                value = [_PATH_SEPARATOR.join(map(str, path)) for path in value]
            answers += value if isinstance(value, list) else [value]
    if len(answers) > 1:
        return answers
    return answers[0] if answers else None


def _agreed(
    task: Task,
    read: Callable[[Sequence[Mapping[str, Any]]], Any],
    options: ReadOptions,
    *,
    show: Callable[[Any], str],
) -> Any:
    """Returns the label that the annotations of a task agree on, or `NoLabel` or `UnusableLabel`.

    Args:
        task: A task of Label Studio.
        read: Returns the label in an annotation's results, such as a choice or spans.
        options: `data.annotator` says whose labels count.
        show: Returns a label in a few words, for messages.
    """
    entries = _annotations(task)
    annotations = [
        Annotation(
            _annotator_names(entry),
            read(entry.get("result") or ()),
            is_truth=bool(entry.get("ground_truth")),
            is_prediction=entry.get("last_action") == "prediction",
        )
        for entry in entries
        if not _reason_against(entry)
    ]
    for entry in task.get("predictions") or ():
        names = (PREDICTIONS, str(entry.get("model_version", "")))
        annotations.append(Annotation(names, read(entry.get("result") or ()), is_prediction=True))
    reasons = list(filter(None, map(_reason_against, entries)))
    reason = reasons[0] if reasons else "not annotated"
    label = agreed_label(
        annotations,
        options.settings.annotator,
        key=_comparable,
        show=show,
        absent=reason,
    )
    # That somebody skipped the task says more than that no one else annotated it.
    if isinstance(label, NoLabel) and reasons:
        return NoLabel(reason)
    return label


def _results_of(tasks: Sequence[Task], *, with_predictions: bool) -> Iterator[Mapping[str, Any]]:
    """Yields the results of all annotations of tasks; if `with_predictions`, of models, too."""
    for task in tasks:
        annotations = list(_annotations(task))
        if with_predictions:
            annotations += task.get("predictions") or ()
        for annotation in annotations:
            yield from annotation.get("result") or ()


def _annotations(task: Task) -> Sequence[Mapping[str, Any]]:
    """Returns what people gave to a task; old versions say `completions`."""
    return task.get("annotations") or task.get("completions") or ()


def _reason_against(annotation: Mapping[str, Any]) -> str:
    """Returns why an annotation is no label: `skipped` or `rejected`; empty if it is one."""
    if annotation.get("was_cancelled") or annotation.get("skipped"):
        return "skipped"
    last_action = str(annotation.get("last_action", ""))
    if last_action in _REJECTING_ACTIONS:
        return last_action
    return ""


def _annotator_names(annotation: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns what the annotator may be called: e-mail address, user name, number, full name.

    Most exports have the number alone.
    """
    person = annotation.get("completed_by")
    if not isinstance(person, Mapping):
        return () if person is None else (str(person),)
    full_name = " ".join(
        str(person[name]) for name in ("first_name", "last_name") if person.get(name)
    )
    names = (person.get("email"), person.get("username"), person.get("id"), full_name)
    return tuple(str(name) for name in names if name)


def _comparable(label: Any) -> Any:
    """Returns a value that is equal for equal labels, whatever the order of spans or choices."""
    if isinstance(label, _Spans):
        return frozenset(label.spans)
    if isinstance(label, list):
        return frozenset(map(str, label))
    return label


def _show_spans(label: _Spans) -> str:
    """Returns the spans of a label as a person reads them."""
    return show_spans(label.spans)


def _spans_of(results: Sequence[Mapping[str, Any]], where: str) -> "_Spans | UnusableLabel":
    """Returns the spans among the results of an annotation, or why they can't be learned.

    They can't if a span has several labels, or none.

    Args:
        results: The results of one annotation.
        where: File and task.

    Raises:
        DataError: Spans that count what a browser shows, or regions that are no spans.
    """
    spans: list[Span] = []
    surfaces: list[str | None] = []
    for result in results:
        if result.get("type") in _HTML_TYPES:
            message = (
                f"{where}: its spans count what a browser shows of HTML, not the characters of the "
                "text"
            )
            raise DataError(
                message, remedy="Annotate plain text, with <Text> and <Labels> in the project."
            )
        if result.get("type") != "labels":
            continue
        value = part(result, "value", dict, where)
        start, end = (part(value, name, int, where) for name in ("start", "end"))
        labels: list[Any] = value.get("labels") or []
        surface = value.get("text")
        if len(labels) != 1:
            region = f"the region {start} to {end} ({shorten(repr(surface))})"
            if labels:
                counted = f"{len(labels)} labels: {', '.join(map(str, labels))}"
            else:
                counted = "no label"
            remedy = "Correct it in Label Studio: each word of a region has one label."
            return UnusableLabel(f"{region} has {counted}", remedy)
        spans.append((start, end, str(labels[0])))
        surfaces.append(surface if isinstance(surface, str) else None)
    return _Spans(spans, surfaces)


def write(documents: Iterable[Document], out: TextIO) -> None:
    """Writes tasks with predictions for the usual labelling interface.

    The file's own spans are written as annotations.
    """
    write_array(map(_task, documents), out)


def _task(document: Document) -> dict[str, Any]:
    """Returns a text as a task: predicted spans as predictions, the file's spans as annotations."""
    regions: list[dict[str, Any]] = []
    for span, score in document.scored:
        region = _region(document.text, span)
        if score is not None:
            region["score"] = score
        regions.append(region)
    task: dict[str, Any] = {"data": {"id": document.id, "text": document.text}}
    if document.gold is not None:
        task["annotations"] = [{"result": [_region(document.text, span) for span in document.gold]}]
    task["predictions"] = [{"model_version": "bertctl", "result": regions}]
    return task


def _region(text: str, span: Span) -> dict[str, Any]:
    """Returns a span as a result of the usual labelling interface."""
    start, end, kind = span
    value = {"start": start, "end": end, "text": text[start:end], "labels": [kind]}
    return {"from_name": "label", "to_name": "text", "type": "labels", "value": value}
