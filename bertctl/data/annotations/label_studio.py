"""Label Studio's JSON (labelstud.io/guide/export): a list of tasks, each with a text and the spans of annotators."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO

from bertctl.data.annotations.document import Document, Span, part
from bertctl.errors import DataError
from bertctl.writing import write_array


def documents_of(tasks: Sequence[Mapping[str, Any]], source: str) -> Iterator[Document]:
    """Yields the texts with the spans of their first annotation that was not cancelled, else of predictions."""
    for number, task in enumerate(tasks, start=1):
        where = f"{source}, task {number}"
        text = part(part(task, "data", dict, where), "text", str, where)
        spans: list[Span] = []
        for result in _results(task):
            if result.get("type") == "hypertextlabels":
                what = f"{where}: its spans count what a browser shows of HTML, not the characters of the text"
                raise DataError(what, remedy="Annotate plain text, with <Text> and <Labels> in the project.")
            if result.get("type") == "labels":
                value = part(result, "value", dict, where)
                start, end = (part(value, name, int, where) for name in ("start", "end"))
                spans += [(start, end, str(label)) for label in part(value, "labels", list, where)[:1]]
        yield Document(str(task.get("id", number - 1)), text, spans, [], annotated=bool(_answers(task)))


def require_spans(tasks: Sequence[Mapping[str, Any]], source: str) -> None:
    """Refuses annotations that are all `choices`: labels of whole texts, where spans are to be learned."""
    if {result.get("type") for task in tasks for result in _results(task)} == {"choices"}:
        remedy = f"bertctl finetune text-classification --train-file {shlex.quote(source)}"
        raise DataError(f"{source}: its annotations are choices for whole texts, and no spans", remedy=remedy)


def row_of(task: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a task as a row: its data, and as `label` the choice for the whole text, or a list of several."""
    chosen = [value for one in _results(task) if one.get("type") == "choices" for value in one["value"]["choices"]]
    label = {} if not chosen else {"label": chosen[0] if len(chosen) == 1 else chosen}
    return {**({"id": task["id"]} if "id" in task else {}), **task["data"], **label}


def _results(task: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Returns what the first annotation says that was not cancelled, else the first prediction."""
    return (_answers(task) or [{}])[0].get("result") or ()


def _answers(task: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Returns the annotations that were not cancelled, else the predictions; none of a task that nobody did."""
    given = [each for each in task.get("annotations") or () if not each.get("was_cancelled")]
    return given or task.get("predictions") or ()


def write(documents: Iterable[Document], out: TextIO) -> None:
    """Writes tasks with predictions, for the usual configuration of text and labels."""
    write_array(map(_task, documents), out)


def _task(document: Document) -> dict[str, Any]:
    result = [
        {
            "from_name": "label",
            "to_name": "text",
            "type": "labels",
            "value": {"start": start, "end": end, "text": document.text[start:end], "labels": [kind]},
            **({} if score is None else {"score": score}),
        }
        for (start, end, kind), score in document.scored
    ]
    predictions = [{"model_version": "bertctl", "result": result}]
    return {"data": {"id": document.id, "text": document.text}, "predictions": predictions}
