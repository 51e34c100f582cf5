"""Reads the metadata and the tensor directory of GGUF files.

``gguf.GGUFReader`` needs many seconds for a vocabulary of 250,000 tokens and trusts every count in the file; this
reader needs about a second and checks each count and offset against the size of the file first.
"""

from __future__ import annotations

import math
import mmap
import re
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

from .errors import ConvertError
from .tensors import StoredTensor

_SCALARS = {
    GGUFValueType.UINT8: "<B",
    GGUFValueType.INT8: "<b",
    GGUFValueType.UINT16: "<H",
    GGUFValueType.INT16: "<h",
    GGUFValueType.UINT32: "<I",
    GGUFValueType.INT32: "<i",
    GGUFValueType.FLOAT32: "<f",
    GGUFValueType.BOOL: "<?",
    GGUFValueType.UINT64: "<Q",
    GGUFValueType.INT64: "<q",
    GGUFValueType.FLOAT64: "<d",
}
_MAX_DIMS = 4
_SHARD = re.compile(r"^(?P<stem>.+)-(?P<index>\d{5})-of-(?P<count>\d{5})\.gguf$")
_LOOKALIKES = (
    (b"version https", "a git-lfs pointer: the weights themselves were not downloaded (run 'git lfs pull')"),
    (b"<", "a web page (HTML or XML): the download saved an error page"),
    (b"PK", "a ZIP or PyTorch archive"),
    (b"lmgg", "a GGML file from before GGUF"),
    (b"tjgg", "a GGJT file from before GGUF"),
    (b"FUGG", "a big-endian GGUF, which is not supported"),
)


@dataclass(frozen=True)
class GgufValue:
    """A metadata value with the type it is stored as. Arrays of strings are lists of bytes."""

    value: Any
    type: GGUFValueType
    item_type: GGUFValueType | None = None


@dataclass
class GgufFile:
    """What a GGUF file (or a split set) holds.

    Attributes:
        path: the file that was named.
        metadata: every key of the first part.
        tensors: every tensor whose number format is known, by name.
        unknown: type number of each tensor whose format is not known, by name.
    """

    path: Path
    metadata: dict[str, GgufValue] = field(default_factory=dict)
    tensors: dict[str, StoredTensor] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)

    def get(self, key: str, default: Any = None) -> Any:
        found = self.metadata.get(key)
        return default if found is None else found.value


def read_gguf(path: Path) -> GgufFile:
    """Opens a GGUF file; any part of a split set opens the whole set.

    Raises:
        ConvertError: not a GGUF file, damaged, cut short, or a part is missing.
    """
    match = _SHARD.match(path.name)
    if match is None:
        return _read_one(path)
    count = int(match["count"])
    parts = [path.with_name(f"{match['stem']}-{i:05d}-of-{count:05d}.gguf") for i in range(1, count + 1)]
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise ConvertError(f"{path}: the set has {count} parts, but {', '.join(missing)} cannot be found beside it")
    whole = GgufFile(path)
    for part in parts:
        read = _read_one(part)
        whole.metadata = whole.metadata or read.metadata
        twice = whole.tensors.keys() & read.tensors.keys()
        if twice:
            raise ConvertError(f"{part}: tensor {min(twice)!r} is in an earlier part too")
        whole.tensors.update(read.tensors)
        whole.unknown.update(read.unknown)
    return whole


def _read_one(path: Path) -> GgufFile:
    try:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            if size == 0:
                raise ConvertError(f"{path} is empty; download it again")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Parser(path, data, size).parse()
    except OSError as error:
        raise ConvertError(f"{path} cannot be read: {error.strerror or error}") from error


