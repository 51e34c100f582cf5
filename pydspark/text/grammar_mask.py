"""Which tokens may follow an answer, by its grammar, also along drafts that may be taken back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from llguidance import LLMatcher

from pydspark.errors import ArgumentError

_LONGEST_TAG = 32  # tokens that a tag may be cut into


class Pieces(Protocol):
    """The bytes of a token, control tokens included."""

    def __call__(self, token: int, /) -> bytes: ...


class GrammarMask:
    """Follows an answer token by token.

    A grammar begins where reasoning ends; while the model reasons, it may write anything but the end of its answer.

    Args:
        matcher: a fresh one.
        n_vocab: tokens of the vocabulary.
        ends: tokens that end an answer.
        piece: the bytes of a token.
        end_of_reasoning: the tag that closes reasoning.
        is_reasoning: the answer begins inside of reasoning.
        opener: the token that opens reasoning if the answer begins with it, or None.
    """

    def __init__(
        self,
        matcher: LLMatcher,
        n_vocab: int,
        ends: Collection[int],
        piece: Pieces,
        end_of_reasoning: bytes = b"",
        is_reasoning: bool = False,
        opener: int | None = None,
    ) -> None:
        self._matcher = matcher
        self._ends = frozenset(ends)
        self._piece = piece
        self._end_of_reasoning = end_of_reasoning
        self._is_reasoning = is_reasoning
        self._opener = opener
        n_bytes = (n_vocab + 31) // 32 * 4
        self._only_ends = _mask(n_bytes, self._ends)
        self._no_ends = bytes(0xFF ^ byte for byte in self._only_ends)
        self._tokens: list[int] = []
        self._first: int | None = None if is_reasoning else 0  # token that the grammar begins with, once it is known
        self._end: int | None = None  # first token that ends the answer

    def allowed(self, n_tokens: int, last: Sequence[int]) -> bytes:
        """What may follow the first ``n_tokens`` tokens of the answer.

        Args:
            n_tokens: of them.
            last: the last of these, and all that may differ from the call before.

        Returns:
            One bit per token, the lowest id in the lowest bit of the first byte; whole words of 32 bits.
        """
        self._follow(n_tokens - len(last), last)
        if self._end is not None:
            return self._only_ends
        if self._first is None:
            return self._no_ends
        mask: bytes = self._matcher.compute_bitmask()
        self._check()
        if self._opener is not None and not self._tokens:
            return bytes(a | b for a, b in zip(mask, _mask(len(mask), [self._opener]), strict=True))
        return mask

    def _follow(self, start: int, last: Sequence[int]) -> None:
        known = self._tokens[start:]
        n_same = 0
        while n_same < min(len(known), len(last)) and known[n_same] == last[n_same]:
            n_same += 1
        self._keep(start + n_same)
        for token in last[n_same:]:
            self._take(token)

    def _keep(self, n: int) -> None:
        """Takes back all but the first ``n`` tokens."""
        n_matched = self._n_matched()
        del self._tokens[n:]
        if self._end is not None and n <= self._end:
            self._end = None
        if self._first is not None and n < self._first:
            self._first = None
        if self._first is None and n == 0 and not self._is_reasoning:
            self._first = 0
        if (n_back := n_matched - self._n_matched()) > 0:
            self._matcher.rollback(n_back)
            self._check()

    def _n_matched(self) -> int:
        if self._first is None:
            return 0
        end = len(self._tokens) if self._end is None else self._end
        return end - self._first

    def _take(self, token: int) -> None:
        self._tokens.append(token)
        if self._end is not None:
            return
        if token in self._ends:
            self._end = len(self._tokens) - 1
        elif self._first is None:
            self._read_reasoning()
        elif token == self._opener and len(self._tokens) == 1:
            self._first = None
        else:
            self._matcher.consume_token(token)
            self._check()

    def _read_reasoning(self) -> None:
        tail = b"".join(map(self._piece, self._tokens[-_LONGEST_TAG:]))
        if self._end_of_reasoning in tail:
            self._first = len(self._tokens)

    def _check(self) -> None:
        if self._matcher.is_error():
            raise ArgumentError(f"grammar cannot be followed: {self._matcher.get_error().strip()[:500]}")


def _mask(n_bytes: int, tokens: Collection[int]) -> bytes:
    mask = bytearray(n_bytes)
    for token in tokens:
        mask[token // 8] |= 1 << token % 8
    return bytes(mask)
