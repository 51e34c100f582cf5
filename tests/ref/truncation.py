"""Readable reference of the sampler: bias, bans, penalties, top-k, top-p, min-p, temperature, and the draw.

Everything is float64 and sorts the whole row. Rows are [n_vocab_rows]; ids are token ids, which are row indices.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]


def softmax(logits: Floats) -> Floats:
    """Probabilities of finite or -inf logits; at least one is finite."""
    weights: Floats = np.exp(logits - logits.max())
    p: Floats = weights / weights.sum()
    return p


def change_logits(
    logits: npt.ArrayLike,
    history: Sequence[int] = (),
    *,
    bias: Mapping[int, float] | None = None,
    banned: Sequence[int] = (),
    repeat_penalty: float = 1.0,
    presence_penalty: float = 0.0,
    frequency_penalty: float = 0.0,
    repeat_last_n: int = 64,
) -> Floats:
    """The row that truncation sees: bias and bans first, then the penalties of the last repeat_last_n of history.

    A repeat penalty divides positive logits and multiplies the others. repeat_last_n: 0 = no penalties, -1 = all of
    history.
    """
    row = np.array(logits, dtype=np.float64)
    for id, value in (bias or {}).items():
        row[id] += value
    row[list(banned)] = -np.inf
    window = list(history) if repeat_last_n < 0 else list(history)[len(history) - min(repeat_last_n, len(history)) :]
    for id in set(window):
        row[id] = row[id] / repeat_penalty if row[id] > 0 else row[id] * repeat_penalty
        row[id] -= window.count(id) * frequency_penalty + presence_penalty
    return row


def truncate(
    row: Floats, *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> tuple[Ids, Floats]:
    """Candidates and their probabilities, by descending probability, ties by lower id.

    Off: top_k <= 0, top_p >= 1, min_p <= 0. temperature <= 0 is greedy. One candidate always survives.
    """
    ids = np.argsort(-row, kind="stable")
    ids = ids[np.isfinite(row[ids])]
    if temperature <= 0:
        return ids[:1], np.ones(1)
    if top_k > 0:
        ids = ids[:top_k]
    p = softmax(row[ids])
    n_kept = len(ids)
    if top_p < 1:  # the prefix ends with the token that reaches top_p
        n_kept = min(n_kept, int(np.searchsorted(np.cumsum(p), top_p)) + 1)
    if min_p > 0:
        n_kept = min(n_kept, max(1, int(np.count_nonzero(p >= min_p * p[0]))))
    ids = ids[:n_kept]
    return ids, softmax(row[ids] / temperature)


def draw(ids: Ids, p: Floats, u: float) -> int:
    """The token at u, in (0, 1), of the cumulative distribution."""
    cumulative = np.cumsum(p)
    return int(ids[np.searchsorted(cumulative, u * cumulative[-1], side="right")])


def row_logprobs(logits: npt.ArrayLike, k: int) -> tuple[Floats, Ids]:
    """Log-softmax of the raw row [n_vocab_rows], and the ids of its k best entries above -inf, ties by lower id."""
    row = np.array(logits, dtype=np.float64)
    best = np.argsort(-row, kind="stable")[:k]
    with np.errstate(divide="ignore"):
        return np.log(softmax(row)), best[np.isfinite(row[best])]
