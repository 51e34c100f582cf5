"""Signals, pipes and terminals, with the program in a process of its own."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
from cli.conftest import PROGRAM, start

TIMEOUT_S = 30


def test_ctrl_c_stops_the_answer_with_status_130(endless: list[str]) -> None:
    with start("run", *endless, "hello") as process:
        assert process.stdout is not None
        assert process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert out.endswith(b"\n")
    assert err.splitlines()[-1].startswith(b"stopped after ")
    assert b"Traceback" not in err


def test_ctrl_c_with_json_prints_no_half_of_it(endless: list[str]) -> None:
    # The prompt alone takes seconds; the model is loaded well before it is done.
    with start("run", *endless, "--json", "hello " * 6000) as process:
        assert process.stderr is not None
        assert b"trained for" in process.stderr.readline()  # the last thing before generating begins
        time.sleep(0.2)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (130, b"")
    assert b"Traceback" not in err


def test_a_reader_that_leaves_ends_the_program_quietly(endless: list[str]) -> None:
    with start("run", *endless, "-q", "hello") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(3)
        process.stdout.close()
        assert process.wait(TIMEOUT_S) == 0
        assert process.stderr.read() == b""


def test_text_is_utf8_in_any_locale(tiny: list[str]) -> None:
    outs = set()
    for locale in ("C", "POSIX", "C.UTF-8"):
        env = {**os.environ, "LC_ALL": locale, "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
        with start("run", *tiny, "-n", "40", "-q", "h\u00e9llo \u4e16", env=env) as process:
            out, err = process.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, err) == (0, b"")
        outs.add(out)
    assert len(outs) == 1
    assert any(byte > 127 for byte in outs.pop())


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_closed_stream_does_no_harm(tiny: list[str], closed: str) -> None:
    command = shlex.join([sys.executable, "-c", PROGRAM, "run", *tiny, "-n", "2", "hello"])
    ran = subprocess.run(f"{command} {closed}", shell=True, capture_output=True, timeout=TIMEOUT_S)
    assert ran.returncode == 0
    assert b"error" not in ran.stderr


class Person:
    """Somebody at a terminal with the program on it."""

    def __init__(self, *argv: str, stdout: IO[bytes] | None = None) -> None:
        self._ours, theirs = pty.openpty()
        env = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}
        self.process = start(*argv, stdin=theirs, stdout=stdout or theirs, stderr=theirs, env=env)
        os.close(theirs)
        self._unread = ""

    def types(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def presses_ctrl_c(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def waits_for(self, text: str) -> None:
        """Reads up to the end of ``text``."""
        while text not in self._unread:
            self._read()
        self._unread = self._unread.partition(text)[2]

    def sees(self, n: int) -> None:
        """Reads until there are ``n`` more characters."""
        while len(self._unread) < n:
            self._read()

    def _read(self) -> None:
        ready, _, _ = select.select([self._ours], [], [], TIMEOUT_S)
        assert ready, f"nothing more came after {self._unread!r}"
        self._unread += os.read(self._ours, 4096).decode("utf-8", "replace")

    def is_left(self) -> int:
        """Reads to the end and returns the exit status."""
        with contextlib.suppress(OSError):  # how Linux says that nobody writes any more
            while True:
                self._read()
        return self.process.wait(TIMEOUT_S)

    def goes_away(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_S)
        os.close(self._ours)


@pytest.fixture
def seat() -> Iterator[Callable[..., Person]]:
    """Puts persons at terminals, and takes them away in the end."""
    persons: list[Person] = []

    def seat(*argv: str, stdout: IO[bytes] | None = None) -> Person:
        persons.append(Person(*argv, stdout=stdout))
        return persons[-1]

    yield seat
    for person in persons:
        person.goes_away()


@pytest.mark.parametrize("goodbye", ["\x04", "/exit\n", "ctrl-c"])
def test_ctrl_c_stops_one_answer_of_a_conversation(
    seat: Callable[..., Person], endless: list[str], goodbye: str
) -> None:
    person = seat("run", *endless, "-cnv")
    for _ in range(2):
        person.waits_for("> ")
        person.types("hello\n")
        person.waits_for("hello")
        person.sees(200)
        person.presses_ctrl_c()
        person.waits_for("stopped after ")
    person.waits_for("\n")
    person.waits_for("> ")
    if goodbye == "ctrl-c":
        time.sleep(0.5)  # a signal between the prompt and the wait for a key would wait for the key, too
        person.presses_ctrl_c()
    else:
        person.types(goodbye)
    assert person.is_left() == 0


def test_the_speed_is_shown_while_the_answer_goes_to_a_file(
    seat: Callable[..., Person], endless: list[str], tmp_path: Path
) -> None:
    with open(tmp_path / "answer.txt", "wb") as file:
        person = seat("run", *endless, "--temp", "0", "hello", stdout=file)
        person.waits_for("\r\x1b[K")
        person.waits_for(" t/s\r\x1b[K")
        person.presses_ctrl_c()
        person.waits_for("stopped after ")
        assert person.is_left() == 130
    text = (tmp_path / "answer.txt").read_text()
    assert len(text) > 1
    assert "t/s" not in text


def test_a_terminal_without_a_prompt_is_told_what_to_give(seat: Callable[..., Person], tiny: list[str]) -> None:
    person = seat("run", *tiny)
    person.waits_for("-cnv to chat")
    assert person.is_left() == 2


def test_reading_the_arguments_needs_no_core() -> None:
    code = "import sys; from pydspark.cli import main, help; sys.exit('pydspark._native' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=TIMEOUT_S).returncode == 0
