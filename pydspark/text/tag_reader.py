"""Reads text that comes in pieces, by a grammar of tags that may be cut anywhere."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import TypeVar

_T = TypeVar("_T")
Reading = Generator[None, None, _T]
"""A step of the grammar: pauses where the next piece is needed, and returns what it read."""

_WORD = re.compile(r"[^<\s]+")


class TagReader(ABC):
    """Runs a grammar as a coroutine.

    What is read does not depend on how the text is cut. What turns out to be no tag is read again, once, so the time is
    linear in the length of the text.
    """

    def __init__(self) -> None:
        self._piece = ""
        self._at = 0  # next character of the piece
        self._again: list[str] = []  # characters to be read before it, last one first
        self._held: list[str] | None = None  # what was read since _hold()
        self._is_last = False
        self._reading = self._read()

    @abstractmethod
    def _read(self) -> Reading[None]:
        """The grammar."""

    def _feed(self, piece: str, is_last: bool = False) -> None:
        self._piece, self._at, self._is_last = piece, 0, is_last
        next(self._reading, None)

    def _char(self) -> Reading[str]:
        """The next character; empty at the end of the text."""
        if self._again:
            char = self._again.pop()
        else:
            while self._at == len(self._piece):
                if self._is_last:
                    return ""
                yield
            char = self._piece[self._at]
            self._at += 1
        if self._held is not None:
            self._held.append(char)
        return char

    def _unread(self, text: str) -> None:
        """Makes characters that were just read the next ones."""
        self._again.extend(reversed(text))
        if self._held is not None and text:
            del self._held[-len(text) :]

    def _hold(self) -> None:
        """Begins to keep what is read."""
        self._held = []

    def _release(self) -> str:
        """What was read since ``_hold``, which is not kept any longer."""
        held, self._held = self._held or [], None
        return "".join(held)

    def _run(self, pattern: re.Pattern[str]) -> str:
        """As much of a run of characters as is at hand."""
        match = None if self._again or self._held is not None else pattern.match(self._piece, self._at)
        if match is None:
            return ""
        self._at = match.end()
        return match.group()

    def _blanks(self) -> Reading[str]:
        """Blanks, up to the next character that is none."""
        blanks: list[str] = []
        while (char := (yield from self._char())).isspace():
            blanks.append(char)
        self._unread(char)
        return "".join(blanks)

    def _tag(self, *tags: str) -> Reading[str]:
        """One of the tags. Empty if there is none; then nothing was read."""
        text = ""
        while text not in tags:
            char = yield from self._char()
            text += char
            if not char or not any(tag.startswith(text) for tag in tags):
                self._unread(text)
                return ""
        return text

    def _named_tag(self, opening: str) -> Reading[str]:
        """The name in a tag like ``<function=NAME>``. Empty if there is none; then nothing was read."""
        if not (yield from self._tag(opening)):
            return ""
        name = ""
        while (char := (yield from self._char())) not in ("", "<", ">", "\n"):
            name += char
        if char == ">" and name.strip():
            return name.strip()
        self._unread(opening + name + char)
        return ""

    def _text_until(self, tag: str, emit: Callable[[str], None], blanks: str = "") -> Reading[tuple[str, bool]]:
        """Passes text on, up to a tag.

        Args:
            tag: where it ends.
            emit: given the text, but for blanks before the tag or the end.
            blanks: that came before.

        Returns:
            The blanks before the tag or the end, and whether it was the tag.
        """
        while True:
            text = self._run(_WORD) or (yield from self._char())
            if not text:
                return blanks, False
            if text.isspace():
                blanks += text
                continue
            if text == "<":
                self._unread(text)
                if (yield from self._tag(tag)):
                    return blanks, True
                text = yield from self._char()
            emit(blanks + text)
            blanks = ""
