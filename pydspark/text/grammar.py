"""Rules for what may be generated: JSON schemas, regular expressions and grammars."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper, gbnf_to_lark

from pydspark.errors import ArgumentError
from pydspark.text.tokenizer import Tokenizer
from pydspark.text.vocab import CONTROL_TYPES

# Room for indentation, and an end to it: a small model may go on writing blanks for ever.
_JSON_BLANKS = r"[ \n\r\t]{0,24}"
_ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2})|.)", re.DOTALL)


@dataclass(frozen=True)
class Grammar:
    """A rule for the text of an answer. Made by one of the ``from_`` methods.

    Attributes:
        source: in the form of the ``llguidance`` library's matchers.
        name: what messages call it.
    """

    source: str
    name: str = "grammar"

    @staticmethod
    def from_string(grammar: str, verbose: bool = False) -> Grammar:
        """A grammar in GBNF, as llama.cpp has it, with a rule ``root``, or in Lark's form with a rule ``start``.

        Args:
            grammar: the rules.
            verbose: for callers that know it from llama-cpp-python; nothing is printed.
        """
        if not isinstance(grammar, str):
            raise ArgumentError(f"grammar must be a text, not {type(grammar).__name__}")
        return lark_grammar(_lark(grammar))

    @staticmethod
    def from_file(file: str | os.PathLike[str], verbose: bool = True) -> Grammar:
        """A grammar in a file; see ``from_string``."""
        try:
            return Grammar.from_string(Path(file).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ArgumentError(f"the file {os.fspath(file)} of a grammar cannot be read: {error}") from error

    @staticmethod
    def from_json_schema(json_schema: str | Mapping[str, Any], verbose: bool = True) -> Grammar:
        """JSON that a schema allows. Parts of schemas that cannot be kept are an error when the grammar is used."""
        return lark_grammar(f"start: {json_rule(_schema(json_schema))}")

    @staticmethod
    def from_json_object() -> Grammar:
        """Any JSON object."""
        return Grammar.from_json_schema(_ANY_OBJECT)

    @staticmethod
    def from_regex(pattern: str) -> Grammar:
        """Texts that a regular expression matches as a whole."""
        return Grammar(LLMatcher.grammar_from_regex(_unicode(pattern)))


def lark_grammar(rules: str, name: str = "grammar") -> Grammar:
    """A grammar in Lark's form.

    Raises:
        ArgumentError: its text is not Unicode.
    """
    return Grammar(LLMatcher.grammar_from_lark(_unicode(rules)), name)


def json_rule(schema: Mapping[str, Any]) -> str:
    """The part of a rule, in Lark's form, that stands for JSON of a schema."""
    blanks = {"whitespace_flexible": True, "whitespace_pattern": _JSON_BLANKS}
    try:
        return "%json " + json.dumps({**schema, "x-guidance": blanks}, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(f"a schema cannot be written as JSON: {error}") from error


def _unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ArgumentError(f"a grammar must be Unicode text: {error}") from error
    return text


def _schema(given: str | Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        schema = json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"json_schema is no JSON: {error}") from error
    if not isinstance(schema, Mapping):
        raise ArgumentError(f"json_schema must be an object, not {type(schema).__name__}")
    return schema


def _lark(grammar: str) -> str:
    if "::=" not in grammar:
        return grammar
    try:
        return gbnf_to_lark.gbnf_to_lark(_ESCAPE.sub(_plain, grammar))
    except Exception as error:  # its parser raises what it likes
        raise ArgumentError(f"grammar cannot be read: {error}") from error


def _plain(escape: re.Match[str]) -> str:
    """The character of an escape, which the library reads for ASCII alone; others need no escape."""
    digits = next(filter(None, escape.groups()), None)
    if digits is None:
        return escape[0]
    code = int(digits, 16)
    if code < 0x80:
        return f"\\x{code:02x}"
    if code > 0x10FFFF:
        raise ArgumentError(f"grammar cannot be read: {escape[0]} is no character")
    return chr(code)


class GrammarTokenizer:
    """A vocabulary as the matchers of grammars see it.

    Args:
        tokenizer: of the model.
    """

    eos_token_id: int
    bos_token_id: int | None

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @cached_property
    def _matched(self) -> LLTokenizer:
        vocab = self._tokenizer.vocab
        source = _TokenSource(self._tokenizer)
        return LLTokenizer(TokenizerWrapper(source), n_vocab=vocab.n_vocab, eos_token=sorted(vocab.eog_ids))

    def matcher(self, grammar: Grammar) -> LLMatcher:
        """A fresh matcher.

        Raises:
            ArgumentError: the grammar is wrong, or asks for something that cannot be kept.
        """
        matcher = LLMatcher(self._matched, grammar.source, log_level=0)
        mask = b"" if matcher.is_error() else matcher.compute_bitmask()  # some rules fail only when they are used
        if matcher.is_error():
            raise ArgumentError(f"{grammar.name} cannot be kept: {_shown(matcher.get_error())}")
        if not any(mask):
            raise ArgumentError(f"{grammar.name} cannot be kept: no token of the model can begin such an answer")
        return matcher


class _TokenSource:
    """What ``llguidance`` wants to know of a tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        vocab = tokenizer.vocab
        self._tokenizer = tokenizer
        self.eos_token_id = min(vocab.eog_ids)
        self.bos_token_id = vocab.bos_id
        self.tokens = [tokenizer.token_bytes(token, special=True) for token in range(vocab.n_vocab)]
        self.special_token_ids = [token for token, kind in enumerate(vocab.types) if kind in CONTROL_TYPES]

    def __call__(self, text: bytes | str) -> list[int]:
        return self._tokenizer.encode(text)


def _shown(reason: str) -> str:
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    return " ".join(lines)[:500] or "the reason is not known"
