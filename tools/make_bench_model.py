"""Writes a target with random weights and the exact widths of a real one, to measure what its layers cost.

    python tools/make_bench_model.py OUT.gguf [--arch qwen35moe] [--layers 4] [--type q4_k] [--drafter DRAFT.gguf]

Widths, heads, experts and vocabulary are those of Qwen3.6-35B-A3B (``qwen35moe``), Qwen3.6-27B (``qwen35``) or
Qwen3-30B-A3B (``qwen3moe``); ``--layers`` says how deep it is. ``--drafter`` also writes a drafter that fits, with the
widths of the real 6-layer one. Text from it is noise. Quantized blocks are drawn as such, so writing is fast, and
memory does not grow with the file.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Shape = tuple[int, ...]  # as in GGUF: the first dimension is contiguous
Type = gguf.GGMLQuantizationType

N_VOCAB, MASK_ID = 248_320, 248_077
POOL_BLOCKS = 1 << 15  # distinct random blocks; tensors start at different ones
PIECE_BYTES = 1 << 23
NVFP4_RMS = 2.926  # of its 16 codes


# ---- blocks of random numbers with a standard deviation of 1, before a factor ----


def _float_blocks(rng: np.random.Generator, sigma: float, kind: Type) -> Bytes:
    values = (sigma * rng.standard_normal((POOL_BLOCKS, 32))).astype(np.float32)
    if kind is Type.BF16:
        return (values.view(np.uint32) >> 16).astype("<u2").view(np.uint8)
    return values.astype("<f2" if kind is Type.F16 else "<f4").view(np.uint8)


def _half(value: float) -> Bytes:
    return np.frombuffer(np.float16(value).tobytes(), np.uint8)


def _q8_0_blocks(rng: np.random.Generator, sigma: float) -> Bytes:
    codes = rng.integers(-127, 128, (POOL_BLOCKS, 32), np.int8)
    return _join(_half(sigma / 73.3), codes.view(np.uint8))


def _q4_k_blocks(rng: np.random.Generator, sigma: float) -> Bytes:
    # all eight sub-blocks have scale 32 and minimum 32; codes 0..15 have a mean of 7.5 and a deviation of 4.61
    step = sigma / (32 * 4.61)
    scales = np.array([0xA0] * 8 + [0x00] * 4, np.uint8)
    head = np.concatenate([_half(step), _half(7.5 * step), scales])
    return _join(head, rng.integers(0, 256, (POOL_BLOCKS, 128), np.uint8))


def _nvfp4_blocks(rng: np.random.Generator) -> Bytes:
    # each scale byte is 1.0; a tensor beside the weight holds the rest
    return _join(np.array([0x38] * 4, np.uint8), rng.integers(0, 256, (POOL_BLOCKS, 32), np.uint8))


def _join(head: Bytes, codes: Bytes) -> Bytes:
    return np.concatenate([np.broadcast_to(head, (len(codes), len(head))), codes], axis=1)


def blocks(kind: Type, sigma: float, rng: np.random.Generator) -> Bytes:
    """Random blocks of a type, one per row."""
    if kind is Type.Q8_0:
        return _q8_0_blocks(rng, sigma)
    if kind is Type.Q4_K:
        return _q4_k_blocks(rng, sigma)
    if kind is Type.NVFP4:
        return _nvfp4_blocks(rng)
    return _float_blocks(rng, sigma, kind)


# ---- tensors ----


@dataclass(frozen=True)
class Tensor:
    """A tensor to write: random with a standard deviation of ``gain`` / sqrt(inputs), or given values."""

    name: str
    shape: Shape
    kind: Type
    gain: float = 1.0
    values: NDArray[np.float32] | None = None

    @property
    def n_bytes(self) -> int:
        block, size = gguf.GGML_QUANT_SIZES[self.kind]
        return int(np.prod(self.shape)) // block * size

    def pieces(self) -> Iterator[bytes]:
        """Its bytes, in pieces; the same for the same name and shape."""
        if self.values is not None:
            yield self.values.astype("<f4").tobytes()
            return
        rng = np.random.default_rng(list(self.name.encode()))
        pool = blocks(self.kind, self.gain / np.sqrt(self.shape[0]), rng).reshape(-1)
        repeated = np.tile(pool, max(1, PIECE_BYTES // len(pool)))
        for start in range(0, self.n_bytes, len(repeated)):
            yield repeated[: self.n_bytes - start].tobytes()


def around_one(name: str, n: int) -> Tensor:
    """Weights of a norm."""
    rng = np.random.default_rng(list(name.encode()))
    return Tensor(name, (n,), Type.F32, values=(1 + 0.1 * rng.standard_normal(n)).astype(np.float32))


# ---- models ----


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
TYPES = {"q4_k": Type.Q4_K, "q8_0": Type.Q8_0, "nvfp4": Type.NVFP4, "bf16": Type.BF16, "f16": Type.F16, "f32": Type.F32}


class Tensors:
    """Lists the tensors of a model, weights in one type; NVFP4 weights come with their scales."""

    def __init__(self, kind: Type) -> None:
        self.kind = kind
        # beside NVFP4 weights, tables and heads are kept more precise
        self.table_kind = Type.Q8_0 if kind is Type.NVFP4 else kind
        self.found: list[Tensor] = []

    def matrix(self, name: str, *shape: int, gain: float = 1.0, table: bool = False) -> None:
        kind = self.table_kind if table or shape[0] % 256 else self.kind
        kind = Type.Q8_0 if kind is Type.Q4_K and shape[0] % 256 else kind
        self.found.append(Tensor(f"{name}.weight", shape, kind, gain))
        if kind is Type.NVFP4:
            n = shape[2] if len(shape) == 3 else 1
            scale = np.full(n, gain / np.sqrt(shape[0]) / NVFP4_RMS, np.float32)
            self.found.append(Tensor(f"{name}.scale", (n,), Type.F32, values=scale))

    def norm(self, name: str, n: int) -> None:
        self.found.append(around_one(f"{name}.weight", n))

    def plain(self, name: str, *shape: int, gain: float = 1.0) -> None:
        self.found.append(Tensor(name, shape, Type.F32, gain))


def target_tensors(m: Model, n_layer: int, kind: Type, n_vocab: int = N_VOCAB) -> list[Tensor]:
    """Every tensor of a target, in file order."""
    t = Tensors(kind)
    t.matrix("token_embd", m.n_embd, n_vocab, gain=np.sqrt(m.n_embd), table=True)
    t.norm("output_norm", m.n_embd)
    t.matrix("output", m.n_embd, n_vocab, table=True)
    for il in range(n_layer):
        b = f"blk.{il}"
        t.norm(f"{b}.attn_norm", m.n_embd)
        _delta_net(t, m, b) if m.hybrid and (il + 1) % 4 else _attention(t, m, b)
        t.norm(f"{b}.post_attention_norm" if m.hybrid else f"{b}.ffn_norm", m.n_embd)
        _experts(t, m, b) if m.n_expert else _dense(t, m.n_embd, m.n_ff, b)
    return t.found


def _attention(t: Tensors, m: Model, b: str) -> None:
    n_q, n_kv = m.n_head * m.head_dim, m.n_head_kv * m.head_dim
    t.matrix(f"{b}.attn_q", m.n_embd, 2 * n_q if m.hybrid else n_q)
    t.matrix(f"{b}.attn_k", m.n_embd, n_kv)
    t.matrix(f"{b}.attn_v", m.n_embd, n_kv)
    t.matrix(f"{b}.attn_output", n_q, m.n_embd)
    t.norm(f"{b}.attn_q_norm", m.head_dim)
    t.norm(f"{b}.attn_k_norm", m.head_dim)


def _delta_net(t: Tensors, m: Model, b: str) -> None:
    n_k, n_v = m.n_head_k * m.state, m.n_head_v * m.state
    t.matrix(f"{b}.attn_qkv", m.n_embd, 2 * n_k + n_v)
    t.matrix(f"{b}.attn_gate", m.n_embd, n_v)
    t.matrix(f"{b}.ssm_alpha", m.n_embd, m.n_head_v, table=True)
    t.matrix(f"{b}.ssm_beta", m.n_embd, m.n_head_v, table=True)
    t.matrix(f"{b}.ssm_out", n_v, m.n_embd)
    t.plain(f"{b}.ssm_conv1d.weight", 4, 2 * n_k + n_v)
    t.plain(f"{b}.ssm_dt.bias", m.n_head_v)
    t.found.append(Tensor(f"{b}.ssm_a", (m.n_head_v,), Type.F32, values=np.full(m.n_head_v, -0.1, np.float32)))
    t.norm(f"{b}.ssm_norm", m.state)


def _dense(t: Tensors, n_embd: int, n_ff: int, b: str) -> None:
    t.matrix(f"{b}.ffn_gate", n_embd, n_ff)
    t.matrix(f"{b}.ffn_up", n_embd, n_ff)
    t.matrix(f"{b}.ffn_down", n_ff, n_embd)


def _experts(t: Tensors, m: Model, b: str) -> None:
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
            "rope.dimension_sections": [-(-pairs // 3), -(-(pairs - 1) // 3), (pairs - 2 + 2) // 3, 0],
            "ssm.conv_kernel": 4,
            "ssm.state_size": m.state,
            "ssm.group_count": m.n_head_k,
            "ssm.time_step_rank": m.n_head_v,
            "ssm.inner_size": m.n_head_v * m.state,
            "full_attention_interval": 4,
        }
    return found


# ---- the drafter of the real pair ----

DRAFT_LAYERS, DRAFT_FF, DRAFT_HEADS, DRAFT_HEADS_KV, DRAFT_HEAD_DIM, DRAFT_RANK, DRAFT_BLOCK = (
    6,
    6144,
    32,
    8,
    128,
    256,
    8,
)


def feature_layers(n_layer: int) -> list[int]:
    """Layers whose inputs a drafter reads: eight, or as many as there are, spread evenly."""
    n = min(8, n_layer - 1)
    return sorted({1 + round(i * (n_layer - 2) / max(n - 1, 1)) for i in range(n)})


def draft_tensors(n_embd: int, n_features: int, kind: Type, n_vocab: int = N_VOCAB) -> list[Tensor]:
    """Every tensor of a drafter that borrows the target's embedding and head."""
    t = Tensors(kind)
    n_q, n_kv = DRAFT_HEADS * DRAFT_HEAD_DIM, DRAFT_HEADS_KV * DRAFT_HEAD_DIM
    t.matrix("fc", n_features * n_embd, n_embd)
    t.norm("enc.output_norm", n_embd)
    t.norm("output_norm", n_embd)
    t.matrix("markov_w1", DRAFT_RANK, n_vocab, table=True)
    t.matrix("markov_w2", DRAFT_RANK, n_vocab, table=True)
    t.plain("conf_proj.weight", n_embd + DRAFT_RANK, 1)
    for il in range(DRAFT_LAYERS):
        b = f"blk.{il}"
        t.norm(f"{b}.attn_norm", n_embd)
        t.matrix(f"{b}.attn_q", n_embd, n_q)
        t.matrix(f"{b}.attn_k", n_embd, n_kv)
        t.matrix(f"{b}.attn_v", n_embd, n_kv)
        t.matrix(f"{b}.attn_output", n_q, n_embd)
        t.norm(f"{b}.attn_q_norm", DRAFT_HEAD_DIM)
        t.norm(f"{b}.attn_k_norm", DRAFT_HEAD_DIM)
        t.norm(f"{b}.ffn_norm", n_embd)
        _dense(t, n_embd, DRAFT_FF, b)
    return t.found


