"""A tiny pair on disk and the command, run in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydspark.convert.cli import main
from tiny.drafters import TinyDrafter, save_drafter, write_target


@dataclass
class Result:
    code: int
    out: str
    err: str


Command = Callable[..., Result]
Convert = Callable[..., Path]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Runs ``dspark-convert`` with the given arguments in ``tmp_path``."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path) -> Result:
        code = main([str(argument) for argument in arguments])
        return Result(code, *capsys.readouterr())

    return run


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_target(tmp_path / "target.gguf")


@pytest.fixture
def convert(command: Command, tmp_path: Path, target: Path) -> Convert:
    """Saves a drafter and converts it; the conversion must succeed."""

    def run(drafter: TinyDrafter, *arguments: str, dtype: str = "BF16", shards: int = 1, name: str = "out") -> Path:
        folder = save_drafter(tmp_path / f"{name}-checkpoint", drafter, dtype, shards)
        outfile = tmp_path / f"{name}.gguf"
        result = command(folder, "--target", target, "--outfile", outfile, *arguments)
        assert result.code == 0, result.err
        assert result.out == f"{outfile}\n"
        return outfile

    return run


@pytest.fixture
def refused(command: Command, tmp_path: Path, target: Path) -> Callable[..., str]:
    """Saves a drafter and tries to convert it; returns the message of the refusal."""

    def run(drafter: TinyDrafter, *arguments: str, other_target: Path | None = None) -> str:
        folder = save_drafter(tmp_path / "checkpoint", drafter)
        outfile = tmp_path / "out.gguf"
        result = command(folder, "--target", other_target or target, "--outfile", outfile, *arguments)
        assert result.code == 1, result.out
        assert not outfile.exists() and not list(tmp_path.glob(".*.partial"))
        assert "Traceback" not in result.err
        return result.err

    return run
