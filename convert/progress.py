"""Progress on stderr: a bar on a terminal, a plain line every few seconds otherwise."""

from __future__ import annotations

import os
import sys
import time
from typing import TextIO

_LINE_SECONDS = 5.0
_BAR_SECONDS = 0.1
_BAR_WIDTH = 30


class Progress:
    """Counts bytes of one stage.

    Args:
        stage: word in front of the bar.
        total: bytes of the whole stage.
        quiet: print nothing.
        stream: where to print; stderr when not given.
    """

    def __init__(self, stage: str, total: int, quiet: bool = False, stream: TextIO | None = None) -> None:
        self._stage, self._total, self._done = stage, max(total, 1), 0
        self._stream = stream if stream is not None else sys.stderr
        self._quiet = quiet or os.environ.get("HF_HUB_DISABLE_PROGRESS_BARS") == "1"
        self._bar = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = self._started = time.monotonic()

    def add(self, count: int) -> None:
        """``count`` more bytes are done."""
        self._done += count
        now = time.monotonic()
        if not self._quiet and now - self._shown >= (_BAR_SECONDS if self._bar else _LINE_SECONDS):
            self._shown = now
            self._show(now)

    def close(self) -> None:
        """Ends the stage; a bar is completed, so that the next line starts clean."""
        if not self._quiet and self._bar:
            self._show(time.monotonic())
            self._stream.write("\n")
            self._stream.flush()

    def _show(self, now: float) -> None:
        share = min(self._done / self._total, 1.0)
        rate = self._done / max(now - self._started, 1e-9) / 1e6
        text = f"{self._stage:9} {share:6.1%}  {self._done / 1e6:,.0f} of {self._total / 1e6:,.0f} MB  {rate:,.0f} MB/s"
        if self._bar:
            filled = int(share * _BAR_WIDTH)
            text = f"\r{self._stage:9} [{'#' * filled}{'.' * (_BAR_WIDTH - filled)}]{text[9:]}\x1b[K"
        self._stream.write(text if self._bar else text + "\n")
        self._stream.flush()
