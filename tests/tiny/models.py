"""Tiny models with random weights and a small, real byte-level vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np

N_LAYER = 2
N_EMBD = 64
N_HEAD = 4
N_HEAD_KV = 2
N_HEAD_DIM = 16
N_FF = 128
N_CTX = 256

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


def vocabulary() -> tuple[list[str], list[int]]:
    """Texts and types of the tokens: bytes, merged pairs, specials."""
    ordinary = byte_alphabet() + [merge.replace(" ", "") for merge in MERGES]
    normal, control = int(gguf.TokenType.NORMAL), int(gguf.TokenType.CONTROL)
    return ordinary + SPECIALS, [normal] * len(ordinary) + [control] * len(SPECIALS)


def token_id(text: str) -> int:
    """The id of a token."""
    return vocabulary()[0].index(text)


def write_tiny_model(
    path: Path, architecture: str = "llama", seed: int = 0, extra: Mapping[str, float | str] | None = None
) -> Path:
    """Writes a model that generates varied nonsense.

    Args:
        path: file to write.
        architecture: ``llama`` or ``qwen3``.
        seed: of the weights.
        extra: further metadata, floats or strings.
    """
    writer = gguf.GGUFWriter(path, architecture)
    _add_settings(writer)
    _add_tokenizer(writer)
    for key, value in (extra or {}).items():
        add = writer.add_string if isinstance(value, str) else writer.add_float32
        add(key, value)
    for name, weights in _weights(architecture, np.random.default_rng(seed)).items():
        writer.add_tensor(name, weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_settings(writer: gguf.GGUFWriter) -> None:
    writer.add_name("tiny")
    writer.add_block_count(N_LAYER)
    writer.add_context_length(N_CTX)
    writer.add_embedding_length(N_EMBD)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_HEAD)
    writer.add_head_count_kv(N_HEAD_KV)
    writer.add_key_length(N_HEAD_DIM)
    writer.add_value_length(N_HEAD_DIM)
    writer.add_rope_dimension_count(N_HEAD_DIM)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)


def _add_tokenizer(writer: gguf.GGUFWriter) -> None:
    tokens, types = vocabulary()
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(token_id("<|im_start|>"))
    writer.add_eos_token_id(token_id("<|im_end|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def _weights(architecture: str, rng: np.random.Generator) -> dict[str, np.ndarray]:
    n_q, n_kv = N_HEAD * N_HEAD_DIM, N_HEAD_KV * N_HEAD_DIM
    n_vocab = len(vocabulary()[0])

    def linear(n_in: int, n_out: int, gain: float = 1.0) -> np.ndarray:
        return (gain * rng.standard_normal((n_out, n_in)) / np.sqrt(n_in)).astype(np.float32)

    def norm(n: int) -> np.ndarray:
        return (1 + 0.1 * rng.standard_normal(n)).astype(np.float32)

    weights = {
        "token_embd.weight": linear(N_EMBD, n_vocab, gain=8.0),
        "output_norm.weight": norm(N_EMBD),
        # Sharp enough that the likeliest token is clear of rounding errors.
        "output.weight": linear(N_EMBD, n_vocab, gain=3.0),
    }
    for il in range(N_LAYER):
        layer = {
            "attn_norm.weight": norm(N_EMBD),
            "attn_q.weight": linear(N_EMBD, n_q),
            "attn_k.weight": linear(N_EMBD, n_kv),
            "attn_v.weight": linear(N_EMBD, n_kv),
            "attn_output.weight": linear(n_q, N_EMBD),
            "ffn_norm.weight": norm(N_EMBD),
            "ffn_gate.weight": linear(N_EMBD, N_FF),
            "ffn_up.weight": linear(N_EMBD, N_FF),
            "ffn_down.weight": linear(N_FF, N_EMBD),
        }
        if architecture == "qwen3":
            layer |= {"attn_q_norm.weight": norm(N_HEAD_DIM), "attn_k_norm.weight": norm(N_HEAD_DIM)}
        weights |= {f"blk.{il}.{name}": value for name, value in layer.items()}
    return weights
