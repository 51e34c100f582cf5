"""Writes GGUF files byte by byte, so that tests can make wrong ones. Nothing is checked here."""

from __future__ import annotations

import struct
from collections.abc import Sequence

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
_FORMATS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}

TYPE_F32 = 0
TYPE_F16 = 1
TYPE_Q4_0 = 2
TYPE_Q8_0 = 8


def pack(kind: int, value: object, order: str = "<") -> bytes:
    """One item of a GGUF value type."""
    if kind == STRING:
        data = value if isinstance(value, bytes) else str(value).encode()
        return struct.pack(order + "Q", len(data)) + data
    return struct.pack(order + _FORMATS[kind], value)


class GgufBytes:
    """A GGUF file in the making.

    Args:
        version: the version in the header.
        order: ``"<"`` for a little-endian file, ``">"`` for a big-endian one.
        alignment: of the tensor data; not written into the metadata.
    """

    def __init__(self, version: int = 3, order: str = "<", alignment: int = 32) -> None:
        self.version = version
        self.order = order
        self.alignment = alignment
        self._values: list[bytes] = []
        self._tensors: list[bytes] = []
        self._data = b""

    def value(self, key: str | bytes, kind: int, value: object) -> GgufBytes:
        """Adds a scalar of type ``kind``."""
        return self.raw_value(key, kind, pack(kind, value, self.order))

    def array(self, key: str | bytes, kind: int, items: Sequence[object], count: int | None = None) -> GgufBytes:
        """Adds an array of items of type ``kind``; ``count`` is the length to state instead of the true one."""
        n_items = len(items) if count is None else count
        body = b"".join(pack(kind, item, self.order) for item in items)
        return self.raw_value(key, ARRAY, pack(I32, kind, self.order) + pack(U64, n_items, self.order) + body)

    def raw_value(self, key: str | bytes, kind: int, body: bytes) -> GgufBytes:
        """Adds a value whose bytes are given."""
        self._values.append(pack(STRING, key, self.order) + pack(I32, kind, self.order) + body)
        return self

    def tensor(
        self, name: str | bytes, shape: Sequence[int], kind: int, data: bytes, offset: int | None = None
    ) -> GgufBytes:
        """Adds a tensor of ggml type ``kind`` and its data; ``offset`` is what to state instead of the true one."""
        stated = len(self._data) if offset is None else offset
        dims = pack(U32, len(shape), self.order) + b"".join(pack(U64, n, self.order) for n in shape)
        self._tensors.append(
            pack(STRING, name, self.order) + dims + pack(U32, kind, self.order) + pack(U64, stated, self.order)
        )
        self._data += data + b"\0" * (-len(data) % self.alignment)
        return self

    def build(self, n_tensors: int | None = None, n_values: int | None = None) -> bytes:
        """The file; the counts are those to state instead of the true ones."""
        header = b"GGUF" + pack(U32, self.version, self.order)
        header += pack(U64, len(self._tensors) if n_tensors is None else n_tensors, self.order)
        header += pack(U64, len(self._values) if n_values is None else n_values, self.order)
        header += b"".join(self._values) + b"".join(self._tensors)
        return header + b"\0" * (-len(header) % self.alignment) + self._data


def small_model(version: int = 3, order: str = "<") -> GgufBytes:
    """A well-formed file with some metadata and three tensors that are no model."""
    file = GgufBytes(version, order)
    file.value("general.architecture", STRING, "llama")
    file.value("llama.block_count", U32, 2)
    file.value("llama.rope.freq_base", F32, 10000.0)
    file.value("tokenizer.ggml.add_bos_token", BOOL, 1)
    file.array("tokenizer.ggml.tokens", STRING, ["a", "", "\u0120b"])
    file.array("tokenizer.ggml.token_type", I32, [1, 1, -3])
    file.tensor("token_embd.weight", [32, 3], TYPE_F32, bytes(range(96)) * 4)
    file.tensor("blk.0.attn_q.weight", [64, 2], TYPE_Q8_0, bytes(range(136)))
    file.tensor("output_norm.weight", [8], TYPE_F16, bytes(range(16)))
    return file
