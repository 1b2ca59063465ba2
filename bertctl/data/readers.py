"""The readers of the built-in tasks."""

from bertctl.data.choice_files import ChoiceReader
from bertctl.data.question_files import QuestionReader
from bertctl.data.read_options import Reading as Reading
from bertctl.data.reading import Reader as Reader
from bertctl.data.sentence_files import SentenceReader
from bertctl.data.tagged_files import TaggingReader
from bertctl.data.text_rows import TEXT_READER
from bertctl.data.text_rows import TextReader as TextReader
from bertctl.plugins import plugin


class _Readers(dict[str, Reader]):
    """Readers by the names of their tasks.

    The reader of a plug-in's task is looked up when it is needed.
    """

    def __missing__(self, task: str) -> Reader:
        """Returns the reader of a plug-in's task, which is not among the built-in ones."""
        added = plugin("tasks", task)
        if added is None:
            raise KeyError(task)
        reader: Reader = added.reader
        return reader


READERS: dict[str, Reader] = _Readers(
    {
        "text-classification": TEXT_READER,
        "text-regression": TextReader(stratify=False),
        "token-classification": TaggingReader(),
        "question-answering": QuestionReader(),
        "multiple-choice": ChoiceReader(),
        "sentence-embeddings": SentenceReader(),
    }
)
"""Task name -> reader."""
