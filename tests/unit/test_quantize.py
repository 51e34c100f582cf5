"""Copies of model files with their weights in another type."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from tiny.models import N_EXPERT, N_LAYER, tiny_weights, write_tiny_model

from pydspark._native import Gguf
from pydspark.errors import ArgumentError, Cancelled, ModelFileError
from pydspark.params import ModelParams
from pydspark.quantize import TYPES, quantize


def test_types_have_the_numbers_of_ggml() -> None:
    assert {name: int(gguf.GGMLQuantizationType[name.upper()]) for name in TYPES} == TYPES


@pytest.mark.parametrize("name", TYPES)
def test_copy_reads_the_same_with_another_reader(tiny_llama_path: Path, tmp_path: Path, name: str) -> None:
    copy = quantize(tiny_llama_path, tmp_path / "copy.gguf", name)
    before, after = gguf.GGUFReader(tiny_llama_path), gguf.GGUFReader(copy)
    assert [tensor.name for tensor in after.tensors] == [tensor.name for tensor in before.tensors]
    for old, new in zip(before.tensors, after.tensors, strict=True):
        assert list(new.shape) == list(old.shape)
        weights = gguf.dequantize(new.data, new.tensor_type)
        wanted = gguf.dequantize(old.data, old.tensor_type)
        assert np.abs(weights - wanted).max() <= 0.25 * np.abs(wanted).max()


def test_metadata_stays_but_for_the_file_type(tiny_llama_path: Path, tmp_path: Path) -> None:
    copy = quantize(tiny_llama_path, tmp_path / "copy.gguf", "Q5_0")
    changed = {"general.file_type": int(gguf.LlamaFileType.MOSTLY_Q5_0), "general.quantization_version": 2}
    assert Gguf(copy).metadata() == {**Gguf(tiny_llama_path).metadata(), **changed}


@pytest.mark.parametrize("name", TYPES)
def test_file_type_is_the_one_that_others_read(tiny_llama_path: Path, tmp_path: Path, name: str) -> None:
    copy = quantize(tiny_llama_path, tmp_path / "copy.gguf", name)
    number = Gguf(copy).metadata()["general.file_type"]
    assert isinstance(number, int)
    assert name.upper() in gguf.LlamaFileType(number).name


def test_small_tensors_and_the_embedding_stay_precise(tiny_llama_path: Path, tmp_path: Path) -> None:
    copy = quantize(tiny_llama_path, tmp_path / "copy.gguf", "q4_0")
    types = {tensor.name: tensor.type_name for tensor in Gguf(copy).tensors()}
    assert types["blk.0.attn_norm.weight"] == types["output_norm.weight"] == "f32"
    assert types["token_embd.weight"] == "q8_0"
    assert types["blk.0.ffn_down.weight"] == "q4_0"


def test_unknown_type_lists_the_known_ones(tiny_llama_path: Path, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="q8_0.*q4_k_m"):
        quantize(tiny_llama_path, tmp_path / "copy.gguf", "q4_k_m")


def test_existing_file_is_replaced_only_by_force(tiny_llama_path: Path, tmp_path: Path) -> None:
    there = tmp_path / "there.gguf"
    there.write_text("old")
    with pytest.raises(ModelFileError, match="exists already"):
        quantize(tiny_llama_path, there, "f16")
    assert there.read_text() == "old"
    assert quantize(tiny_llama_path, there, "f16", force=True) == there
    assert Gguf(there).tensors()


def test_model_is_not_written_over_itself(tiny_llama_path: Path) -> None:
    before = tiny_llama_path.read_bytes()
    with pytest.raises(ArgumentError, match="the file that is read"):
        quantize(tiny_llama_path, tiny_llama_path, "q8_0", force=True)
    assert tiny_llama_path.read_bytes() == before


@pytest.fixture
def large_path(tmp_path: Path) -> Path:
    """A file that takes long enough to be stopped."""
    writer = gguf.GGUFWriter(tmp_path / "large.gguf", "llama")
    writer.add_tensor("blk.0.ffn_up.weight", np.ones((20000, 1024), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tmp_path / "large.gguf"


def test_stopping_leaves_nothing(large_path: Path) -> None:
    seen: list[float] = []
    with pytest.raises(Cancelled):
        quantize(
            large_path, large_path.with_name("copy.gguf"), "q4_k", progress=lambda done: seen.append(done) or False
        )
    assert len(seen) == 1 and 0 < seen[0] < 1
    assert list(large_path.parent.iterdir()) == [large_path]


def test_ctrl_c_leaves_nothing(large_path: Path) -> None:
    def interrupt(fraction: float) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize(large_path, large_path.with_name("copy.gguf"), "q4_k", progress=interrupt)
    assert list(large_path.parent.iterdir()) == [large_path]


@pytest.mark.parametrize("name", ["f16", "q8_0", "q4_0", "mxfp4"])
@pytest.mark.parametrize("architecture", ["qwen3moe", "qwen35moe"])
def test_matrices_of_experts_change_and_their_routers_do_not(tmp_path: Path, architecture: str, name: str) -> None:
    source = write_tiny_model(tmp_path / "model.gguf", architecture)
    copy = Gguf(quantize(source, tmp_path / "copy.gguf", name))
    before = {tensor.name: tensor for tensor in Gguf(source).tensors()}
    after = {tensor.name: tensor for tensor in copy.tensors()}
    assert {key: tuple(tensor.shape) for key, tensor in after.items()} == {
        key: tuple(tensor.shape) for key, tensor in before.items()
    }
    experts = [key for key in after if key.endswith("_exps.weight")]
    assert len(experts) == 3 * N_LAYER
    for key in experts:
        assert (after[key].type_name, len(after[key].shape)) == (name, 3)
    routers = [key for key in after if "ffn_gate_inp" in key]
    assert {after[key].type_name for key in routers} == {"f32"}
    (line,) = copy.memory_plan(ModelParams(n_ctx=64, n_threads=1)).lines
    assert line.weights >= sum(after[key].n_bytes for key in experts)


def test_experts_are_quantized_as_if_each_were_alone(tmp_path: Path) -> None:
    source = write_tiny_model(tmp_path / "model.gguf", "qwen3moe")
    reader = gguf.GGUFReader(quantize(source, tmp_path / "copy.gguf", "q4_0"))
    data = next(tensor.data for tensor in reader.tensors if tensor.name == "blk.0.ffn_down_exps.weight")
    whole = tiny_weights("qwen3moe")["blk.0.ffn_down_exps.weight"]
    for got, weights in zip(data, whole, strict=True):
        np.testing.assert_array_equal(got, gguf.quantize(weights, gguf.GGMLQuantizationType.Q4_0))


def test_scales_beside_weights_stay(tmp_path: Path) -> None:
    """They belong to what the weights stand for, whatever type these have."""
    scale = np.linspace(0.5, 2, N_EXPERT, dtype=np.float32)
    change = {"blk.0.ffn_up_exps.scale": scale, "blk.0.attn_q.scale": scale[:1]}
    source = write_tiny_model(tmp_path / "model.gguf", "qwen3moe", change=change)
    reader = gguf.GGUFReader(quantize(source, tmp_path / "copy.gguf", "q8_0"))
    kept = {tensor.name: tensor.data for tensor in reader.tensors}
    np.testing.assert_array_equal(kept["blk.0.ffn_up_exps.scale"], scale)
    np.testing.assert_array_equal(kept["blk.0.attn_q.scale"], scale[:1])
