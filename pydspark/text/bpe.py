"""Byte-level byte-pair encoding of ordinary text, from the tokens and merges of a model file."""

from __future__ import annotations

from itertools import chain, filterfalse
from typing import cast

import tokenizers
from tokenizers import models, pre_tokenizers

from pydspark.errors import ModelFileError
from pydspark.text.vocab import CONTROL_TYPES, Vocab


def _make_alphabet() -> list[str]:
    # GPT-2's printable stand-ins: visible Latin-1 characters stand for themselves, the others follow from U+0100 on.
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in visible else next(others)) for byte in range(256)]


BYTE_CHARS = _make_alphabet()  # [256] the character that stands for each byte
_BYTES_OF_CHAR = {char: bytes([byte]) for byte, char in enumerate(BYTE_CHARS)}

# The published patterns, with possessive quantifiers wherever backtracking cannot change the match. The regex engine
# gives up by panicking after ten million steps back, which a long run of blanks would reach.
_SPACES = r"\s++(?!\S)|(?:\s(?=\s))++|\s"  # \s+(?!\S)|\s+
_NEWLINES = r"(?:[^\S\r\n]*+[\r\n]++)++"  # \s*[\r\n]+


def _qwen_pattern(letter: str) -> str:
    return (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
        rf"|[^\r\n\p{{L}}\p{{N}}]?[{letter}]++"
        r"|\p{N}"
        rf"| ?[^\s{letter}\p{{N}}]++[\r\n]*+"
        rf"|{_NEWLINES}|{_SPACES}"
    )


_GPT2_PATTERN = rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}++| ?\p{{N}}++| ?[^\s\p{{L}}\p{{N}}]++|{_SPACES}"

# Patterns are applied one after the other; what a pattern does not match stays as a piece.
SPLIT_PATTERNS = {
    "smollm": [r"\p{N}", _GPT2_PATTERN],
    "qwen2": [_qwen_pattern(r"\p{L}")],
    "qwen35": [_qwen_pattern(r"\p{L}\p{M}")],
}


def text_bytes(text: str) -> bytes:
    """The bytes that the text of a normal token stands for."""
    return b"".join(_BYTES_OF_CHAR.get(char) or char.encode("utf-8", "surrogateescape") for char in text)


class BytePairEncoder:
    """Encodes ordinary text, in which no token is special, in time linear in its length (but for a logarithm).

    Attributes:
        byte_ids: [256] ids for each byte on its own: one id, or none where the vocabulary lacks the byte.

    Raises:
        ModelFileError: a merge is not of the form ``"left right"``.
    """

    def __init__(self, vocab: Vocab) -> None:
        # Ordinary text must never become a control token, whatever the merges say.
        typed = enumerate(zip(vocab.tokens, vocab.types, strict=True))
        ids = {text: token_id for token_id, (text, kind) in typed if kind not in CONTROL_TYPES}
        self.byte_ids = [[ids[char]] if char in ids else [] for char in BYTE_CHARS]
        self._n_vocab = vocab.n_vocab
        pairs = _split_merges(vocab.merges)
        # Pieces that merging can meet but that are no tokens, numbered past the last id. They take part in merging and
        # are spelled in bytes afterwards. (The library panics on some merges of pieces without a number.)
        self._spelled: dict[int, list[int]] = {}
        for number, piece in enumerate(_missing_pieces(ids, pairs), start=vocab.n_vocab):
            ids[piece] = number
            self._spelled[number] = [token_id for byte in text_bytes(piece) for token_id in self.byte_ids[byte]]
        self._tokenizer = tokenizers.Tokenizer(models.BPE(ids, pairs))
        self._tokenizer.pre_tokenizer = _make_splitter(vocab.pre)

    def encode(self, text: str) -> list[int]:
        """Ids of a text without surrogates. Bytes that the vocabulary lacks are left out."""
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        if self._spelled and ids and max(ids) >= self._n_vocab:
            return [part for token_id in ids for part in self._spelled.get(token_id, (token_id,))]
        return ids


def _split_merges(merges: list[str]) -> list[tuple[str, str]]:
    # Of equal merges the first counts, as it does for the readers that look a merge's rank up.
    parts = [tuple(merge.split(" ")) for merge in dict.fromkeys(merges)]
    for pair in parts:
        if len(pair) != 2:
            raise ModelFileError(f"tokenizer.ggml.merges holds {' '.join(pair)!r}, which is not 'left right'")
    return cast("list[tuple[str, str]]", parts)


def _missing_pieces(ids: dict[str, int], pairs: list[tuple[str, str]]) -> list[str]:
    pieces = chain(map("".join, pairs), chain.from_iterable(pairs), BYTE_CHARS)
    return sorted(set(filterfalse(ids.__contains__, pieces)))


def _make_splitter(pre: str) -> pre_tokenizers.PreTokenizer:
    steps = [pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated") for pattern in SPLIT_PATTERNS[pre]]
    return pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
