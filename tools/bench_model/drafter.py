"""Sizes, tensors and metadata of the drafter of Qwen3.6-35B-A3B."""

from __future__ import annotations

from .blocks import Type
from .target import N_VOCAB, add_dense
from .tensors import Tensor, TensorList

N_LAYER, N_FF, N_HEAD, N_HEAD_KV, HEAD_DIM, RANK, BLOCK_SIZE = 6, 6144, 32, 8, 128, 256, 8


def feature_layers(n_target_layer: int) -> list[int]:
    """Layers whose inputs a drafter reads: eight, spread evenly as in the real one, or as many as there are."""
    n = min(8, n_target_layer - 1)
    ends = 2 if n_target_layer > 10 else 1  # the real one leaves some out at both ends
    step = (n_target_layer - 2 * ends) / max(n - 1, 1)
    return [round(ends + i * step) for i in range(n)]


def draft_tensors(
    n_embd: int, n_features: int, kind: Type, n_layer: int = N_LAYER, n_vocab: int = N_VOCAB, seed: int = 0
) -> list[Tensor]:
    """Every tensor of a drafter that borrows the target's embedding and head."""
    t = TensorList(kind, seed)
    n_q, n_kv = N_HEAD * HEAD_DIM, N_HEAD_KV * HEAD_DIM
    t.matrix("fc", n_features * n_embd, n_embd)
    t.norm("enc.output_norm", n_embd)
    t.norm("output_norm", n_embd)
    t.matrix("markov_w1", RANK, n_vocab, table=True)
    t.matrix("markov_w2", RANK, n_vocab, table=True)
    t.plain("conf_proj.weight", n_embd + RANK, 1)
    for il in range(n_layer):
        b = f"blk.{il}"
        t.norm(f"{b}.attn_norm", n_embd)
        t.matrix(f"{b}.attn_q", n_embd, n_q)
        t.matrix(f"{b}.attn_k", n_embd, n_kv)
        t.matrix(f"{b}.attn_v", n_embd, n_kv)
        t.matrix(f"{b}.attn_output", n_q, n_embd)
        t.norm(f"{b}.attn_q_norm", HEAD_DIM)
        t.norm(f"{b}.attn_k_norm", HEAD_DIM)
        t.norm(f"{b}.ffn_norm", n_embd)
        add_dense(t, n_embd, N_FF, b)
    return t.found


def draft_settings(n_embd: int, n_target_layer: int, n_layer: int = N_LAYER) -> dict[str, object]:
    """Metadata below ``dflash.``."""
    return {
        "block_count": n_layer,
        "context_length": 262_144,
        "embedding_length": n_embd,
        "feed_forward_length": N_FF,
        "attention.head_count": N_HEAD,
        "attention.head_count_kv": N_HEAD_KV,
        "attention.key_length": HEAD_DIM,
        "attention.value_length": HEAD_DIM,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.dimension_count": HEAD_DIM,
        "rope.freq_base": 1e7,
        "block_size": BLOCK_SIZE,
        "target_layers": feature_layers(n_target_layer),
        "sample_from_anchor": True,
    }
