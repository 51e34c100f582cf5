"""A DSpark drafter in plain numpy, double precision: injection of features, the block, the Markov chain, confidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class BlockSettings:
    """Settings of a drafter that its tensors do not show.

    Attributes:
        block_size: tokens that go in at once: the anchor, then masks.
        mask_row: [n_embd] input of a mask.
        anchor_first: whether slot i drafts the token i + 1 behind the anchor; otherwise slot 0 is not used.
        banned: ids that are never drafted.
        windows: per layer, how many positions a slot sees, its own included; 0 for all.
    """

    block_size: int
    mask_row: NDArray[Any]
    anchor_first: bool
    banned: Sequence[int]
    windows: Sequence[int]
    rms_eps: float
    rope_base: float


@dataclass(frozen=True)
class Block:
    """What one block gives, a row per drafted token. ``confidence`` holds logits; it is None without that head."""

    hidden: Floats
    base: Floats
    logits: Floats
    tokens: list[int]
    confidence: Floats | None


class ReferenceDrafter:
    """One sequence on a drafter.

    Args:
        settings: see there.
        weights: tensors by the names of a GGUF file, matrices as [n_out, n_in].
        embedding: [n_vocab, n_embd] input rows, of the drafter or of its target.
        head: [n_rows, n_embd] output rows, likewise.
    """

    def __init__(
        self, settings: BlockSettings, weights: Mapping[str, NDArray[Any]], embedding: NDArray[Any], head: NDArray[Any]
    ) -> None:
        self._settings = settings
        self._weights = {name: np.asarray(value, np.float64) for name, value in weights.items()}
        self._ids = weights.get("d2t", np.arange(len(head)))
        self._embedding = np.asarray(embedding, np.float64)
        self._head = np.asarray(head, np.float64)
        n_layer = len(settings.windows)
        self._keys: list[list[Floats]] = [[] for _ in range(n_layer)]  # [position][n_head_kv, head_dim]
        self._values: list[list[Floats]] = [[] for _ in range(n_layer)]

    @property
    def n_past(self) -> int:
        """Positions injected."""
        return len(self._keys[0])

    def cut(self, n: int) -> None:
        """Forgets positions from ``n`` on."""
        for rows in (*self._keys, *self._values):
            del rows[n:]

    def inject(self, features: NDArray[Any]) -> None:
        """Appends positions, given the target's hidden states of all layers that are read: [n, n_layers * n_embd]."""
        fused = np.asarray(features, np.float64) @ self._weights["fc.weight"].T
        fused = self._rms(fused, "enc.output_norm")
        positions = self.n_past + np.arange(len(fused))
        for il in range(len(self._keys)):
            keys, values = self._keys_and_values(il, fused, positions)
            self._keys[il].extend(keys)
            self._values[il].extend(values)

    def block(self, anchor: int) -> Block:
        """Drafts greedily behind ``anchor``, whose position is ``n_past``. Changes nothing."""
        masks = np.tile(self._settings.mask_row.astype(np.float64), (self._settings.block_size - 1, 1))
        x = np.concatenate([self._embedding[[anchor]], masks])
        for il in range(len(self._keys)):
            x = self._layer(il, x)
        hidden = self._rms(x, "output_norm")[0 if self._settings.anchor_first else 1 :]
        return self._chain(anchor, hidden)

    def _layer(self, il: int, x: Floats) -> Floats:
        positions = self.n_past + np.arange(len(x))
        a = self._rms(x, f"blk.{il}.attn_norm")
        queries = self._rotated_heads(il, "q", a, positions)
        keys, values = self._keys_and_values(il, a, positions)
        keys = np.array([*self._keys[il], *keys])
        values = np.array([*self._values[il], *values])
        x = x + self._attend(il, queries, keys, values) @ self._weights[f"blk.{il}.attn_output.weight"].T
        b = self._rms(x, f"blk.{il}.ffn_norm")
        gate = b @ self._weights[f"blk.{il}.ffn_gate.weight"].T
        up = b @ self._weights[f"blk.{il}.ffn_up.weight"].T
        return x + (gate / (1 + np.exp(-gate)) * up) @ self._weights[f"blk.{il}.ffn_down.weight"].T

    def _attend(self, il: int, queries: Floats, keys: Floats, values: Floats) -> Floats:
        """Returns [n_slots, n_head * head_dim]. Every slot sees the context and the whole block, within its window."""
        n_slots, n_head, head_dim = queries.shape
        group = n_head // keys.shape[1]
        window = self._settings.windows[il] or len(keys)
        out = np.empty((n_slots, n_head, head_dim))
        for slot in range(n_slots):
            first = max(0, self.n_past + slot - window + 1)
            for head in range(n_head):
                scores = keys[first:, head // group] @ queries[slot, head] / np.sqrt(head_dim)
                weights = np.exp(scores - scores.max())
                out[slot, head] = weights / weights.sum() @ values[first:, head // group]
        return out.reshape(n_slots, -1)

    def _chain(self, anchor: int, hidden: Floats) -> Block:
        base = hidden @ self._head.T
        logits, tokens, confidence = [], [], []
        previous = anchor
        for row, h in zip(base, hidden, strict=True):
            embedding = np.empty(0)
            if "markov_w1.weight" in self._weights:
                embedding = self._weights["markov_w1.weight"][previous]
                row = row + self._weights["markov_w2.weight"] @ embedding
            confidence.append(self._confidence(h, embedding))
            logits.append(row)
            previous = int(self._ids[np.where(np.isin(self._ids, self._settings.banned), -np.inf, row).argmax()])
            tokens.append(previous)
        judged = np.array(confidence) if "conf_proj.weight" in self._weights else None
        return Block(hidden, base, np.array(logits), tokens, judged)

    def _confidence(self, hidden: Floats, embedding: Floats) -> float:
        """Logit of the trust in a slot's token; reads as much as the head takes."""
        if "conf_proj.weight" not in self._weights:
            return np.nan
        weight = self._weights["conf_proj.weight"][0]
        return float(weight @ np.concatenate([hidden, embedding])[: len(weight)] + self._weights["conf_proj.bias"][0])

    def _keys_and_values(self, il: int, x: Floats, positions: NDArray[np.int64]) -> tuple[Floats, Floats]:
        keys = self._rotated_heads(il, "k", x, positions)
        return keys, (x @ self._weights[f"blk.{il}.attn_v.weight"].T).reshape(keys.shape)

    def _rotated_heads(self, il: int, kind: str, x: Floats, positions: NDArray[np.int64]) -> Floats:
        """Returns [n, n_head, head_dim]; dimension i turns together with i + head_dim / 2."""
        norm = f"blk.{il}.attn_{kind}_norm"
        head_dim = len(self._weights[f"{norm}.weight"])
        heads = (x @ self._weights[f"blk.{il}.attn_{kind}.weight"].T).reshape(len(x), -1, head_dim)
        first, second = np.split(self._rms(heads, norm), 2, axis=-1)
        frequencies = self._settings.rope_base ** (-2 * np.arange(head_dim // 2) / head_dim)
        angles = (positions[:, None] * frequencies)[:, None, :]
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    def _rms(self, x: Floats, name: str) -> Floats:
        scale = np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + self._settings.rms_eps)
        return x / scale * self._weights[f"{name}.weight"]
