"""Random weights as the bytes of a tensor: quantized blocks are drawn as such, never rounded from numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

import gguf
import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Type = gguf.GGMLQuantizationType

# Blocks that are drawn; a tensor goes round them from a place of its own. The number is a prime above the rows of every
# matrix, so no two rows of a matrix are the same.
POOL_BLOCKS = 248_323
FLOATS_PER_BLOCK = 32
NVFP4_DEVIATION = 2.926  # of its 16 codes


def random_bytes(kind: Type, n_values: int, deviation: float, name: str, seed: int) -> Iterator[memoryview]:
    """Values of a mean of about 0 and a standard deviation, in pieces; the same for the same name and seed.

    NVFP4 values have a deviation of ``NVFP4_DEVIATION`` whatever is asked for: a tensor beside the weight scales them.
    """
    pool = _pool(kind, deviation, seed)
    at = int(np.random.default_rng([seed, *name.encode()]).integers(POOL_BLOCKS))
    left = n_values // _values_per_block(kind)
    while left:
        piece = pool[at : at + left]
        yield piece.data
        left -= len(piece)
        at = 0


def _values_per_block(kind: Type) -> int:
    return max(int(gguf.GGML_QUANT_SIZES[kind][0]), FLOATS_PER_BLOCK)


@lru_cache(maxsize=4)
def _pool(kind: Type, deviation: float, seed: int) -> Bytes:
    return _DRAW.get(kind, _floats)(kind, deviation, np.random.default_rng([seed, kind.value]))


def _floats(kind: Type, deviation: float, rng: np.random.Generator) -> Bytes:
    values = rng.standard_normal((POOL_BLOCKS, FLOATS_PER_BLOCK), np.float32) * np.float32(deviation)
    if kind is Type.BF16:
        return (values.view(np.uint32) >> 16).astype("<u2").view(np.uint8)
    return values.astype("<f2" if kind is Type.F16 else "<f4").view(np.uint8)


def _q8_0(kind: Type, deviation: float, rng: np.random.Generator) -> Bytes:
    codes = rng.integers(-127, 128, (POOL_BLOCKS, 32), np.int8)  # their deviation is 73.3
    return _join(_half(deviation / 73.3), codes.view(np.uint8))


def _q4_k(kind: Type, deviation: float, rng: np.random.Generator) -> Bytes:
    # all eight sub-blocks have scale 32 and minimum 32; codes 0..15 have a mean of 7.5 and a deviation of 4.61
    step = deviation / (32 * 4.61)
    scales = np.array([0xA0] * 8 + [0x00] * 4, np.uint8)
    head = np.concatenate([_half(step), _half(7.5 * step), scales])
    return _join(head, rng.integers(0, 256, (POOL_BLOCKS, 128), np.uint8))


def _nvfp4(kind: Type, deviation: float, rng: np.random.Generator) -> Bytes:
    return _join(np.array([0x38] * 4, np.uint8), rng.integers(0, 256, (POOL_BLOCKS, 32), np.uint8))  # scales of 1


_DRAW: dict[Type, Callable[[Type, float, np.random.Generator], Bytes]] = {
    Type.Q8_0: _q8_0,
    Type.Q4_K: _q4_k,
    Type.NVFP4: _nvfp4,
}


def _half(value: float) -> Bytes:
    return np.frombuffer(np.float16(value).tobytes(), np.uint8)


def _join(head: Bytes, codes: Bytes) -> Bytes:
    return np.concatenate([np.broadcast_to(head, (len(codes), len(head))), codes], axis=1)
