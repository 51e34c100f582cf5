"""Text to token ids and back."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from tokenizers import normalizers

from pydspark.errors import ArgumentError
from pydspark.text.bpe import BytePairEncoder, text_bytes
from pydspark.text.protect import unprotect
from pydspark.text.vocab import CONTROL_TYPES, TokenType, Vocab

_NORMALIZED_PRE = ("qwen2", "qwen35")  # their models saw text in NFC only
_SURROGATE = re.compile("[\ud800-\udfff]")
_BYTE_ESCAPE = re.compile("([\udc80-\udcff])")  # how invalid UTF-8 bytes appear after decoding


class Tokenizer:
    """Encodes and decodes with one model's vocabulary. Can be used from several threads.

    A user-defined token (such as ``<think>``) is found in every text. A control token (such as ``<|im_end|>``) is found
    only where ``special`` is true; elsewhere its characters are ordinary text.

    Args:
        vocab: the vocabulary.
        normalize: bring ordinary text to Unicode NFC first; None = as the model was trained (on for qwen2 and qwen35).

    Attributes:
        vocab: the vocabulary.
        n_vocab: number of tokens.
        missing_bytes: bytes that no token holds; encoding leaves them out.
    """

    def __init__(self, vocab: Vocab, normalize: bool | None = None) -> None:
        self.vocab = vocab
        self.n_vocab = vocab.n_vocab
        self._encoder = BytePairEncoder(vocab)
        self.missing_bytes = frozenset(byte for byte, ids in enumerate(self._encoder.byte_ids) if not ids)
        wanted = vocab.pre in _NORMALIZED_PRE if normalize is None else normalize
        self._normalizer = normalizers.NFC() if wanted else None
        self._user_defined = vocab.ids_by_text({TokenType.USER_DEFINED})
        self._specials = vocab.ids_by_text({TokenType.USER_DEFINED, *CONTROL_TYPES})
        # One character cannot be broken by a sentinel, so such a control token is never read from a rendered prompt.
        self._rendered_specials = {
            text: token_id for text, token_id in self._specials.items() if len(text) > 1 or text in self._user_defined
        }

    def encode(self, text: str | bytes, *, special: bool = False, add_bos: bool = False) -> list[int]:
        """Token ids of a text.

        Args:
            text: bytes are read as UTF-8; each byte that is not valid there becomes the token of that single byte, so
                decoding gives it back. A lone surrogate in a str becomes U+FFFD.
            special: read control tokens too.
            add_bos: start with the BOS token if the model asks for one (``vocab.add_bos``).
        """
        specials = self._specials if special else self._user_defined
        ids = self._start_ids() if add_bos else []
        for piece in _cut(_to_str(text), specials):
            ids += [piece] if isinstance(piece, int) else self._encode_ordinary(piece)
        return ids

    def encode_rendered(self, rendered: str) -> list[int]:
        """Token ids of a prompt that a chat template made from protected messages (see ``protect.Protector``).

        Markers that the template wrote become control tokens; the same characters from protected text are ordinary.
        Starts with one BOS token if the model asks for one, whether or not the template wrote it.
        """
        return self.encode_rendered_at(rendered, ())[0]

    def encode_rendered_at(self, rendered: str, ends: Sequence[int]) -> tuple[list[int], list[int]]:
        """The ids of a rendered prompt, and how many of them its beginnings have for certain.

        Args:
            rendered: see ``encode_rendered``.
            ends: lengths of beginnings, in characters.

        Returns:
            The ids, and for each beginning the number of ids that every prompt with this beginning starts with: those
            up to its last special token, since ordinary text may be cut in another way where it goes on differently.
        """
        ids: list[int] = []
        n_chars = 0
        cuts = [(0, 0)]  # characters and ids up to a special token, with it
        for piece in _cut(_to_str(rendered), self._rendered_specials):
            if isinstance(piece, int):
                ids.append(piece)
                n_chars += len(self.vocab.tokens[piece])
                cuts.append((n_chars, len(ids)))
            else:
                ids += self._encode_ordinary(unprotect(piece))
                n_chars += len(piece)
        start = self._start_ids()
        if ids[: len(start)] == start:
            start = []
        counts = [cuts[bisect_right(cuts, (end, len(ids))) - 1][1] for end in ends]
        return start + ids, [count + len(start) if count else 0 for count in counts]

    def decode(self, ids: Iterable[int], *, special: bool = False) -> bytes:
        """The bytes of a sequence of tokens; see ``token_bytes``."""
        return b"".join([self.token_bytes(token_id, special=special) for token_id in ids])

    def token_bytes(self, token_id: int, *, special: bool = False) -> bytes:
        """The bytes of one token: empty for unused tokens, and for control tokens unless ``special`` is true.

        Raises:
            ArgumentError: there is no such id.
        """
        if not 0 <= token_id < self.n_vocab:
            raise ArgumentError(f"there is no token {token_id}; the vocabulary has ids 0 to {self.n_vocab - 1}")
        text, kind = self.vocab.tokens[token_id], self.vocab.types[token_id]
        if kind == TokenType.NORMAL:
            return text_bytes(text)
        if kind == TokenType.USER_DEFINED or (special and kind in CONTROL_TYPES):
            return text.encode("utf-8", "surrogateescape")
        return b""

    def token_text(self, token_id: int) -> str:
        """One token for display: control tokens by their text, incomplete characters as U+FFFD."""
        return self.token_bytes(token_id, special=True).decode("utf-8", "replace")

    def _start_ids(self) -> list[int]:
        bos_id = self.vocab.bos_id
        return [bos_id] if self.vocab.add_bos and bos_id is not None else []

    def _encode_ordinary(self, text: str) -> list[int]:
        ids: list[int] = []
        for i, piece in enumerate(_BYTE_ESCAPE.split(text)):
            if i % 2:
                ids += self._encoder.byte_ids[ord(piece) - 0xDC00]
            elif piece:
                ids += self._encoder.encode(self._normalize(piece))
        return ids

    def _normalize(self, text: str) -> str:
        if self._normalizer is None or text.isascii():
            return text
        return self._normalizer.normalize_str(text)


def _to_str(text: str | bytes) -> str:
    if isinstance(text, bytes):
        return text.decode("utf-8", "surrogateescape")
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def _cut(text: str, specials: Mapping[str, int]) -> list[str | int]:
    """The text in order, with each special token replaced by its id. Longer tokens are looked for first, everywhere."""
    pieces: list[str | int] = [text] if text else []
    for special, token_id in specials.items():
        if special in text:
            pieces = [part for piece in pieces for part in _cut_piece(piece, special, token_id)]
    return pieces


def _cut_piece(piece: str | int, special: str, token_id: int) -> list[str | int]:
    if isinstance(piece, int) or special not in piece:
        return [piece]
    parts: list[str | int] = []
    for text in piece.split(special):
        parts += [token_id, text] if text else [token_id]
    return parts[1:]
