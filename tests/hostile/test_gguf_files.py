"""Files that people really hand over as models: cut short, of another kind, damaged, or crafted."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import pytest
from tiny.gguf_bytes import (
    ARRAY,
    BOOL,
    I32,
    STRING,
    TYPE_F32,
    TYPE_Q4_0,
    U8,
    U16,
    U32,
    U64,
    GgufBytes,
    pack,
    small_model,
)

from pydspark import _native
from pydspark.errors import ModelFileError, PydsparkError, UnsupportedError


def write(folder: Path, data: bytes, name: str = "model.gguf") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def refusal(path: Path, kind: type[PydsparkError] = ModelFileError) -> str:
    """The message with which a file is refused; it must name the file."""
    with pytest.raises(kind) as caught:
        _native.Gguf(path)
    message = str(caught.value)
    assert path.name in message
    return message


@pytest.mark.parametrize("version", [2, 3])
def test_well_formed_file_is_read(tmp_path: Path, version: int) -> None:
    file = _native.Gguf(write(tmp_path, small_model(version).build()))
    assert file.metadata() == {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "llama.rope.freq_base": 10000.0,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.tokens": ["a", "", "\u0120b"],
        "tokenizer.ggml.token_type": [1, 1, -3],
    }
    tensors = [(tensor.name, tensor.type_name, tuple(tensor.shape), tensor.n_bytes) for tensor in file.tensors()]
    assert tensors == [
        ("token_embd.weight", "f32", (32, 3), 384),
        ("blk.0.attn_q.weight", "q8_0", (64, 2), 136),
        ("output_norm.weight", "f16", (8,), 16),
    ]
    file.close()


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (b"", "is empty"),
        (b"GG", "has only 2 bytes"),
        (b"<!DOCTYPE html>\n<html><head><title>Sign in</title>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0123", "git-lfs pointer"),
        (b"PK\x03\x04\x00\x00\x08\x08", "ZIP archive"),
        (b"\x80\x02}q\x00", "pickle"),
        (pack(U64, 64) + b'{"weight":{"dtype":"F32"}}'.ljust(80), "safetensors"),
        (b"lmgg\x01\x00\x00\x00", "before GGUF"),
        (b"tjgg\x03\x00\x00\x00", "before GGUF"),
        (b'{"error": "Repository not found"}', "JSON"),
        (b"\x7fELF\x02\x01", "not a GGUF file"),
    ],
)
def test_other_kinds_of_file_are_named(tmp_path: Path, start: bytes, said: str) -> None:
    assert said in refusal(write(tmp_path, start))


def test_missing_file_folder_and_unreadable_file(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "absent.gguf")
    assert "is a directory" in refusal(tmp_path)
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    assert "not a regular file" in refusal(pipe)


def test_path_that_is_not_text_still_gives_a_message(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="no such file"):
        _native.Gguf(os.fsdecode(bytes(tmp_path) + b"/\xff\xfe.gguf"))


@pytest.mark.parametrize("kept", [3, 24, 100, -1, -300])
def test_download_that_stopped_early(tmp_path: Path, kept: int) -> None:
    data = small_model().tensor("last.weight", [8], TYPE_F32, bytes(32)).build()
    message = refusal(write(tmp_path, data[:kept]))
    assert "download" in message.lower()
    if kept < 0:
        assert "bytes are missing" in message


def test_missing_bytes_are_counted(tmp_path: Path) -> None:
    data = small_model().tensor("last.weight", [8], TYPE_F32, bytes(32)).build()
    message = refusal(write(tmp_path, data[:-5]))
    assert "'last.weight'" in message
    assert "5 of the tensor's bytes are missing" in message


@pytest.mark.parametrize(
    ("version", "kind", "said"),
    [
        (0, ModelFileError, "version is 0"),
        (1, UnsupportedError, "version 1"),
        (4, UnsupportedError, "version 4"),
    ],
)
def test_versions_that_cannot_be_read(tmp_path: Path, version: int, kind: type[PydsparkError], said: str) -> None:
    assert said in refusal(write(tmp_path, small_model(version).build()), kind)


def test_big_endian_file(tmp_path: Path) -> None:
    assert "big-endian" in refusal(write(tmp_path, small_model(order=">").build()), UnsupportedError)


@pytest.mark.parametrize(
    ("shape", "offset"),
    [
        ([1 << 62, 8], None),
        ([1 << 31, 1 << 31, 4], None),
        ([1024, (1 << 42) + 1], None),
        ([1 << 63], None),
        ([4, 0], None),
        ([], None),
        ([1, 1, 1, 1, 1], None),
        ([8], 1 << 63),
        ([8], 1 << 62),
        ([8], 64),
        ([8], 4),
    ],
)
def test_shapes_and_offsets_beyond_the_file(tmp_path: Path, shape: list[int], offset: int | None) -> None:
    data = GgufBytes().tensor("odd.weight", shape, TYPE_F32, bytes(32), offset).build()
    assert "'odd.weight'" in refusal(write(tmp_path, data))


CRAFTED = {
    "tensor count 2**40": GgufBytes().build(n_tensors=1 << 40),
    "tensor count 2**63": GgufBytes().build(n_tensors=1 << 63),
    "key count 2**63": GgufBytes().build(n_values=1 << 63),
    "string of 2**30 - 1 bytes": GgufBytes().raw_value("a", STRING, pack(U64, (1 << 30) - 1)).build(),
    "string of 2**64 - 1 bytes": GgufBytes().raw_value("a", STRING, pack(U64, (1 << 64) - 1)).build(),
    "array of 2**30 - 1 strings": GgufBytes().array("a", STRING, [], (1 << 30) - 1).build(),
    "array of 2**63 bytes": GgufBytes().array("a", U8, [], 1 << 63).build(),
    "array of 2**61 numbers": GgufBytes().array("a", U64, [], 1 << 61).build(),
    "key of 2**63 bytes": b"GGUF" + pack(U32, 3) + pack(U64, 0) + pack(U64, 1) + pack(U64, 1 << 63) + bytes(16),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_tiny_file_that_asks_for_gigabytes(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, CRAFTED[name])
    peak_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.monotonic()
    refusal(path)
    assert time.monotonic() - start < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_before < 200 << 10  # KiB


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (GgufBytes().value("", U8, 1), "name is empty"),
        (GgufBytes().value(b"\xff", U8, 1), "UTF-8"),
        (GgufBytes().value("k" * 65536, U8, 1), "65536 bytes"),
        (GgufBytes().value("a", U8, 1).value("a", U8, 2), "twice"),
        (GgufBytes().raw_value("a", 13, bytes(8)), "value type is 13"),
        (GgufBytes().value("a", BOOL, 2), "bool is stored as 2"),
        (GgufBytes().value("general.alignment", U32, 24), "power of two"),
        (GgufBytes().value("general.alignment", STRING, "32"), "wanted an integer"),
        (GgufBytes().tensor("t" * 64, [1], TYPE_F32, bytes(4)), "64 bytes"),
        (GgufBytes().tensor("a", [1], TYPE_F32, bytes(4)).tensor("a", [1], TYPE_F32, bytes(4)), "twice"),
        (GgufBytes().tensor("a", [16], TYPE_F32, bytes(64)).tensor("b", [1], TYPE_F32, bytes(4), 32), "overlap"),
        (GgufBytes().tensor("a", [31], TYPE_Q4_0, bytes(18)), "rows of 31 elements"),
    ],
)
def test_damaged_headers(tmp_path: Path, file: GgufBytes, said: str) -> None:
    assert said in refusal(write(tmp_path, file.build()))


def test_array_of_arrays(tmp_path: Path) -> None:
    data = GgufBytes().raw_value("a", ARRAY, pack(I32, ARRAY) + pack(U64, 1)).build()
    assert "arrays of arrays" in refusal(write(tmp_path, data), UnsupportedError)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (4, "type 4 (Q4_2), which was removed"),
        (5, "type 5 (Q4_3), which was removed"),
        (31, "type 31 (Q4_0_4_4), which was removed"),
        (36, "type 36 (IQ4_NL_4_4), which was removed"),
        (99, "type 99, which is unknown"),
        ((1 << 31) - 1, "type 2147483647, which is unknown"),
        ((1 << 32) - 1, "type 4294967295, which is unknown"),
    ],
)
def test_tensor_types_that_cannot_be_read(tmp_path: Path, number: int, said: str) -> None:
    message = refusal(write(tmp_path, GgufBytes().tensor("w", [256], number, bytes(512)).build()), UnsupportedError)
    assert said in message
    assert "'w'" in message


@pytest.mark.parametrize(("number", "name", "n_bytes"), [(39, "mxfp4", 136), (40, "nvfp4", 144)])
def test_new_tensor_types_are_read(tmp_path: Path, number: int, name: str, n_bytes: int) -> None:
    file = _native.Gguf(write(tmp_path, GgufBytes().tensor("w", [256], number, bytes(n_bytes)).build()))
    assert [(tensor.type_name, tensor.n_bytes) for tensor in file.tensors()] == [(name, n_bytes)]


def split_part(no: int, tensor: str, count: int = 3, total: int = 3) -> bytes:
    file = GgufBytes().value("split.no", U16, no).value("split.count", U16, count)
    file.value("split.tensors.count", I32, total)
    if no == 0:
        file.value("general.architecture", STRING, "llama")
    return file.tensor(tensor, [8], TYPE_F32, bytes(32)).build()


@pytest.fixture
def split_paths(tmp_path: Path) -> list[Path]:
    """The three parts of a split file."""
    names = [f"m-0000{no + 1}-of-00003.gguf" for no in range(3)]
    return [write(tmp_path, split_part(no, f"w{no}"), name) for no, name in enumerate(names)]


@pytest.mark.parametrize("no", range(3))
def test_any_part_opens_the_whole_set(split_paths: list[Path], no: int) -> None:
    file = _native.Gguf(split_paths[no])
    assert file.metadata()["general.architecture"] == "llama"
    assert [tensor.name for tensor in file.tensors()] == ["w0", "w1", "w2"]


def test_lost_part(split_paths: list[Path]) -> None:
    split_paths[2].unlink()
    with pytest.raises(ModelFileError, match="part 3 of 3 of a split model is missing"):
        _native.Gguf(split_paths[1])


def test_renamed_part(split_paths: list[Path]) -> None:
    renamed = split_paths[0].rename(split_paths[0].with_name("model.gguf"))
    assert "must end in -00001-of-00003.gguf" in refusal(renamed)


def test_part_of_another_model(split_paths: list[Path]) -> None:
    split_paths[1].write_bytes(split_part(1, "w1", total=5))
    with pytest.raises(ModelFileError, match="00002-of-00003.gguf: is part of a model of 5 tensors"):
        _native.Gguf(split_paths[0])
