"""Writes a DSpark drafter of full size with random weights, and a target vocabulary to go with it.

The shapes are those of a drafter for a 35B-A3B target: 1.53 billion parameters, 3.06 GB in BF16. It serves to measure
the memory and time of ``dspark-convert`` (docs/convert.md has the commands); its drafts are noise. Written piece by
piece, so it needs little memory itself.

    python tools/make_full_size_drafter.py OUT_FOLDER [--copies]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
from bench_model.drafter import BLOCK_SIZE, HEAD_DIM, N_FF, N_HEAD, N_HEAD_KV, N_LAYER, RANK, feature_layers
from bench_model.target import MASK_ID, MODELS, N_VOCAB

N_EMBD, N_TARGET_LAYER = MODELS["qwen35moe"].n_embd, 40
TARGET_LAYERS = [layer - 1 for layer in feature_layers(N_TARGET_LAYER)]  # checkpoints name the layer before
PIECE = 1 << 22  # values made at once


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--copies", action="store_true", help="let the target hold the same embedding and head")
    options = parser.parse_args()
    drafter = options.folder / "drafter"
    drafter.mkdir(parents=True, exist_ok=True)
    (drafter / "config.json").write_text(json.dumps(config(), indent=1))
    write_checkpoint(drafter / "model.safetensors")
    write_target(options.folder / "target.gguf", shapes() if options.copies else {})


def config() -> dict[str, object]:
    return {
        "architectures": ["Qwen3DSparkModel"],
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
        "max_position_embeddings": 262_144,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000_000.0},
        "tie_word_embeddings": False,
        "num_target_layers": N_TARGET_LAYER,
        "block_size": BLOCK_SIZE,
        "mask_token_id": MASK_ID,
        "target_layer_ids": TARGET_LAYERS,
        "markov_rank": RANK,
        "markov_head_type": "vanilla",
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
    }


def shapes() -> dict[str, tuple[int, ...]]:
    """Checkpoint tensors, in file order."""
    q, kv = N_HEAD * HEAD_DIM, N_HEAD_KV * HEAD_DIM
    found: dict[str, tuple[int, ...]] = {
        "embed_tokens.weight": (N_VOCAB, N_EMBD),
        "lm_head.weight": (N_VOCAB, N_EMBD),
        "fc.weight": (N_EMBD, len(TARGET_LAYERS) * N_EMBD),
        "hidden_norm.weight": (N_EMBD,),
        "norm.weight": (N_EMBD,),
        "markov_head.markov_w1.weight": (N_VOCAB, RANK),
        "markov_head.markov_w2.weight": (N_VOCAB, RANK),
        "confidence_head.proj.weight": (1, N_EMBD + RANK),
        "confidence_head.proj.bias": (1,),
    }
    for il in range(N_LAYER):
        layer: dict[str, tuple[int, ...]] = {
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
        found.update({f"layers.{il}.{name}.weight": shape for name, shape in layer.items()})
    return found


def pieces(name: str, shape: tuple[int, ...]) -> Iterator[bytes]:
    """BF16 bytes of a tensor; the same for the same name on every call."""
    rng = np.random.default_rng(list(name.encode()))
    left = int(np.prod(shape))
    scale = np.float32(1 / np.sqrt(shape[-1]))
    while left:
        count = min(left, PIECE)
        values = rng.standard_normal(count, dtype=np.float32) * scale + np.float32(len(shape) == 1)
        yield (values.view(np.uint32) >> 16).astype("<u2").tobytes()
        left -= count


def write_checkpoint(path: Path) -> None:
    header, at = {}, 0
    for name, shape in shapes().items():
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, shape in shapes().items():
            file.writelines(pieces(name, shape))


def write_target(path: Path, tensors: dict[str, tuple[int, ...]]) -> None:
    """A target of which only the sizes, the vocabulary and (optionally) embedding and head are there."""
    names = {"embed_tokens.weight": "token_embd.weight", "lm_head.weight": "output.weight"}
    present = {source: name for source, name in names.items() if source in tensors}
    writer = gguf.GGUFWriter(path, "qwen35moe")
    writer.add_name("full-size")
    writer.add_block_count(N_TARGET_LAYER)
    writer.add_embedding_length(N_EMBD)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen35")
    writer.add_token_list([f"t{i}" for i in range(MASK_ID)] + [f"[PAD{i}]" for i in range(MASK_ID, N_VOCAB)])
    writer.add_token_types([1] * MASK_ID + [5] * (N_VOCAB - MASK_ID))
    writer.add_token_merges([f"t{i} t{i + 1}" for i in range(MASK_ID - 1)])
    kind = gguf.GGMLQuantizationType.BF16
    for source, name in present.items():
        size = 2 * int(np.prod(tensors[source]))
        writer.add_tensor_info(name, tensors[source], np.dtype(np.float32), size, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with open(path, "ab") as file:
        file.write(bytes(-file.tell() % 32))
        for source in present:
            file.writelines(pieces(source, tensors[source]))


if __name__ == "__main__":
    main()