def draft_settings(n_embd: int, n_layer: int) -> dict[str, object]:
    """Metadata below ``dflash.``."""
    return {
        "block_count": DRAFT_LAYERS,
        "context_length": 262_144,
        "embedding_length": n_embd,
        "feed_forward_length": DRAFT_FF,
        "attention.head_count": DRAFT_HEADS,
        "attention.head_count_kv": DRAFT_HEADS_KV,
        "attention.key_length": DRAFT_HEAD_DIM,
        "attention.value_length": DRAFT_HEAD_DIM,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.dimension_count": DRAFT_HEAD_DIM,
        "rope.freq_base": 1e7,
        "block_size": DRAFT_BLOCK,
        "target_layers": feature_layers(n_layer),
        "sample_from_anchor": True,
    }


# ---- writing ----


def vocabulary(n_vocab: int = N_VOCAB) -> tuple[list[str], list[int]]:
    """Bytes, one pair, names, two control tokens, and padding from the mask on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    texts = [chr(byte) if byte in printable else chr(256 + others.index(byte)) for byte in range(256)]
    n_named = min(MASK_ID, n_vocab - 1)
    texts += ["th"] + [f"t{i}" for i in range(257, n_named - 2)] + ["<|endoftext|>", "<|im_end|>"]
    types = [1] * (n_named - 2) + [3, 3] + [5] * (n_vocab - n_named)
    return texts + [f"[PAD{i}]" for i in range(n_named, n_vocab)], types


def write(path: Path, arch: str, settings: dict[str, object], tensors: list[Tensor], n_vocab: int, force: bool) -> None:
    """Writes a file beside its name and renames it; nothing is left of a run that ends early.

    Raises:
        FileExistsError: it is there already, and ``force`` is not given.
    """
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists; --force replaces it")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    writer = gguf.GGUFWriter(partial, arch)
    try:
        _add_metadata(writer, arch, settings, n_vocab)
        for tensor in tensors:
            writer.add_tensor_info(tensor.name, tensor.shape[::-1], np.float32, tensor.n_bytes, tensor.kind)
        _write_tensors(writer, partial, tensors)
        os.replace(partial, path)
    except BaseException:
        writer.close()
        partial.unlink(missing_ok=True)
        raise


def _add_metadata(writer: gguf.GGUFWriter, arch: str, settings: dict[str, object], n_vocab: int) -> None:
    writer.add_name(f"random {arch}")
    for key, value in settings.items():
        add: Callable[[str, object], None] = (
            writer.add_bool
            if isinstance(value, bool)
            else writer.add_uint32
            if isinstance(value, int)
            else writer.add_float32
            if isinstance(value, float)
            else writer.add_array
        )
        add(f"{arch}.{key}", value)
    texts, types = vocabulary(n_vocab)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen35")
    writer.add_token_list(texts)
    writer.add_token_types(types)
    writer.add_token_merges(["t h"])
    writer.add_eos_token_id(texts.index("<|im_end|>"))
    writer.add_add_bos_token(False)
    if arch == "dflash":
        writer.add_mask_token_id(texts.index(f"[PAD{min(MASK_ID, n_vocab - 1)}]"))


def _write_tensors(writer: gguf.GGUFWriter, path: Path, tensors: list[Tensor]) -> None:
    writer.write_header_to_file(path)
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    assert writer.fout is not None
    file, done, total = writer.fout[0], 0, sum(tensor.n_bytes for tensor in tensors)
    writer.write_padding(file, file.tell())
    for tensor in tensors:
        for piece in tensor.pieces():
            file.write(piece)
            done += len(piece)
            _tell(done, total)
        writer.write_padding(file, tensor.n_bytes)
    file.flush()
    os.fsync(file.fileno())
    writer.close()


def _tell(done: int, total: int) -> None:
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        print(f"\r{done / 1e6:,.0f} of {total / 1e6:,.0f} MB", end=end, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--arch", choices=MODELS, default="qwen35moe")
    parser.add_argument("--layers", type=int, default=4, help="at least 2 (%(default)s)")
    parser.add_argument("--type", choices=TYPES, default="q4_k", help="of the weights (%(default)s)")
    parser.add_argument("--drafter", type=Path, metavar="FILE", help="also write a drafter that fits")
    parser.add_argument("--draft-type", choices=TYPES, default="q8_0", help="of the drafter's weights (%(default)s)")
    parser.add_argument("--force", action="store_true", help="replace files")
    options = parser.parse_args()
    if options.layers < 2:
        parser.error("--layers must be at least 2")
    model, kind = MODELS[options.arch], TYPES[options.type]
    try:
        tensors = target_tensors(model, options.layers, kind)
        write(options.out, model.arch, target_settings(model, options.layers), tensors, N_VOCAB, options.force)
        if options.drafter is not None:
            n_features = len(feature_layers(options.layers))
            found = draft_tensors(model.n_embd, n_features, TYPES[options.draft_type])
            write(
                options.drafter, "dflash", draft_settings(model.n_embd, options.layers), found, N_VOCAB, options.force
            )
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
