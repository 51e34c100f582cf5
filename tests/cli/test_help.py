"""The help texts."""

from __future__ import annotations

import pytest
from cli.conftest import Run

from pydspark.cli.flags import COMMANDS, Command, with_flags
from pydspark.cli.help import command_help

EACH_COMMAND = pytest.mark.parametrize("command", COMMANDS.values(), ids=list(COMMANDS))


@EACH_COMMAND
def test_every_flag_is_shown_with_its_default_and_variable(command: Command) -> None:
    text = " ".join(command_help(command, 80).split())
    for flag in command.flags:
        notes = [f"default: {flag.default}"] if flag.default else []
        notes += [f"env: {flag.env}"] if flag.env else []
        shown = with_flags(flag.help) + (f" ({'; '.join(notes)})" if notes else "")
        assert shown in text
        for name in (*flag.names, *flag.negatives):
            assert name in text


@EACH_COMMAND
def test_the_flags_fit_in_eighty_columns(command: Command) -> None:
    flags, _, examples = command_help(command, 80).partition("Examples:")
    assert max(map(len, flags.splitlines())) <= 80
    assert examples.strip()


def test_help_and_version_go_to_standard_output(run: Run) -> None:
    for argv, word in (
        (["-h"], "info"),
        (["run", "--help"], "--temp"),
        (["info", "-h"], "-ctk"),
        (["--version"], "ggml"),
    ):
        ran = run(*argv)
        assert (ran.status, ran.err) == (0, "")
        assert word in ran.out


def test_no_command_is_wrong_usage(run: Run) -> None:
    ran = run()
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("error: ")
