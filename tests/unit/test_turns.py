"""One generation at a time, and none that blocks the others for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pydspark.errors import Cancelled, ClosedError
from pydspark.turns import Turn, Turns

LONG_S = 30.0  # only reached when a test fails


def new_turns(idle_limit_s: float = LONG_S, cancel: Callable[[], None] = lambda: None) -> Turns:
    return Turns(cancel, idle_limit_s)


def stream(turns: Turns, n: int = 3) -> Iterator[int]:
    with turns.turn() as turn:
        for i in range(n):
            with turns.step(turn):
                pass
            yield i


@contextmanager
def in_thread(function: Callable[[], Any]) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    yield thread
    thread.join(LONG_S)
    assert not thread.is_alive()


def reading_thread(items: Iterator[int], hold: threading.Event) -> tuple[threading.Thread, threading.Event]:
    """A thread that reads one item and then holds the stream without reading on."""
    begun = threading.Event()

    def read() -> None:
        next(items)
        begun.set()
        hold.wait(LONG_S)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert begun.wait(LONG_S)
    return thread, begun


def test_second_waits_until_the_first_ends() -> None:
    turns, order = new_turns(), []
    inside, leave = threading.Event(), threading.Event()

    def first() -> None:
        with turns.turn() as turn:
            with turns.step(turn):
                inside.set()
                leave.wait(LONG_S)
                order.append("first")

    def second() -> None:
        inside.wait(LONG_S)
        order.extend(f"second {i}" for i in stream(turns, 1))

    with in_thread(first), in_thread(second):
        assert inside.wait(LONG_S)
        leave.set()
    assert order == ["first", "second 0"]


def test_stream_that_was_never_read_holds_nothing() -> None:
    turns = new_turns()
    unread = stream(turns)
    assert list(stream(turns)) == [0, 1, 2]
    assert list(unread) == [0, 1, 2]


@pytest.mark.parametrize("end", ["close", "drop"])
def test_closed_or_dropped_stream_makes_way_for_another_thread(end: str) -> None:
    turns = new_turns()
    items = stream(turns)
    next(items)
    if end == "close":
        items.close()  # type: ignore[attr-defined]
    else:
        del items
    got: list[int] = []
    with in_thread(lambda: got.extend(stream(turns))):
        pass
    assert got == [0, 1, 2]


def test_thread_does_not_wait_for_itself() -> None:
    turns = new_turns()
    older = stream(turns)
    next(older)
    assert list(stream(turns)) == [0, 1, 2]
    with pytest.raises(Cancelled, match="same thread"):
        next(older)


def test_stream_whose_reader_has_ended_makes_way() -> None:
    turns, hold = new_turns(), threading.Event()
    items = stream(turns)
    thread, _ = reading_thread(items, hold)
    hold.set()
    thread.join(LONG_S)
    assert list(stream(turns)) == [0, 1, 2]
    with pytest.raises(Cancelled, match="thread that read this stream has ended"):
        next(items)


def test_stream_that_nobody_reads_makes_way_after_the_limit() -> None:
    turns, hold = new_turns(idle_limit_s=0.2), threading.Event()
    items = stream(turns)
    thread, _ = reading_thread(items, hold)
    assert list(stream(turns)) == [0, 1, 2]
    hold.set()
    thread.join(LONG_S)
    with pytest.raises(Cancelled, match=r"nothing had read this stream for 0\.2 s"):
        next(items)


def test_running_step_is_never_taken_away() -> None:
    turn = Turn()
    turn.busy = True
    assert turn.why_abandoned(0.0) is None


def test_close_stops_the_running_step_and_waits_for_it() -> None:
    cancelled, inside = threading.Event(), threading.Event()
    turns = new_turns(cancel=cancelled.set)
    ended = []

    def long_step() -> None:
        with turns.turn() as turn:
            with turns.step(turn):
                inside.set()
                cancelled.wait(LONG_S)
                ended.append(True)

    with in_thread(long_step):
        assert inside.wait(LONG_S)
        turns.close()
        assert ended == [True]


def test_nothing_runs_after_close() -> None:
    turns = new_turns()
    items = stream(turns)
    next(items)
    turns.close()
    turns.close()
    with pytest.raises(ClosedError):
        next(items)
    with pytest.raises(ClosedError):
        next(stream(turns))


def test_waiting_thread_learns_of_close() -> None:
    turns, hold, raised = new_turns(), threading.Event(), []
    thread, _ = reading_thread(stream(turns), hold)

    def wait_for_turn() -> None:
        try:
            next(stream(turns))
        except ClosedError:
            raised.append(True)

    with in_thread(wait_for_turn):
        turns.close()
    hold.set()
    thread.join(LONG_S)
    assert raised == [True]


def test_close_from_inside_of_a_step_is_refused() -> None:
    turns = new_turns()
    with turns.turn() as turn, turns.step(turn):
        with pytest.raises(RuntimeError, match="progress callback"):
            turns.close()
    assert list(stream(turns)) == [0, 1, 2]
