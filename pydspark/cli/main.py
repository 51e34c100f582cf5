"""The program ``pydspark``."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence

from pydspark.cli.args import Arguments, parse
from pydspark.cli.help import command_help, overview
from pydspark.cli.program import run_program, version_line
from pydspark.cli.terminal import Output, Terminal


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program and returns its exit status.

    Args:
        argv: arguments without the program's name; None = those of the process.
    """
    return run_program(argv, lambda words: parse(words, os.environ), _run)


def _run(arguments: Arguments, terminal: Terminal) -> int:
    output = Output(sys.stdout)
    width = min(shutil.get_terminal_size().columns, 120)
    if arguments.get("version"):
        output.write(version_line())
        return 0
    if arguments.command is None:
        output.write(overview())
        return 0
    if arguments.get("help"):
        output.write(command_help(arguments.command, width))
        return 0
    if arguments.command.name == "run":
        from pydspark.cli.run import run

        return run(arguments, terminal, output)
    if arguments.command.name == "quantize":
        from pydspark.cli.quantize import quantize

        return quantize(arguments, terminal)
    from pydspark.cli.info import info

    return info(arguments, terminal, output, width)
