"""Lets one generation at a time use a session, and ends generations that nobody reads any more."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pydspark.errors import Cancelled, ClosedError

IDLE_LIMIT_S = 60.0
_POLL_S = 0.05


_leaving = threading.Event()  # the interpreter is about to exit


def watch_exit() -> None:
    """Notices from now on that the interpreter exits, before what was registered earlier runs at its exit."""
    atexit.unregister(_leaving.set)
    atexit.register(_leaving.set)


@contextmanager
def quiet_at_exit() -> Iterator[None]:
    """Around what raises ClosedError: a daemon thread that is cut off by the interpreter's exit waits for its end.

    Models are closed at exit, and a thread that has done nothing wrong would print an error.
    """
    try:
        yield
    except ClosedError:
        if _leaving.is_set() and threading.current_thread().daemon:
            threading.Event().wait()
        raise


class Turn:
    """The right to use the session, from the first step of a generation to its end."""

    def __init__(self) -> None:
        self.thread = threading.current_thread()  # the one that took the last step
        self.busy = False
        self.last_step = time.monotonic()
        self.taken_away: str | None = None  # why

    def why_abandoned(self, idle_limit_s: float) -> str | None:
        """Why this turn may be taken away by the calling thread; None while somebody may still go on with it."""
        if self.busy:
            return None
        if self.thread is threading.current_thread():
            return "the same thread began another call before it had read this stream to its end"
        if not self.thread.is_alive():
            return "the thread that read this stream has ended"
        if time.monotonic() - self.last_step > idle_limit_s:
            return f"another call was waiting and nothing had read this stream for {idle_limit_s:g} s"
        return None


class Turns:
    """Hands out turns, one at a time.

    A generation takes a turn when its first token is asked for and gives it back when it ends, fails, is closed or is
    garbage collected. The next caller waits for that. It does not wait for a generation that cannot go on: one whose
    reader is the waiting thread itself, or has ended, or has asked for nothing during ``idle_limit_s``. Such a turn is
    taken away, and a reader that comes back to it gets ``Cancelled``.

    Args:
        cancel: makes a step that is running in another thread end soon.
        idle_limit_s: seconds.
    """

    def __init__(self, cancel: Callable[[], None], idle_limit_s: float = IDLE_LIMIT_S) -> None:
        self._cancel = cancel
        self._idle_limit_s = idle_limit_s
        # Its lock can be taken again by the same thread: the garbage collector may close a stream while we hold it.
        self._changed = threading.Condition()
        self._current: Turn | None = None
        self._closed = False

    @contextmanager
    def turn(self) -> Iterator[Turn]:
        """Waits for a turn and holds it.

        Raises:
            ClosedError: ``close`` was called.
        """
        turn = self._begin()
        try:
            yield turn
        finally:
            self._end(turn)

    def _begin(self) -> Turn:
        with self._changed:
            while not self._closed and self._current is not None:
                reason = self._current.why_abandoned(self._idle_limit_s)
                if reason is not None:
                    self._current.taken_away = reason
                    break
                self._changed.wait(_POLL_S)
            self.check_open()
            self._current = turn = Turn()
            return turn

    def _end(self, turn: Turn) -> None:
        with self._changed:
            if self._current is turn:
                self._current = None
                self._changed.notify_all()

    @contextmanager
    def step(self, turn: Turn) -> Iterator[None]:
        """Uses the session for one step of a turn.

        Raises:
            Cancelled: the turn was taken away.
            ClosedError: ``close`` was called.
        """
        with self._changed:
            self.check_open()
            if turn.taken_away is not None:
                raise Cancelled(f"this stream was stopped: {turn.taken_away}")
            turn.thread = threading.current_thread()
            turn.busy = True
        try:
            yield
        finally:
            with self._changed:
                turn.busy = False
                turn.last_step = time.monotonic()
                self._changed.notify_all()

    def close(self) -> None:
        """Stops the step that is running and lets nobody use the session any more."""
        with self._changed:
            if self._current is not None and self._current.busy and self._current.thread is threading.current_thread():
                raise RuntimeError("a model cannot be closed from its own progress callback")
            self._closed = True
            self._changed.notify_all()
            while self._current is not None and self._current.busy:
                self._cancel()
                self._changed.wait(_POLL_S)

    def check_open(self) -> None:
        """Raises ClosedError after ``close``."""
        if self._closed:
            raise ClosedError("the model has been closed")
