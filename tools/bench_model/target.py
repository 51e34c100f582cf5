"""Sizes, tensors and metadata of targets."""

from __future__ import annotations

from dataclasses import dataclass

from .blocks import Type
from .tensors import Tensor, TensorList

N_VOCAB, MASK_ID = 248_320, 248_077  # rows of the vocabulary, and the first that has no name


@dataclass(frozen=True)
class Model:
    """Sizes of a target, and of its layers."""

    arch: str
    n_embd: int
    n_head: int
    n_head_kv: int
    head_dim: int
    n_rot: int
    n_ff: int = 0
    n_expert: int = 0
    n_used: int = 0
    n_ff_expert: int = 0
    n_ff_shared: int = 0
    state: int = 0  # size of a head of the recurrent layers
    n_head_k: int = 0
    n_head_v: int = 0

    @property
    def hybrid(self) -> bool:
        return self.state > 0


MODELS = {
    "qwen35moe": Model("qwen35moe", 2048, 16, 2, 256, 64, 0, 256, 8, 512, 512, 128, 16, 32),
    "qwen35": Model("qwen35", 5120, 24, 4, 256, 64, 17408, state=128, n_head_k=16, n_head_v=48),
    "qwen3moe": Model("qwen3moe", 2048, 32, 4, 128, 128, 0, 128, 8, 768),
}


def target_tensors(m: Model, n_layer: int, kind: Type, n_vocab: int = N_VOCAB, seed: int = 0) -> list[Tensor]:
    """Every tensor of a target, in file order."""
    t = TensorList(kind, seed)
    t.matrix("token_embd", m.n_embd, n_vocab, gain=m.n_embd**0.5, table=True)
    t.norm("output_norm", m.n_embd)
    t.matrix("output", m.n_embd, n_vocab, table=True)
    for il in range(n_layer):
        b = f"blk.{il}"
        t.norm(f"{b}.attn_norm", m.n_embd)
        _delta_net(t, m, b) if m.hybrid and (il + 1) % 4 else _attention(t, m, b)
        t.norm(f"{b}.post_attention_norm" if m.hybrid else f"{b}.ffn_norm", m.n_embd)
        _experts(t, m, b) if m.n_expert else add_dense(t, m.n_embd, m.n_ff, b)
    return t.found


def _attention(t: TensorList, m: Model, b: str) -> None:
    n_q, n_kv = m.n_head * m.head_dim, m.n_head_kv * m.head_dim
    t.matrix(f"{b}.attn_q", m.n_embd, 2 * n_q if m.hybrid else n_q)
    t.matrix(f"{b}.attn_k", m.n_embd, n_kv)
    t.matrix(f"{b}.attn_v", m.n_embd, n_kv)
    t.matrix(f"{b}.attn_output", n_q, m.n_embd)
    t.norm(f"{b}.attn_q_norm", m.head_dim)
    t.norm(f"{b}.attn_k_norm", m.head_dim)


def _delta_net(t: TensorList, m: Model, b: str) -> None:
    n_k, n_v = m.n_head_k * m.state, m.n_head_v * m.state
    t.matrix(f"{b}.attn_qkv", m.n_embd, 2 * n_k + n_v)
    t.matrix(f"{b}.attn_gate", m.n_embd, n_v)
    t.matrix(f"{b}.ssm_alpha", m.n_embd, m.n_head_v, table=True)
    t.matrix(f"{b}.ssm_beta", m.n_embd, m.n_head_v, table=True)
    t.matrix(f"{b}.ssm_out", n_v, m.n_embd)
    t.plain(f"{b}.ssm_conv1d.weight", 4, 2 * n_k + n_v)
    t.plain(f"{b}.ssm_dt.bias", m.n_head_v)
    t.constant(f"{b}.ssm_a", m.n_head_v, -0.1)
    t.norm(f"{b}.ssm_norm", m.state)


def add_dense(t: TensorList, n_embd: int, n_ff: int, b: str) -> None:
    """A feed-forward network without experts, of the block called ``b``."""
    t.matrix(f"{b}.ffn_gate", n_embd, n_ff)
    t.matrix(f"{b}.ffn_up", n_embd, n_ff)
    t.matrix(f"{b}.ffn_down", n_ff, n_embd)


def _experts(t: TensorList, m: Model, b: str) -> None:
    t.plain(f"{b}.ffn_gate_inp.weight", m.n_embd, m.n_expert)
    t.matrix(f"{b}.ffn_gate_exps", m.n_embd, m.n_ff_expert, m.n_expert)
    t.matrix(f"{b}.ffn_up_exps", m.n_embd, m.n_ff_expert, m.n_expert)
    t.matrix(f"{b}.ffn_down_exps", m.n_ff_expert, m.n_embd, m.n_expert)
    if m.n_ff_shared:
        t.plain(f"{b}.ffn_gate_inp_shexp.weight", m.n_embd, 1)
        t.matrix(f"{b}.ffn_gate_shexp", m.n_embd, m.n_ff_shared)
        t.matrix(f"{b}.ffn_up_shexp", m.n_embd, m.n_ff_shared)
        t.matrix(f"{b}.ffn_down_shexp", m.n_ff_shared, m.n_embd)


def target_settings(m: Model, n_layer: int) -> dict[str, object]:
    """Metadata below ``<arch>.``."""
    found: dict[str, object] = {
        "block_count": n_layer,
        "context_length": 262_144,
        "embedding_length": m.n_embd,
        "attention.head_count": m.n_head,
        "attention.head_count_kv": m.n_head_kv,
        "attention.key_length": m.head_dim,
        "attention.value_length": m.head_dim,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.dimension_count": m.n_rot,
        "rope.freq_base": 1e7,
    }
    if m.n_ff:
        found["feed_forward_length"] = m.n_ff
    if m.n_expert:
        found |= {
            "expert_count": m.n_expert,
            "expert_used_count": m.n_used,
            "expert_feed_forward_length": m.n_ff_expert,
        }
    if m.n_ff_shared:
        found["expert_shared_feed_forward_length"] = m.n_ff_shared
    if m.hybrid:
        pairs = m.n_rot // 2
        found |= {
            "rope.dimension_sections": [(pairs + 2) // 3, (pairs + 1) // 3, pairs // 3, 0],
            "ssm.conv_kernel": 4,
            "ssm.state_size": m.state,
            "ssm.group_count": m.n_head_k,
            "ssm.time_step_rank": m.n_head_v,
            "ssm.inner_size": m.n_head_v * m.state,
            "full_attention_interval": 4,
        }
    return found
