"""Tokens to text, one token at a time."""

from __future__ import annotations

import codecs

from pydspark.text.tokenizer import Tokenizer


class Detokenizer:
    """Turns a stream of tokens into text that never splits a character.

    The pieces joined are ``tokenizer.decode(ids).decode("utf-8", "replace")``. Time is linear in the number of tokens.

    Args:
        tokenizer: decodes the tokens.
        special: show control tokens.
    """

    def __init__(self, tokenizer: Tokenizer, *, special: bool = False) -> None:
        self._tokenizer = tokenizer
        self._special = special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token_id: int) -> str:
        """The text that is complete with this token; empty while a character is not.

        Raises:
            ArgumentError: there is no such id.
        """
        return self._decoder.decode(self._tokenizer.token_bytes(token_id, special=self._special))

    def finish(self) -> str:
        """The end of the text: U+FFFD in place of a character that stayed incomplete, else nothing."""
        return self._decoder.decode(b"", final=True)
