"""The tokenizer of the bundled model, read once for all tests of a process; none changes it."""

from bertctl.tokenization.tokenizer_files import open_tokenizer

MINILM = open_tokenizer("minilm").tokenizer
