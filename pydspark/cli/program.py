"""What the programs share: streams, messages, and errors as exit statuses."""

from __future__ import annotations

import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import TextIO

from pydspark import __version__
from pydspark.cli.args import TRUE_WORDS, Arguments
from pydspark.cli.flags import with_flags
from pydspark.cli.terminal import LogHandler, Terminal
from pydspark.errors import InternalError, PydsparkError

INTERRUPTED = 130
_INTERNAL = 70


Run = Callable[[Arguments, Terminal], int]
"""Does what was asked for and returns the exit status."""


def run_program(argv: Sequence[str] | None, parse: Callable[[Sequence[str]], Arguments], run: Run) -> int:
    """Runs a program and returns its exit status. Errors are shown in one line.

    Args:
        argv: arguments without the program's name; None = those of the process.
        parse: reads them.
        run: does what they say.
    """
    argv = sys.argv[1:] if argv is None else argv
    _open_missing_streams()
    for stream in (sys.stdout, sys.stderr):
        _use_utf8(stream)
    terminal = Terminal(sys.stderr, os.environ)
    debug = os.environ.get("DSPARK_DEBUG", "").lower() in TRUE_WORDS
    try:
        arguments = parse(argv)
        debug = debug or bool(arguments.get("debug"))
        terminal = _terminal_for(arguments)
        return run(arguments, terminal)
    except BrokenPipeError:
        _forget_stdout()
        return 0
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        terminal.say("stopped")
        return INTERRUPTED
    except Exception as error:
        if debug:
            traceback.print_exc()
        return _report(error, terminal)


def _open_missing_streams() -> None:
    # A shell can start a program with any of the three closed. In this order each one takes its own number.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))


def _use_utf8(stream: TextIO) -> None:
    # A stream that a test or a program has put in place may not be able to change.
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(encoding="utf-8", errors="replace")


def _terminal_for(arguments: Arguments) -> Terminal:
    colors = arguments.get("log_colors") or "auto"
    terminal = Terminal(sys.stderr, os.environ, colors, quiet=bool(arguments.get("quiet")))
    level = logging.ERROR if terminal.quiet else logging.WARNING
    level = logging.INFO if arguments.get("verbose") else level
    logger = logging.getLogger("pydspark")
    logger.setLevel(logging.DEBUG if arguments.get("debug") else level)
    logger.handlers = [LogHandler(terminal)]
    logger.propagate = False
    return terminal


def version_line() -> str:
    """Versions, for ``--version``."""
    from pydspark._native import ggml_version
    from pydspark._native.loader import ABI_VERSION

    return f"pydspark {__version__} (core interface {ABI_VERSION}, ggml {ggml_version()})\n"


def _report(error: Exception, terminal: Terminal) -> int:
    """Shows an error in one line and returns the exit status for it."""
    if isinstance(error, PydsparkError) and not isinstance(error, InternalError):
        terminal.error(with_flags(str(error)))
        return error.exit_code
    if isinstance(error, OSError):
        named = f"{error.filename}: {error.strerror}" if error.filename is not None else str(error)
        terminal.error(named)
        return 1
    if isinstance(error, (ImportError, MemoryError)):
        terminal.error(str(error) or "not enough memory")
        return 1
    terminal.error(
        f"{type(error).__name__}: {error}. This is a defect of pydspark; please report it with the output of the same "
        "command and --debug"
    )
    return _INTERNAL


def _forget_stdout() -> None:
    # The reader is gone. Python writes out what is left when it ends, and must find a place for it.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
