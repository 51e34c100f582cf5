"""Tiny models with random weights and a small, real byte-level vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

Weights = dict[str, NDArray[np.float32]]

N_LAYER = 2
N_EMBD = 64
N_HEAD = 4
N_HEAD_KV = 2
N_HEAD_DIM = 16
N_FF = 128
N_CTX = 256
# of the recurrent layers of hybrid models
N_STATE, N_HEAD_K, N_HEAD_V, N_CONV = 16, 2, 4, 4
# of models with a mixture of experts, each half as wide as a dense feed-forward part
N_EXPERT, N_EXPERT_USED = 8, 3
HYBRID = ("qwen35", "qwen35moe")
MOE = ("qwen3moe", "qwen35moe")

MERGES = ["h e", "l l", "he ll", "hell o", "\u0120 w", "o r", "\u0120w or", "l d", "\u0120wor ld", "t h", "th e"]
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_alphabet() -> list[str]:
    """The character that stands for each byte in a byte-level vocabulary."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(256 + others.index(byte)) for byte in range(256)]


@dataclass(frozen=True)
class TinyShape:
    """How a tiny model differs from the usual one.

    Attributes:
        n_layer: number of layers.
        n_bytes: bytes that have a token. With fewer than 256 there are no merged tokens, and text cannot be encoded.
        n_embd, n_ff: widths of the residual stream and of the feed-forward part; the heads stay as small as ever.
        n_padding: padding tokens behind the named ones.
        n_nameless: rows of embedding and head behind all tokens.
        padding_gain: scale of the head's rows for padding and nameless ids.
        tied: whether the embedding is the head, too.
        layer_gain: scale of what layers add. With 0 the next token depends on the last one alone.
        head_gain: spread of the logits; the higher, the surer the model.
        succession: how strongly each token calls for the next id, up to the last named one; keeps a model whose layers
            add little from going in small circles.
    """

    n_layer: int = N_LAYER
    n_bytes: int = 256
    n_embd: int = N_EMBD
    n_ff: int = N_FF
    n_padding: int = 0
    n_nameless: int = 0
    padding_gain: float = 1.0
    tied: bool = False
    layer_gain: float = 1.0
    # Sharp enough that the likeliest token is clear of rounding errors.
    head_gain: float = 3.0
    succession: float = 0.0


def vocabulary(n_padding: int = 0, n_bytes: int = 256) -> tuple[list[str], list[int]]:
    """Texts and types of the tokens: bytes, merged pairs if there is every byte, specials, padding."""
    merged = [merge.replace(" ", "") for merge in MERGES]
    ordinary = byte_alphabet() + merged if n_bytes == 256 else byte_alphabet()[:n_bytes]
    kinds = [gguf.TokenType.NORMAL] * len(ordinary) + [gguf.TokenType.CONTROL] * len(SPECIALS)
    kinds += [gguf.TokenType.UNUSED] * n_padding
    padding = [f"[PAD{i}]" for i in range(n_padding)]
    return ordinary + SPECIALS + padding, [int(kind) for kind in kinds]


def token_id(text: str) -> int:
    """The id of a token."""
    return vocabulary()[0].index(text)


def write_tiny_model(
    path: Path,
    architecture: str = "llama",
    seed: int = 0,
    extra: Mapping[str, float | str] | None = None,
    shape: TinyShape = TinyShape(),
    change: Mapping[str, NDArray[Any] | None] | None = None,
) -> Path:
    """Writes a model that generates varied nonsense.

    Args:
        path: file to write.
        architecture: ``llama``, ``qwen3``, ``qwen3moe``, ``qwen35`` or ``qwen35moe``.
        seed: of the weights.
        extra: further metadata, floats or strings.
        shape: sizes and scales.
        change: tensors to add or to replace, or with None to leave out.
    """
    writer = gguf.GGUFWriter(path, architecture)
    _add_settings(writer, shape)
    if architecture in HYBRID:
        _add_hybrid_settings(writer)
    else:
        writer.add_rope_dimension_count(N_HEAD_DIM)
    if architecture in MOE:
        _add_expert_settings(writer, architecture, shape)
    add_tokenizer(writer, shape.n_padding, shape.n_bytes)
    for key, value in (extra or {}).items():
        add = writer.add_string if isinstance(value, str) else writer.add_float32
        add(key, value)
    for name, weights in {**tiny_weights(architecture, seed, shape), **(change or {})}.items():
        if weights is not None:
            writer.add_tensor(name, weights)
    finish_file(writer)
    return path


def finish_file(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_settings(writer: gguf.GGUFWriter, shape: TinyShape) -> None:
    writer.add_name("tiny")
    writer.add_block_count(shape.n_layer)
    writer.add_context_length(N_CTX)
    writer.add_embedding_length(shape.n_embd)
    writer.add_feed_forward_length(shape.n_ff)
    writer.add_head_count(N_HEAD)
    writer.add_head_count_kv(N_HEAD_KV)
    writer.add_key_length(N_HEAD_DIM)
    writer.add_value_length(N_HEAD_DIM)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)


