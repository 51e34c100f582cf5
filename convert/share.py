"""Decides whether the drafter's embedding and head are copies of the target's, and so need not be in the file.

Drafters are trained with frozen copies of both. Dropping them saves most of the file; doing so when they are no copies
would ruin every draft, so rows are compared first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, TokenType

from .errors import ConvertError, Problem
from .mapping import EMBEDDING, OUTPUT
from .settings import DraftSettings
from .target import Target
from .tensors import Floats, StoredTensor

POLICIES = ("auto", "keep", "drop")
N_SAMPLES = 1024
_EXACT = (GGMLQuantizationType.F32, GGMLQuantizationType.F16, GGMLQuantizationType.BF16)
_LENGTH_TOLERANCE = 0.15
# least cosine between a row and its quantized copy: (bits per weight from which it holds, cosine)
_LEAST_COSINE = ((16.0, 0.9999), (8.0, 0.999), (5.5, 0.995), (4.0, 0.98), (3.0, 0.96), (0.0, 0.85))


@dataclass
class Sharing:
    """What to write.

    Attributes:
        embedding, output: tensors to write; None to take the target's when drafting.
        mask_row: the drafter's own mask row [n_embd], when only that one differs from the target's.
        notes: what was compared and decided.
    """

    embedding: StoredTensor | None = None
    output: StoredTensor | None = None
    mask_row: Floats | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Comparison:
    same: bool
    text: str


def decide(
    settings: DraftSettings,
    tensors: dict[str, StoredTensor],
    target: Target,
    policy: str,
    problems: list[Problem],
) -> Sharing:
    """Applies ``policy`` (one of ``POLICIES``) to the embedding and the head of a checkpoint."""
    embedding = tensors.get(EMBEDDING.source)
    output = tensors.get(OUTPUT.source)
    reduced = settings.n_vocab_draft < settings.n_vocab
    if output is None and settings.tied and not reduced:
        output = embedding
    if reduced:
        return _decide_reduced(settings, embedding, output, target, policy, problems)
    if embedding is None and output is None:
        sharing = Sharing(notes=["embedding and head: not in the checkpoint, taken from the target when drafting"])
        _check_borrowed(settings, target, problems)
        if policy == "keep":
            problems.append(_nothing_to_keep())
        return sharing
    results = [
        _compare("embedding", embedding, target.embedding, 1.0, settings, target),
        _compare("head", output, target.output, target.output_scale, settings, target),
    ]
    sharing = Sharing(notes=[result.text for result in results])
    borrowable = all(result.same for result in results)
    if policy == "drop" and not borrowable:
        wanted = "rows equal to the target's"
        problems.append(Problem("--share drop", "; ".join(sharing.notes), wanted, "use --share auto"))
    has_row = settings.mask_token_id < target.n_rows
    if policy == "keep" or not borrowable or (policy == "auto" and not has_row):
        # both or neither: other programs take the embedding as the head when only the embedding is there
        sharing.embedding, sharing.output = embedding or target.embedding, output or target.output
        if sharing.embedding is None or sharing.output is None or (output is None and target.output_scale != 1.0):
            wanted = "both in the checkpoint, or readable in the target"
            problems.append(
                Problem("embedding and head", "only one of them can be written", wanted, "use --share drop")
            )
        sharing.notes.append("embedding and head: kept" + (" (--share keep)" if policy == "keep" else ""))
        return sharing
    sharing.notes.append("embedding and head: dropped, taken from the target when drafting")
    _keep_mask_row(sharing, embedding, settings, target, problems)
    return sharing


def _decide_reduced(
    settings: DraftSettings,
    embedding: StoredTensor | None,
    output: StoredTensor | None,
    target: Target,
    policy: str,
    problems: list[Problem],
) -> Sharing:
    """A head over part of the vocabulary has no counterpart in the target, so it stays; the embedding may go."""
    if output is None:
        seen = f"missing, while the draft vocabulary has {settings.n_vocab_draft} of {settings.n_vocab} tokens"
        problems.append(
            Problem(OUTPUT.source, seen, "a head over the draft vocabulary", "download the checkpoint again")
        )
    sharing = Sharing(output=output, notes=["head: kept, it covers only part of the vocabulary"])
    if embedding is None:
        _check_borrowed(settings, target, problems)
        if policy == "keep":
            problems.append(_nothing_to_keep())
        return sharing
    result = _compare("embedding", embedding, target.embedding, 1.0, settings, target)
    sharing.notes.append(result.text)
    if policy == "drop" and not result.same:
        problems.append(Problem("--share drop", result.text, "rows equal to the target's", "use --share auto"))
    if policy == "keep" or not result.same or (policy == "auto" and settings.mask_token_id >= target.n_rows):
        sharing.embedding = embedding
        return sharing
    _keep_mask_row(sharing, embedding, settings, target, problems)
    return sharing


def _nothing_to_keep() -> Problem:
    wanted = "a checkpoint with embed_tokens.weight"
    return Problem("--share keep", "the checkpoint has no embedding", wanted, "use --share auto")


def _check_borrowed(settings: DraftSettings, target: Target, problems: list[Problem]) -> None:
    if settings.n_embd and settings.n_embd != target.n_embd:
        seen = (
            f"{settings.n_embd}, but {target.name} has {target.n_embd}, and the checkpoint has no embedding of its own"
        )
        problems.append(Problem("hidden_size", seen, "equal to the target's", "give the target it was trained for"))
    if settings.mask_token_id >= target.n_rows:
        seen = f"{settings.mask_token_id}, but the target's embedding has {target.n_rows} rows"
        action = "use a target file that kept its padding rows, or a checkpoint with its own embedding"
        problems.append(Problem("mask_token_id", seen, "a row of the target's embedding", action))


def _compare(
    what: str,
    ours: StoredTensor | None,
    theirs: StoredTensor | None,
    scale: float,
    settings: DraftSettings,
    target: Target,
) -> _Comparison:
    """Rows of the checkpoint against rows of the target: all of them when neither is quantized, else a sample."""
    if ours is None:
        return _Comparison(True, f"{what}: not in the checkpoint")
    if theirs is None:
        return _Comparison(False, f"{what}: the target's cannot be read")
    if ours.row_len != theirs.row_len:
        return _Comparison(False, f"{what}: rows of {ours.row_len} values, {theirs.row_len} in the target")
    rows = _ordinary_rows(min(ours.n_rows, theirs.n_rows), settings, target)
    try:
        if theirs.kind in _EXACT:
            return _compare_all(what, ours, theirs, scale, settings.mask_token_id)
        return _compare_sample(what, ours, theirs, scale, rows)
    except ConvertError as error:
        return _Comparison(False, f"{what}: the target's cannot be read ({error})")


def _ordinary_rows(n_rows: int, settings: DraftSettings, target: Target) -> list[int]:
    """A seeded sample of rows of real tokens; rows of padding may be too small to survive quantization."""
    types = target.token_types
    normal = [i for i in range(min(n_rows, len(types))) if types[i] != TokenType.UNUSED and i != settings.mask_token_id]
    if len(normal) <= N_SAMPLES:
        return normal
    return sorted(np.random.default_rng(0).choice(normal, N_SAMPLES, replace=False).tolist())


def _compare_all(what: str, ours: StoredTensor, theirs: StoredTensor, scale: float, mask: int) -> _Comparison:
    """Equal after rounding ours to the coarser format of the two; the mask row is looked at elsewhere."""
    n_rows, differing = min(ours.n_rows, theirs.n_rows), 0
    for start, stop in ours.spans():
        stop = min(stop, n_rows)
        if start >= stop:
            break
        a, b = ours.values(start, stop), theirs.values(start, stop) * np.float32(scale)
        relative, absolute = _rounding(ours, theirs)
        unequal = (np.abs(a - b) > relative * np.abs(b) + absolute).any(axis=1)
        if start <= mask < stop:
            unequal[mask - start] = False
        differing += int(unequal.sum())
    text = f"{differing} of {n_rows} rows differ" if differing else f"all {n_rows} rows equal the target's"
    return _Comparison(differing == 0, f"{what}: {text}")


def _rounding(ours: StoredTensor, theirs: StoredTensor) -> tuple[float, float]:
    """(relative, absolute) error that storing a value in the coarser of two formats causes; 0 for equal formats."""
    if ours.kind is theirs.kind:
        return 0.0, 0.0
    kinds = (ours.kind, theirs.kind)
    relative = 2.0**-8 if GGMLQuantizationType.BF16 in kinds else 2.0**-11
    return relative, 2.0**-25 if GGMLQuantizationType.F16 in kinds else 0.0


def _compare_sample(what: str, ours: StoredTensor, theirs: StoredTensor, scale: float, rows: list[int]) -> _Comparison:
    block, size = GGML_QUANT_SIZES[theirs.kind]
    bits = 8 * size / block
    least = next(cosine for bound, cosine in _LEAST_COSINE if bits >= bound)
    a, b = ours.take(rows), theirs.take(rows) * np.float32(scale)
    lowest = float(row_cosines(a, b).min(initial=1.0))
    text = f"{what}: {len(rows)} sampled rows against {theirs.kind.name}, lowest cosine {lowest:.4f} (wanted {least})"
    lengths = float(np.linalg.norm(a)), float(np.linalg.norm(b))
    if abs(lengths[0] - lengths[1]) > _LENGTH_TOLERANCE * lengths[1]:
        return _Comparison(False, f"{text}; lengths {lengths[0]:.4g} and {lengths[1]:.4g}")
    return _Comparison(lowest >= least, text)


def row_cosines(a: Floats, b: Floats) -> Floats:
    """Cosine of each pair of rows; 1 where both are zero, 0 where one is."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    norms = np.linalg.norm(x, axis=1), np.linalg.norm(y, axis=1)
    product = norms[0] * norms[1]
    cosines = np.divide((x * y).sum(axis=1), product, out=np.zeros(len(x)), where=product > 0)
    return np.where((norms[0] == 0) & (norms[1] == 0), 1.0, cosines).astype(np.float32)


def _keep_mask_row(
    sharing: Sharing, embedding: StoredTensor | None, settings: DraftSettings, target: Target, problems: list[Problem]
) -> None:
    if embedding is None or target.embedding is None:
        _check_borrowed(settings, target, problems)
        return
    mask = settings.mask_token_id
    own = embedding.take([mask])
    if mask < target.embedding.n_rows:
        theirs = target.embedding.take([mask])
        equal = np.array_equal(own, theirs) if target.embedding.kind in _EXACT else row_cosines(own, theirs)[0] >= 0.99
        if equal:
            sharing.notes.append("mask row: equal to the target's")
            return
    sharing.mask_row = own[0]
    sharing.notes.append("mask row: differs from the target's, kept in the metadata")
