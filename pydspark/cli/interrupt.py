"""Ctrl-C as a flag instead of an exception."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType


class Interrupt:
    """While this is entered, Ctrl-C sets ``pressed``, and a second Ctrl-C ends the process at once.

    An exception could come at any line, also in the middle of bookkeeping that the next answer depends on. A process
    that was started to ignore Ctrl-C (in the background of a shell) goes on ignoring it.
    """

    def __init__(self) -> None:
        self.pressed = False

    def __enter__(self) -> Interrupt:
        self._before = signal.getsignal(signal.SIGINT)
        if self._before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._press)
        return self

    def _press(self, _number: int, _frame: FrameType | None) -> None:
        self.pressed = True
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)
