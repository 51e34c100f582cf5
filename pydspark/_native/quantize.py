"""Writing a model file in another type, by the compiled core."""

from __future__ import annotations

from os import PathLike, fsencode

from pydspark._native.core import check, ffi, lib, watched
from pydspark._native.gguf import Gguf
from pydspark.records import Progress


def write_quantized(
    gguf: Gguf, path: str | PathLike[str], type: int, *, replace: bool = False, progress: Progress | None = None
) -> None:
    """Writes the model with its weights in another type.

    Args:
        gguf: the model.
        path: the new file.
        type: ggml type number.
        replace: whether a file that is there may be replaced.
        progress: told the fraction written; may stop it.

    Raises:
        ArgumentError: a type that cannot be written, or the path of the model itself.
        ModelFileError: the file cannot be written, or a weight cannot be converted.
        Cancelled: progress stopped it.
    """
    error = ffi.new("pds_error *")
    with watched(progress):
        rc = lib.pds_quantize(
            gguf._handle, fsencode(path), type, int(replace), lib.pds_python_progress, ffi.NULL, error
        )  # fmt: skip
    check(rc, error)
