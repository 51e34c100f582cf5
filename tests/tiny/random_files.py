"""Targets and drafters of random sizes that fit together, mostly odd ones; now and then something that cannot be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, nan
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from .models import add_tokenizer, finish_file, vocabulary

N_BYTES = 40  # of a small vocabulary: files are written, and tokens drawn, the faster
ARCHITECTURES = ("llama", "qwen3", "qwen3moe", "qwen35", "qwen35moe")
KINDS = (gguf.GGMLQuantizationType.F16, gguf.GGMLQuantizationType.BF16, gguf.GGMLQuantizationType.Q8_0)
KINDS += (gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q4_1, gguf.GGMLQuantizationType.Q5_1)
HARD_INTS = (0, 1, 2, 3, 7, 255, 1 << 16, (1 << 31) - 1, (1 << 32) - 1)
HARD_ITEMS = (-1, 0, 3, 255, (1 << 31) - 1)  # signed in files
HARD_FLOATS = (0.0, -1.0, 1e-38, 1e38, inf, nan)

Settings = dict[str, Any]
Shapes = dict[str, tuple[int, ...]]


class Dice:
    """Random choices."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def pick(self, *values: Any) -> Any:
        """One of the values."""
        return values[self.rng.integers(len(values))]

    def chance(self, share: float) -> bool:
        """True in that share of cases."""
        return bool(self.rng.random() < share)


@dataclass
class RandomFile:
    """A file before it is written. Keys that do not begin with another name go below the architecture's."""

    architecture: str
    settings: Settings
    shapes: Shapes
    n_padding: int
    spoil: Callable[[str, NDArray[Any]], NDArray[Any]] = lambda name, values: values


def random_target(dice: Dice) -> RandomFile:
    """A target, or something like one."""
    architecture = dice.pick(*ARCHITECTURES)
    n_padding, n_embd = dice.pick(1, 2, 5), dice.pick(1, 2, 6, 31, 32, 64, 96)
    hybrid = architecture.startswith("qwen35")
    heads, settings = _attention(dice, other_values=not hybrid and dice.chance(0.2))
    n_layer, n_extra = dice.pick(1, 2, 4, 5), dice.pick(0, 0, 1)
    settings |= {
        "block_count": n_layer + n_extra,
        "nextn_predict_layers": n_extra,
        "context_length": 256,
        "embedding_length": n_embd,
        "feed_forward_length": dice.pick(1, 7, 32, 96),
        "rope.freq_base": 10000.0,
    }
    n_rows = len(vocabulary(n_padding, N_BYTES)[0]) + dice.pick(0, 0, 7)
    shapes: Shapes = {"token_embd.weight": (n_rows, n_embd), "output_norm.weight": (n_embd,)}
    if dice.chance(0.5):
        shapes["output.weight"] = (n_rows, n_embd)
    if hybrid:
        settings |= _delta_net(dice, heads)
    if architecture.endswith("moe"):
        settings |= _experts(dice, hybrid)
    for il in range(n_layer):
        layer = _recurrent_shapes(settings) if _is_recurrent(settings, il) else _attention_shapes(heads, n_embd, hybrid)
        if architecture == "llama":
            layer = {name: shape for name, shape in layer.items() if name not in ("attn_q_norm", "attn_k_norm")}
        layer |= {"attn_norm": (n_embd,), "post_attention_norm" if hybrid else "ffn_norm": (n_embd,)}
        layer |= _feed_forward_shapes(settings)
        shapes |= {_tensor_name(il, name): shape for name, shape in layer.items()}
    return RandomFile(architecture, settings, shapes, n_padding)


