"""A model that makes vectors of texts, the texts, and where answers go: as the verbs name them that compare texts."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertctl.cli import streams
from bertctl.cli.folding import Decorator, folds, option
from bertctl.cli.output import Output
from bertctl.cli.recipe_options import LOCKED_OPTION, RecipeRequest, by_field, lock, picked
from bertctl.data.file_names import is_text
from bertctl.data.rows import Rows
from bertctl.errors import UsageError
from bertctl.features.chunks import joined, require_rows

if TYPE_CHECKING:
    from bertctl.config.schema import Recipe
    from bertctl.search.index import Index
    from bertctl.search.vectors import TextVectors


@dataclass(frozen=True)
class VectorsGiven:
    """Holds what was typed; nothing is read before its methods are called.

    Attributes:
        fields: of a recipe, by their dotted names.
        options: the other ones, by name.
    """

    fields: Mapping[str, Any]
    options: Mapping[str, Any]

    def recipe(self, model: str = "minilm") -> "Recipe":
        """Returns a recipe of what was typed, with this model where none was."""
        return RecipeRequest(options={"model.name": model, **self.fields}).load("text-classification")

    def rows(self, given: str, out: Output, *, pairs: bool = False, typed: bool = False) -> Iterator[Rows]:
        """Returns the rows of an input, at least one, some at a time; or a text that may have been typed."""
        from bertctl.features.source import Input

        if typed and not given.strip():
            raise UsageError("the text is empty", remedy="Give a text, a file, or - for stdin.")
        if typed and is_text(given):
            return iter([Rows("typed", {"text": [given]}, ["0"], "the command line")])
        source = Input(given, self.recipe().data, kind=self.options["input_format"])
        stream = require_rows(source.stream(listener=out), given)
        first = next(stream)
        if first.has("pair") and not pairs:
            raise UsageError(f"{given} has two columns of texts", remedy="Name the one to read: --text-column NAME.")
        return chain([first], stream)

    def read(self, given: str, out: Output, *, pairs: bool = False, typed: bool = False) -> Rows:
        """Returns all of them."""
        return joined([*self.rows(given, out, pairs=pairs, typed=typed)])

    def model(self, index: "Index | None" = None, side: str = "", **more: str) -> "TextVectors":
        """Returns the model made ready, as the index was made where there is one; `more` has to be the index's too.

        Raises:
            BertctlError: no such model, or another one than the index's.
        """
        from bertctl.features.memory import bound_caches

        bound_caches()
        from bertctl.features.extract_job import VectorNames
        from bertctl.search.vectors import TextVectors

        said = index.document if index else {}
        layer, pooling = (self.options.get(name) or said.get(name) for name in ("layer", "pooling"))
        special = layer != "word-embeddings"  # [CLS] and [SEP] have the same vector in every text there
        names = VectorNames((layer or "last",), (pooling,) if pooling else (), None, special, normalize=True)
        length = self.fields.get("model.max_length", said.get("max_length"))
        long = {} if "model.long_text" in self.fields else said.get("long_text") or {}
        fields = {f"model.{name}": value for name, value in long.items() if name != "max_length"}
        recipe = replace(self, fields={**fields, **self.fields}).recipe(said.get("model", "minilm"))
        model = TextVectors(recipe, names, length=length, side=side)
        if index is not None:
            is_other = side == "query" and "model.long_text" in self.fields  # long queries may be read otherwise
            index.check({**model.made, **more} | ({"long_text": said.get("long_text")} if is_other else {}))
        return model

    def answer(
        self, out: Output, answers: Iterable[dict[str, Any]], said: Callable[[], dict[str, Any]], *, table: bool = False
    ) -> dict[str, Any]:
        """Writes answers as they come, into a file or as lines to stdout; for a table, and with --json, as a whole.

        Returns:
            How many they are (`count`), and what is `said` of them when all are known.
        """
        from bertctl.inference.layouts import layout_of
        from bertctl.inference.predict import Destination
        from bertctl.reporting.document import record_table

        output, numbers = self.options["output"], count()
        counted = (answer for answer, _ in zip(answers, numbers, strict=False))
        if output is None and (out.as_json or table):
            found: dict[str, Any] = {"answers": list(counted)}
        else:
            with streams.data() as stream:
                found = {"files": Destination(output, layout_of(output), stream).write(counted, None)}
        summary = {"count": next(numbers), **said(), **found}
        if output or "answers" in found:
            out.answer(summary, *map(record_table, [found["answers"]] if table and "answers" in found else []))
        return summary


_POOLING = "How a text's vector is made of its tokens'. Default: as the model's folder says (model), else mean."
_INTO = "File for the answers: lines of JSON, or by its suffix json, csv or tsv. Default: stdout."
_LAYOUT = "Layout of the input: lines, csv, tsv, jsonl, parquet."
_OPTIONS = [
    option("layer", "--layers", "Layer by number or name, as in extract-features. Default: last.", metavar="NAME"),
    option("pooling", "--pooling", _POOLING, metavar="cls|mean|max|mean-max|pooler|model"),
    option("input_format", "--input-format", _LAYOUT, metavar="NAME"),
    option("output", "--output -o", _INTO, Path, metavar="FILE"),
]


def takes_vectors(*left_out: str) -> Decorator:
    """Gives a verb `verb(out, given, ...)` the options of model, vectors, texts and answers; some left out."""
    fields = picked("model", "long_texts", "columns", "layout", "compute")
    options = [one for one in _OPTIONS if one.name not in left_out]

    def fold(given: dict[str, Any]) -> VectorsGiven:
        lock(given)
        return VectorsGiven(by_field(fields, given), {one.name: given.pop(one.name) for one in options})

    return folds([], [*options, *(row.parameter() for row in fields), LOCKED_OPTION], fold)
