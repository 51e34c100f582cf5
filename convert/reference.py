"""The drafter's arithmetic in plain numpy, run on a checkpoint and on the file made from it.

A conversion can copy every byte and still be wrong: two tensors of one shape swapped, a norm in the wrong place, a
layout mistaken. So a few blocks are computed from both, and the numbers are stored in the file as a fingerprint. The
tensor names here are written out once more on purpose and not taken from ``mapping``: an error there must show.

Inputs are made by ``probe_values``, so that any other implementation can repeat the computation. A tensor that is
borrowed from the target is replaced by probe values too: the fingerprint is about the drafter alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .settings import DraftSettings
from .tensors import StoredTensor

Doubles = NDArray[np.float64]

CONTEXTS = (5, 11, 16)  # context length of each block
FIRST_POSITION = 97  # of the context; far enough from 0 to make the rotary base matter
N_PICKS = 8  # values kept per slot, of the hidden state and of the logits
_LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_GLOBAL_NAMES = {
    "embed_tokens.weight": "token_embd.weight",
    "lm_head.weight": "output.weight",
    "fc.weight": "fc.weight",
    "hidden_norm.weight": "enc.output_norm.weight",
    "norm.weight": "output_norm.weight",
    "markov_head.markov_w1.weight": "markov_w1.weight",
    "markov_head.markov_w2.weight": "markov_w2.weight",
    "confidence_head.proj.weight": "conf_proj.weight",
    "confidence_head.proj.bias": "conf_proj.bias",
}


@dataclass(frozen=True)
class Fingerprint:
    """Numbers that follow from the weights and settings of a drafter.

    Attributes:
        hidden: [blocks * block_size * N_PICKS] values of the final hidden states.
        logits: [blocks * slots * N_PICKS] logits, Markov bias included.
        confidence: [blocks * slots] confidence logits; empty without a confidence head.
        ids: [N_PICKS] target ids of the scored rows.
    """

    hidden: NDArray[np.float32]
    logits: NDArray[np.float32]
    confidence: NDArray[np.float32]
    ids: tuple[int, ...]

    def distance(self, other: Fingerprint) -> float:
        """Largest relative difference of the three parts; infinite when sizes or ids differ."""
        if self.ids != other.ids:
            return float("inf")
        pairs = ((self.hidden, other.hidden), (self.logits, other.logits), (self.confidence, other.confidence))
        if any(a.shape != b.shape for a, b in pairs):
            return float("inf")
        return max(_relative(a, b) for a, b in pairs)


def _relative(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    length = float(np.linalg.norm(a))
    return float(np.linalg.norm(a - b)) / length if length else float(np.linalg.norm(b))


def probe_values(count: int, stream: int) -> Doubles:
    """``count`` numbers in [-1, 1): splitmix64 of ``stream * 2^32 + i``, its top 24 bits."""
    with np.errstate(over="ignore"):
        state = (np.uint64(stream) << np.uint64(32)) + np.arange(count, dtype=np.uint64)
        state = (state + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    return np.asarray((state >> np.uint64(40)).astype(np.float64) / 2.0**23 - 1.0)


def gguf_names(n_layer: int) -> dict[str, str]:
    """Checkpoint name -> GGUF name of every tensor that takes part."""
    names = dict(_GLOBAL_NAMES)
    for il in range(n_layer):
        names.update({f"layers.{il}.{a}.weight": f"blk.{il}.{b}.weight" for a, b in _LAYER_NAMES.items()})
    return names


def fingerprint(
    settings: DraftSettings, tensors: dict[str, StoredTensor], target_ids: NDArray[np.int64] | None
) -> Fingerprint:
    """Runs ``len(CONTEXTS)`` blocks.

    Args:
        settings: sizes of the drafter.
        tensors: by checkpoint name; embedding and head are missing when they are borrowed.
        target_ids: target id of each draft row for a reduced vocabulary.
    """
    run = _Run(settings, tensors)
    with np.errstate(over="ignore"):  # exp of a very negative gate: the result is 0, as it should be
        hidden = run.block_hidden()
    first = 0 if settings.sample_from_anchor else 1
    used = hidden[:, first:]
    previous = _probe_ids(used.shape[0] * used.shape[1], settings.n_vocab, 3)
    picked = _probe_ids(N_PICKS, settings.n_vocab_draft, 4)
    bias = run.markov_rows(previous)
    logits = used.reshape(-1, settings.n_embd) @ run.head_rows(picked).T
    if bias is not None:
        logits = logits + bias @ run.rows("markov_head.markov_w2.weight", picked).T
    columns = _probe_ids(N_PICKS, settings.n_embd, 5)
    ids = picked if target_ids is None else [int(target_ids[row]) for row in picked]
    return Fingerprint(
        hidden=hidden[:, :, columns].reshape(-1).astype(np.float32),
        logits=logits.reshape(-1).astype(np.float32),
        confidence=run.confidence(used, bias).astype(np.float32),
        ids=tuple(ids),
    )


def _probe_ids(count: int, below: int, stream: int) -> list[int]:
    return [int((value + 1) / 2 * below) for value in probe_values(count, stream)]


def _rms_norm(x: Doubles, weight: Doubles, eps: float) -> Doubles:
    scale = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)
    return np.asarray(x / scale * weight, dtype=np.float64)


class _Run:
    """One evaluation; weights are read row block by row block and not kept."""

    def __init__(self, settings: DraftSettings, tensors: dict[str, StoredTensor]) -> None:
        self.s, self.tensors = settings, tensors

    def vector(self, name: str) -> Doubles:
        return self.tensors[name].all_values().astype(np.float64)

    def rows(self, name: str, ids: list[int]) -> Doubles:
        return self.tensors[name].take(ids).astype(np.float64)

    def linear(self, name: str, x: Doubles) -> Doubles:
        """x [..., n_in] -> [..., n_out]"""
        tensor = self.tensors[name]
        parts = [x @ tensor.values(start, stop).astype(np.float64).T for start, stop in tensor.spans()]
        return np.concatenate(parts, axis=-1)

    def rope(self, x: Doubles, positions: NDArray[np.int64]) -> Doubles:
        """x [..., n, heads, head_dim]; pairs (i, i + head_dim / 2) over the whole head."""
        half = self.s.head_dim // 2
        angle = positions[:, None] * float(np.float32(self.s.rope_theta)) ** (-np.arange(half) / half)
        cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    def key_value(self, x: Doubles, positions: NDArray[np.int64], il: int) -> tuple[Doubles, Doubles]:
        """Keys (rotated) and values of [..., n, n_embd], each [..., n, n_head_kv, head_dim]."""
        shape = (*x.shape[:-1], self.s.n_head_kv, self.s.head_dim)
        k = self.linear(f"layers.{il}.self_attn.k_proj.weight", x).reshape(shape)
        v = self.linear(f"layers.{il}.self_attn.v_proj.weight", x).reshape(shape)
        k = _rms_norm(k, self.vector(f"layers.{il}.self_attn.k_norm.weight"), self.eps)
        return self.rope(k, positions), v

    @property
    def eps(self) -> float:
        return float(np.float32(self.s.norm_eps))

    def context(self) -> Doubles:
        """Fused probe features [max(CONTEXTS), n_embd]."""
        width = self.tensors["fc.weight"].row_len
        features = probe_values(max(CONTEXTS) * width, 1).reshape(-1, width)
        return _rms_norm(self.linear("fc.weight", features), self.vector("hidden_norm.weight"), self.eps)

    def input_rows(self) -> Doubles:
        """[blocks, block_size, n_embd]: an anchor, then masks."""
        n_blocks, n_embd = len(CONTEXTS), self.s.n_embd
        if "embed_tokens.weight" in self.tensors:
            table = self.rows("embed_tokens.weight", [*_probe_ids(n_blocks, self.s.n_vocab, 2), self.s.mask_token_id])
        else:
            table = probe_values((n_blocks + 1) * n_embd, 6).reshape(-1, n_embd)
        masks = np.broadcast_to(table[-1], (n_blocks, self.s.block_size - 1, n_embd))
        return np.concatenate([table[:-1, None], masks], axis=1)

    def block_hidden(self) -> Doubles:
        """Final hidden states [blocks, block_size, n_embd]."""
        context, x = self.context(), self.input_rows()
        context_positions = FIRST_POSITION + np.arange(len(context))
        for il in range(self.s.n_layer):
            keys = self.key_value(context, context_positions, il)
            x = x + self.linear(f"layers.{il}.self_attn.o_proj.weight", self.attention(x, keys, il))
            h = _rms_norm(x, self.vector(f"layers.{il}.post_attention_layernorm.weight"), self.eps)
            gate = self.linear(f"layers.{il}.mlp.gate_proj.weight", h)
            up = self.linear(f"layers.{il}.mlp.up_proj.weight", h)
            x = x + self.linear(f"layers.{il}.mlp.down_proj.weight", gate / (1 + np.exp(-gate)) * up)
        return _rms_norm(x, self.vector("norm.weight"), self.eps)

    def attention(self, x: Doubles, context: tuple[Doubles, Doubles], il: int) -> Doubles:
        """Each block sees its context and all of itself -> [blocks, block_size, n_head * head_dim]."""
        h = _rms_norm(x, self.vector(f"layers.{il}.input_layernorm.weight"), self.eps)
        n_blocks, n = x.shape[:2]
        q = self.linear(f"layers.{il}.self_attn.q_proj.weight", h).reshape(n_blocks, n, self.s.n_head, self.s.head_dim)
        q = _rms_norm(q, self.vector(f"layers.{il}.self_attn.q_norm.weight"), self.eps)
        starts = [FIRST_POSITION + count + np.arange(n) for count in CONTEXTS]
        # one block at a time only where positions and context lengths differ
        k, v = self.unrotated_block(h, il)
        out = []
        for b, (count, positions) in enumerate(zip(CONTEXTS, starts, strict=True)):
            keys = np.concatenate([context[0][:count], self.rope(k[b], positions)])
            values = np.concatenate([context[1][:count], v[b]])
            out.append(self.attend(self.rope(q[b], positions), keys, values, positions, il))
        return np.stack(out)

    def unrotated_block(self, h: Doubles, il: int) -> tuple[Doubles, Doubles]:
        """Keys and values of the block itself, before rotation: position 0 rotates by nothing."""
        return self.key_value(h, np.zeros(h.shape[1], dtype=np.int64), il)

    def attend(self, q: Doubles, k: Doubles, v: Doubles, positions: NDArray[np.int64], il: int) -> Doubles:
        """q [n, n_head, head_dim], k and v [m, n_head_kv, head_dim] -> [n, n_head * head_dim]"""
        group = self.s.n_head // self.s.n_head_kv
        k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(self.s.head_dim)
        if self.s.window and self.s.window_layers[il]:
            key_positions = np.concatenate([FIRST_POSITION + np.arange(len(k) - len(q)), positions])
            hidden = positions[:, None] - key_positions[None, :] >= self.s.window
            scores = np.where(hidden[None], -np.inf, scores)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        mixed: Doubles = np.einsum("hqk,khd->qhd", weights, v)
        return mixed.reshape(len(q), -1)

    def markov_rows(self, previous: list[int]) -> Doubles | None:
        return self.rows("markov_head.markov_w1.weight", previous) if self.s.markov_rank else None

    def head_rows(self, picked: list[int]) -> Doubles:
        if "lm_head.weight" in self.tensors:
            return self.rows("lm_head.weight", picked)
        return probe_values(len(picked) * self.s.n_embd, 7).reshape(len(picked), -1) * 0.05

    def confidence(self, used: Doubles, markov: Doubles | None) -> Doubles:
        if "confidence_head.proj.weight" not in self.tensors:
            return np.zeros(0)
        weight = self.vector("confidence_head.proj.weight").reshape(-1)
        inputs = used.reshape(-1, self.s.n_embd)
        if markov is not None and len(weight) == self.s.n_embd + self.s.markov_rank:
            inputs = np.concatenate([inputs, markov], axis=1)
        bias = self.vector("confidence_head.proj.bias")[0] if "confidence_head.proj.bias" in self.tensors else 0.0
        return np.asarray(inputs @ weight + bias, dtype=np.float64)
