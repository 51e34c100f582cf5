"""The loaded core: its library-wide functions, errors, log lines, and what a long call needs.

Only the modules of this package touch ``ffi`` and ``lib``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydspark._native.loader import load_core
from pydspark.errors import from_code
from pydspark.records import Device, Progress

ffi, lib = load_core()

_LOG_LEVELS = {"D": logging.DEBUG, "I": logging.INFO, "W": logging.WARNING, "E": logging.ERROR}
_LOG_CHUNK = 1 << 16

MASK_WINDOW = 128
"""Tokens that a mask is told of: more than can change between two masks."""


def text_of(value: Any) -> str:
    return str(ffi.string(value).decode("utf-8", "replace"))


def ggml_version() -> str:
    """Version of the ggml that is loaded."""
    return text_of(lib.pds_ggml_version())


def ggml_build_version() -> str:
    """Version of the ggml that the core was built with."""
    return text_of(lib.pds_ggml_build_version())


def ggml_build_options() -> str:
    """Build options of that ggml, as ``NAME=VALUE`` words."""
    return text_of(lib.pds_ggml_build_options()).strip()


def ggml_features() -> str:
    """What the CPU code of the loaded ggml was compiled for, as ``NAME=VALUE`` words."""
    return text_of(lib.pds_ggml_features())


def drain_log() -> None:
    """Hands waiting log lines of the core and of ggml to the logger ``pydspark.ggml``."""
    buffer = ffi.new("char[]", _LOG_CHUNK)
    logger = logging.getLogger("pydspark.ggml")
    while size := lib.pds_log_take(buffer, _LOG_CHUNK):
        for line in bytes(ffi.buffer(buffer, size)).decode("utf-8", "replace").splitlines():
            level, _, text = line.partition(" ")
            logger.log(_LOG_LEVELS.get(level, logging.INFO), "%s", text)


def devices() -> list[Device]:
    """The devices that ggml offers."""
    found = []
    error = ffi.new("pds_error *")
    for index in range(lib.pds_device_count()):
        info = ffi.new("pds_device_info *")
        check(lib.pds_device_get(index, info, error), error)
        found.append(
            Device(
                name=text_of(info.name),
                description=text_of(info.description),
                is_gpu=bool(info.is_gpu),
                memory_free=info.memory_free,
                memory_total=info.memory_total,
            )
        )
    return found


def check(rc: int, error: Any) -> None:
    """Raises the exception for a status code other than OK."""
    if rc != 0:
        drain_log()
        raise from_code(rc, text_of(error.message), (error.values[0], error.values[1]))


class _Call:
    """One native call under way on this thread: whom to tell, and what went wrong in telling."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress = progress
        self.raised: BaseException | None = None


_calls = threading.local()


def _call_failed(kind: Any, value: BaseException, traceback: Any) -> int:
    _calls.current.raised = value
    return 1


# An exception cannot pass through the core. A pending Ctrl-C may be raised even before the function's first line, so
# all of them are caught by onerror, which stops the call; watched raises them again after it.
@ffi.def_extern(name="pds_python_progress", error=1, onerror=_call_failed)  # type: ignore[untyped-decorator]
def _on_progress(_user: Any, fraction: float) -> int:
    progress = _calls.current.progress
    return 0 if progress is None or progress(fraction) else 1


@ffi.def_extern(name="pds_python_mask", error=1, onerror=_call_failed)  # type: ignore[untyped-decorator]
def _on_mask(user: Any, tokens: Any, n_tokens: int, words: Any, n_words: int) -> int:
    last = ffi.unpack(tokens + max(n_tokens - MASK_WINDOW, 0), min(n_tokens, MASK_WINDOW))
    mask = ffi.from_handle(user).allowed(n_tokens, last)
    ffi.memmove(words, mask, min(len(mask), n_words * ffi.sizeof("uint32_t")))
    return 0


@contextmanager
def watched(progress: Progress | None) -> Iterator[None]:
    outer = getattr(_calls, "current", None)
    _calls.current = call = _Call(progress)
    try:
        yield
    finally:
        _calls.current = outer
        if call.raised is not None:
            raise call.raised
