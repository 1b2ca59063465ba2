"""A model that makes vectors of texts, and the texts.

`search`, `index` and their like are asked for them so, by a command line or from Python.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

from bertctl.config.load import load_recipe
from bertctl.config.recipe_files import expanded_path
from bertctl.config.schema import Recipe
from bertctl.data.file_names import is_text
from bertctl.data.read_options import Reading
from bertctl.data.rows import Rows
from bertctl.data.sources import MemoryFile
from bertctl.errors import DataError, UsageError
from bertctl.features.chunks import joined, require_rows
from bertctl.features.source import Input, input_name
from bertctl.progress import Listener
from bertctl.run_folder import is_export
from bertctl.search.index import Index
from bertctl.words import command

if TYPE_CHECKING:
    from bertctl.search.vectors import TextVectors

REMEMBERED_COLUMNS = ("data.text_column", "data.id_column", "data.label_column")
"""Recipe fields of columns that an index remembers."""

REMEMBERED_FIELDS = (
    *REMEMBERED_COLUMNS,
    "data.encoding",
    "data.delimiter",
    "data.header",
    "runtime.precision",
)
"""Recipe fields that an index remembers where they were typed."""

LONG_TEXT_FIELDS = ("long_text", "max_length", "window_stride", "window_pooling")
"""What an index says of long texts, by the recipe's names."""


@dataclass(frozen=True)
class RememberedSettings:
    """How an index's texts were read.

    Attributes:
        fields: Recipe fields by their dotted names, of `REMEMBERED_FIELDS`.
        guessed: Those of them that were guessed and not typed.
        input_format: Format that was typed for stdin.
    """

    fields: Mapping[str, Any]
    guessed: frozenset[str]
    input_format: str | None

    @classmethod
    def of(cls, index: Index | None) -> Self:
        """Returns what an index remembers; nothing without one, or for one of an older version."""
        reading = index.document.reading if index is not None else None
        if reading is None:
            return cls({}, frozenset(), None)
        fields = {
            name: value for name, value in reading.fields.items() if name in REMEMBERED_FIELDS
        }
        return cls(fields, frozenset(reading.guessed) & fields.keys(), reading.input_format)

    def without(self, typed: Mapping[str, Any]) -> Self:
        """Returns the remembered settings without those fields that were typed now."""
        fields = {name: value for name, value in self.fields.items() if name not in typed}
        return replace(self, fields=fields, guessed=self.guessed & fields.keys())

    def data_fields(self) -> dict[str, Any]:
        """Returns the fields that say how files are read."""
        return {name: value for name, value in self.fields.items() if name.startswith("data.")}


@dataclass(frozen=True)
class Corpus:
    """Texts of an index.

    Attributes:
        rows: The texts, some at a time.
        has_ids: Whether they have ids of their own.
        remembered: Fields for index.json on how the files are read; empty if it has them already.
    """

    rows: Iterator[Rows]
    has_ids: bool
    remembered: Mapping[str, Any]


def _peek(readings: Iterator[Reading]) -> tuple[Reading | None, Iterator[Reading]]:
    """Returns the first reading, and an iterator over all readings, the first one included.

    The first is None if there are none.
    """
    first_reading = next(readings, None)
    return first_reading, chain([] if first_reading is None else [first_reading], readings)


