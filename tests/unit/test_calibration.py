"""What was learnt of a pair is kept between runs, and nothing else is taken for it."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from pydspark.calibration import CalibrationFile, CalibrationKey, calibration_key
from pydspark.params import ModelParams
from pydspark.records import Learnt, LearntBin, LearntCost, LearntCosts

KEY = CalibrationKey("target", "draft", ("CPU: some",), "0.20.2", {"n_threads": 1})
LEARNT = Learnt(
    verify=LearntCosts((LearntCost(1, 20.0, 25.5, 100.0), LearntCost(9, 3.0, 130.25, 90.0)), 12.5, -3.0),
    draft=LearntCosts((LearntCost(8, 4.0, 11.0, 80.0),)),
    bins=(LearntBin("greedy", 0, 9, 12.0, 14.5, 10.0), LearntBin("coupled", 7, 15, 1.0, 8.0, 0.0)),
)


@pytest.fixture
def file(tmp_path: Path) -> CalibrationFile:
    return CalibrationFile(KEY, tmp_path)


def test_what_is_saved_comes_back(file: CalibrationFile, tmp_path: Path) -> None:
    assert file.load() is None
    file.save(LEARNT)
    assert CalibrationFile(KEY, tmp_path).load() == LEARNT
    file.save(replace(LEARNT, bins=()))
    assert file.load() == replace(LEARNT, bins=())
    assert [path.name for path in tmp_path.iterdir()] == [KEY.name]  # no half-written file stays


def damage(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"key": {}},
        {"checksum": "0"},
        {"verify": {"rows": [], "depth": [0.0, 0.0]}},
        {"bins": [["greedy", 0, 9, 12.0, 14.5, 11.0]]},
    ],
    ids=str,
)
def test_a_changed_file_is_ignored_with_one_warning(
    file: CalibrationFile, caplog: pytest.LogCaptureFixture, changes: dict[str, object]
) -> None:
    file.save(LEARNT)
    damage(file.path, **changes)
    with caplog.at_level(logging.WARNING, "pydspark"):
        assert file.load() is None
    assert len(caplog.records) == 1
    assert str(file.path) in caplog.text


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"format": 1}', b"[" * 100_000])
def test_a_file_of_something_else_is_ignored(
    file: CalibrationFile, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    file.path.write_bytes(content)
    with caplog.at_level(logging.WARNING, "pydspark"):
        assert file.load() is None
    assert len(caplog.records) == 1


def test_the_file_of_another_pair_is_not_taken(file: CalibrationFile, tmp_path: Path) -> None:
    file.save(LEARNT)
    other = CalibrationFile(replace(KEY, draft="another"), tmp_path)
    assert other.path != file.path
    assert other.load() is None
    file.path.rename(other.path)
    assert other.load() is None


def test_a_folder_that_cannot_be_written_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    file = CalibrationFile(KEY, tmp_path / "file" / "folder")
    with caplog.at_level(logging.WARNING, "pydspark"):
        file.save(LEARNT)
        file.save(LEARNT)
    assert len(caplog.records) == 1
    assert "cannot be kept" in caplog.text


def test_the_key_tells_files_and_settings_apart(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "abc"]
    for path, content in zip(paths, (b"x" * 100, b"x" * 99 + b"y", b"x" * 101), strict=True):
        path.write_bytes(content)
    names = {
        calibration_key(target, draft, ModelParams(**params)).name
        for target in paths
        for draft in paths
        for params in ({"n_threads": 1}, {"n_threads": 2}, {"n_threads": 1, "verify": "fast"})
    }
    assert len(names) == 27
    assert calibration_key(paths[0], paths[1], ModelParams()) == calibration_key(paths[0], paths[1], ModelParams())
