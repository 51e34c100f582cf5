"""Missing, damaged and contradicting checkpoint files are all named before anything is written."""

from __future__ import annotations

import json

import pytest
from tiny.drafters import make_drafter, save_drafter, save_safetensors


@pytest.fixture
def sharded(tmp_path):
    return save_drafter(tmp_path / "checkpoint", make_drafter(), shards=2)


@pytest.fixture
def message(command, tmp_path, target):
    def run(folder):
        result = command(folder, "--target", target, "--outfile", tmp_path / "out.gguf")
        assert result.code == 1 and not (tmp_path / "out.gguf").exists()
        assert "Traceback" not in result.err and "internal" not in result.err
        return result.err

    return run


def change_index(folder, change):
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    change(index["weight_map"])
    path.write_text(json.dumps(index))


def test_missing_shard(sharded, message):
    (sharded / "model-00002-of-00002.safetensors").unlink()
    assert "model-00002-of-00002.safetensors: missing, with" in message(sharded)


def test_index_names_a_tensor_that_is_not_there(sharded, message):
    change_index(sharded, lambda names: names.update({"ghost.weight": "model-00001-of-00002.safetensors"}))
    assert "ghost.weight: not in model-00001-of-00002.safetensors" in message(sharded)


def test_shard_holds_a_tensor_the_index_does_not_name(sharded, message):
    change_index(sharded, lambda names: names.pop("fc.weight"))
    assert "the index says nothing about it" in message(sharded)


def test_tensor_in_two_shards(sharded, message):
    weights = make_drafter().weights
    names = json.loads((sharded / "model.safetensors.index.json").read_text())["weight_map"]
    first = [name for name, file in names.items() if "00001" in file]
    second = next(name for name in names if name not in first)
    part = {name: weights[name] for name in [*first, second]}
    save_safetensors(sharded / "model-00001-of-00002.safetensors", part)
    assert f"{second}: in model-00001-of-00002.safetensors, but the index says model-00002" in message(sharded)


@pytest.mark.parametrize("file", ["/etc/passwd", "../model.safetensors", "a/b.safetensors", ".."])
def test_index_must_not_leave_the_folder(sharded, message, file):
    change_index(sharded, lambda names: names.update({"fc.weight": file}))
    assert f"names the file {file!r}" in message(sharded)


@pytest.mark.parametrize("index", ["{}", '{"weight_map": 3}', '{"weight_map": {"a": 1}}'])
def test_index_without_a_map(sharded, message, index):
    (sharded / "model.safetensors.index.json").write_text(index)
    assert "no usable 'weight_map'" in message(sharded)


def test_shards_without_index(sharded, message):
    (sharded / "model.safetensors.index.json").unlink()
    assert "2 safetensors files and no model.safetensors.index.json" in message(sharded)


def test_pytorch_files_only(tmp_path, message):
    folder = save_drafter(tmp_path / "checkpoint", make_drafter())
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "no safetensors file (but pytorch_model.bin)" in message(folder)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git-lfs pointer"),
        (b"PK\x03\x04" + bytes(100), "PyTorch archive"),
        (b"<!DOCTYPE html><html></html>", "web page"),
        (bytes(64), "incomplete or damaged"),
        ((1 << 60).to_bytes(8, "little") + b"{}", "incomplete or damaged"),
        ((100_000).to_bytes(8, "little") + b"[" * 100_000, "incomplete or damaged"),
    ],
)
def test_weight_files_of_another_kind(tmp_path, message, content, reason):
    folder = save_drafter(tmp_path / "checkpoint", make_drafter())
    (folder / "model.safetensors").write_bytes(content)
    assert reason in message(folder)


@pytest.mark.parametrize("cut", [1, 1000, 0.5])
def test_interrupted_download(tmp_path, message, cut):
    folder = save_drafter(tmp_path / "checkpoint", make_drafter())
    path = folder / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * cut)] if isinstance(cut, float) else data[:-cut])
    assert "incomplete or damaged" in message(folder)


def test_overlapping_offsets(tmp_path, message):
    folder = save_drafter(tmp_path / "checkpoint", make_drafter())
    header = {name: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} for name in ("a", "b")}
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    assert "incomplete or damaged" in message(folder)


def test_quantized_checkpoint(tmp_path, message):
    folder = save_drafter(tmp_path / "checkpoint", make_drafter())
    text = json.dumps({"fc.weight": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]}}).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(4))
    assert "fc.weight: stored as F8_E4M3" in message(folder)


def test_names_with_a_model_prefix(convert):
    plain = convert(make_drafter(), name="plain").read_bytes()
    drafter = make_drafter()
    drafter.weights = {f"model.{name}": array for name, array in drafter.weights.items()}
    assert convert(drafter, name="prefixed").read_bytes() == plain


def test_name_with_and_without_prefix(tmp_path, message):
    drafter = make_drafter()
    drafter.weights["model.fc.weight"] = drafter.weights["fc.weight"]
    folder = save_drafter(tmp_path / "checkpoint", drafter)
    assert "stored with and without 'model.'" in message(folder)


@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 100_000, '"text"'])
def test_unreadable_config(tmp_path, message, text):
    folder = save_drafter(tmp_path / "checkpoint", make_drafter())
    (folder / "config.json").write_text(text)
    assert "config.json" in message(folder)


def test_folder_or_config_missing(tmp_path, message):
    assert "is not a folder" in message(tmp_path / "nowhere")
    folder = save_drafter(tmp_path / "checkpoint", make_drafter())
    (folder / "config.json").unlink()
    assert "config.json cannot be read: No such file" in message(folder)
