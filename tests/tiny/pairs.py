"""Tiny targets with tiny drafters that fit them, as GGUF files and as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from .models import (
    N_EMBD,
    TinyShape,
    Weights,
    add_tokenizer,
    finish_file,
    tiny_weights,
    vocabulary,
    write_tiny_model,
)

N_FF, N_HEAD, N_HEAD_KV, HEAD_DIM = 96, 4, 2, 16  # of the drafter
RMS_EPS, ROPE_BASE = 1e-6, 10000.0

RANDOM, GOOD, MIXED, HOSTILE = "random", "good", "mixed", "hostile"

TARGET_SHAPE = TinyShape(n_layer=4, n_padding=2)
# Layers add little, so that a drafter that knows the last token is right often, not always.
NEARLY_BIGRAM = TinyShape(n_layer=4, n_padding=2, layer_gain=0.3, succession=1.5)


@dataclass(frozen=True)
class TinyDraft:
    """A drafter to make.

    Attributes:
        quality: ``RANDOM`` weights; ``GOOD`` knows which token of a ``NEARLY_BIGRAM`` target follows which; ``MIXED``
            knows it for every other token; ``HOSTILE`` drafts what the target finds least likely.
        target_layers: whose outputs it reads, in ascending order; -1 is the embedding.
        anchor_first: slot i drafts the i-th token behind the anchor; otherwise slot 0 is the anchor's own.
        reduced: size of a reduced draft vocabulary; 0 for the whole.
        markov: whether it has a Markov head. Only a random drafter can be without.
        confidence: ``"none"``, ``"hidden"`` (reads the hidden state) or ``"markov"`` (and the token before).
        own_embedding: whether the file has one; otherwise the target's is used.
        own_head: the same for the head. A reduced vocabulary needs its own.
        noise_row: whether the file has an input row for masks instead of the embedding's.
        window: sliding window of every even layer, in tokens; 0 for none.
    """

    seed: int = 1
    quality: str = RANDOM
    n_layer: int = 2
    block_size: int = 8
    rank: int = 24
    target_layers: tuple[int, ...] = (0, 2)
    anchor_first: bool = True
    reduced: int = 0
    markov: bool = True
    confidence: str = "markov"
    own_embedding: bool = False
    own_head: bool = False
    noise_row: bool = False
    window: int = 0

    @property
    def n_slots(self) -> int:
        """Tokens that a block can propose."""
        return self.block_size if self.anchor_first else self.block_size - 1


@dataclass
class Pair:
    """A target and its drafter. Weights are by the names of the files; maps have target ids, int64."""

    target_path: Path
    draft_path: Path
    draft: TinyDraft
    mask_token_id: int
    target_weights: Weights
    draft_weights: dict[str, NDArray[Any]]
    noise_row: NDArray[np.float32] | None = field(default=None)


def write_pair(
    folder: Path,
    draft: TinyDraft = TinyDraft(),
    architecture: str = "llama",
    shape: TinyShape = TARGET_SHAPE,
    seed: int = 0,
    extra: Mapping[str, float | str] | None = None,
) -> Pair:
    """Writes ``target.gguf`` and ``draft.gguf`` into ``folder``.

    Args:
        folder: made if it is missing.
        draft: the drafter to make.
        architecture: of the target, ``llama`` or ``qwen3``.
        shape: of the target. Its first padding token is the mask, so it needs one.
        seed: of the target's weights.
        extra: further metadata of the target, floats or strings.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target_path = write_tiny_model(folder / "target.gguf", architecture, seed, extra, shape)
    target = tiny_weights(architecture, seed, shape)
    rng = np.random.default_rng([draft.seed, 2])
    weights = draft_weights(draft, target, len(vocabulary(shape.n_padding, shape.n_bytes)[0]), rng)
    noise_row = rng.standard_normal(N_EMBD).astype(np.float32) if draft.noise_row else None
    pair = Pair(
        target_path, folder / "draft.gguf", draft, len(vocabulary(n_bytes=shape.n_bytes)[0]), target, weights, noise_row
    )
    write_draft(pair, shape.n_padding, n_bytes=shape.n_bytes)
    return pair


def write_draft(pair: Pair, n_padding: int, change: Mapping[str, object] | None = None, n_bytes: int = 256) -> None:
    """Writes the drafter's file.

    Args:
        pair: the arrays and settings to write.
        n_padding: padding tokens of the vocabulary to state.
        change: metadata to replace or add: booleans, integers, floats, strings or lists; None leaves a key out.
        n_bytes: bytes of the vocabulary to state.
    """
    writer = gguf.GGUFWriter(pair.draft_path, "dflash")
    add_tokenizer(writer, n_padding, n_bytes)
    for key, value in {**_settings(pair), **(change or {})}.items():
        if value is not None:
            add_value(writer, key, value)
    for name, weights in pair.draft_weights.items():
        writer.add_tensor(name, weights)
    finish_file(writer)