def random_drafter(dice: Dice, target: RandomFile) -> RandomFile:
    """A drafter for the target, or something like one."""
    theirs, n_rows = target.settings, target.shapes["token_embd.weight"][0]
    own = dice.chance(0.3)
    n_embd = dice.pick(2, 31, 32) if own else theirs["embedding_length"]
    n_vocab = len(vocabulary(target.n_padding, N_BYTES)[0])
    n_draft = dice.pick(1, 2, 30) if own and dice.chance(0.5) else n_vocab if own else n_rows
    n_layer = theirs["block_count"] - theirs["nextn_predict_layers"]
    n_inputs = dice.pick(*range(1, n_layer + 1))
    inputs = sorted(dice.rng.choice(n_layer, n_inputs, replace=False).tolist())
    heads, settings = _attention(dice)
    settings |= {
        "block_count": dice.pick(1, 2, 3),
        "context_length": 256,
        "embedding_length": n_embd,
        "feed_forward_length": dice.pick(1, 7, 32, 96),
        "rope.freq_base": 10000.0,
        "block_size": dice.pick(2, 3, 8, 16, 31),
        "target_layers": inputs,
        "sample_from_anchor": dice.chance(0.7),
        "tokenizer.ggml.mask_token_id": n_vocab - target.n_padding,
        "dspark.target.block_count": n_layer,
    }
    if dice.chance(0.3):
        settings["attention.sliding_window"] = dice.pick(1, 5, 40)
        settings["attention.sliding_window_pattern"] = [dice.chance(0.5) for _ in range(settings["block_count"])]
    if dice.chance(0.3):
        settings["dspark.noise_embd"] = dice.rng.standard_normal(n_embd).tolist()
    rank = dice.pick(0, 1, 7, 32, 64)
    shapes: Shapes = {"fc.weight": (n_embd, n_inputs * theirs["embedding_length"])}
    shapes |= {"enc.output_norm.weight": (n_embd,), "output_norm.weight": (n_embd,)}
    if own:
        shapes |= {"token_embd.weight": (n_vocab, n_embd), "output.weight": (n_draft, n_embd)}
    if n_draft < n_vocab:
        shapes["d2t"] = (n_draft,)
    if rank:
        shapes |= {"markov_w1.weight": (n_vocab, rank), "markov_w2.weight": (n_draft, rank)}
    if dice.chance(0.7):
        shapes["conf_proj.weight"] = (1, n_embd + dice.pick(0, rank))
        shapes["conf_proj.bias"] = (1,)
    layer = {**_attention_shapes(heads, n_embd, False), **_feed_forward_shapes(settings)}
    layer |= {"attn_norm": (n_embd,), "ffn_norm": (n_embd,)}
    for il in range(settings["block_count"]):
        shapes |= {_tensor_name(il, name): shape for name, shape in layer.items()}
    return RandomFile("dflash", settings, shapes, target.n_padding)


def spoil(dice: Dice, file: RandomFile) -> None:
    """Changes one thing, mostly to something that cannot be."""
    key, tensor = dice.pick(*file.settings), dice.pick(*file.shapes)
    value, shape = file.settings[key], file.shapes[tensor]
    what = dice.pick("number", "number", "number", "no number", "another type", "no tensor", "shape", "values")
    if what == "number" and isinstance(value, list):
        hard = {bool: (True, False), int: HARD_ITEMS, float: HARD_FLOATS}[type(value[0])]
        value[dice.rng.integers(len(value))] = dice.pick(*hard)
    elif what == "number":
        file.settings[key] = dice.pick(*(HARD_FLOATS if isinstance(value, float) else HARD_INTS))
    elif what == "no number":
        del file.settings[key]
    elif what == "another type":
        file.settings[key] = dice.pick("text", 1.5, True, [1, 2], 4)
    elif what == "no tensor":
        del file.shapes[tensor]
    elif what == "shape":
        file.shapes[tensor] = dice.pick(shape[::-1], (*shape[:-1], shape[-1] + 1), (2, *shape), (shape[0],))
    else:
        hard = dice.pick(*HARD_FLOATS, 1e30)
        file.spoil = lambda name, values: np.full_like(values, hard) if name == tensor and name != "d2t" else values


def write_random_file(path: Path, dice: Dice, file: RandomFile) -> None:
    """Writes the file with random weights of random types."""
    writer = gguf.GGUFWriter(path, file.architecture)
    add_tokenizer(writer, file.n_padding, N_BYTES)
    for key, value in file.settings.items():
        begins_anew = key.startswith(("tokenizer.", "dspark."))
        _add(writer, key if begins_anew else f"{file.architecture}.{key}", value)
    for name, shape in file.shapes.items():
        if name == "d2t":
            writer.add_tensor(name, np.arange(np.prod(shape), dtype=np.int64).reshape(shape))
            continue
        values = (dice.rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)
        values = file.spoil(name, -np.abs(values) if name.endswith("ssm_a") else values)
        is_matrix = len(shape) > 1 and "conv1d" not in name
        kind = dice.pick(*KINDS) if is_matrix and dice.chance(0.5) else gguf.GGMLQuantizationType.F32
        if shape[-1] % gguf.GGML_QUANT_SIZES[kind][0] or not np.abs(values).max() < 1e4:  # NaN, too
            kind = gguf.GGMLQuantizationType.F32
        writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)
    finish_file(writer)


# ---- parts ----


@dataclass(frozen=True)
class _Heads:
    n: int
    n_kv: int
    dim: int  # of queries and keys
    dim_v: int


