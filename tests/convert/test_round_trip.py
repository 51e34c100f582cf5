"""Checkpoint -> file -> values, read back with the gguf package's own reader."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import pytest
from pydspark.convert.reference import gguf_names
from tiny import drafters
from tiny.drafters import make_drafter, write_target


def read(path: Any) -> tuple[dict[str, Any], dict[str, gguf.ReaderTensor]]:
    reader = gguf.GGUFReader(path)
    return {key: field.contents() for key, field in reader.fields.items()}, {t.name: t for t in reader.tensors}


def test_every_value_survives_in_bf16(convert):
    drafter = make_drafter()
    _, tensors = read(convert(drafter))
    names = gguf_names(drafters.N_LAYER)
    assert len(tensors) == len(drafter.weights)
    for source, array in drafter.weights.items():
        stored = tensors[names[source]]
        kind = "F32" if array.ndim == 1 else "BF16"
        assert stored.tensor_type.name == kind
        assert tuple(stored.shape) == array.shape[::-1]
        values = gguf.dequantize(stored.data, stored.tensor_type).reshape(array.shape)
        np.testing.assert_array_equal(values, array, err_msg=source)


def test_metadata_is_what_other_readers_expect(convert):
    metadata, _ = read(convert(make_drafter()))
    expected = {
        "general.architecture": "dflash",
        "dflash.block_count": 2,
        "dflash.context_length": 512,
        "dflash.embedding_length": 64,
        "dflash.feed_forward_length": 96,
        "dflash.attention.head_count": 4,
        "dflash.attention.head_count_kv": 2,
        "dflash.attention.key_length": 16,
        "dflash.attention.value_length": 16,
        "dflash.attention.layer_norm_rms_epsilon": pytest.approx(1e-6),
        "dflash.rope.freq_base": 10000.0,
        "dflash.block_size": 4,
        "dflash.target_layers": [2, 4, 5],
        "dflash.sample_from_anchor": True,
        "dflash.has_confidence_head": True,
        "dflash.attention.causal": False,
        "tokenizer.ggml.mask_token_id": 260,
        "tokenizer.ggml.eos_token_id": 256,
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.merges": ["a b", "c d"],
        "dspark.target.name": "tiny target",
        "dspark.target.block_count": 6,
    }
    assert {key: metadata[key] for key in expected} == expected
    assert metadata["tokenizer.ggml.tokens"] == drafters.vocabulary()[0]
    assert "dflash.rope.dimension_count" not in metadata and "dflash.rope.dimension_sections" not in metadata


@pytest.mark.parametrize("outtype", ["bf16", "f16", "f32", "q8_0", "mixed"])
def test_number_formats(convert, outtype):
    drafter = make_drafter()
    metadata, tensors = read(convert(drafter, "--outtype", outtype))
    main = {"mixed": "Q8_0"}.get(outtype, outtype.upper())
    heads = "BF16" if outtype == "mixed" else main
    precise = "BF16" if outtype in ("q8_0", "mixed") else main
    kinds = {name: tensor.tensor_type.name for name, tensor in tensors.items()}
    assert kinds["blk.0.attn_q.weight"] == kinds["fc.weight"] == main
    assert kinds["markov_w1.weight"] == kinds["markov_w2.weight"] == heads
    assert kinds["conf_proj.weight"] == precise
    assert all(kinds[name] == "F32" for name in kinds if "norm" in name or name.endswith("bias"))
    assert metadata["general.file_type"] == {"f32": 0, "f16": 1, "bf16": 32, "q8_0": 7, "mixed": 7}[outtype]
    for name, source in (("fc.weight", "fc.weight"), ("blk.1.ffn_down.weight", "layers.1.mlp.down_proj.weight")):
        values = gguf.dequantize(tensors[name].data, tensors[name].tensor_type)
        np.testing.assert_allclose(values, drafter.weights[source], atol=0.01 * np.abs(values).max())


def test_auto_outtype_is_bf16(convert):
    auto, plain = convert(make_drafter(), "--outtype", "auto", name="a"), convert(make_drafter(), name="b")
    assert auto.read_bytes() == plain.read_bytes()


def test_rows_that_do_not_split_into_blocks_stay_bf16(convert):
    drafter = make_drafter()
    for name in ("markov_head.markov_w1.weight", "markov_head.markov_w2.weight"):
        drafter.weights[name] = drafter.weights[name][:, :8]
    weight = drafter.weights["confidence_head.proj.weight"]
    drafter.weights["confidence_head.proj.weight"] = weight[:, : drafters.N_EMBD + 8]
    drafter.config["markov_rank"] = 8
    _, tensors = read(convert(drafter, "--outtype", "q8_0"))
    assert tensors["markov_w1.weight"].tensor_type.name == "BF16"
    assert tensors["fc.weight"].tensor_type.name == "Q8_0"


def test_same_weights_stored_as_float32_give_the_same_file(convert):
    plain = convert(make_drafter(), name="a")
    assert convert(make_drafter(), dtype="F32", name="b").read_bytes() == plain.read_bytes()


@pytest.mark.parametrize("shards", [2, 3])
def test_sharded_and_single_checkpoints_give_the_same_file(convert, shards):
    single = convert(make_drafter(), name="a")
    assert convert(make_drafter(), shards=shards, name="b").read_bytes() == single.read_bytes()


def test_float32_is_rounded_to_nearest_even_and_half_is_widened_first(convert):
    drafter = make_drafter()
    fc = drafter.weights["fc.weight"].copy()
    fc[0, :4] = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF], dtype=np.uint32).view(np.float32)
    drafter.weights["fc.weight"] = fc
    _, tensors = read(convert(drafter, dtype="F32"))
    halves = np.ascontiguousarray(tensors["fc.weight"].data[0]).view(np.uint16)[:4]
    assert [hex(half) for half in halves] == ["0x3f80", "0x3f82", "0x3f81", "0x3f80"]
    drafter.weights["fc.weight"] = fc.astype(np.float16)
    _, tensors = read(convert(drafter, dtype="F16", name="half"))
    expected = drafters.to_bf16(fc.astype(np.float16).astype(np.float32))
    np.testing.assert_array_equal(np.ascontiguousarray(tensors["fc.weight"].data).view(np.uint16), expected)


def test_numpy_error_settings_do_not_change_the_file(convert):
    drafter = make_drafter()
    drafter.weights["fc.weight"][0, 0] = 1e-40
    plain = convert(drafter, name="a")
    with np.errstate(all="raise"):
        assert convert(drafter, name="b").read_bytes() == plain.read_bytes()


def test_reduced_vocabulary_is_stored_as_target_ids(convert):
    drafter = make_drafter(reduced=64)
    _, tensors = read(convert(drafter))
    offsets = drafter.weights["d2t"]
    assert tensors["d2t"].tensor_type.name == "I64"
    np.testing.assert_array_equal(tensors["d2t"].data, offsets + np.arange(64))
    assert tuple(tensors["output.weight"].shape) == (64, 64)
    assert tuple(tensors["markov_w2.weight"].shape) == (32, 64)
    assert "t2d" not in tensors and "token_embd.weight" not in tensors


def test_token_list_is_padded_to_the_vocabulary_of_the_drafter(convert, tmp_path, command):
    target = write_target(tmp_path / "short.gguf", n_rows=262)
    folder = drafters.save_drafter(tmp_path / "checkpoint", make_drafter())
    assert command(folder, "--target", target, "--outfile", tmp_path / "out.gguf").code == 0
    metadata, _ = read(tmp_path / "out.gguf")
    assert metadata["tokenizer.ggml.tokens"] == drafters.vocabulary()[0]
    assert metadata["tokenizer.ggml.token_type"][-10:] == [5] * 10


def test_target_with_position_sections_gets_a_temporal_only_drafter(command, tmp_path):
    target = write_target(tmp_path / "sections.gguf", extra={"qwen3.rope.dimension_sections": 1})
    folder = drafters.save_drafter(tmp_path / "checkpoint", make_drafter())
    assert command(folder, "--target", target, "--outfile", tmp_path / "out.gguf").code == 0
    assert read(tmp_path / "out.gguf")[0]["dflash.rope.dimension_sections"] == [8, 0, 0, 0]


@pytest.mark.parametrize("width", [drafters.N_EMBD, drafters.N_EMBD + drafters.RANK])
def test_confidence_head_with_and_without_markov_features(convert, width):
    drafter = make_drafter()
    drafter.weights["confidence_head.proj.weight"] = drafter.weights["confidence_head.proj.weight"][:, :width]
    _, tensors = read(convert(drafter))
    assert tuple(tensors["conf_proj.weight"].shape) == (width, 1)


def test_drafter_without_confidence_head(convert):
    drafter = make_drafter()
    for name in ("confidence_head.proj.weight", "confidence_head.proj.bias"):
        del drafter.weights[name]
    metadata, tensors = read(convert(drafter))
    assert metadata["dflash.has_confidence_head"] is False
    assert "conf_proj.weight" not in tensors


@pytest.mark.parametrize("with_confidence", [True, False])
def test_rank_zero_is_a_dflash_drafter(convert, with_confidence):
    drafter = make_drafter()
    drafter.config["markov_rank"] = 0
    weight = drafter.weights.pop("confidence_head.proj.weight")
    if with_confidence:
        drafter.weights["confidence_head.proj.weight"] = weight[:, : drafters.N_EMBD]
    else:
        del drafter.weights["confidence_head.proj.bias"]
    for name in ("markov_head.markov_w1.weight", "markov_head.markov_w2.weight"):
        del drafter.weights[name]
    metadata, tensors = read(convert(drafter))
    assert metadata["general.name"] == "dflash drafter for tiny target"
    assert metadata["dflash.has_confidence_head"] is with_confidence
    assert "markov_w1.weight" not in tensors
