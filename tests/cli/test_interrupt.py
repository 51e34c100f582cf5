"""Ctrl-C as a flag."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from pydspark.cli.interrupt import Interrupt


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_first_press_is_noted_and_the_second_one_would_end_the_process() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with Interrupt() as interrupt:
        assert not interrupt.pressed
        signal.raise_signal(signal.SIGINT)
        assert interrupt.pressed
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_process_that_ignores_it_goes_on_ignoring_it() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Interrupt() as interrupt:
        signal.raise_signal(signal.SIGINT)
        assert not interrupt.pressed
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