def _attention(dice: Dice, other_values: bool = False) -> tuple[_Heads, Settings]:
    n_kv, dim = dice.pick(1, 2, 3), dice.pick(2, 4, 6, 16, 20, 32, 40, 64, 80, 128, 192, 256)
    heads = _Heads(n_kv * dice.pick(1, 2, 3, 5), n_kv, dim, dice.pick(2, 16, 64) if other_values else dim)
    return heads, {
        "attention.head_count": heads.n,
        "attention.head_count_kv": heads.n_kv,
        "attention.key_length": heads.dim,
        "attention.value_length": heads.dim_v,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }


def _delta_net(dice: Dice, heads: _Heads) -> Settings:
    n_rot = dice.pick(heads.dim, max(heads.dim // 4 * 2, 2))
    size, n_group = dice.pick(1, 3, 16, 32, 64), dice.pick(1, 2, 3)
    n_value = n_group * dice.pick(1, 2, 3)
    return {
        "rope.dimension_count": n_rot,
        "rope.dimension_sections": [n_rot, n_rot, n_rot, 0],
        "ssm.conv_kernel": dice.pick(2, 3, 4, 7),
        "ssm.state_size": size,
        "ssm.group_count": n_group,
        "ssm.time_step_rank": n_value,
        "ssm.inner_size": n_value * size,
        "full_attention_interval": dice.pick(1, 2, 4),
    }


def _experts(dice: Dice, shared: bool) -> Settings:
    n_expert = dice.pick(1, 2, 5, 8)
    width = {"expert_shared_feed_forward_length": dice.pick(1, 7, 32)} if shared else {}
    return width | {
        "expert_count": n_expert,
        "expert_used_count": dice.pick(1, n_expert),
        "expert_feed_forward_length": dice.pick(1, 7, 32),
    }


def _is_recurrent(settings: Settings, il: int) -> bool:
    return "ssm.state_size" in settings and (il + 1) % settings["full_attention_interval"] != 0


def _attention_shapes(heads: _Heads, n_embd: int, gated: bool) -> Shapes:
    return {
        "attn_q": (heads.n * heads.dim * (2 if gated else 1), n_embd),
        "attn_k": (heads.n_kv * heads.dim, n_embd),
        "attn_v": (heads.n_kv * heads.dim_v, n_embd),
        "attn_output": (n_embd, heads.n * heads.dim_v),
        "attn_q_norm": (heads.dim,),
        "attn_k_norm": (heads.dim,),
    }


def _recurrent_shapes(settings: Settings) -> Shapes:
    n_embd, n_value = settings["embedding_length"], settings["ssm.time_step_rank"]
    inner, size = settings["ssm.inner_size"], settings["ssm.state_size"]
    n_channels = inner + 2 * settings["ssm.group_count"] * size
    return {
        "attn_qkv": (n_channels, n_embd),
        "attn_gate": (inner, n_embd),
        "ssm_alpha": (n_value, n_embd),
        "ssm_beta": (n_value, n_embd),
        "ssm_conv1d": (n_channels, settings["ssm.conv_kernel"]),
        "ssm_dt.bias": (n_value,),
        "ssm_a": (n_value,),
        "ssm_norm": (size,),
        "ssm_out": (n_embd, inner),
    }


def _feed_forward_shapes(settings: Settings) -> Shapes:
    n_embd, n_ff = settings["embedding_length"], settings["feed_forward_length"]
    if "expert_count" not in settings:
        return {"ffn_gate": (n_ff, n_embd), "ffn_up": (n_ff, n_embd), "ffn_down": (n_embd, n_ff)}
    n_expert, n_ff = settings["expert_count"], settings["expert_feed_forward_length"]
    shapes: Shapes = {
        "ffn_gate_inp": (n_expert, n_embd),
        "ffn_gate_exps": (n_expert, n_ff, n_embd),
        "ffn_up_exps": (n_expert, n_ff, n_embd),
        "ffn_down_exps": (n_expert, n_embd, n_ff),
    }
    n_shared = settings.get("expert_shared_feed_forward_length")
    if n_shared is not None:
        shapes |= {"ffn_gate_inp_shexp": (1, n_embd), "ffn_gate_shexp": (n_shared, n_embd)}
        shapes |= {"ffn_up_shexp": (n_shared, n_embd), "ffn_down_shexp": (n_embd, n_shared)}
    return shapes


def _tensor_name(il: int, name: str) -> str:
    return f"blk.{il}.{name}" if name in ("ssm_a", "ssm_dt.bias") else f"blk.{il}.{name}.weight"


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
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
