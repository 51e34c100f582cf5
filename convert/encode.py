"""Turns rows of a stored tensor into the bytes of another number format."""

from __future__ import annotations

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import quantize

from .tensors import Bytes, StoredTensor

_MAX_F16 = 65504.0


def encode_rows(tensor: StoredTensor, start: int, stop: int, kind: GGMLQuantizationType) -> Bytes:
    """Rows ``[start, stop)`` as bytes of ``kind``, rounded to nearest, ties to even; one row of the result each."""
    if tensor.kind is kind:
        return tensor.raw(start, stop)
    encoded = quantize(np.ascontiguousarray(tensor.values(start, stop)), kind)
    return np.ascontiguousarray(encoded).view(np.uint8).reshape(stop - start, -1)


def unfit_value(tensor: StoredTensor, kind: GGMLQuantizationType) -> float | None:
    """A value that ``kind`` cannot hold: infinite, not a number, or too large; None when there is none."""
    limit = _MAX_F16 if kind is GGMLQuantizationType.F16 else float(np.finfo(np.float32).max)
    for start, stop in tensor.spans():
        values = tensor.values(start, stop)
        # a comparison with NaN is false, so it counts as unfit too
        lowest, highest = float(values.min()), float(values.max())
        if not (lowest >= -limit and highest <= limit):
            return highest if not highest <= limit else lowest
    return None
