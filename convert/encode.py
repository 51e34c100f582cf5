"""Turns rows of a stored tensor into the bytes of another number format."""

from __future__ import annotations

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import quantize

from .errors import ConvertError
from .tensors import Bytes, Floats, StoredTensor

_MAX_F16 = 65504.0
# bits that are all set in an infinity or NaN of a 16-bit or 32-bit format
_EXPONENT = {
    GGMLQuantizationType.BF16: (np.uint16, 0x7F80),
    GGMLQuantizationType.F16: (np.uint16, 0x7C00),
    GGMLQuantizationType.F32: (np.uint32, 0x7F800000),
}


def encode_rows(tensor: StoredTensor, start: int, stop: int, kind: GGMLQuantizationType) -> Bytes:
    """Rows ``[start, stop)`` as bytes of ``kind``, rounded to nearest, ties to even.

    Raises:
        ConvertError: a value is infinite or not a number, or does not fit in ``kind``.
    """
    if tensor.kind is kind:
        data = tensor.raw(start, stop)
        _refuse_not_finite(tensor, data)
        return data
    return encode_values(tensor.name, tensor.values(start, stop), kind)


def encode_values(name: str, values: Floats, kind: GGMLQuantizationType) -> Bytes:
    """float32 rows -> bytes of ``kind``, one row of the result each."""
    largest = float(np.abs(values).max(initial=0.0))
    if not np.isfinite(largest):
        raise ConvertError(f"{name}: holds values that are infinite or not numbers; the checkpoint is damaged")
    if kind is GGMLQuantizationType.F16 and largest > _MAX_F16:
        raise ConvertError(f"{name}: the value {largest:.6g} does not fit in F16; use --outtype bf16")
    encoded = quantize(np.ascontiguousarray(values), kind)
    return np.ascontiguousarray(encoded).view(np.uint8).reshape(len(values), -1)


def _refuse_not_finite(tensor: StoredTensor, data: Bytes) -> None:
    if tensor.kind not in _EXPONENT:
        return
    word, mask = _EXPONENT[tensor.kind]
    if ((data.view(word) & word(mask)) == mask).any():
        raise ConvertError(f"{tensor.name}: holds values that are infinite or not numbers; the checkpoint is damaged")
