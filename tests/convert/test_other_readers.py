"""A converted file holds what llama.cpp's reader of DFlash and DSpark drafters expects, in the types it expects."""

from __future__ import annotations

import gguf
from gguf import GGUFValueType as Value
from tiny import drafters
from tiny.drafters import make_drafter

# What llama.cpp's own converter writes for a DSpark drafter. Its reader takes a number in another type for an error.
NUMBERS = {
    "dflash.block_count": Value.UINT32,
    "dflash.context_length": Value.UINT32,
    "dflash.embedding_length": Value.UINT32,
    "dflash.feed_forward_length": Value.UINT32,
    "dflash.attention.head_count": Value.UINT32,
    "dflash.attention.head_count_kv": Value.UINT32,
    "dflash.attention.key_length": Value.UINT32,
    "dflash.attention.value_length": Value.UINT32,
    "dflash.attention.layer_norm_rms_epsilon": Value.FLOAT32,
    "dflash.attention.causal": Value.BOOL,
    "dflash.rope.freq_base": Value.FLOAT32,
    "dflash.block_size": Value.UINT32,
    "dflash.sample_from_anchor": Value.BOOL,
    "dflash.has_confidence_head": Value.BOOL,
    "tokenizer.ggml.mask_token_id": Value.UINT32,
    "tokenizer.ggml.eos_token_id": Value.UINT32,
}
ARRAYS = {
    "dflash.target_layers": Value.INT32,
    "tokenizer.ggml.tokens": Value.STRING,
    "tokenizer.ggml.token_type": Value.INT32,
    "tokenizer.ggml.merges": Value.STRING,
}
LAYER_TENSORS = (
    "attn_norm", "attn_q", "attn_k", "attn_v", "attn_q_norm", "attn_k_norm", "attn_output",
    "ffn_norm", "ffn_gate", "ffn_up", "ffn_down",
)  # fmt: skip
TENSORS = {
    "fc.weight", "enc.output_norm.weight", "output_norm.weight", "markov_w1.weight", "markov_w2.weight",
    "conf_proj.weight", "conf_proj.bias",
    *(f"blk.{il}.{name}.weight" for il in range(drafters.N_LAYER) for name in LAYER_TENSORS),
}  # fmt: skip


def test_keys_have_the_types_that_are_read(convert):
    fields = gguf.GGUFReader(convert(make_drafter())).fields
    assert {key: fields[key].types for key in NUMBERS} == {key: [kind] for key, kind in NUMBERS.items()}
    assert {key: fields[key].types for key in ARRAYS} == {key: [Value.ARRAY, kind] for key, kind in ARRAYS.items()}


def test_no_other_setting_of_the_model_is_written(convert):
    fields = gguf.GGUFReader(convert(make_drafter())).fields
    settings = {key for key in fields if key.startswith("dflash.")}
    assert settings == {key for key in NUMBERS | ARRAYS if key.startswith("dflash.")}
    others = {key.split(".")[0] for key in fields}
    assert others == {"GGUF", "general", "dflash", "tokenizer", "dspark"}


def test_tensors_are_those_that_are_read(convert):
    assert {t.name for t in gguf.GGUFReader(convert(make_drafter())).tensors} == TENSORS
