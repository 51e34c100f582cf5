"""Loaded weights as Python objects."""

from __future__ import annotations

from pydspark._native.core import check, ffi, lib, watched
from pydspark._native.gguf import Gguf, model_params
from pydspark.params import ModelParams
from pydspark.records import Progress


class Model:
    """The weights of a model, ready to run.

    Args:
        gguf: the file.
        params: how to load it.
        progress: told the fraction loaded; may stop loading.

    Raises:
        UnsupportedError, ModelFileError, OutOfMemoryError: it cannot be loaded.
        Cancelled: progress stopped it.
    """

    def __init__(self, gguf: Gguf, params: ModelParams, progress: Progress | None = None) -> None:
        out = ffi.new("pds_model **")
        error = ffi.new("pds_error *")
        with watched(progress):
            rc = lib.pds_model_load(gguf._handle, model_params(params), lib.pds_python_progress, ffi.NULL, out, error)
            if rc == 0:
                self._handle = ffi.gc(out[0], lib.pds_model_free)
        check(rc, error)
        self._gguf = gguf

    def close(self) -> None:
        """Frees the weights. Must not be called while a session on it is alive."""
        ffi.release(self._handle)


class Draft:
    """A drafter for a loaded target.

    Args:
        gguf: the drafter's file.
        target: the model that it drafts for.
        params: how to load it.
        progress: told the fraction loaded; may stop loading.

    Raises:
        PairingError: it was not made for this target; the message lists every reason.
        UnsupportedError, ModelFileError, OutOfMemoryError: it cannot be loaded.
        Cancelled: progress stopped it.
    """

    def __init__(self, gguf: Gguf, target: Model, params: ModelParams, progress: Progress | None = None) -> None:
        out = ffi.new("pds_draft **")
        error = ffi.new("pds_error *")
        call = lib.pds_python_progress
        with watched(progress):
            rc = lib.pds_draft_load(gguf._handle, target._handle, model_params(params), call, ffi.NULL, out, error)
            if rc == 0:
                self._handle = ffi.gc(out[0], lib.pds_draft_free)
        check(rc, error)
        self._gguf = gguf

    def close(self) -> None:
        """Frees the weights. Must not be called while a session with it is alive."""
        ffi.release(self._handle)
