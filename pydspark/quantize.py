"""Copies of model files with their weights in another type."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from pydspark._native import Gguf
from pydspark._native.quantize import write_quantized
from pydspark.errors import ArgumentError
from pydspark.records import Progress

TYPES = {
    "f32": 0,
    "f16": 1,
    "bf16": 30,
    "q8_0": 8,
    "q6_k": 14,
    "q5_k": 13,
    "q5_1": 7,
    "q5_0": 6,
    "q4_k": 12,
    "q4_1": 3,
    "q4_0": 2,
    "iq4_nl": 20,
    "mxfp4": 39,
}
"""Types that can be written, and their ggml numbers."""


def quantize(
    src: str | PathLike[str],
    dst: str | PathLike[str],
    type: str,
    *,
    force: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Copies a model with its weights in another type; a split model becomes one file.

    Norms, biases and other small tensors stay as they are. Weights whose rows do not fit the blocks of the type become
    Q8_0, else F16. The token embedding and the output head become at least Q8_0. The file appears under its name only
    when it is complete.

    Args:
        src: the model; of a split one, any file.
        dst: the new file.
        type: a name of ``TYPES``, in upper or lower case.
        force: replace ``dst`` if it is there.
        progress: told the fraction written, in [0, 1]; a false result stops.

    Returns:
        The new file.

    Raises:
        ArgumentError: an unknown type, or ``dst`` is a file of ``src``.
        ModelFileError: ``src`` cannot be read, or ``dst`` is there or cannot be written.
        Cancelled: progress stopped it; nothing is left behind.
    """
    number = TYPES.get(type.lower())
    if number is None:
        raise ArgumentError(f"type must be one of {', '.join(TYPES)}, not {type!r}")
    write_quantized(Gguf(src), dst, number, replace=force, progress=progress)
    return Path(dst)
