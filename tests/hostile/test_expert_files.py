"""Models with a mixture of experts whose settings or tensors cannot be right, or cannot be computed with."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from running import Running
from tiny.models import N_EMBD, N_EXPERT, N_FF, tiny_weights, write_tiny_model

from pydspark import Llama
from pydspark.errors import ModelFileError, PydsparkError, UnsupportedError

N_FF_EXPERT = N_FF // 2
NVFP4, I8 = 40, 24  # numbers of types whose data is no longer than that of F32
IDS = [40, 41, 45, 42, 200, 43, 7]

Change = Mapping[str, NDArray[Any] | None]


@pytest.fixture(scope="module", params=["qwen3moe", "qwen35moe"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "model.gguf", request.param)


def load(path: Path, **settings: int) -> Llama:
    """Loads a model with other settings than its file's."""
    arch = Llama(path, vocab_only=True).metadata["general.architecture"]
    overrides = {f"{arch}.{key}": value for key, value in settings.items()}
    return Llama(path, n_ctx=64, n_threads=1, kv_overrides=overrides)


def changed(folder: Path, change: Change, architecture: str = "qwen3moe") -> Path:
    return write_tiny_model(folder / "changed.gguf", architecture, change=change)


def retyped(path: Path, tensor: str, number: int) -> Path:
    """Says another type of a tensor, in the file itself."""
    data = bytearray(path.read_bytes())
    name = struct.pack("<Q", len(tensor)) + tensor.encode()
    at = data.index(name) + len(name)
    (n_dims,) = struct.unpack_from("<I", data, at)
    struct.pack_into("<I", data, at + 4 + 8 * n_dims, number)
    path.write_bytes(data)
    return path


def weights(name: str) -> NDArray[np.float32]:
    return tiny_weights("qwen3moe")[f"blk.0.{name}.weight"]


# ---- settings ----


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"expert_count": 0}, "expert_count' is 0, outside 1..1024"),
        ({"expert_count": -1}, "expert_count' is -1"),
        ({"expert_count": 1 << 40}, "expert_count' is 1099511627776"),
        ({"expert_count": N_EXPERT + 1}, r"has shape \[64, 8\].*\[64, 9\] was expected"),
        ({"expert_used_count": 0}, "expert_used_count' is 0"),
        ({"expert_used_count": N_EXPERT + 1}, "uses 9 of 8 experts for a token; 1..8 is possible"),
        ({"expert_used_count": 1 << 33}, "expert_used_count' is 8589934592"),
        ({"expert_feed_forward_length": 0}, "expert_feed_forward_length' is 0"),
        ({"expert_feed_forward_length": N_FF}, "ffn_gate_exps.weight' has shape"),
        ({"expert_feed_forward_length": 1 << 24}, "ffn_gate_exps.weight' has shape"),
        ({"expert_feed_forward_length": 1 << 50}, "expert_feed_forward_length' is"),
    ],
)
def test_settings_that_cannot_be(path: Path, settings: dict[str, int], said: str) -> None:
    with pytest.raises(ModelFileError, match=said):
        load(path, **settings)


def test_width_of_the_shared_expert(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "model.gguf", "qwen35moe")
    with pytest.raises(ModelFileError, match="ffn_gate_shexp.weight' has shape"):
        load(path, expert_shared_feed_forward_length=N_FF_EXPERT + 1)
    with pytest.raises(ModelFileError, match="expert_shared_feed_forward_length' is 0"):
        load(path, expert_shared_feed_forward_length=0)


@pytest.mark.parametrize("n_used", [1, 2, N_EXPERT])
@pytest.mark.parametrize("fused_experts", [True, False])
def test_any_possible_number_of_experts_is_used(path: Path, n_used: int, fused_experts: bool) -> None:
    llama = load(path, expert_used_count=n_used)
    assert len(llama.create_completion("hello", max_tokens=4)["choices"][0]["text"]) > 0


# ---- tensors ----


@pytest.mark.parametrize("name", ["ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"])
def test_a_missing_tensor_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelFileError, match=f"'blk.1.{name}.weight' is missing"):
        Llama(changed(tmp_path, {f"blk.1.{name}.weight": None}), n_threads=1)


@pytest.mark.parametrize("name", ["ffn_gate_inp_shexp", "ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"])
def test_a_missing_tensor_of_the_shared_expert_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelFileError, match=f"'blk.1.{name}.weight' is missing"):
        Llama(changed(tmp_path, {f"blk.1.{name}.weight": None}, "qwen35moe"), n_threads=1)


def test_a_dense_part_beside_the_experts_is_refused(tmp_path: Path) -> None:
    dense = np.zeros((N_FF, N_EMBD), np.float32)
    with pytest.raises(UnsupportedError, match=r"blk\.0\.ffn_up\.weight"):
        Llama(changed(tmp_path, {"blk.0.ffn_up.weight": dense}), n_threads=1)


WRONG_SCALES: list[tuple[str, NDArray[Any], type[PydsparkError], str]] = [
    ("ffn_up_exps.scale", np.ones(N_EXPERT - 1, np.float32), ModelFileError, r"has shape \[7\]; \[8\] was expected"),
    ("ffn_up_exps.scale", np.ones(N_EXPERT, np.float16), UnsupportedError, "it must be F32"),
    ("attn_q.scale", np.ones(2, np.float32), ModelFileError, "one number was expected"),
    ("attn_q.scale", np.ones(1, np.float16), UnsupportedError, "it must be f32"),
    ("attn_q.scale", np.array([np.nan], np.float32), ModelFileError, "not a finite number"),
    ("attn_q.scale", np.array([np.inf], np.float32), ModelFileError, "not a finite number"),
    ("attn_q.weight.scale", np.array([np.inf], np.float32), ModelFileError, "not a finite number"),
    ("ffn_gate_inp_exps.scale", np.ones(1, np.float32), UnsupportedError, "ffn_gate_inp_exps.scale"),
    ("attn_norm.scale", np.ones(1, np.float32), UnsupportedError, "attn_norm.scale"),
]


