"""Facts that a benchmark is worth nothing without."""

from __future__ import annotations

import os
import platform
from collections import Counter
from pathlib import Path
from typing import Any

from pydspark import _native
from pydspark.cpu import default_threads
from pydspark.params import CACHE_TYPES, ModelParams

_TYPE_NAMES = {number: name for name, number in CACHE_TYPES.items()}


def facts(gguf: _native.Gguf, params: ModelParams) -> dict[str, Any]:
    """The machine, the build, the model file and the settings, in the order to print them."""
    file = Path(gguf.files[0])
    return {
        "cpu": cpu_name(),
        "cpus_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "devices": [device.description for device in _native.devices()],
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "ggml": _native.ggml_version(),
        "ggml_loaded_from": loaded_from("libggml-base"),
        "compiled_with_ggml": {"version": _native.ggml_build_version(), "options": _native.ggml_build_options()},
        "model_filename": file.name,
        "model_bytes": sum(Path(path).stat().st_size for path in gguf.files),
        "model_types": tensor_types(gguf),
        "settings": settings(params),
    }


def settings(params: ModelParams) -> dict[str, Any]:
    """Settings that change speed, by their Python names."""
    threads = params.n_threads if params.n_threads and params.n_threads > 0 else default_threads()
    batch = params.n_threads_batch if params.n_threads_batch and params.n_threads_batch > 0 else threads
    return {
        "n_threads": threads,
        "n_threads_batch": batch,
        "n_ctx": params.n_ctx,
        "n_ubatch": params.n_ubatch,
        "n_gpu_layers": params.n_gpu_layers,
        "flash_attn": params.flash_attn,
        "repack": params.repack,
        "type_k": _TYPE_NAMES[int(params.type_k or 0)],
        "type_v": _TYPE_NAMES[int(params.type_v or 0)],
    }


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The name that the CPU gives itself, with the vector extensions that matter here."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    values = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = values.get("flags", "").split()
    vectors = [name.upper() for name in ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8") if name in flags]
    return " ".join([values.get("model name", platform.machine()), *vectors])


def loaded_from(library: str, maps: Path = Path("/proc/self/maps")) -> str | None:
    """The folder of a shared library that this process has loaded; None where the system does not tell."""
    try:
        lines = maps.read_text().splitlines()
    except OSError:
        return None
    paths = (Path(line.split(maxsplit=5)[5]) for line in lines if library in line)
    return next((str(path.parent) for path in paths), None)


def tensor_types(gguf: _native.Gguf) -> dict[str, int]:
    """How many tensors of each type, the most frequent first."""
    return dict(Counter(tensor.type_name for tensor in gguf.tensors()).most_common())
