"""Finds the compiled core and the ggml libraries that it needs."""

from __future__ import annotations

import ctypes
import importlib
import logging
import re
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from pydspark.errors import PydsparkError

ABI_VERSION = 1
OLDEST_GGML = (0, 20, 2)
_CORE = "pydspark._native._core"
# In the order in which one needs the other.
_LIBRARIES = ("ggml-base", "ggml-cpu", "ggml")

log = logging.getLogger("pydspark")


def load_core() -> tuple[Any, Any]:
    """The core's ``ffi`` and ``lib``.

    Raises:
        ImportError: the core or ggml is not installed; the message says which and how to get it.
        PydsparkError: the core or ggml is of a version that does not fit.
    """
    core = _import_core()
    check_versions(
        core.lib.pds_abi_version(),
        core.ffi.string(core.lib.pds_ggml_version()).decode(),
        core.ffi.string(core.lib.pds_ggml_build_version()).decode(),
    )
    return core.ffi, core.lib


def _import_core() -> ModuleType:
    if find_spec(_CORE) is None:
        raise ImportError(
            f"the compiled part of pydspark is missing beside {Path(__file__).parent}. Install the package "
            "('pip install pydspark'); from a source folder, 'pip install -e .'"
        )
    try:
        return importlib.import_module(_CORE)
    except ImportError as error:
        if "ggml" not in str(error):
            raise
        # The core looks for libggml beside itself. It can be elsewhere, for example in the user's site-packages; a
        # library that is already loaded under the same name is taken instead.
        preload(library_files())
    return importlib.import_module(_CORE)


def library_files() -> list[Path]:
    """The files of ggml in the package ``libggml``, in the order to load them."""
    spec = find_spec("libggml")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    pattern = "lib{}.dylib" if sys.platform == "darwin" else "lib{}.so"
    for folder in (Path(base) / name for base in folders for name in ("lib64", "lib")):
        files = [folder / pattern.format(name) for name in _LIBRARIES]
        if files[-1].exists():
            return [file for file in files if file.exists()]
    raise ImportError("pydspark needs the ggml libraries: pip install libggml-python==0.20.2.post1")


def preload(files: Sequence[Path]) -> None:
    """Loads libraries so that later ones find their symbols."""
    for file in files:
        try:
            ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise ImportError(f"cannot load {file}: {error}") from error


def check_versions(abi: int, ggml: str, ggml_built: str) -> None:
    """Raises PydsparkError unless the core and ggml fit; warns when ggml is not the one the core was built with."""
    if abi != ABI_VERSION:
        raise PydsparkError(f"the compiled part of pydspark has interface {abi}, not {ABI_VERSION}; install it again")
    if version_tuple(ggml) < OLDEST_GGML:
        oldest = ".".join(map(str, OLDEST_GGML))
        raise PydsparkError(f"ggml {ggml} was loaded, but pydspark needs {oldest} or newer; another library in this "
                            "process, or LD_LIBRARY_PATH, may have brought the old one")  # fmt: skip
    if version_tuple(ggml) != version_tuple(ggml_built):
        log.warning("pydspark was built with ggml %s but runs with %s", ggml_built, ggml)


def version_tuple(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: ``"0.20.2-dirty"`` is ``(0, 20, 2)``."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match.group().split(".")) if match else ()
