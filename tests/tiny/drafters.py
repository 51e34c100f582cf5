"""Tiny seeded drafter checkpoints, and targets with just what a converter reads of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]

N_VOCAB = 272  # 256 bytes, three control tokens, padding
N_EMBD, N_FF, N_HEAD, N_HEAD_KV, HEAD_DIM = 64, 96, 4, 2, 16
N_LAYER, N_TARGET_LAYER, BLOCK_SIZE, RANK, MASK_ID = 2, 6, 4, 32, 260
TARGET_LAYERS = (1, 3, 4)
END_OF_TEXT = 256


def to_bf16(values: NDArray[Any]) -> NDArray[np.uint16]:
    """Upper halves of float32 values, rounded to nearest even."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(halves: NDArray[np.uint16]) -> NDArray[np.float32]:
    return (halves.astype(np.uint32) << 16).view(np.float32)


def vocabulary() -> tuple[list[str], list[int]]:
    """(texts, types) of a byte-level vocabulary of ``N_VOCAB`` entries."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    shifted = [b for b in range(256) if b not in printable]
    names = {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(shifted)}}
    texts = [names[b] for b in range(256)] + ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    n_padding = N_VOCAB - len(texts)
    types = [1] * 256 + [3] * 3 + [5] * n_padding
    return texts + [f"[PAD{i}]" for i in range(len(texts), N_VOCAB)], types


@dataclass
class TinyDrafter:
    """A checkpoint before it is saved; tests change ``config`` and ``weights`` as they like."""

    config: dict[str, Any]
    weights: Arrays


def make_drafter(seed: int = 0, reduced: int = 0, with_copies: bool = False) -> TinyDrafter:
    """A DSpark drafter in the flat form; all values fit in BF16.

    Args:
        seed: of all weights.
        reduced: size of a reduced draft vocabulary; 0 for the whole.
        with_copies: whether the embedding and the head of ``write_target(seed=0)`` are in it.
    """
    rng = np.random.default_rng(seed)
    n_draft = reduced or N_VOCAB
    q, kv = N_HEAD * HEAD_DIM, N_HEAD_KV * HEAD_DIM

    def matrix(rows: int, columns: int) -> NDArray[np.float32]:
        return from_bf16(to_bf16(rng.standard_normal((rows, columns)) / np.sqrt(columns)))

    def norm(size: int) -> NDArray[np.float32]:
        return from_bf16(to_bf16(1 + 0.3 * rng.standard_normal(size)))

    weights: Arrays = {
        "fc.weight": matrix(N_EMBD, len(TARGET_LAYERS) * N_EMBD),
        "hidden_norm.weight": norm(N_EMBD),
        "norm.weight": norm(N_EMBD),
        "markov_head.markov_w1.weight": matrix(N_VOCAB, RANK),
        "markov_head.markov_w2.weight": matrix(n_draft, RANK),
        "confidence_head.proj.weight": matrix(1, N_EMBD + RANK),
        "confidence_head.proj.bias": norm(1),
    }
    for il in range(N_LAYER):
        sizes: dict[str, tuple[int, ...]] = {
            "input_layernorm": (N_EMBD,),
            "self_attn.q_proj": (q, N_EMBD),
            "self_attn.k_proj": (kv, N_EMBD),
            "self_attn.v_proj": (kv, N_EMBD),
            "self_attn.o_proj": (N_EMBD, q),
            "self_attn.q_norm": (HEAD_DIM,),
            "self_attn.k_norm": (HEAD_DIM,),
            "post_attention_layernorm": (N_EMBD,),
            "mlp.gate_proj": (N_FF, N_EMBD),
            "mlp.up_proj": (N_FF, N_EMBD),
            "mlp.down_proj": (N_EMBD, N_FF),
        }
        for name, shape in sizes.items():
            weights[f"layers.{il}.{name}.weight"] = matrix(*shape) if len(shape) == 2 else norm(*shape)
    config = flat_config()
    if with_copies:
        weights["embed_tokens.weight"], weights["lm_head.weight"] = target_rows()
    if reduced:
        ids = np.sort(rng.choice(259, reduced, replace=False))
        weights["d2t"] = (ids - np.arange(reduced)).astype(np.int64)
        weights["t2d"] = np.isin(np.arange(N_VOCAB), ids)
        weights["lm_head.weight"] = matrix(reduced, N_EMBD)
        config["draft_vocab_size"] = reduced
    return TinyDrafter(config, weights)


def backbone_config() -> dict[str, Any]:
    return {
        "model_type": "qwen3",
        "vocab_size": N_VOCAB,
        "hidden_size": N_EMBD,
        "intermediate_size": N_FF,
        "num_hidden_layers": N_LAYER,
        "num_attention_heads": N_HEAD,
        "num_key_value_heads": N_HEAD_KV,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 512,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "tie_word_embeddings": False,
    }


def flat_config() -> dict[str, Any]:
    return {
        "architectures": ["Qwen3DSparkModel"],
        **backbone_config(),
        "num_target_layers": N_TARGET_LAYER,
        "block_size": BLOCK_SIZE,
        "mask_token_id": MASK_ID,
        "target_layer_ids": list(TARGET_LAYERS),
        "markov_rank": RANK,
        "markov_head_type": "vanilla",
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
    }


def nested_config(section: str, **extra: Any) -> dict[str, Any]:
    """The drafter's own keys in ``section`` instead of at the root."""
    names = ("block_size", "mask_token_id", "target_layer_ids", "markov_rank", "markov_head_type")
    flat = flat_config()
    inner = {name: flat.pop(name) for name in names}
    return {**flat, "architectures": ["DSparkDraftModel"], section: {**inner, **extra}}


