"""The reader agrees with the gguf package on good files and refuses bad ones with a reason."""

from __future__ import annotations

import random
import struct

import gguf
import numpy as np
import pytest
from pydspark.convert.errors import ConvertError
from pydspark.convert.gguf_reader import read_gguf
from tiny.drafters import write_target


def test_agrees_with_the_gguf_package(target):
    ours, theirs = read_gguf(target), gguf.GGUFReader(target)
    for key, field in theirs.fields.items():
        if key.startswith("GGUF."):
            continue
        value = ours.get(key)
        if isinstance(value, list) and value and isinstance(value[0], bytes):
            value = [item.decode() for item in value]
        assert value == field.contents(), key
    assert list(ours.tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        np.testing.assert_array_equal(ours.tensors[tensor.name].all_values(), values)


def test_scalars_of_every_type(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "test")
    values = {"uint8": 200, "int8": -3, "uint16": 60000, "int16": -300, "uint32": 4_000_000_000, "int32": -70000}
    values.update({"float32": 0.5, "uint64": 1 << 60, "int64": -(1 << 60), "float64": 1e300, "bool": True})
    for kind, value in values.items():
        getattr(writer, f"add_{kind}")(kind, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    file = read_gguf(tmp_path / "a.gguf")
    assert {kind: file.get(kind) for kind in values} == values


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"", "is empty"),
        (b"<!DOCTYPE html><html>", "a web page"),
        (b"version https://git-lfs.github.com/spec/v1", "git-lfs pointer"),
        (b"PK\x03\x04 and more of it", "a ZIP or PyTorch archive"),
        (b"lmgg" + bytes(20), "before GGUF"),
        (b"tjgg" + bytes(20), "before GGUF"),
        (struct.pack("<Q", 20) + b'{"a":1}' + bytes(9), "a safetensors file"),
        (b"GGUF\x01\0\0\0" + bytes(20), "version 1, supported are 2 and 3"),
        (b"GGUF\0\0\0\x03" + bytes(20), "version 50331648"),
        (b"something else entirely", "is not a GGUF file"),
        (b"GGUF\x03\0\0\0" + struct.pack("<QQ", 1 << 60, 0), "tensor count"),
        (b"GGUF\x03\0\0\0" + struct.pack("<QQ", 0, 1 << 60), "metadata count"),
        (b"GGUF\x03\0\0\0" + struct.pack("<QQQ", 0, 1, 1 << 60) + bytes(20), "metadata key"),
        (b"GGUF\x03\0\0\0" + struct.pack("<QQQ", 0, 1, 1) + b"k" + struct.pack("<IQ", 77, 0), "unknown value type 77"),
        (
            b"GGUF\x03\0\0\0" + struct.pack("<QQQ", 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 8, 1 << 50),
            "the length of k",
        ),
        (b"GGUF\x03\0\0\0" + struct.pack("<QQQ", 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 9, 1), "array of arrays"),
    ],
)
def test_files_of_another_kind_or_damaged(tmp_path, head, reason):
    path = tmp_path / "bad.gguf"
    path.write_bytes(head)
    with pytest.raises(ConvertError, match=reason):
        read_gguf(path)


@pytest.mark.parametrize("size", [3, 24, 1000, -1, -5000])
def test_cut_short(target, size):
    data = target.read_bytes()
    target.write_bytes(data[:size])
    with pytest.raises(ConvertError, match="cut short|not a GGUF|damaged"):
        read_gguf(target)


def test_missing_bytes_of_a_tensor_are_counted(target):
    data = target.read_bytes()
    target.write_bytes(data[:-100])
    with pytest.raises(ConvertError, match="tensor 'output.weight' lacks its last 100 bytes"):
        read_gguf(target)


def test_random_damage_is_refused_or_harmless(target):
    data, rng = target.read_bytes(), random.Random(1)
    refused = 0
    for _ in range(300):
        damaged = bytearray(data)
        for _ in range(3):
            damaged[rng.randrange(4, 400)] = rng.randrange(256)
        target.write_bytes(damaged)
        try:
            read_gguf(target)
        except ConvertError:
            refused += 1
    assert refused > 100


@pytest.mark.parametrize("number", [4, 5, 31, 36, 99, 2**31 - 1])
def test_unknown_number_formats_are_set_aside(target, number):
    data = target.read_bytes()
    at = data.index(b"output.weight") + len("output.weight") + 4 + 16
    target.write_bytes(data[:at] + struct.pack("<I", number) + data[at + 4 :])
    file = read_gguf(target)
    assert file.unknown == {"output.weight": number}
    assert "token_embd.weight" in file.tensors


def test_rows_must_be_whole_blocks(tmp_path):
    path = write_target(tmp_path / "a.gguf", gguf.GGMLQuantizationType.Q8_0)
    data = path.read_bytes()
    at = data.index(b"output.weight") + len("output.weight") + 4
    path.write_bytes(data[:at] + struct.pack("<Q", 31) + data[at + 8 :])
    with pytest.raises(ConvertError, match="rows of 'output.weight' have 31 values, Q8_0 needs a multiple of 32"):
        read_gguf(path)


def split_target(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "set.gguf", "qwen3", split_max_tensors=1)
    writer.add_block_count(6)
    for name in ("token_embd.weight", "output.weight"):
        writer.add_tensor(name, np.ones((4, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(tmp_path.glob("set-*.gguf"))


def test_any_part_of_a_split_set_opens_all_of_it(tmp_path):
    parts = split_target(tmp_path)
    assert len(parts) == 2
    for part in parts:
        file = read_gguf(part)
        assert set(file.tensors) == {"token_embd.weight", "output.weight"}
        assert file.get("qwen3.block_count") == 6


def test_missing_part_of_a_split_set(tmp_path):
    parts = split_target(tmp_path)
    parts[1].unlink()
    with pytest.raises(ConvertError, match="has 2 parts, but set-00002-of-00002.gguf cannot be found"):
        read_gguf(parts[0])
