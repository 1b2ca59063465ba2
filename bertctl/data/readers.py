"""The readers of the built-in tasks."""

from bertctl.data.choices import ChoiceReader
from bertctl.data.reading import Reader as Reader
from bertctl.data.reading import Reading as Reading
from bertctl.data.squad import QuestionReader
from bertctl.data.tagging import TaggingReader
from bertctl.data.texts import TEXT_READER
from bertctl.data.texts import TextReader as TextReader

READERS: dict[str, Reader] = {
    "text-classification": TEXT_READER,
    "text-regression": TextReader(stratify=False),
    "token-classification": TaggingReader(),
    "question-answering": QuestionReader(),
    "multiple-choice": ChoiceReader(),
}
"""Task name -> reader."""
