"""Reopens a written file and compares it with its sources: settings, and every value of every tensor.

The bytes are decoded again rather than encoded a second time, so that an error in the encoder cannot hide itself.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType

from .errors import ConvertError, Problem, ProblemsError
from .gguf_reader import GgufFile, read_gguf
from .metadata import settings_from_gguf
from .plan import Plan, PlanItem
from .progress import Progress
from .tensors import Floats, StoredTensor

_F16_TINY = 2.0**-25  # half of the smallest F16 step
# steps from 0 to the largest value of a block, and how many of them a value may be off: Q4_0 has one step less on the
# other side of 0
_STEPS = {GGMLQuantizationType.Q8_0: (127, 0.501), GGMLQuantizationType.Q4_0: (8, 1.001)}


def verify_file(plan: Plan, path: Path, quiet: bool) -> GgufFile:
    """Checks the file at ``path`` against ``plan``.

    Returns:
        the reopened file.

    Raises:
        ConvertError: the file is not what was planned.
    """
    file = read_gguf(path)
    problems: list[Problem] = []
    settings = settings_from_gguf(file, problems)
    if problems:
        raise ProblemsError(problems)
    rounded = replace(
        plan.settings,
        norm_eps=float(np.float32(plan.settings.norm_eps)),
        rope_theta=float(np.float32(plan.settings.rope_theta)),
        tied=False,
    )
    if settings != rounded:
        raise ConvertError(f"the written file reads back as {settings}, wanted {rounded}")
    if list(file.tensors) != [item.name for item in plan.items]:
        raise ConvertError("the written file holds other tensors than planned")
    progress = Progress("verifying", plan.data_bytes, quiet)
    for item in plan.items:
        _compare(item, file.tensors[item.name], progress)
    progress.close()
    return file


def _compare(item: PlanItem, written: StoredTensor, progress: Progress) -> None:
    if written.shape != (item.source.shape or (1,)) or written.kind is not item.kind:
        seen = f"{list(written.shape)} {written.kind.name}"
        raise ConvertError(f"{item.name}: written as {seen}, wanted {list(item.source.shape)} {item.kind.name}")
    if item.ids is not None:
        if not np.array_equal(written.integers(), item.ids):
            raise ConvertError(f"{item.name}: the written ids differ from the checkpoint's")
        return
    same_kind = item.source.kind is item.kind
    for start, stop in item.source.spans():
        if same_kind:
            equal = np.array_equal(item.source.raw(start, stop), written.raw(start, stop))
        else:
            equal = within_rounding(item.source.values(start, stop), written.values(start, stop), item.kind)
        if not equal:
            raise ConvertError(f"{item.name}: rows {start} to {stop - 1} differ from {item.source.name}")
        progress.add((stop - start) * item.row_bytes)


def within_rounding(wanted: Floats, written: Floats, kind: GGMLQuantizationType) -> bool:
    """Whether ``written`` is ``wanted`` stored as ``kind``, up to the error that rounding to nearest allows."""
    if kind is GGMLQuantizationType.F32:
        return bool(np.array_equal(wanted, written))
    size = np.abs(wanted)
    if kind is GGMLQuantizationType.BF16:
        allowed = size * np.float32(2.0**-8)
    elif kind is GGMLQuantizationType.F16:
        allowed = np.maximum(size * np.float32(2.0**-11), np.float32(_F16_TINY))
    elif kind in _STEPS:
        # blocks of 32: a part of a step, and the step itself is stored as F16
        n_steps, part = _STEPS[kind]
        largest = size.reshape(-1, 32).max(axis=1, keepdims=True)
        step = largest / n_steps
        allowed = np.broadcast_to(part * step + largest * 2.0**-10 + n_steps * _F16_TINY, (largest.size, 32))
        allowed = allowed.reshape(size.shape)
    else:
        raise ConvertError(f"{kind.name} cannot be verified")
    return bool((np.abs(wanted - written) <= allowed).all())
