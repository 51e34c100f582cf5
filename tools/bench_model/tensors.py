"""Lists what a file will hold, before any of it is made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import gguf
import numpy as np
from numpy.typing import NDArray

from .blocks import NVFP4_DEVIATION, Type, random_bytes

Shape = tuple[int, ...]  # as in GGUF: the first dimension is contiguous


@dataclass(frozen=True)
class Tensor:
    """A tensor to write: given values, or random ones of a standard deviation."""

    name: str
    shape: Shape
    kind: Type
    seed: int
    deviation: float = 0.0
    values: NDArray[np.float32] | None = None

    @property
    def n_values(self) -> int:
        return int(np.prod(self.shape))

    @property
    def n_bytes(self) -> int:
        block, size = gguf.GGML_QUANT_SIZES[self.kind]
        return self.n_values // int(block) * int(size)

    def pieces(self) -> Iterable[memoryview]:
        """Its bytes; the same for the same name, shape and seed."""
        if self.values is not None:
            return [self.values.astype("<f4").data]
        return random_bytes(self.kind, self.n_values, self.deviation, self.name, self.seed)


class TensorList:
    """Collects tensors, matrices in one type. Every matrix keeps the size of what it is multiplied with, times a gain.

    Args:
        kind: type of the matrices. NVFP4 matrices come with their scales, and tables and heads beside them are Q8_0.
        seed: other seeds give other numbers.
    """

    def __init__(self, kind: Type, seed: int) -> None:
        self._kind = kind
        self._table_kind = Type.Q8_0 if kind is Type.NVFP4 else kind
        self._seed = seed
        self.found: list[Tensor] = []

    def matrix(self, name: str, *shape: int, gain: float = 1.0, table: bool = False) -> None:
        """Rows that blocks of 256 do not fit in become Q8_0 instead of Q4_K, and are scaled by themselves."""
        kind = self._table_kind if table or shape[0] % 256 else self._kind
        kind = Type.Q8_0 if kind is Type.Q4_K and shape[0] % 256 else kind
        deviation = gain / float(np.sqrt(shape[0]))
        self._add(f"{name}.weight", shape, kind, deviation=deviation)
        if kind is Type.NVFP4:
            n_scales = shape[2] if len(shape) == 3 else 1
            self.constant(f"{name}.scale", n_scales, deviation / NVFP4_DEVIATION)

    def norm(self, name: str, n: int) -> None:
        """Weights around 1."""
        self._values(f"{name}.weight", (n,), 1 + 0.1 * self._normal(name, (n,)))

    def plain(self, name: str, *shape: int) -> None:
        """Random numbers that are never quantized."""
        self._values(name, shape, self._normal(name, shape) / np.sqrt(shape[0]))

    def constant(self, name: str, n: int, value: float) -> None:
        """The same number ``n`` times."""
        self._values(name, (n,), np.full(n, value))

    def _normal(self, name: str, shape: Shape) -> NDArray[np.float32]:
        return np.random.default_rng([self._seed, *name.encode()]).standard_normal(shape, np.float32)

    def _values(self, name: str, shape: Shape, values: NDArray[np.floating]) -> None:
        self._add(name, shape, Type.F32, values=values.astype(np.float32))

    def _add(self, name: str, shape: Shape, kind: Type, **what: object) -> None:
        self.found.append(Tensor(name, shape, kind, self._seed, **what))  # type: ignore[arg-type]
