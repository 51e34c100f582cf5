"""The target as a GGUF file: python gguf_target.py TARGET.pt DATA OUT.gguf [--f32]   (and ``load_target`` to read it)

Q8_0 for every matrix, F32 for norms, router, convolution and the shared expert's gate, as converters of real files do.
"""

import json
import os
import sys

import gguf
import numpy as np
import torch
from gguf.quants import dequantize, quantize
from model import (
    CONV,
    EPS,
    FF,
    HD,
    HK,
    INTERVAL,
    N_EXPERT,
    N_KEY,
    N_ROT,
    N_VALUE,
    THETA,
    TOP_K,
    D,
    H,
    L,
    S,
    Target,
    is_recurrent,
)  # fmt: skip
from tokenizer import EOT, IM_END, USER_DEFINED, V

ARCH = "qwen35moe"
KEEP_F32 = ("ffn_gate_inp", "ssm_conv1d")
CONTEXT = 4096


def hyper_parameters(w):
    for key, value in {
        "block_count": L, "context_length": CONTEXT, "embedding_length": D, "attention.head_count": H,
        "attention.head_count_kv": HK, "attention.key_length": HD, "attention.value_length": HD,
        "expert_count": N_EXPERT, "expert_used_count": TOP_K, "expert_feed_forward_length": FF,
        "expert_shared_feed_forward_length": FF,
        "ssm.conv_kernel": CONV, "ssm.state_size": S, "ssm.group_count": N_KEY, "ssm.time_step_rank": N_VALUE,
        "ssm.inner_size": N_VALUE * S, "full_attention_interval": INTERVAL, "rope.dimension_count": N_ROT,
    }.items():  # fmt: skip
        w.add_uint32(f"{ARCH}.{key}", value)
    w.add_float32(f"{ARCH}.attention.layer_norm_rms_epsilon", EPS)
    w.add_float32(f"{ARCH}.rope.freq_base", THETA)
    w.add_array(f"{ARCH}.rope.dimension_sections", [3, 3, 2, 0])
    w.add_array(f"{ARCH}.attention.recurrent_layers", [is_recurrent(i) for i in range(L)])


def tokenizer_keys(w, folder):
    t = json.load(open(os.path.join(folder, "tokenizer.json")))
    settings = json.load(open(os.path.join(folder, "tokenizer_config.json")))
    tokens, types = [f"[PAD{i}]" for i in range(V)], [int(gguf.TokenType.UNUSED)] * V
    for s, i in t["model"]["vocab"].items():
        tokens[i], types[i] = s, int(gguf.TokenType.NORMAL)
    for a in t["added_tokens"]:
        tokens[a["id"]] = a["content"]
        types[a["id"]] = int(gguf.TokenType.USER_DEFINED if a["content"] in USER_DEFINED else gguf.TokenType.CONTROL)
    w.add_tokenizer_model("gpt2"), w.add_tokenizer_pre("qwen35")
    w.add_token_list(tokens), w.add_token_types(types)
    w.add_token_merges([" ".join(m) for m in t["model"]["merges"]])
    w.add_bos_token_id(EOT), w.add_eos_token_id(IM_END), w.add_pad_token_id(EOT)
    w.add_add_bos_token(False), w.add_chat_template(settings["chat_template"])


def save_target(m, folder, path, all_f32=False):
    w = gguf.GGUFWriter(path, ARCH)
    w.add_type("model"), w.add_name("Tiny Qwen3.5 MoE"), w.add_size_label("16x0.2M"), w.add_license("apache-2.0")
    w.add_description("A small model on the architecture of Qwen3.5 MoE, trained on generated text for demonstrations")
    w.add_file_type(gguf.LlamaFileType.ALL_F32 if all_f32 else gguf.LlamaFileType.MOSTLY_Q8_0)
    w.add_quantization_version(2)
    w.add_int32("general.sampling.top_k", 20)
    w.add_float32("general.sampling.top_p", 0.95), w.add_float32("general.sampling.temp", 1.0)
    hyper_parameters(w), tokenizer_keys(w, folder)
    q8 = gguf.GGMLQuantizationType.Q8_0
    for name, p in m.named().items():
        x = p.detach().numpy()
        if name.endswith("ssm_a_log"):
            name, x = name.removesuffix("_log"), -np.exp(x)
        if x.ndim < 2 or all_f32 or any(k in name for k in KEEP_F32):
            w.add_tensor(name, np.ascontiguousarray(x, dtype=np.float32))
        else:
            w.add_tensor(name, quantize(x, q8), raw_dtype=q8)
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()


@torch.no_grad()
def load_target(path):
    """The model with the file's values (quantised matrices expanded to float32), frozen."""
    m, tensors = Target(), {t.name: t for t in gguf.GGUFReader(path).tensors}
    for name, p in m.named().items():
        stored = tensors[name.replace("ssm_a_log", "ssm_a")]
        x = torch.from_numpy(np.array(dequantize(stored.data, stored.tensor_type))).view(p.shape)
        p.copy_((-x).log() if name.endswith("ssm_a_log") else x)
    return m.requires_grad_(False).eval()


if __name__ == "__main__":
    model = Target()
    model.load_state_dict(torch.load(sys.argv[1])["model"])
    save_target(model, sys.argv[2], sys.argv[3], "--f32" in sys.argv)
