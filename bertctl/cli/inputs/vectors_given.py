"""A model that makes vectors of texts, the texts, and where answers go.

They are typed so for the verbs that compare texts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bertctl.cli.framework import streams
from bertctl.cli.framework.folding import Decorator, folds, option
from bertctl.cli.framework.output import Output
from bertctl.cli.framework.recipe_options import (
    LOCKED_OPTION,
    apply_locked_option,
    by_field,
    picked,
)

if TYPE_CHECKING:
    from bertctl.search.vector_request import VectorRequest


Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]


@dataclass(frozen=True)
class VectorsGiven:
    """Options for vectors of texts, as they were typed. Nothing is read before a method is called.

    Attributes:
        fields: Dotted recipe field -> value, for the options that set fields.
        options: Name -> value, for the other options; None if it was not typed.
    """

    fields: Mapping[str, Any]
    options: Mapping[str, Any]

    @property
    def request(self) -> "VectorRequest":
        """The model and the texts that are asked for."""
        from bertctl.search.vector_request import VectorRequest

        return VectorRequest(self.fields, self.options)

    def answer(
        self,
        out: Output,
        answers: Iterable[dict[str, Any]],
        summarise: Callable[[], dict[str, Any]],
        *,
        table: bool = False,
        hidden: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Writes answers to the file of `--output`, or prints them on stdout.

        On stdout they are lines of JSON, a table, or one document with `--json`. Lines are written
        as they come.

        Args:
            out: Prints the table or the document.
            answers: The answers.
            summarise: Returns further entries of the summary when all answers are known.
            table: Whether stdout gets a table instead of lines.
            hidden: Columns that the table leaves out.

        Returns:
            The summary: how many answers there are (`count`), and the entries of `summarise`.
        """
        from bertctl.inference.layouts import layout_of
        from bertctl.inference.predict import Destination
        from bertctl.reporting.document import record_table

        output = self.options["output"]
        n_answers = 0

        def counted() -> Iterator[dict[str, Any]]:
            """Yields the answers, and counts them in `n_answers`."""
            nonlocal n_answers
            for answer in answers:
                n_answers += 1
                yield answer

        prints_at_end = output is None and (out.as_json or table)
        if prints_at_end:
            written: dict[str, Any] = {"answers": list(counted())}
        else:
            with streams.data() as stream:
                destination = Destination(output, layout_of(output), stream)
                written = {"files": destination.write(counted(), None)}
        summary = {"count": n_answers, **summarise(), **written}

        # If stdout has got the lines, nothing is printed after them.
        if output or prints_at_end:
            tables = []
            if table and prints_at_end:
                visible = [_without(answer, hidden) for answer in written["answers"]]
                tables.append(record_table(visible))
            out.answer(summary, *tables)
        return summary


def _without(answer: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Returns an answer without some of its columns."""
    return {name: value for name, value in answer.items() if name not in names}


_POOLING = (
    "How the token vectors are combined into one per text. Default: the setting in the model's "
    "folder (model), else mean."
)
_SIMILARITY = (
    "Similarity measure; distances are negated. Default: the setting in the model's folder, else "
    "cosine."
)
_INTO = (
    "File for the answers: lines of JSON, or by its suffix json, csv or tsv. An existing file is "
    "replaced. Default: stdout."
)
_LAYOUT = "Layout of the input: lines, csv, tsv, jsonl, parquet."
_OPTIONS = [
    option(
        "layer",
        "--layers",
        "Layer by number or name, as in extract-features. Default: last.",
        metavar="NAME",
    ),
    option("pooling", "--pooling", _POOLING, metavar="cls|mean|max|mean-max|pooler|model"),
    option("similarity", "--similarity", _SIMILARITY, Similarity),
    option("input_format", "--input-format", _LAYOUT, metavar="NAME"),
    option(
        "output",
        "--output -o",
        _INTO,
        Path,
        metavar="FILE",
    ),
]


def takes_vectors(*left_out: str) -> Decorator:
    """Returns a decorator that gives a verb the options of model, vectors, texts and answers.

    The verb is a function `verb(out, given, ...)`; `given` is a `VectorsGiven` of all options.

    Args:
        left_out: Names of options that the verb does not have.
    """
    fields = picked(
        "model",
        "long_texts",
        "columns",
        "layout",
        "compute",
        "exports",
    )
    options = [option for option in _OPTIONS if option.name not in left_out]

    def fold(arguments: dict[str, Any]) -> VectorsGiven:
        """Removes these options from a verb's arguments, and returns them as one value."""
        apply_locked_option(arguments)
        return VectorsGiven(
            by_field(fields, arguments),
            {option.name: arguments.pop(option.name) for option in options},
        )

    field_options = [row.parameter() for row in fields]
    return folds(before=[], after=[*options, *field_options, LOCKED_OPTION], fold=fold)
