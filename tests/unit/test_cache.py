"""Choosing and making the cache folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pydspark.cache import cache_dir, cache_path
from pydspark.errors import PydsparkError


@pytest.mark.parametrize(
    ("env", "folder"),
    [
        ({"DSPARK_HOME": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/a"),
        ({"DSPARK_HOME": "", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/pydspark"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/c"}, "/c/.cache/pydspark"),
        ({"HOME": "/c"}, "/c/.cache/pydspark"),
    ],
)
def test_folder_follows_the_environment(env: dict[str, str], folder: str) -> None:
    assert cache_path(env) == Path(folder)


def test_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    folder = cache_dir({"DSPARK_HOME": str(tmp_path / "a" / "b")})
    assert folder == tmp_path / "a" / "b" and folder.is_dir()
    assert cache_dir({"DSPARK_HOME": str(folder)}) == folder


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PydsparkError, match="file/cache.*DSPARK_HOME"):
        cache_dir({"DSPARK_HOME": str(tmp_path / "file" / "cache")})


def test_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(PydsparkError, match="cannot be written.*DSPARK_HOME"):
        cache_dir({"DSPARK_HOME": str(tmp_path)})