class _Parser:
    """One pass over the header; ``at`` is the position of the next unread byte."""

    def __init__(self, path: Path, data: mmap.mmap, size: int) -> None:
        self.path, self.data, self.size, self.at = path, data, size, 0

    def parse(self) -> GgufFile:
        self._check_magic()
        version = self._number("<I", "version")
        if version not in (2, 3):
            raise ConvertError(f"{self.path}: GGUF version {version}, supported are 2 and 3")
        n_tensors = self._count("tensor count", 24)
        n_keys = self._count("metadata count", 13)
        file = GgufFile(self.path)
        for _ in range(n_keys):
            key = self._string("metadata key").decode("utf-8", "replace")
            if key in file.metadata:
                raise ConvertError(f"{self.path}: metadata key {key!r} appears twice")
            file.metadata[key] = self._value(key)
        entries = [self._entry() for _ in range(n_tensors)]
        self._place(file, entries)
        return file

    def _check_magic(self) -> None:
        head = bytes(self.data[:16])
        if head[:4] == b"GGUF":
            self.at = 4
            return
        looks = next((text for start, text in _LOOKALIKES if head.startswith(start)), None)
        if looks is None and len(head) > 8 and head[8:9] == b"{":
            looks = "a safetensors file: convert it first"
        raise ConvertError(f"{self.path} is not a GGUF file" + (f"; it looks like {looks}" if looks else ""))

    def _need(self, count: int, what: str) -> int:
        start = self.at
        if count < 0 or count > self.size - start:
            raise ConvertError(
                f"{self.path} is cut short or damaged: {what} needs {count} bytes at {start}, "
                f"the file has {self.size}; download it again"
            )
        self.at = start + count
        return start

    def _number(self, layout: str, what: str) -> Any:
        return struct.unpack_from(layout, self.data, self._need(struct.calcsize(layout), what))[0]

    def _count(self, what: str, least_bytes: int) -> int:
        count = int(self._number("<Q", what))
        if count * least_bytes > self.size - self.at:
            raise ConvertError(f"{self.path} is cut short or damaged: {what} {count} does not fit in {self.size} bytes")
        return count

    def _string(self, what: str) -> bytes:
        size = int(self._number("<Q", what))
        start = self._need(size, what)
        return self.data[start : start + size]

    def _type(self, what: str) -> GGUFValueType:
        number = self._number("<I", what)
        try:
            return GGUFValueType(number)
        except ValueError:
            raise ConvertError(f"{self.path}: {what} has the unknown value type {number}") from None

    def _value(self, key: str) -> GgufValue:
        kind = self._type(key)
        if kind in _SCALARS:
            return GgufValue(self._number(_SCALARS[kind], key), kind)
        if kind is GGUFValueType.STRING:
            return GgufValue(self._string(key).decode("utf-8", "surrogateescape"), kind)
        item = self._type(key)
        if item is GGUFValueType.STRING:
            count = self._count(f"the length of {key}", 8)
            return GgufValue([self._string(key) for _ in range(count)], kind, item)
        if item not in _SCALARS:
            raise ConvertError(f"{self.path}: {key} is an array of arrays, which is not supported")
        count = self._count(f"the length of {key}", struct.calcsize(_SCALARS[item]))
        layout = np.dtype(_SCALARS[item])
        start = self._need(count * layout.itemsize, key)
        return GgufValue(np.frombuffer(self.data[start : self.at], layout).tolist(), kind, item)

    def _entry(self) -> tuple[str, tuple[int, ...], int, int]:
        """(name, shape in torch order, type number, offset from the start of the data) of one tensor."""
        name = self._string("tensor name").decode("utf-8", "replace")
        n_dims = self._number("<I", f"the dimensions of {name}")
        if n_dims > _MAX_DIMS:
            raise ConvertError(
                f"{self.path}: tensor {name!r} has {n_dims} dimensions, at most {_MAX_DIMS} are possible"
            )
        sizes = tuple(int(self._number("<Q", f"the shape of {name}")) for _ in range(n_dims))
        kind, offset = self._number("<I", f"the type of {name}"), self._number("<Q", f"the offset of {name}")
        return name, sizes[::-1], int(kind), int(offset)

    def _place(self, file: GgufFile, entries: list[tuple[str, tuple[int, ...], int, int]]) -> None:
        align = file.get("general.alignment", 32)
        if not isinstance(align, int) or align <= 0 or align & (align - 1):
            raise ConvertError(f"{self.path}: general.alignment is {align!r}, wanted a power of two")
        base = (self.at + align - 1) // align * align
        for name, shape, number, offset in entries:
            if name in file.tensors or name in file.unknown:
                raise ConvertError(f"{self.path}: tensor {name!r} appears twice")
            if number not in GGMLQuantizationType._value2member_map_:
                file.unknown[name] = number
                continue
            kind = GGMLQuantizationType(number)
            block, block_bytes = GGML_QUANT_SIZES[kind]
            if shape and shape[-1] % block:
                raise ConvertError(
                    f"{self.path}: rows of {name!r} have {shape[-1]} values, {kind.name} needs a multiple of {block}"
                )
            size = math.prod(shape) // block * block_bytes
            missing = base + offset + size - self.size
            if missing > 0:
                raise ConvertError(
                    f"{self.path} is cut short: tensor {name!r} lacks its last {missing} bytes; download it again"
                )
            file.tensors[name] = StoredTensor(name, self.path, base + offset, shape, kind)
