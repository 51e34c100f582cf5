"""A tensor that still lies in its file: rows are read and widened to float32 only when asked for."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray

from .errors import ConvertError

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]

# float32 bytes held at once while a tensor is streamed; every buffer on the way is about this size
CHUNK_BYTES = 8 << 20


def row_bytes(row_len: int, kind: GGMLQuantizationType) -> int:
    """Bytes of one row of ``row_len`` values; refuses rows that are not whole blocks."""
    block, size = GGML_QUANT_SIZES[kind]
    if row_len % block:
        raise ConvertError(f"a row of {row_len} values cannot be {kind.name}: its blocks hold {block} values")
    return row_len // block * size


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies and how its bytes are to be read.

    Attributes:
        name: name in its own file.
        path: that file.
        offset: position of the first byte.
        shape: sizes in torch order, rows first; GGUF files list them the other way round.
        kind: ggml's number format.
    """

    name: str
    path: Path
    offset: int
    shape: tuple[int, ...]
    kind: GGMLQuantizationType

    @property
    def row_len(self) -> int:
        return self.shape[-1] if self.shape else 1

    @property
    def n_rows(self) -> int:
        return math.prod(self.shape[:-1])

    @property
    def n_bytes(self) -> int:
        return self.n_rows * row_bytes(self.row_len, self.kind)

    def spans(self) -> Iterator[tuple[int, int]]:
        """Row ranges ``[start, stop)`` that cover the tensor, each of about ``CHUNK_BYTES`` as float32."""
        step = max(1, CHUNK_BYTES // (4 * max(1, self.row_len)))
        for start in range(0, self.n_rows, step):
            yield start, min(start + step, self.n_rows)

    def raw(self, start: int, stop: int) -> Bytes:
        """The stored bytes of rows ``[start, stop)``, one row of the result each.

        Reads instead of mapping the file: pages of a mapping would count as memory of this process.
        """
        size = row_bytes(self.row_len, self.kind)
        with open(self.path, "rb", buffering=0) as file:
            file.seek(self.offset + start * size)
            data = _read_exactly(file, (stop - start) * size, self)
        return data.reshape(stop - start, size)

    def values(self, start: int, stop: int) -> Floats:
        """Rows ``[start, stop)`` as float32."""
        return widen(self.raw(start, stop), self.kind)

    def take(self, rows: Sequence[int]) -> Floats:
        """The given rows as float32, in the given order."""
        return widen(np.concatenate([self.raw(row, row + 1) for row in rows]), self.kind)

    def all_values(self) -> Floats:
        """The whole tensor in its own shape; meant for small ones."""
        return self.values(0, self.n_rows).reshape(self.shape)

    def integers(self) -> NDArray[np.int64]:
        """The whole tensor, which must hold whole numbers."""
        types: dict[GGMLQuantizationType, Any] = {
            GGMLQuantizationType.I64: np.int64,
            GGMLQuantizationType.I32: np.int32,
        }
        if self.kind not in types:
            raise ConvertError(f"{self.name}: holds {self.kind.name} values, wanted whole numbers (I32 or I64)")
        stored = self.raw(0, self.n_rows).reshape(-1).view(types[self.kind])
        return np.asarray(stored, dtype=np.int64)


def _read_exactly(file: Any, size: int, tensor: StoredTensor) -> Bytes:
    buffer = np.empty(size, dtype=np.uint8)
    view, done = buffer.data, 0
    while done < size:
        count = file.readinto(view[done:])
        if not count:
            raise ConvertError(f"{os.fspath(tensor.path)} ends inside tensor {tensor.name!r}; it changed while in use")
        done += count
    return buffer


def widen(data: Bytes, kind: GGMLQuantizationType) -> Floats:
    """Bytes of whole rows -> their float32 values."""
    try:
        return np.asarray(dequantize(data, kind), dtype=np.float32)
    except NotImplementedError as error:
        raise ConvertError(f"values of type {kind.name} cannot be read by the installed gguf package") from error
