"""Embedding and head: dropped when they are copies of the target's, kept when not, and the mask row looked at alone."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from pydspark.convert.gguf_reader import read_gguf
from tiny import drafters
from tiny.drafters import make_drafter, save_drafter, target_rows, write_target

BOTH = {"token_embd.weight", "output.weight"}
KINDS = [gguf.GGMLQuantizationType[name] for name in ("F32", "BF16", "F16", "Q8_0", "Q5_0", "Q4_0", "Q4_1")]


def kept(path):
    return BOTH & read_gguf(path).tensors.keys()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_copies_are_dropped_whatever_the_format_of_the_target(command, tmp_path, kind):
    target = write_target(tmp_path / "target.gguf", kind)
    folder = save_drafter(tmp_path / "checkpoint", make_drafter(with_copies=True))
    result = command(folder, "--target", target, "--outfile", "out.gguf")
    assert result.code == 0 and "dropped, taken from the target" in result.err
    assert kept(tmp_path / "out.gguf") == set()


@pytest.mark.parametrize("name", ["embed_tokens.weight", "lm_head.weight"])
@pytest.mark.parametrize("kind", [gguf.GGMLQuantizationType.BF16, gguf.GGMLQuantizationType.Q4_0])
def test_both_are_kept_when_one_is_no_copy(command, tmp_path, kind, name):
    target = write_target(tmp_path / "target.gguf", kind)
    drafter = make_drafter(with_copies=True)
    drafter.weights[name] = drafter.weights[name][::-1].copy()
    folder = save_drafter(tmp_path / "checkpoint", drafter)
    assert command(folder, "--target", target, "--outfile", "out.gguf").code == 0
    assert kept(tmp_path / "out.gguf") == BOTH
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "out.gguf").tensors}
    for source, there in (("embed_tokens.weight", "token_embd.weight"), ("lm_head.weight", "output.weight")):
        values = gguf.dequantize(stored[there].data, stored[there].tensor_type)
        np.testing.assert_array_equal(values, drafter.weights[source])


def test_one_changed_row_is_enough_to_keep_both(convert):
    drafter = make_drafter(with_copies=True)
    drafter.weights["embed_tokens.weight"][17, 3] += 0.01
    assert kept(convert(drafter)) == BOTH


def test_scaled_rows_are_no_copy(command, tmp_path):
    target = write_target(tmp_path / "target.gguf", gguf.GGMLQuantizationType.Q8_0)
    drafter = make_drafter(with_copies=True)
    drafter.weights["embed_tokens.weight"] = drafter.weights["embed_tokens.weight"] * 2
    folder = save_drafter(tmp_path / "checkpoint", drafter)
    assert command(folder, "--target", target, "--outfile", "out.gguf").code == 0
    assert kept(tmp_path / "out.gguf") == BOTH


def test_keep_writes_copies(convert):
    assert kept(convert(make_drafter(with_copies=True), "--share", "keep")) == BOTH


def test_drop_refuses_what_is_no_copy(refused):
    drafter = make_drafter(with_copies=True)
    drafter.weights["lm_head.weight"][5] = 0
    assert "head: 1 of 272 rows differ" in refused(drafter, "--share", "drop")


def test_keep_refuses_when_there_is_nothing_to_keep(refused):
    assert "the checkpoint has no embedding" in refused(make_drafter(), "--share", "keep")


@pytest.mark.parametrize("kind", [gguf.GGMLQuantizationType.BF16, gguf.GGMLQuantizationType.Q8_0])
def test_mask_row_of_its_own_is_kept_in_the_metadata(command, tmp_path, kind):
    target = write_target(tmp_path / "target.gguf", kind)
    drafter = make_drafter(with_copies=True)
    row = target_rows()[0][100]
    drafter.weights["embed_tokens.weight"][drafters.MASK_ID] = row
    folder = save_drafter(tmp_path / "checkpoint", drafter)
    assert command(folder, "--target", target, "--outfile", "out.gguf").code == 0
    assert kept(tmp_path / "out.gguf") == set()
    np.testing.assert_array_equal(read_gguf(tmp_path / "out.gguf").get("dspark.noise_embd"), row)


def test_equal_mask_row_is_not_stored(convert):
    assert "dspark.noise_embd" not in read_gguf(convert(make_drafter(with_copies=True))).metadata


def test_target_without_the_mask_row(command, tmp_path):
    cut = write_target(tmp_path / "cut.gguf", n_rows=259)
    folder = save_drafter(tmp_path / "checkpoint", make_drafter(with_copies=True))
    assert command(folder, "--target", cut, "--outfile", "auto.gguf").code == 0
    assert kept(tmp_path / "auto.gguf") == BOTH
    assert command(folder, "--target", cut, "--outfile", "drop.gguf", "--share", "drop").code == 0
    assert kept(tmp_path / "drop.gguf") == set()
    stored = read_gguf(tmp_path / "drop.gguf").get("dspark.noise_embd")
    np.testing.assert_array_equal(stored, target_rows()[0][drafters.MASK_ID])


def test_target_that_ends_before_the_last_piece_of_rows(command, tmp_path, monkeypatch):
    monkeypatch.setattr("pydspark.convert.tensors.CHUNK_BYTES", 1024)
    cut = write_target(tmp_path / "cut.gguf", n_rows=259)
    folder = save_drafter(tmp_path / "checkpoint", make_drafter(with_copies=True))
    result = command(folder, "--target", cut, "--dry-run")
    assert result.code == 0 and "embedding: all 259 rows equal the target's" in result.out


def test_missing_head_is_the_target_s_when_the_embedding_stays(convert):
    drafter = make_drafter(with_copies=True)
    drafter.weights["embed_tokens.weight"][17] = 0
    del drafter.weights["lm_head.weight"]
    path = convert(drafter)
    assert kept(path) == BOTH
    np.testing.assert_array_equal(read_gguf(path).tensors["output.weight"].all_values(), target_rows()[1])


def test_missing_head_needs_a_target_head_of_the_same_shape(refused, tmp_path):
    drafter = make_drafter(with_copies=True)
    drafter.weights["embed_tokens.weight"][17] = 0
    del drafter.weights["lm_head.weight"]
    cut = write_target(tmp_path / "cut.gguf", n_rows=262)
    assert "the target's cannot take its place" in refused(drafter, other_target=cut)


def test_tied_drafter_writes_its_embedding_as_head(convert):
    drafter = make_drafter(with_copies=True)
    drafter.config["tie_word_embeddings"] = True
    del drafter.weights["lm_head.weight"]
    tensors = read_gguf(convert(drafter)).tensors
    np.testing.assert_array_equal(tensors["output.weight"].all_values(), target_rows()[0])


def test_tied_pair_shares_the_embedding(command, tmp_path):
    target = write_target(tmp_path / "target.gguf", tied=True)
    drafter = make_drafter(with_copies=True)
    drafter.config["tie_word_embeddings"] = True
    del drafter.weights["lm_head.weight"]
    folder = save_drafter(tmp_path / "checkpoint", drafter)
    assert command(folder, "--target", target, "--outfile", "out.gguf").code == 0
    assert kept(tmp_path / "out.gguf") == set()


@pytest.mark.parametrize(
    ("share", "expected"), [("auto", {"output.weight"}), ("drop", {"output.weight"}), ("keep", BOTH)]
)
def test_head_over_part_of_the_vocabulary_always_stays(convert, share, expected):
    drafter = make_drafter(reduced=64)
    drafter.weights["embed_tokens.weight"] = target_rows()[0]
    assert kept(convert(drafter, "--share", share)) == expected


def test_reduced_drafter_with_its_own_embedding_keeps_it(convert):
    drafter = make_drafter(reduced=64)
    drafter.weights["embed_tokens.weight"] = target_rows(seed=9)[0]
    assert kept(convert(drafter)) == BOTH


def test_head_scale_of_the_target_counts(tmp_path, command):
    """A head stored with a factor equals the drafter's copy only after multiplying."""
    embedding, head = target_rows()
    writer = gguf.GGUFWriter(tmp_path / "scaled.gguf", "qwen3")
    writer.add_block_count(drafters.N_TARGET_LAYER)
    writer.add_embedding_length(drafters.N_EMBD)
    texts, types = drafters.vocabulary()
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(texts)
    writer.add_token_types(types)
    writer.add_tensor("token_embd.weight", embedding)
    writer.add_tensor("output.weight", head / 4)
    writer.add_tensor("output.scale", np.array([4.0], np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    folder = save_drafter(tmp_path / "checkpoint", make_drafter(with_copies=True))
    assert command(folder, "--target", tmp_path / "scaled.gguf", "--outfile", "out.gguf").code == 0
    assert kept(tmp_path / "out.gguf") == set()