@pytest.mark.parametrize(("name", "scale", "kind", "said"), WRONG_SCALES)
def test_scales_that_cannot_be(
    tmp_path: Path, name: str, scale: NDArray[Any], kind: type[PydsparkError], said: str
) -> None:
    with pytest.raises(kind, match=said):
        Llama(changed(tmp_path, {f"blk.0.{name}": scale}), n_threads=1)


def merged_gate_up() -> dict[str, NDArray[Any] | None]:
    """Layer 0 with gate and up in one tensor, gate rows first."""
    both = np.concatenate([weights("ffn_gate_exps"), weights("ffn_up_exps")], axis=1)
    return {
        "blk.0.ffn_gate_up_exps.weight": both,
        "blk.0.ffn_gate_exps.weight": None,
        "blk.0.ffn_up_exps.weight": None,
    }


def test_merged_gate_and_up_with_a_scale_are_refused(tmp_path: Path) -> None:
    scale = np.ones(N_EXPERT, np.float32)
    path = changed(tmp_path, {**merged_gate_up(), "blk.0.ffn_gate_up_exps.scale": scale})
    with pytest.raises(UnsupportedError, match="ffn_gate_up_exps.weight' is scaled; with NVFP4, or a scale, only"):
        Llama(path, n_threads=1)


def test_merged_gate_and_up_of_four_bits_are_refused(tmp_path: Path) -> None:
    path = retyped(changed(tmp_path, merged_gate_up()), "blk.0.ffn_gate_up_exps.weight", NVFP4)
    with pytest.raises(
        UnsupportedError, match="ffn_gate_up_exps.weight' is of type nvfp4; with NVFP4, or a scale, only"
    ):
        Llama(path, n_threads=1)


def test_experts_of_a_type_that_is_not_for_weights(tmp_path: Path) -> None:
    path = retyped(changed(tmp_path, {}), "blk.1.ffn_down_exps.weight", I8)
    said = "'blk.1.ffn_down_exps.weight' is of type i8, which CPU cannot use .* chosen experts; .*f32.*q4_K.*nvfp4"
    with pytest.raises(UnsupportedError, match=said):
        Llama(path, n_threads=1)


def test_rows_of_no_number_end_with_an_error(tmp_path: Path) -> None:
    router = weights("ffn_gate_inp").copy()
    router[3] = np.nan
    with pytest.raises(PydsparkError, match="produced NaN"):
        Llama(changed(tmp_path, {"blk.0.ffn_gate_inp.weight": router}), n_threads=1).create_completion("hello")


# ---- the same model in other forms ----


def logits(path: Path, **params: object) -> NDArray[np.float32]:
    return Running(path, **params).logits(IDS)


def test_merged_gate_and_up_equal_separate_ones(tmp_path: Path) -> None:
    separate = logits(write_tiny_model(tmp_path / "separate.gguf", "qwen3moe"))
    np.testing.assert_array_equal(logits(changed(tmp_path, merged_gate_up())), separate)


def test_a_router_of_the_shared_expert_with_one_dimension(tmp_path: Path) -> None:
    name = "blk.0.ffn_gate_inp_shexp.weight"
    flat = tiny_weights("qwen35moe")[name].reshape(-1)
    plain = logits(write_tiny_model(tmp_path / "plain.gguf", "qwen35moe"))
    np.testing.assert_array_equal(logits(changed(tmp_path, {name: flat}, "qwen35moe")), plain)


SCALED = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"]


@pytest.mark.parametrize("suffix", [".scale", ".weight.scale"])
@pytest.mark.parametrize("fused_experts", [True, False])
def test_scales_beside_weights_equal_scaled_weights(tmp_path: Path, suffix: str, fused_experts: bool) -> None:
    rng = np.random.default_rng(1)
    change: dict[str, NDArray[Any] | None] = {}
    for name in SCALED:
        whole = weights(name)
        scale = np.exp2(rng.integers(-3, 4, N_EXPERT if whole.ndim == 3 else 1)).astype(np.float32)
        change[f"blk.0.{name}.weight"] = whole / (scale.reshape(-1, 1, 1) if whole.ndim == 3 else scale)
        change[f"blk.0.{name}{suffix}"] = scale
        change[f"blk.0.{name}.input_scale"] = scale
    plain = logits(write_tiny_model(tmp_path / "plain.gguf", "qwen3moe"))
    scaled = logits(changed(tmp_path, change), fused_experts=fused_experts)
    np.testing.assert_allclose(scaled, plain, rtol=0, atol=2e-5 * np.abs(plain).max())


def test_a_head_that_is_scaled(tmp_path: Path) -> None:
    plain = logits(write_tiny_model(tmp_path / "plain.gguf", "qwen3moe"))
    scaled = logits(changed(tmp_path, {"output.scale": np.array([0.5], np.float32)}))
    np.testing.assert_array_equal(scaled, plain / 2)


@pytest.mark.parametrize("architecture", ["qwen3moe", "qwen35moe"])
def test_fused_experts_equal_their_plain_twin(tmp_path: Path, architecture: str) -> None:
    path = write_tiny_model(tmp_path / "model.gguf", architecture)
    fused, plain = logits(path, fused_experts=True), logits(path, fused_experts=False)
    np.testing.assert_allclose(fused, plain, rtol=0, atol=1e-5 * np.abs(plain).max())
