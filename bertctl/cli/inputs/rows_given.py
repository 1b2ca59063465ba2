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
    RunRequest,
    by_field,
    lock,
    picked,
)
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
        run: that answers.
        files: Paths and patterns that are read as one file, or `-` for stdin.
        texts: texts to take as they are.
        pairs: their second texts.
        split: of the run's own data, or of `data`.
        data: another data set's catalog name.
        questions: about `context`, a file or a text.
        context: see there.
        kind: format of the file; by its suffix when None.
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
            UsageError: with what to give.
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
        """Returns the run, or an export.

        Raises:
            UnavailableError: there is no finished run.
            UsageError: it has no splits, and one of its own is named.
        """
        trained = self.run.open(options, listener)
        self._require_split(trained)
        return trained

    def open_network(self, listener: Listener) -> "NetworkRun":
        """Returns the run as a network of torch; see `open`, and an export is refused."""
        trained = self.run.open_network(listener=listener)
        self._require_split(trained)
        return trained

    def _require_split(self, trained: "TrainedRun") -> None:
        if self.split and not self.data:
            trained.require_own_data()

    def chunks(
        self,
        run: "TrainedRun",
        listener: Listener,
        skipped: "SkippedRows | None",
        layout: str = "jsonl",
    ) -> "tuple[Iterable[Rows], int]":
        """Returns the rows, some at a time, and how many there are, where that is known; else 0.

        Args:
            run: says how they are read.
            listener: hears what was guessed.
            skipped: gets rows that can't be read.
            layout: of the answers.
        """
        from bertctl.inference.predict import (
            CHUNK,
            question_rows,
            split_rows,
            text_rows,
            unlabelled_rows,
        )

        if self.questions and self.context is not None:
            return [question_rows(run, self.questions, self.context, listener=listener)], len(
                self.questions
            )
        if self.texts:
            return [text_rows(run, self.texts, self.pairs)], len(self.texts)
        if self.split or self.data:
            split = self.split or "test"
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
        """Takes run, rows and options out of a verb's arguments; FILE may be a text, too."""
        from bertctl.data.file_names import is_text

        lock(arguments)
        run = RunRequest(arguments.pop("run"), by_field(fields, arguments))
        files = arguments.pop("file") or []
        texts = arguments.pop("text") or []
        if len(files) > 1:
            _refuse_words(files)
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


def _refuse_words(arguments: Sequence[str]) -> None:
    """Refuses several arguments that are not all files: mostly a text without its quotes.

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