def _add_hybrid_settings(writer: gguf.GGUFWriter) -> None:
    writer.add_rope_dimension_count(N_HEAD_DIM // 2)
    writer.add_rope_dimension_sections([2, 1, 1, 0])
    writer.add_ssm_conv_kernel(N_CONV)
    writer.add_ssm_state_size(N_STATE)
    writer.add_ssm_group_count(N_HEAD_K)
    writer.add_ssm_time_step_rank(N_HEAD_V)
    writer.add_ssm_inner_size(N_HEAD_V * N_STATE)


def _add_expert_settings(writer: gguf.GGUFWriter, architecture: str, shape: TinyShape) -> None:
    writer.add_expert_count(N_EXPERT)
    writer.add_expert_used_count(N_EXPERT_USED)
    writer.add_expert_feed_forward_length(shape.n_ff // 2)
    if architecture in HYBRID:
        writer.add_expert_shared_feed_forward_length(shape.n_ff // 2)


def add_tokenizer(writer: gguf.GGUFWriter, n_padding: int = 0, n_bytes: int = 256) -> None:
    """Adds the vocabulary of tiny models, and what goes with it."""
    tokens, types = vocabulary(n_padding, n_bytes)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(MERGES if n_bytes == 256 else [])
    writer.add_bos_token_id(tokens.index("<|im_start|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def tiny_weights(architecture: str, seed: int = 0, shape: TinyShape = TinyShape()) -> Weights:
    """Tensors by name, as they stand in the file of a tiny model."""
    rng = np.random.default_rng(seed)
    n_q, n_kv = N_HEAD * N_HEAD_DIM, N_HEAD_KV * N_HEAD_DIM
    n_named = len(vocabulary(n_bytes=shape.n_bytes)[0])
    n_rows = n_named + shape.n_padding + shape.n_nameless

    def linear(n_in: int, n_out: int, gain: float = 1.0) -> NDArray[np.float32]:
        return (gain * rng.standard_normal((n_out, n_in)) / np.sqrt(n_in)).astype(np.float32)

    def norm(n: int) -> NDArray[np.float32]:
        return (1 + 0.1 * rng.standard_normal(n)).astype(np.float32)

    weights = {
        "token_embd.weight": linear(shape.n_embd, n_rows, gain=8.0),
        "output_norm.weight": norm(shape.n_embd),
        "output.weight": linear(shape.n_embd, n_rows, gain=shape.head_gain),
    }
    rows = weights["token_embd.weight"][:n_named]
    called = np.roll(rows / np.linalg.norm(rows, axis=1, keepdims=True), 1, axis=0)
    weights["output.weight"][:n_named] += np.float32(shape.succession) * called
    weights["output.weight"][n_named:] *= shape.padding_gain
    if shape.tied:
        del weights["output.weight"]

    def attention(gates: int = 0) -> Weights:
        return {
            "attn_q.weight": linear(shape.n_embd, n_q + gates),
            "attn_k.weight": linear(shape.n_embd, n_kv),
            "attn_v.weight": linear(shape.n_embd, n_kv),
            "attn_output.weight": linear(n_q, shape.n_embd, gain=shape.layer_gain),
        }

    def delta_net() -> Weights:
        n_k, n_v = N_HEAD_K * N_STATE, N_HEAD_V * N_STATE
        return {
            "attn_qkv.weight": linear(shape.n_embd, 2 * n_k + n_v),
            "attn_gate.weight": linear(shape.n_embd, n_v),
            "ssm_alpha.weight": linear(shape.n_embd, N_HEAD_V),
            "ssm_beta.weight": linear(shape.n_embd, N_HEAD_V),
            "ssm_conv1d.weight": linear(N_CONV, 2 * n_k + n_v),
            "ssm_dt.bias": rng.standard_normal(N_HEAD_V).astype(np.float32),
            "ssm_a": -np.exp(rng.standard_normal(N_HEAD_V) - 2).astype(np.float32),
            "ssm_norm.weight": norm(N_STATE),
            "ssm_out.weight": linear(n_v, shape.n_embd, gain=shape.layer_gain),
        }

    def dense() -> Weights:
        return {
            "ffn_gate.weight": linear(shape.n_embd, shape.n_ff),
            "ffn_up.weight": linear(shape.n_embd, shape.n_ff),
            "ffn_down.weight": linear(shape.n_ff, shape.n_embd, gain=shape.layer_gain),
        }

    def experts(shared: bool) -> Weights:
        n_ff = shape.n_ff // 2

        def each(n_in: int, n_out: int, gain: float = 1.0) -> NDArray[np.float32]:
            return np.stack([linear(n_in, n_out, gain) for _ in range(N_EXPERT)])

        layer = {
            "ffn_gate_inp.weight": linear(shape.n_embd, N_EXPERT, gain=3.0),
            "ffn_gate_exps.weight": each(shape.n_embd, n_ff),
            "ffn_up_exps.weight": each(shape.n_embd, n_ff),
            "ffn_down_exps.weight": each(n_ff, shape.n_embd, gain=shape.layer_gain),
        }
        if shared:
            layer |= {
                "ffn_gate_inp_shexp.weight": linear(shape.n_embd, 1),
                "ffn_gate_shexp.weight": linear(shape.n_embd, n_ff),
                "ffn_up_shexp.weight": linear(shape.n_embd, n_ff),
                "ffn_down_shexp.weight": linear(n_ff, shape.n_embd, gain=shape.layer_gain),
            }
        return layer

    for il in range(shape.n_layer):
        recurrent = architecture in HYBRID and (il + 1) % 4 != 0
        layer = {"attn_norm.weight": norm(shape.n_embd)}
        layer |= delta_net() if recurrent else attention(gates=n_q if architecture in HYBRID else 0)
        layer["post_attention_norm.weight" if architecture in HYBRID else "ffn_norm.weight"] = norm(shape.n_embd)
        layer |= experts(shared=architecture in HYBRID) if architecture in MOE else dense()
        if architecture != "llama" and not recurrent:
            layer |= {"attn_q_norm.weight": norm(N_HEAD_DIM), "attn_k_norm.weight": norm(N_HEAD_DIM)}
        weights |= {f"blk.{il}.{name}": value for name, value in layer.items()}
    return weights
