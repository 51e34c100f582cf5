"""Checkpoint tensors and their GGUF counterparts: names, shapes and number formats, as one table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from .settings import DraftSettings


class Role(Enum):
    """What a tensor is for, which decides its number format."""

    MATRIX = "matrix"
    HEAD = "head"  # rows looked up or scored by token
    PRECISE = "precise"  # small and sensitive: never below 16 bits
    VECTOR = "vector"  # always float32
    IDS = "ids"  # whole numbers


class Need(Enum):
    """Whether a drafter must have the tensor."""

    ALWAYS = "always"
    MARKOV = "markov"
    OPTIONAL = "optional"
    REDUCED = "reduced"  # exactly when the head scores only part of the vocabulary


@dataclass(frozen=True)
class Rule:
    """One line of the table.

    Attributes:
        source: name in the checkpoint.
        name: name in the GGUF file.
        dims: names of the sizes in torch order, resolved by ``sizes``.
    """

    source: str
    name: str
    dims: tuple[str, ...]
    role: Role
    need: Need = Need.ALWAYS


EMBEDDING = Rule("embed_tokens.weight", "token_embd.weight", ("vocab", "embd"), Role.HEAD, Need.OPTIONAL)
OUTPUT = Rule("lm_head.weight", "output.weight", ("vocab_draft", "embd"), Role.HEAD, Need.OPTIONAL)
MARKOV_W1 = Rule("markov_head.markov_w1.weight", "markov_w1.weight", ("vocab", "rank"), Role.HEAD, Need.MARKOV)
CONFIDENCE = Rule("confidence_head.proj.weight", "conf_proj.weight", ("one", "conf_in"), Role.PRECISE, Need.OPTIONAL)
CONFIDENCE_BIAS = Rule("confidence_head.proj.bias", "conf_proj.bias", ("one",), Role.VECTOR, Need.OPTIONAL)
DRAFT_TO_TARGET = Rule("d2t", "d2t", ("vocab_draft",), Role.IDS, Need.REDUCED)
FUSION = Rule("fc.weight", "fc.weight", ("embd", "features"), Role.MATRIX)

_GLOBAL = (
    EMBEDDING,
    OUTPUT,
    FUSION,
    Rule("hidden_norm.weight", "enc.output_norm.weight", ("embd",), Role.VECTOR),
    Rule("norm.weight", "output_norm.weight", ("embd",), Role.VECTOR),
    MARKOV_W1,
    Rule("markov_head.markov_w2.weight", "markov_w2.weight", ("vocab_draft", "rank"), Role.HEAD, Need.MARKOV),
    CONFIDENCE,
    CONFIDENCE_BIAS,
    DRAFT_TO_TARGET,
)
_LAYER = (
    Rule("input_layernorm", "attn_norm", ("embd",), Role.VECTOR),
    Rule("self_attn.q_proj", "attn_q", ("q", "embd"), Role.MATRIX),
    Rule("self_attn.k_proj", "attn_k", ("kv", "embd"), Role.MATRIX),
    Rule("self_attn.v_proj", "attn_v", ("kv", "embd"), Role.MATRIX),
    Rule("self_attn.o_proj", "attn_output", ("embd", "q"), Role.MATRIX),
    Rule("self_attn.q_norm", "attn_q_norm", ("head",), Role.VECTOR),
    Rule("self_attn.k_norm", "attn_k_norm", ("head",), Role.VECTOR),
    Rule("post_attention_layernorm", "ffn_norm", ("embd",), Role.VECTOR),
    Rule("mlp.gate_proj", "ffn_gate", ("ff", "embd"), Role.MATRIX),
    Rule("mlp.up_proj", "ffn_up", ("ff", "embd"), Role.MATRIX),
    Rule("mlp.down_proj", "ffn_down", ("embd", "ff"), Role.MATRIX),
)

_KIND = GGMLQuantizationType
# formats of drafters that were quantized after they were converted
FEW_BITS = {_KIND.Q6_K, _KIND.Q5_K, _KIND.Q5_1, _KIND.Q5_0, _KIND.Q4_K, _KIND.Q4_1, _KIND.Q4_0, _KIND.IQ4_NL}
QUANTIZED = {_KIND.Q8_0, *FEW_BITS}

# only of use while training
DROPPED = ("t2d",)

OUTTYPES = ("bf16", "f16", "f32", "q8_0", "mixed", "q4_0")
_PLAIN = {
    "bf16": GGMLQuantizationType.BF16,
    "f16": GGMLQuantizationType.F16,
    "f32": GGMLQuantizationType.F32,
    "q8_0": GGMLQuantizationType.Q8_0,
    "mixed": GGMLQuantizationType.Q8_0,
    "q4_0": GGMLQuantizationType.Q4_0,
}
# number format of heads, where it is another one
_HEADS = {"mixed": GGMLQuantizationType.BF16, "q4_0": GGMLQuantizationType.Q8_0}


def rules(n_layer: int) -> Iterator[Rule]:
    """Every tensor a drafter of ``n_layer`` layers may have, in file order."""
    yield from _GLOBAL
    for il in range(n_layer):
        for rule in _LAYER:
            yield replace(rule, source=f"layers.{il}.{rule.source}.weight", name=f"blk.{il}.{rule.name}.weight")


def sizes(settings: DraftSettings, n_target_embd: int) -> dict[str, int]:
    """Value of each size name of the table; 0 for one that is not known. ``conf_in`` has two and is left out."""
    return {
        "one": 1,
        "vocab": settings.n_vocab,
        "vocab_draft": settings.n_vocab_draft,
        "embd": settings.n_embd,
        "features": len(settings.target_layers) * n_target_embd,
        "q": settings.n_head * settings.head_dim,
        "kv": settings.n_head_kv * settings.head_dim,
        "head": settings.head_dim,
        "ff": settings.n_ff,
        "rank": settings.markov_rank,
    }


def stored_kind(rule: Rule, outtype: str, row_len: int) -> GGMLQuantizationType:
    """Number format of a tensor in the file; rows that do not split into blocks stay BF16."""
    if rule.role is Role.VECTOR:
        return GGMLQuantizationType.F32
    if rule.role is Role.IDS:
        return GGMLQuantizationType.I64
    kind = _PLAIN[outtype]
    if rule.role is Role.HEAD:
        kind = _HEADS.get(outtype, kind)
    block = GGML_QUANT_SIZES[kind][0]
    precise = block > 1 and rule.role is Role.PRECISE
    return kind if row_len % block == 0 and not precise else GGMLQuantizationType.BF16
