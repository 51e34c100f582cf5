"""GGUF value types as Python values."""

from __future__ import annotations

import sys
from array import array

STRING = 8
BOOL = 7
# GGUF value type -> code of the array module, all little-endian in the file
SCALAR_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", BOOL: "B", 10: "Q", 11: "q", 12: "d"}


def decode_numbers(data: bytes, type: int) -> list[int] | list[float] | list[bool]:
    """Little-endian items of one GGUF value type."""
    items = array(SCALAR_CODES[type])
    items.frombytes(data)
    if sys.byteorder == "big":
        items.byteswap()
    return [item != 0 for item in items] if type == BOOL else items.tolist()
