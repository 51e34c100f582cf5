"""Colours, the live line and what may reach a terminal."""

from __future__ import annotations

import io
import logging

import pytest

from pydspark.cli import terminal as module
from pydspark.cli.terminal import Output, Terminal


class Screen(io.StringIO):
    """A terminal that remembers what it was told."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every update is shown at once."""
    monkeypatch.setattr(module, "_LIVE_PERIOD_S", 0.0)
    monkeypatch.setattr(module, "_PLAIN_PERIOD_S", 0.0)


@pytest.mark.parametrize(
    ("stream", "env", "colors", "expected"),
    [
        (Screen, {}, "auto", True),
        (Screen, {"NO_COLOR": ""}, "auto", True),
        (Screen, {"NO_COLOR": "1"}, "auto", False),
        (Screen, {"TERM": "dumb"}, "auto", False),
        (Screen, {"NO_COLOR": "1"}, "on", True),
        (Screen, {}, "off", False),
        (io.StringIO, {}, "auto", False),
        (io.StringIO, {}, "on", True),
    ],
)
def test_when_colours_are_used(stream: type[io.StringIO], env: dict[str, str], colors: str, expected: bool) -> None:
    styled = Terminal(stream(), env, colors).style("text", "red")
    assert ("\x1b" in styled) is expected
    assert "text" in styled


def test_the_live_line_is_replaced_and_taken_away(eager: None) -> None:
    screen = Screen()
    terminal = Terminal(screen, {"NO_COLOR": "1"})
    terminal.progress("loading", 0.5)
    terminal.progress("loading", 1.0)
    terminal.say("done")
    first, second, cleared = screen.getvalue().split("\r\x1b[K")[1:]
    assert first == f"loading [{'=' * 12}{' ' * 12}]  50%"
    assert second == f"loading [{'=' * 24}] 100%"
    assert cleared == "done\n"


def test_the_live_line_never_wraps(eager: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    screen = Screen()
    Terminal(screen, {"NO_COLOR": "1"}).live("x" * 100)
    assert screen.getvalue() == "\r\x1b[K" + "x" * 19


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {}])
def test_progress_is_plain_lines_where_lines_cannot_be_replaced(eager: None, env: dict[str, str]) -> None:
    stream = Screen() if env else io.StringIO()
    terminal = Terminal(stream, env)
    terminal.progress("loading", 0.25)
    terminal.live("10 t/s")
    terminal.clear_live()
    assert stream.getvalue() == "loading 25%\n"


@pytest.mark.parametrize(("env", "quiet"), [({"HF_HUB_DISABLE_PROGRESS_BARS": "1"}, False), ({}, True)])
def test_progress_can_be_turned_off(eager: None, env: dict[str, str], quiet: bool) -> None:
    for stream in (Screen(), io.StringIO()):
        terminal = Terminal(stream, env, quiet=quiet)
        terminal.progress("loading", 0.5)
        terminal.live("10 t/s")
        assert stream.getvalue() == ""


def test_quiet_shows_errors_only() -> None:
    stream = io.StringIO()
    terminal = Terminal(stream, {}, quiet=True)
    terminal.say("a summary")
    terminal.error("a failure")
    assert stream.getvalue() == "error: a failure\n"


def test_levels_of_the_log_are_told_apart() -> None:
    stream = io.StringIO()
    terminal = Terminal(stream, {})
    for level in (logging.INFO, logging.WARNING, logging.ERROR):
        terminal.log(level, "text")
    assert stream.getvalue() == "text\nwarning: text\nerror: text\n"


def test_messages_that_nobody_reads_do_no_harm() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    Terminal(Gone(), {}).say("text")


def test_a_model_cannot_command_the_terminal() -> None:
    screen, pipe = Screen(), io.StringIO()
    for stream in (screen, pipe):
        Output(stream).write("a\x1b]0;title\x07\tb\r\n\x9bc")
    assert screen.getvalue() == "a\ufffd]0;title\ufffd\tb\ufffd\n\ufffdc"
    assert pipe.getvalue() == "a\x1b]0;title\x07\tb\r\n\x9bc"


def test_a_last_line_is_ended_once() -> None:
    for text, expected in (("", ""), ("a", "a\n"), ("a\n", "a\n")):
        stream = io.StringIO()
        output = Output(stream)
        output.write(text)
        output.end_line()
        output.end_line()
        assert stream.getvalue() == expected