def add_value(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    """Adds metadata: a boolean, integer, float, string or list."""
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def _settings(pair: Pair) -> dict[str, object]:
    named = draft_settings(pair.draft, pair.mask_token_id)
    if pair.noise_row is not None:
        named["dspark.noise_embd"] = pair.noise_row.tolist()
    return named


def draft_settings(draft: TinyDraft, mask_token_id: int) -> dict[str, object]:
    """Metadata of a drafter's file, besides its vocabulary."""
    settings: dict[str, object] = {
        "block_count": draft.n_layer,
        "context_length": 512,
        "embedding_length": N_EMBD,
        "feed_forward_length": N_FF,
        "attention.head_count": N_HEAD,
        "attention.head_count_kv": N_HEAD_KV,
        "attention.key_length": HEAD_DIM,
        "attention.value_length": HEAD_DIM,
        "attention.layer_norm_rms_epsilon": RMS_EPS,
        "rope.freq_base": ROPE_BASE,
        "block_size": draft.block_size,
        # files count layers by their inputs
        "target_layers": [layer + 1 for layer in draft.target_layers],
        "sample_from_anchor": draft.anchor_first,
    }
    if draft.window:
        settings["attention.sliding_window"] = draft.window
        settings["attention.sliding_window_pattern"] = [il % 2 == 0 for il in range(draft.n_layer)]
    named = {f"dflash.{name}": value for name, value in settings.items()}
    named["tokenizer.ggml.mask_token_id"] = mask_token_id
    return named


def draft_weights(draft: TinyDraft, target: Weights, n_vocab: int, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Tensors of a drafter by name. ``n_vocab`` counts named tokens with their padding."""
    n_rows = draft.reduced or (n_vocab if draft.own_head else len(_head(target)))
    weights: dict[str, NDArray[Any]] = {
        "fc.weight": _matrix(rng, N_EMBD, len(draft.target_layers) * N_EMBD),
        "enc.output_norm.weight": _norm(rng, N_EMBD),
        "output_norm.weight": _norm(rng, N_EMBD),
    }
    for il in range(draft.n_layer):
        weights |= {f"blk.{il}.{name}.weight": value for name, value in _layer(rng).items()}
    ids = np.arange(n_rows)
    if draft.reduced:
        ids = weights["d2t"] = np.sort(rng.choice(n_vocab, draft.reduced, replace=False)).astype(np.int64)
    if draft.own_embedding:
        weights["token_embd.weight"] = _matrix(rng, n_vocab, N_EMBD)
    if draft.own_head or draft.reduced:
        weights["output.weight"] = 2 * _matrix(rng, n_rows, N_EMBD)
    if draft.markov:
        weights["markov_w1.weight"] = _matrix(rng, n_vocab, draft.rank)
        weights["markov_w2.weight"] = 2 * _matrix(rng, n_rows, draft.rank)
    if draft.quality != RANDOM:
        weights["markov_w1.weight"], w2 = _bigrams(draft.quality, target, n_vocab)
        weights["markov_w2.weight"] = w2[ids]
        weights["output_norm.weight"] *= np.float32(0.03)  # leaves the choice to the Markov head
    if draft.confidence != "none":
        with_markov = weights["markov_w1.weight"].shape[1] if draft.confidence == "markov" else 0
        weights["conf_proj.weight"] = 2 * _matrix(rng, 1, N_EMBD + with_markov)
        weights["conf_proj.bias"] = _norm(rng, 1)
    return weights


def _bigrams(quality: str, target: Weights, n_vocab: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(W1 [n_vocab, N_EMBD], W2 [head rows, N_EMBD]): the target's logits behind each token, had it no layers."""
    rows = target["token_embd.weight"][:n_vocab]
    w1 = rows / np.sqrt(np.mean(rows**2, axis=1, keepdims=True) + 1e-5) * target["output_norm.weight"]
    if quality == MIXED:
        w1[::2] = w1[::-2][: len(w1[::2])]
    return w1, -_head(target) if quality == HOSTILE else _head(target)


def _head(target: Weights) -> NDArray[np.float32]:
    return target.get("output.weight", target["token_embd.weight"])


def _layer(rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
    n_q, n_kv = N_HEAD * HEAD_DIM, N_HEAD_KV * HEAD_DIM
    return {
        "attn_norm": _norm(rng, N_EMBD),
        "attn_q": _matrix(rng, n_q, N_EMBD),
        "attn_k": _matrix(rng, n_kv, N_EMBD),
        "attn_v": _matrix(rng, n_kv, N_EMBD),
        "attn_q_norm": _norm(rng, HEAD_DIM),
        "attn_k_norm": _norm(rng, HEAD_DIM),
        "attn_output": _matrix(rng, N_EMBD, n_q),
        "ffn_norm": _norm(rng, N_EMBD),
        "ffn_gate": _matrix(rng, N_FF, N_EMBD),
        "ffn_up": _matrix(rng, N_FF, N_EMBD),
        "ffn_down": _matrix(rng, N_EMBD, N_FF),
    }


def _matrix(rng: np.random.Generator, rows: int, columns: int) -> NDArray[np.float32]:
    return (rng.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float32)


def _norm(rng: np.random.Generator, size: int) -> NDArray[np.float32]:
    return (1 + 0.2 * rng.standard_normal(size)).astype(np.float32)
