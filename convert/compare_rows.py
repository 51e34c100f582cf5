"""Are the rows of a drafter's embedding or head copies of the target's, allowing for the target's quantization?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from .errors import ConvertError
from .progress import Progress
from .tensors import Floats, StoredTensor

# formats in which a copy stays the same up to rounding, so that all rows can be compared value by value
EXACT = (GGMLQuantizationType.F32, GGMLQuantizationType.F16, GGMLQuantizationType.BF16)
_LENGTH_TOLERANCE = 0.15
# least cosine between a row and its quantized copy: (bits per weight from which it holds, cosine)
_LEAST_COSINE = ((8.0, 0.999), (5.5, 0.995), (4.0, 0.98), (3.0, 0.96), (0.0, 0.85))


@dataclass(frozen=True)
class Comparison:
    """Whether the rows are copies, and what was seen."""

    same: bool
    text: str


def compare_rows(
    what: str,
    ours: StoredTensor | None,
    theirs: StoredTensor | None,
    scale: float,
    sample: list[int],
    skip: int,
    quiet: bool,
) -> Comparison:
    """Rows of the drafter against rows of the target: all of them when the target's are not quantized, else a sample.

    Args:
        what: name for the text.
        ours: tensor of the checkpoint; None counts as a copy, since there is nothing to lose.
        theirs: tensor of the target; None when its format is not known.
        scale: factor of all values of ``theirs``.
        sample: rows to look at when ``theirs`` is quantized.
        skip: row that may differ.
        quiet: show no progress.
    """
    if ours is None:
        return Comparison(True, f"{what}: not in the checkpoint")
    if theirs is None:
        return Comparison(False, f"{what}: the target's cannot be read")
    if ours.row_len != theirs.row_len:
        return Comparison(False, f"{what}: rows of {ours.row_len} values, {theirs.row_len} in the target")
    try:
        if theirs.kind in EXACT:
            return _compare_all(what, ours, theirs, scale, skip, quiet)
        rows = [row for row in sample if row < min(ours.n_rows, theirs.n_rows)]
        return _compare_sample(what, ours.take(rows), theirs.take(rows) * np.float32(scale), theirs.kind)
    except ConvertError as error:
        return Comparison(False, f"{what}: the target's cannot be read ({error})")


def _compare_all(
    what: str, ours: StoredTensor, theirs: StoredTensor, scale: float, skip: int, quiet: bool
) -> Comparison:
    n_rows, n_differing = min(ours.n_rows, theirs.n_rows), 0
    relative, absolute = _rounding(ours.kind, theirs.kind)
    progress = Progress("comparing", ours.n_bytes, quiet)
    for start, stop in ours.spans():
        stop = max(start, min(stop, n_rows))
        a, b = ours.values(start, stop), theirs.values(start, stop) * np.float32(scale)
        unequal = (np.abs(a - b) > relative * np.abs(b) + absolute).any(axis=1)
        if start <= skip < stop:
            unequal[skip - start] = False
        n_differing += int(unequal.sum())
        progress.add(ours.n_bytes // ours.n_rows * (stop - start))
    progress.close()
    text = f"{n_differing} of {n_rows} rows differ" if n_differing else f"all {n_rows} rows equal the target's"
    return Comparison(n_differing == 0, f"{what}: {text}")


def _rounding(ours: GGMLQuantizationType, theirs: GGMLQuantizationType) -> tuple[float, float]:
    """(relative, absolute) error that storing a value in the coarser of two formats causes; 0 for equal formats."""
    if ours is theirs:
        return 0.0, 0.0
    relative = 2.0**-8 if GGMLQuantizationType.BF16 in (ours, theirs) else 2.0**-11
    return relative, 2.0**-25 if GGMLQuantizationType.F16 in (ours, theirs) else 0.0


def _compare_sample(what: str, ours: Floats, theirs: Floats, kind: GGMLQuantizationType) -> Comparison:
    block, size = GGML_QUANT_SIZES[kind]
    least = next(cosine for bits, cosine in _LEAST_COSINE if 8 * size / block >= bits)
    lowest = float(row_cosines(ours, theirs).min(initial=1.0))
    text = f"{what}: {len(ours)} sampled rows against {kind.name}, lowest cosine {lowest:.4f} (wanted {least})"
    lengths = float(np.linalg.norm(ours)), float(np.linalg.norm(theirs))
    if abs(lengths[0] - lengths[1]) > _LENGTH_TOLERANCE * lengths[1]:
        return Comparison(False, f"{text}; lengths {lengths[0]:.4g} and {lengths[1]:.4g}")
    return Comparison(lowest >= least, text)


def row_cosines(a: Floats, b: Floats) -> Floats:
    """Cosine of each pair of rows; 1 where both are zero, 0 where one is."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    lengths = np.linalg.norm(x, axis=1), np.linalg.norm(y, axis=1)
    product = lengths[0] * lengths[1]
    cosines = np.divide((x * y).sum(axis=1), product, out=np.zeros(len(x)), where=product > 0)
    return np.where((lengths[0] == 0) & (lengths[1] == 0), 1.0, cosines).astype(np.float32)
