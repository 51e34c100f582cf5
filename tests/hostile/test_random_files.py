"""Random targets and drafters, loaded and run: they work, or are refused with an error; nothing crashes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PROGRAM = TESTS / "hostile" / "try_random_files.py"


def try_random_files(folder: Path, first: int, count: int) -> dict[str, int]:
    """Tries the pairs of files of some seeds in another process. Returns how many attempts ended how."""
    command = [sys.executable, "-W", "error", str(PROGRAM), str(folder), str(first), str(count)]
    paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True)
    *seeds, outcomes = ran.stdout.splitlines() or ["no seed"]
    assert ran.returncode == 0, f"status {ran.returncode} at {outcomes}\n{ran.stderr}"
    assert len(seeds) == count
    return {name: int(n) for name, n in (pair.split("=") for pair in outcomes.split())}


def check(outcomes: dict[str, int], count: int) -> None:
    assert sum(outcomes.values()) == 2 * count
    assert outcomes["ran"] > count // 4 and outcomes["ran-drafting"] > count // 8  # most is possible, if odd
    assert outcomes["ModelFileError"] > count // 8  # and some is not


def test_random_pairs_of_files(tmp_path: Path) -> None:
    check(try_random_files(tmp_path, first=0, count=200), 200)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 6000, 1000))
def test_more_random_pairs_of_files(tmp_path: Path, first: int) -> None:
    check(try_random_files(tmp_path, first, count=1000), 1000)
