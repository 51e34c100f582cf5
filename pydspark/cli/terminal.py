"""What a person sees: messages, colours and a live line on stderr; text on stdout."""

from __future__ import annotations

import logging
import os
import shutil
import stat
import time
from collections.abc import Mapping
from typing import TextIO

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
_LIVE_PERIOD_S = 0.1
_PLAIN_PERIOD_S = 5.0  # between progress lines where there is no live line
_BAR_WIDTH = 24
# Control characters other than tab and newline, C1 ones too: a model must not be able to command the terminal.
_CONTROLS = {code: chr(0xFFFD) for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}


def without_controls(text: str) -> str:
    """Text whose control characters, other than tab and newline, are replaced."""
    return text.translate(_CONTROLS)


def is_terminal(stream: TextIO) -> bool:
    """Whether a person is at the other end."""
    return not stream.closed and stream.isatty()


class Terminal:
    """Messages to a person, on ``stream``.

    Args:
        stream: stderr.
        env: environment variables.
        colors: ``"on"``, ``"off"`` or ``"auto"`` (a terminal that is not dumb, and no ``NO_COLOR``).
        quiet: errors only.
    """

    def __init__(self, stream: TextIO, env: Mapping[str, str], colors: str = "auto", quiet: bool = False) -> None:
        self._stream = stream
        self.quiet = quiet
        capable = is_terminal(stream) and env.get("TERM") != "dumb"
        self._colors = colors == "on" or (colors == "auto" and capable and not env.get("NO_COLOR"))
        wanted = not quiet and env.get("HF_HUB_DISABLE_PROGRESS_BARS", "0").lower() in ("", "0", "false", "no", "off")
        self._is_live = capable and wanted
        self._is_plain = wanted and not capable
        self._live_text = ""
        self._last_update = time.monotonic()

    def style(self, text: str, style: str) -> str:
        """Text in bold, dim, red, green or yellow where colours are on."""
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self._colors and text else text

    def say(self, text: str, style: str = "dim") -> None:
        """A line, unless quiet."""
        if not self.quiet:
            self._line(self.style(text, style))

    def error(self, text: str) -> None:
        """An error, always shown."""
        self._line(f"{self.style('error:', 'red')} {text}")

    def log(self, level: int, text: str) -> None:
        """A line of the log."""
        if level >= logging.ERROR:
            self.error(text)
        elif level >= logging.WARNING:
            self._line(f"{self.style('warning:', 'yellow')} {text}")
        else:
            self._line(self.style(text, "dim"))

    def progress(self, label: str, fraction: float) -> None:
        """How far something is: a bar in the live line, or else a plain line every few seconds."""
        percent = f"{fraction:4.0%}"
        if self._is_live:
            filled = round(fraction * _BAR_WIDTH)
            self.live(f"{label} [{'=' * filled}{' ' * (_BAR_WIDTH - filled)}] {percent}")
        elif self._is_plain and self._is_due(_PLAIN_PERIOD_S):
            self._line(f"{label} {percent.strip()}")

    def live(self, text: str) -> None:
        """Replaces the live line, at most ten times a second. Nothing where there is none."""
        if self._is_live and self._is_due(_LIVE_PERIOD_S):
            self._live_text = text[: shutil.get_terminal_size().columns - 1]
            self._put(f"\r\x1b[K{self.style(self._live_text, 'dim')}")

    def clear_live(self) -> None:
        """Takes the live line away, so that other text can be written."""
        if self._live_text:
            self._live_text = ""
            self._put("\r\x1b[K")

    def _is_due(self, period_s: float) -> bool:
        now = time.monotonic()
        if now - self._last_update < period_s:
            return False
        self._last_update = now
        return True

    def _line(self, text: str) -> None:
        self.clear_live()
        self._put(text + "\n")

    def _put(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            # Nobody reads the messages; the answer on stdout is not affected.
            self._is_live = self._is_plain = False


class LogHandler(logging.Handler):
    """Shows log records on a terminal without disturbing its live line."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__()
        self._terminal = terminal

    def emit(self, record: logging.LogRecord) -> None:
        """Shows one record."""
        self._terminal.log(record.levelno, self.format(record))


class Output:
    """The answer, on ``stream``.

    Args:
        stream: stdout.

    Attributes:
        is_terminal: a person reads it as it comes.
        is_file: it goes to a file, so that nothing written to the terminal meanwhile can get in its way.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_terminal = is_terminal(stream)
        self._at_line_start = True
        self.is_file = not self.is_terminal and _is_regular_file(stream)

    def write(self, text: str) -> None:
        """Writes a piece at once. Control characters do not reach a terminal."""
        self.write_styled(without_controls(text) if self.is_terminal else text)

    def write_styled(self, text: str) -> None:
        """Writes text whose control characters are our own."""
        if text:
            self._stream.write(text)
            self._stream.flush()
            self._at_line_start = text.endswith("\n")

    def end_line(self) -> None:
        """Ends the last line if it is not ended yet."""
        if not self._at_line_start:
            self.write("\n")


def _is_regular_file(stream: TextIO) -> bool:
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except OSError:  # no file behind it
        return False
