"""What a batch cannot be faster than: the bytes it has to read, at the speed of the memory."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

from pydspark._native import Gguf
from pydspark.records import MemoryReport, TensorInfo

_BUFFER_BYTES = 1 << 27  # more than any cache holds
_MIXERS = ("attn_", "ssm_")


class BytesRead:
    """Bytes that a batch reads at least, by kind of work; for recurrent layers also what it writes.

    Args:
        gguf: the model's file.
        memory: of a session of it.
        depth: tokens in the cache before the batch.
    """

    def __init__(self, gguf: Gguf, memory: MemoryReport, depth: int) -> None:
        info = gguf.describe()
        self._n_layers = {
            "attention": info.n_layer - info.n_recurrent,
            "delta net": info.n_recurrent,
            "feed-forward": info.n_layer,
            "head": 1,
        }
        self._all_rows: defaultdict[str, float] = defaultdict(float)  # whatever the number of rows
        self._all_experts = 0
        tensors = {tensor.name: tensor for tensor in gguf.tensors()}
        head = "output.weight" if "output.weight" in tensors else "token_embd.weight"
        for tensor in tensors.values():
            if tensor.name in (head, "output_norm.weight"):
                self._all_rows["head"] += tensor.n_bytes
            elif tensor.name.startswith("blk.") and _layer(tensor) < info.n_layer:
                self._add(tensor, recurrent=f"blk.{_layer(tensor)}.ssm_out.weight" in tensors)
        self._all_rows["attention"] += depth * memory.token_bytes
        self._all_rows["delta net"] += 2 * memory.checkpoint_bytes  # read and written
        metadata = gguf.metadata()
        self._n_expert = _largest(metadata.get(f"{info.architecture}.expert_count", 0))
        self._n_used = _largest(metadata.get(f"{info.architecture}.expert_used_count", 0))

    def _add(self, tensor: TensorInfo, recurrent: bool) -> None:
        part = tensor.name.split(".")[2]
        if part.endswith("_exps"):
            self._all_experts += tensor.n_bytes
        elif part.startswith(_MIXERS):
            self._all_rows["delta net" if recurrent else "attention"] += tensor.n_bytes
        else:
            self._all_rows["feed-forward"] += tensor.n_bytes

    def of(self, kind: str, n_tokens: int) -> float:
        """Bytes for one layer of a kind, or for the head, with experts chosen at random."""
        found = self._all_rows[kind]
        if kind == "feed-forward" and self._n_expert:
            found += self._all_experts * (1 - (1 - self._n_used / self._n_expert) ** n_tokens)
        return found / max(self._n_layers[kind], 1)


def _layer(tensor: TensorInfo) -> int:
    return int(tensor.name.split(".")[1])


def _largest(value: Any) -> int:
    return max(value, default=0) if isinstance(value, list) else int(value)


class Memory:
    """The speed at which one thread reads from memory."""

    def __init__(self) -> None:
        self._buffers = [bytearray(b"\1") * _BUFFER_BYTES for _ in range(2)]
        self.bytes_per_ms = 0.0

    def measure(self) -> None:
        """Measures once more; the fastest time counts, in CPU time."""
        started = time.thread_time()
        equal = self._buffers[0] == self._buffers[1]
        ms = (time.thread_time() - started) * 1e3
        assert equal
        self.bytes_per_ms = max(self.bytes_per_ms, 2 * _BUFFER_BYTES / ms)