@dataclass(frozen=True)
class VectorRequest:
    """Model and texts that are asked for; nothing is read before its methods are called.

    Attributes:
        fields: Recipe fields by their dotted names.
        options: The other ones, by name: layer, pooling, similarity, input_format.
    """

    fields: Mapping[str, Any]
    options: Mapping[str, Any]

    def recipe(self, model: str = "minilm") -> Recipe:
        """Returns a recipe of what was typed, with this model where none was."""
        return load_recipe("text-classification", options={"model.name": model, **self.fields})

    def rows(
        self,
        input_source: str | MemoryFile,
        listener: Listener,
        *,
        pairs: bool = False,
        typed: bool = False,
    ) -> Iterator[Rows]:
        """Returns the rows of an input, at least one, some at a time.

        Args:
            input_source: A file, `-` for stdin, or rows in memory.
            listener: Receives progress messages.
            pairs: Whether rows of two texts are accepted.
            typed: Whether the input may be a text itself, typed in place of a file.

        Raises:
            UsageError: No rows, an empty text, or rows of two texts where one is needed.
        """
        if typed and isinstance(input_source, str) and not input_source.strip():
            raise UsageError("the text is empty", remedy="Give a text, a file, or - for stdin.")
        if typed and isinstance(input_source, str) and is_text(input_source):
            return iter([Rows("typed", {"text": [input_source]}, ["0"], "the command line")])
        nothing_remembered = RememberedSettings.of(None)
        readings = self._readings(input_source, listener, nothing_remembered, pairs=pairs)
        return (reading.rows for reading in readings)

    def corpus(
        self, input_source: Sequence[str] | MemoryFile, listener: Listener, index: Index | None
    ) -> Corpus:
        """Returns the rows for an index, read in the way that the index remembers.

        Fields that are typed now go before those that the index remembers. Of the remembered ones,
        columns that were guessed are used only if the file has them. Those that were typed at that
        time (columns, encoding, delimiter, header) have to fit the file.

        Args:
            input_source: Files or patterns that are read as one file, - or a data set's name.
            listener: Receives messages on how the files are read.
            index: The index that is added to or continued; None for a new one.
        """
        of_index = RememberedSettings.of(index)
        remaining = of_index.without(self.fields)
        first_reading, readings = _peek(
            self._readings(input_source, listener, remaining, pairs=False)
        )
        rows = (reading.rows for reading in readings)
        has_ids = first_reading is not None and first_reading.has_ids
        if of_index.fields:
            # Guessed columns may not be in this file, so the message leaves them out.
            remembered_texts = [
                f"{name.partition('.')[2]} {value}"
                for name, value in remaining.fields.items()
                if name not in remaining.guessed
            ]
            if remembered_texts:
                settings_text = ", ".join(remembered_texts)
                listener.say(
                    f"{input_name(input_source)} is read as the index was made: {settings_text}"
                )
            to_remember: dict[str, Any] = {}  # index.json has it already
        else:
            to_remember = {"reading": self._reading_to_remember(first_reading)}
        return Corpus(rows, has_ids, to_remember)

    def _reading_to_remember(self, reading: Reading | None) -> dict[str, Any]:
        """Returns the field `reading` of index.json: how the files of a new index were read.

        Args:
            reading: The first rows with the columns that were typed or guessed for them; None
                without rows.
        """
        typed = {name: value for name, value in self.fields.items() if name in REMEMBERED_FIELDS}
        guessed = {}
        if reading is not None:
            for name in REMEMBERED_COLUMNS:  # such as data.text_column
                _, _, setting = name.partition(".")
                column = getattr(reading.settings, setting, None)
                if column is not None and name not in typed:
                    guessed[name] = column
        return {
            "fields": {**guessed, **typed},
            "guessed": sorted(guessed),
            "input_format": self.options.get("input_format"),
        }

    def _readings(
        self,
        input_source: str | Sequence[str] | MemoryFile,
        listener: Listener,
        remembered: RememberedSettings,
        *,
        pairs: bool,
    ) -> Iterator[Reading]:
        """Yields the rows of an input, read as an index remembers unless fields say otherwise.

        Args:
            input_source: A file, files, `-` for stdin, or rows in memory.
            listener: Receives progress messages.
            remembered: How the texts of the index were read.
            pairs: Whether rows of two texts are accepted.

        Raises:
            UsageError: No rows, or rows of two texts where one is needed.
        """
        fields = {**remembered.data_fields(), **self.fields}
        settings = replace(self, fields=fields).recipe().data

        # A file's name shows its format; stdin has no name.
        kind = self.options.get("input_format")
        if kind is None and input_source in ("-", ["-"]):
            kind = remembered.input_format

        # `data.text_column` -> `text_column`. A guessed column counts only where the input has it.
        guessed_fields = frozenset(name.partition(".")[2] for name in remembered.guessed)
        source = Input(
            input_source,
            settings,
            kind=kind,
            hints=guessed_fields,
        )

        first_reading, readings = _peek(source.readings(listener=listener))
        require_rows([first_reading.rows] if first_reading else [], source.name)
        if first_reading is not None and first_reading.rows.has("pair") and not pairs:
            raise UsageError(
                f"{source.name} has two columns of texts",
                remedy="Name the one to read: `data.text_column=NAME`.",
            )
        return readings

    def read(
        self,
        input_source: str | MemoryFile,
        listener: Listener,
        *,
        pairs: bool = False,
        typed: bool = False,
    ) -> Rows:
        """Returns all rows of an input; the arguments are those of `rows`."""
        return joined(
            [
                *self.rows(
                    input_source,
                    listener,
                    pairs=pairs,
                    typed=typed,
                )
            ]
        )

    def model(
        self, index: Index | None = None, side: str = "", *, exact: bool = False, **must_match: str
    ) -> "TextVectors":
        """Returns the model that computes vectors, loaded; with an index the model that made it.

        Settings that were typed go before those of the index. They are refused if they would give
        other vectors than those in the index.

        Args:
            index: The index that is searched or added to; None without.
            side: `query` or `document`, for models that treat the two differently; empty otherwise.
            exact: Whether a CPU computes in fp32 if no precision is typed, so that near
                similarities keep their order.
            must_match: Further values that index.json must have, such as `dtype="int8"`.

        Raises:
            BertctlError: No such model, or another one than the index's.
        """
        from bertctl.features.kept_memory import bound_caches

        bound_caches()
        from bertctl.features.extract_job import VectorNames
        from bertctl.runtime.device import exact_on_cpu
        from bertctl.search.vectors import TextVectors

        made_by = index.document.as_json() if index else {}
        layer = self.options.get("layer") or made_by.get("layer")
        pooling = self.options.get("pooling") or made_by.get("pooling")
        # Word embeddings of [CLS] and [SEP] are the same in every text, and say nothing about it.
        has_special_tokens = layer != "word-embeddings"
        names = VectorNames(
            layers=(layer or "last",),
            poolings=(pooling,) if pooling else (),
            words=None,
            special_tokens=has_special_tokens,
            normalize=True,
        )
        # Not from the recipe, whose default would hide that nobody gave a length: the model's own
        # length counts then.
        max_length = self.fields.get("model.max_length", made_by.get("max_length"))
        remembered_fields: dict[str, Any] = {}
        # The fields of long texts belong together: if a rule is typed, none of the index's counts.
        if index is not None and "model.long_text" not in self.fields:
            remembered_fields |= _long_text_fields(index)
        precision = RememberedSettings.of(index).fields.get("runtime.precision")
        if precision:
            remembered_fields["runtime.precision"] = precision
        fields = {**remembered_fields, **self.fields}
        recipe = replace(self, fields=fields).recipe(made_by.get("model", "minilm"))
        similarity = self.options.get("similarity") or made_by.get("similarity")
        # An export computes with the numbers that it was made with.
        if exact and not is_export(expanded_path(recipe.model.name)):
            recipe = recipe.model_copy(update={"runtime": exact_on_cpu(recipe.runtime)})
        model = TextVectors(
            recipe,
            names,
            length=max_length,
            side=side,
            similarity=similarity,
        )
        if index is not None:
            # Long queries may be read in another way than the indexed texts.
            made = {**model.made, **must_match}
            if side == "query" and "model.long_text" in self.fields:
                made["long_text"] = made_by.get("long_text")
            index.check(made)
        return model


def _long_text_fields(index: Index) -> dict[str, Any]:
    """Returns the recipe fields of long texts that an index was made with.

    `max_length` is left out: `VectorRequest.model` takes it from index.json by itself.

    Example:
        index.json says `"long_text": {"long_text": "window", "window_stride": 64}`, and the fields
        are `{"model.long_text": "window", "model.window_stride": 64}`.

    Raises:
        DataError: index.json has a key that no version of bertctl writes.
    """
    long_text: Mapping[str, Any] = index.document.as_json().get("long_text") or {}
    unknown_keys = sorted(long_text.keys() - {*LONG_TEXT_FIELDS})
    if unknown_keys:
        message = f"{index.folder}/index.json is damaged: long_text has the key '{unknown_keys[0]}'"
        index_command = command("index CORPUS", output="INDEX", overwrite=True)
        raise DataError(message, remedy=f"Make the index again: {index_command}.")
    return {f"model.{name}": value for name, value in long_text.items() if name != "max_length"}