def speculators_config(**extra: Any) -> dict[str, Any]:
    """The speculators form, where target layers are counted by their inputs."""
    flat = flat_config()
    return {
        "architectures": ["DSparkDraftModel"],
        "speculators_model_type": "dspark",
        "transformer_layer_config": backbone_config(),
        "aux_hidden_state_layer_ids": [i + 1 for i in TARGET_LAYERS],
        "sample_from_anchor": True,
        **{name: flat[name] for name in ("block_size", "mask_token_id", "markov_rank", "markov_head_type")},
        **extra,
    }


def save_drafter(folder: Path, drafter: TinyDrafter, dtype: str = "BF16", shards: int = 1) -> Path:
    """Writes config.json and safetensors files; returns ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(drafter.config))
    names = sorted(drafter.weights)
    if shards == 1:
        save_safetensors(folder / "model.safetensors", drafter.weights, dtype)
        return folder
    weight_map = {}
    for i in range(shards):
        file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        part = {name: drafter.weights[name] for name in names[i::shards]}
        save_safetensors(folder / file, part, dtype)
        weight_map.update(dict.fromkeys(part, file))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def save_safetensors(path: Path, weights: Arrays, dtype: str = "BF16") -> None:
    header: dict[str, Any] = {}
    parts, at = [], 0
    for name, array in weights.items():
        kind, data = _stored(array, dtype)
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))


def _stored(array: NDArray[Any], dtype: str) -> tuple[str, bytes]:
    if array.dtype == np.int64:
        return "I64", array.tobytes()
    if array.dtype == np.bool_:
        return "BOOL", array.tobytes()
    if dtype == "BF16":
        return dtype, to_bf16(array).tobytes()
    return dtype, array.astype({"F32": np.float32, "F16": np.float16}[dtype]).tobytes()


def target_rows(seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(embedding, head) of ``write_target``, each [N_VOCAB, N_EMBD]."""
    rng = np.random.default_rng([seed, 1])
    rows = from_bf16(to_bf16(rng.standard_normal((2, N_VOCAB, N_EMBD)) * 0.05))
    return rows[0], rows[1]


def write_target(
    path: Path,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.BF16,
    texts: Iterable[str] | None = None,
    n_rows: int = N_VOCAB,
    tied: bool = False,
    arch: str = "qwen3",
    n_layer: int = N_TARGET_LAYER,
    extra: dict[str, int] | None = None,
) -> Path:
    """A target of ``n_layer`` layers whose embedding and head are stored as ``kind``; it has no other tensors."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name("tiny target")
    writer.add_block_count(n_layer)
    writer.add_embedding_length(N_EMBD)
    for key, value in (extra or {}).items():
        writer.add_uint32(key, value)
    default_texts, types = vocabulary()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(list(texts or default_texts)[:n_rows])
    writer.add_token_types(types[:n_rows])
    writer.add_token_merges(["a b", "c d"])
    writer.add_eos_token_id(END_OF_TEXT)
    writer.add_add_bos_token(False)
    for name, rows in zip(("token_embd.weight", "output.weight")[: 1 if tied else 2], target_rows(), strict=False):
        writer.add_tensor(name, gguf.quantize(rows[:n_rows], kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
