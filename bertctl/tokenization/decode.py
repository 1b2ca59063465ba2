"""Turns ids back into text."""

import json
from collections.abc import Sequence

from tokenizers import Tokenizer

from bertctl.errors import DataError
from bertctl.tokenization.layout import special_ids

_PADDING = ("[PAD]", "<pad>")


class Decoder:
    """Turns lines of ids into texts. [CLS], [SEP] and padding are left out; [UNK] and [MASK] stay.

    Args:
        tokenizer: Tokenizer that the ids come from.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known = frozenset(tokenizer.get_vocab().values())
        # Ids that are left out of texts.
        self._dropped = {*special_ids(tokenizer), *map(tokenizer.token_to_id, _PADDING)}
        self._lines = 0  # decoded so far, for the line numbers of messages

    def decode(self, lines: Sequence[str]) -> list[str]:
        """Returns one text per line.

        Args:
            lines: ids with spaces or commas between, or as a JSON list, or a jsonl record with
                `ids`.

        Raises:
            DataError: something that is not an id of this vocabulary, with its line.
        """
        rows = [self._ids(line, self._lines + number) for number, line in enumerate(lines, start=1)]
        self._lines += len(lines)
        return self._tokenizer.decode_batch(rows, skip_special_tokens=False)

    def _ids(self, line: str, number: int) -> list[int]:
        """Returns the ids of a line, without the ids of [CLS], [SEP] and padding.

        `101 2293 102`, `[101, 2293, 102]` or `{"ids": [101, 2293, 102]}` -> `[2293]`.

        Raises:
            DataError: Something that is no id of the vocabulary.
        """
        try:
            if line.lstrip().startswith(("{", "[")):
                document = json.loads(line)
                if isinstance(document, dict):
                    ids = document["ids"]
                else:
                    ids = document
            else:
                ids = line.replace(",", " ").split()
            values = [int(i) for i in ids]
        except (ValueError, KeyError, TypeError) as error:
            remedy = (
                'Give ids with spaces between ("101 2293 102"), or what `format=ids` or jsonl '
                "wrote."
            )
            raise DataError(
                f"line {number} is not a row of ids: {line.strip()[:60]!r}", remedy=remedy
            ) from error
        for value in values:
            if value not in self._known:
                message = (
                    f"line {number}: {value} is not an id of this vocabulary of "
                    f"{len(self._known):,} tokens"
                )
                raise DataError(
                    message, remedy="Name the model that the ids come from with `model=`."
                )
        return [value for value in values if value not in self._dropped]
