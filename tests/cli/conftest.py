"""Runs the program, in this process or in one of its own."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pydspark.cli.main import main

# A process that pytest starts may have been told to ignore Ctrl-C, which the one under test must not inherit.
PROGRAM = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from pydspark.cli.main import main; sys.exit(main())"
)


@dataclass(frozen=True)
class Ran:
    """What a run left behind."""

    status: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No settings from outside, and no trace of the program's logging in other tests."""
    for name in os.environ:
        if name.startswith(("LLAMA_ARG_", "DSPARK_")) or name in ("NO_COLOR", "COLUMNS"):
            monkeypatch.delenv(name)
    logger = logging.getLogger("pydspark")
    before = logger.level, logger.handlers, logger.propagate
    yield
    logger.level, logger.handlers, logger.propagate = before


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the program in this process, with ``stdin`` as its standard input."""

    def run(*argv: str, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        status = main(argv)
        return Ran(status, *capsys.readouterr())

    return run


@pytest.fixture
def tiny(tiny_llama_path: Path) -> list[str]:
    """Arguments for a tiny model whose answers do not change."""
    return ["-m", str(tiny_llama_path), "-c", "256", "-t", "1", "--temp", "0"]


@pytest.fixture
def endless(tiny_llama_path: Path) -> list[str]:
    """Arguments for a tiny model that goes on for many seconds."""
    return ["-m", str(tiny_llama_path), "-c", "50000", "-ub", "16", "-t", "1", "--ignore-eos"]


def start(*argv: str, **options: object) -> subprocess.Popen[bytes]:
    """Starts the program as a process of its own, with pipes unless ``options`` say otherwise."""
    pipes = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *argv], **{**pipes, **options})  # type: ignore[call-overload]
