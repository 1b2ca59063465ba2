"""Rows as a command line names them.

They are a file, stdin, texts, questions about a text, or a split of the run's own data.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertctl.cli.framework.completion import dataset_names
from bertctl.cli.framework.folding import Decorator, folds, option, parameter
from bertctl.cli.framework.recipe_options import (
    LOCKED_OPTION,
    FieldOption,
    ModelArgument,
    apply_locked_option,
    by_field,
    picked,
)
from bertctl.cli.framework.recipe_requests import RunRequest
from bertctl.errors import UsageError
from bertctl.progress import Listener

if TYPE_CHECKING:
    from bertctl.data.read_options import SkippedRows
    from bertctl.data.rows import Rows
    from bertctl.inference.trained import NetworkRun
    from bertctl.inference.trained_run import TrainedRun


@dataclass(frozen=True)
class RowsGiven:
    """Rows as they were typed; nothing is read before `chunks`.

    Attributes:
        run: The run that answers, and the fields of its recipe that the command line changes.
        files: Paths and patterns that are read as one file, or `-` for stdin.
        texts: Texts of the command line.
        pairs: Second texts of pairs, one for each of `texts`.
        split: Name of a split: of the data set `data`, or of the run's own data without `data`.
        data: Catalog name of a data set that is not the run's own.
        questions: Questions about `context`.
        context: The text that the questions are about, or a file with it.
        kind: Format of the files. None takes the one that their suffix stands for.
    """

    run: RunRequest
    files: Sequence[str] = ()
    texts: Sequence[str] = ()
    pairs: Sequence[str] = ()
    split: str | None = None
    data: str | None = None
    questions: Sequence[str] = ()
    context: str | None = None
    kind: str | None = None

    def check(self, verb: str) -> None:
        """Refuses rows of several sources, an option without its partner, and no rows at all.

        Args:
            verb: What the command does with rows, for the message.

        Raises:
            UsageError: With what to give.
        """
        has_question = bool(self.questions)
        has_context = self.context is not None
        if has_question != has_context:
            message = "--question and --context need each other"
            raise UsageError(
                message, remedy='Such as --question "When was it written?" --context text.txt'
            )
        has_files = bool(self.files)
        has_texts = bool(self.texts or self.questions)
        has_split = bool(self.split or self.data)
        n_sources = sum([has_files, has_texts, has_split])
        if n_sources > 1:
            message = "a file, --text or --question, and --split or --data exclude each other"
            raise UsageError(message, remedy="Give one of them.")
        if self.pairs and not self.texts:
            raise UsageError(
                "--text-pair is the second text of --text",
                remedy="Add --text, or name a file with both.",
            )
        if "data.max_eval_rows" in self.run.options and (has_files or has_texts):
            remedy = "Leave it out and give the rows that you mean, or take a split: --split NAME."
            raise UsageError(
                "--max-eval-rows takes a sample of a split; a file or texts are read whole",
                remedy=remedy,
            )
        if n_sources == 0:
            remedy = (
                "Give a file, a text, - for stdin, or --split NAME for a split of the run's own "
                "data."
            )
            raise UsageError(f"nothing to {verb}", remedy=remedy)

    def open(self, options: Mapping[str, Any], listener: Listener) -> "TrainedRun":
        """Opens the run, which may also be an export.

        Args:
            options: Fields of the run's recipe to set, besides those of the command line.
            listener: Receives progress messages.

        Raises:
            UnavailableError: The folder has no finished run.
            UsageError: A split of its own data is named, and it has no data.
        """
        trained = self.run.open(options, listener)
        self._require_split(trained)
        return trained

    def open_network(self, listener: Listener) -> "NetworkRun":
        """Opens the run as a network of torch. Raises what `open` does, and refuses an export."""
        trained = self.run.open_network(listener=listener)
        self._require_split(trained)
        return trained

    def _require_split(self, trained: "TrainedRun") -> None:
        """Refuses a run without data of its own, if a split of that data is named."""
        if self.split and not self.data:
            trained.require_own_data()

    def chunks(
        self,
        run: "TrainedRun",
        listener: Listener,
        skipped: "SkippedRows | None",
        layout: str = "jsonl",
    ) -> "tuple[Iterable[Rows], int]":
        """Returns the rows in chunks, and their number (0 for files, whose rows nobody counted).

        Args:
            run: The run that answers. Its recipe says how rows are read.
            listener: Receives messages about guessed columns.
            skipped: Collects the rows that can't be read. With None, such a row is an error.
            layout: Layout of the answers. Some layouts need more of the input than others.
        """
        from bertctl.inference.rows_to_answer import (
            CHUNK,
            question_rows,
            split_rows,
            text_rows,
            unlabelled_rows,
        )

        if self.questions and self.context is not None:
            rows = question_rows(run, self.questions, self.context, listener=listener)
            return [rows], len(self.questions)
        if self.texts:
            return [text_rows(run, self.texts, self.pairs)], len(self.texts)
        if self.split or self.data:
            split = self.split or "test"  # --data without --split
            rows = split_rows(
                run,
                split,
                data=self.data,
                layout=layout,
                listener=listener,
                skipped=skipped,
            )
            return rows.parts(CHUNK), len(rows)
        chunks = unlabelled_rows(
            run,
            self.files,
            kind=self.kind,
            layout=layout,
            listener=listener,
            skipped=skipped,
        )
        return chunks, 0


_FILE = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE ...|-|TEXT]",
        help="Files: lines, CSV, TSV, JSON, JSONL or Parquet (also .gz, or a pattern such as "
        "'part-*.csv'); - for stdin; or a text.",
    ),
]
_ABOUT = "Text that the question is about, or a file with it."
_KINDS = "Layout of the input, such as csv or conllu. Default: by its suffix."
_DATA = "Take a split of this catalog data set, such as ax."
_OPTIONS = [
    option(
        "text",
        "--text",
        "A text, even if it looks like a file; repeatable.",
        list[str],
        metavar="TEXT",
    ),
    option(
        "text_pair",
        "--text-pair",
        "Second text of a pair, one for each --text.",
        list[str],
        metavar="TEXT",
    ),
    option("split", "--split", "Take a split of the run's own data."),
    option(
        "data",
        "--data",
        _DATA,
        metavar="NAME",
        autocompletion=dataset_names,
    ),
    option(
        "question",
        "--question",
        "Ask a question (question answering); repeatable.",
        list[str],
        metavar="TEXT",
    ),
    option("context", "--context", _ABOUT, metavar="FILE|TEXT"),
    option("input_format", "--input-format", _KINDS, metavar="NAME"),
]


def takes_rows(*names: str | FieldOption) -> Decorator:
    """Returns a decorator that gives a verb `verb(out, given, ...)` its run and rows.

    On the command line the verb then has the argument RUN, files and the options of rows and
    fields; `given` is all of them as one `RowsGiven`.

    Args:
        names: Further options of fields, see `picked`.
    """
    fields = picked(
        "--data-dir",
        "--text-column",
        "--pair-column",
        "--id-column",
        "layout",
        "--max-eval-rows",
        *names,
    )

    def fold(arguments: dict[str, Any]) -> RowsGiven:
        """Removes run, rows and options from a verb's arguments, and returns them as one value."""
        from bertctl.data.file_names import is_text

        apply_locked_option(arguments)
        run = RunRequest(arguments.pop("run"), by_field(fields, arguments))
        files = arguments.pop("file") or []
        texts = arguments.pop("text") or []
        # A single FILE may be a text instead. Of several, each has to be a file.
        if len(files) > 1:
            _refuse_texts(files)
        elif files and is_text(files[0]):
            texts = [*files, *texts]
            files = []
        return RowsGiven(
            run,
            files=files,
            texts=texts,
            pairs=arguments.pop("text_pair") or (),
            split=arguments.pop("split"),
            data=arguments.pop("data"),
            questions=arguments.pop("question") or (),
            context=arguments.pop("context"),
            kind=arguments.pop("input_format"),
        )

    positional = [parameter("run", ModelArgument), parameter("file", _FILE, None)]
    options = [*_OPTIONS, *(field.parameter() for field in fields), LOCKED_OPTION]
    return folds(positional, options, fold)


def _refuse_texts(arguments: Sequence[str]) -> None:
    """Refuses several arguments if one of them is a text: mostly it is one text without quotes.

    Raises:
        UsageError: With the first one that is no file.
    """
    from bertctl.data.file_names import is_text

    word = next((argument for argument in arguments if is_text(argument)), None)
    if word is not None:
        text = " ".join(arguments)
        message = f"several files can be read as one, but '{word}' is not a file"
        raise UsageError(
            message,
            remedy=f'Put a text in quotes: "{text}". Several texts: --text TEXT --text TEXT.',
        )
