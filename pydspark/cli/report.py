"""Aligned text with explanations."""

from __future__ import annotations

import textwrap

from pydspark.cli.terminal import Terminal, without_controls

_LABEL_WIDTH = 19
_NOTE_COLUMN = 42
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


class Report:
    """Titles, and rows of a label, a value and an explanation. Control characters in them are replaced.

    Args:
        width: columns; longer values are wrapped, except in the middle of a word or path.
        terminal: gives titles and explanations their style; None = plain text.
    """

    def __init__(self, width: int, terminal: Terminal | None = None) -> None:
        self._width = width
        self._terminal = terminal
        self._lines: list[str] = []

    def title(self, text: str) -> None:
        """Begins a part."""
        if self._lines:
            self._lines.append("")
        self._lines.append(self._style(without_controls(text), "bold"))

    def row(self, label: str, value: str, note: str = "") -> None:
        """Adds a row. The explanation goes beside the value where there is room, else below it."""
        space = self._width - _LABEL_WIDTH
        lines = textwrap.wrap(without_controls(value), space, break_long_words=False, break_on_hyphens=False) or [""]
        head = f"  {label}"
        beside = max(_NOTE_COLUMN, _LABEL_WIDTH + len(lines[-1]) + 2)
        fits = note and len(lines) == 1 and beside + len(note) <= self._width
        for i, line in enumerate(lines):
            text = (head if i == 0 else "").ljust(_LABEL_WIDTH) + line
            self._lines.append(text.ljust(beside) + self._style(note, "dim") if fits else text)
        if note and not fits:
            below = textwrap.wrap(note, space)
            self._lines += [" " * _LABEL_WIDTH + self._style(line, "dim") for line in below]

    def text(self) -> str:
        """Everything, ending with a newline."""
        return "\n".join(self._lines) + "\n"

    def _style(self, text: str, style: str) -> str:
        return text if self._terminal is None else self._terminal.style(text, style)


def bytes_text(size: int) -> str:
    """A size with the largest unit that leaves a number of at least 1: ``"92.1 MiB"``."""
    number = float(size)
    for unit in _UNITS[:-1]:
        if abs(number) < 1024:
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} {_UNITS[-1]}"


def count_text(n: int, word: str) -> str:
    """A count with its word in the singular or plural."""
    return f"{n:,} {word}" if n == 1 else f"{n:,} {word}s"
