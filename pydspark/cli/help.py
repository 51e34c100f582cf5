"""The texts of ``-h``."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from pydspark.cli.flags import COMMANDS, Command, Flag, with_flags

_HELP_COLUMN = 30
_ENV_NOTE = (
    "Flags come before environment variables, these before what the model file says, and that before the defaults. "
    "Each LLAMA_ARG_ variable can also be written DSPARK_ARG_, which wins."
)
_STATUS_NOTE = "Exit status: 0 done, 1 failed, 2 wrong usage, 70 a defect of pydspark, 130 stopped with Ctrl-C."


def overview() -> str:
    """The help of ``pydspark`` itself."""
    lines = ["usage: pydspark COMMAND [flags]", "", "Runs language models from GGUF files on this machine.", ""]
    lines += ["Commands:"]
    lines += [f"  {command.name:10}{command.summary}" for command in COMMANDS.values()]
    lines += ["", "pydspark COMMAND -h shows the flags of a command; pydspark --version shows versions.", ""]
    lines += ["Examples:", *(f"  {command.examples[0]}" for command in COMMANDS.values())]
    return "\n".join(lines) + "\n"


def command_help(command: Command, width: int) -> str:
    """The help of a command, at most ``width`` columns wide where words allow it."""
    lines = [f"usage: {command.usage}", "", f"{command.summary[0].upper()}{command.summary[1:]}."]
    for title, flags in command.groups.items():
        lines += ["", f"{title}:"]
        for flag in flags:
            lines += _flag_lines(flag, width)
    lines += ["", *textwrap.wrap(_ENV_NOTE, width), "", *textwrap.wrap(_STATUS_NOTE, width)]
    lines += ["", "Examples:", *(f"  {example}" for example in command.examples)]
    return "\n".join(lines) + "\n"


def _flag_lines(flag: Flag, width: int) -> Iterator[str]:
    spellings = ", ".join((*flag.names, *flag.negatives)) + (f" {flag.metavar}" if flag.metavar else "")
    notes = [f"default: {flag.default}"] if flag.default else []
    notes += [f"env: {flag.env}"] if flag.env else []
    text = with_flags(flag.help) + (f" ({'; '.join(notes)})" if notes else "")
    wrapped = textwrap.wrap(text, max(width - _HELP_COLUMN, 20), break_on_hyphens=False)
    head = f"  {spellings}"
    if len(head) + 2 > _HELP_COLUMN:
        yield head
        head = ""
    for line in wrapped:
        yield head.ljust(_HELP_COLUMN) + line
        head = ""
