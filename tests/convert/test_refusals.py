"""Pairs that do not belong together and damaged checkpoints: refused before anything is written, with every reason."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tiny import drafters
from tiny.drafters import make_drafter, save_drafter, vocabulary, write_target


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"num_target_layers": 36}, ["trained for a target of 36 layers, tiny target has 6"]),
        ({"target_layer_ids": [1, 3, 5]}, ["[5] in [1, 3, 5]", "to 4 (the last layer but one"]),
        ({"target_layer_ids": [1, 3, 6]}, ["[6] in [1, 3, 6]"]),
        ({"target_layer_ids": [-2, 3, 4]}, ["[-2] in"]),
        ({"target_layer_ids": [3, 1, 4]}, ["strictly increasing"]),
        ({"target_layer_ids": [1, 3, 3]}, ["strictly increasing"]),
        ({"target_layer_ids": [1, 3]}, ["fc.weight: shape 64 x 192", "64 x 128 (embd, features)"]),
        ({"mask_token_id": 272}, ["mask_token_id: 272", "below the vocabulary size 272"]),
        ({"mask_token_id": 65}, ["an ordinary token"]),
        ({"mask_token_id": 256}, ["'<|endoftext|>'", "ends generation"]),
        ({"mask_token_id": 258}, ["'<|im_end|>'", "ends generation"]),
        ({"vocab_size": 200}, ["vocab_size: 200", "259 tokens without padding"]),
        ({"draft_vocab_size": 300}, ["draft_vocab_size: 300"]),
        ({"hidden_size": 128}, ["fc.weight: shape 64 x 192"]),
        ({"num_attention_heads": 8}, ["q_proj.weight: shape 64 x 64", "128 x 64"]),
        ({"target_hidden_size": 48}, ["target_hidden_size: 48, but tiny target has 64"]),
        ({"markov_rank": 0}, ["markov_head.markov_w1.weight: unexpected tensor"]),
        ({"target_layer_ids": None}, ["target_layer_ids: missing", "cannot be guessed"]),
    ],
)
def test_settings_that_do_not_fit(refused, change, parts):
    drafter = make_drafter()
    drafter.config.update(change)
    message = refused(drafter)
    for part in parts:
        assert part in message


def test_every_problem_is_listed_at_once(refused):
    drafter = make_drafter()
    drafter.config.update(mask_token_id=65, num_target_layers=36, block_size=None)
    del drafter.weights["fc.weight"]
    drafter.weights["layers.0.mlp.up_proj.weight"] = np.zeros((3, 64), np.float32)
    drafter.weights["mystery.weight"] = np.zeros((2, 2), np.float32)
    message = refused(drafter)
    assert "6 problems found, nothing was written" in message
    for subject in (
        "block_size",
        "num_target_layers",
        "mask_token_id",
        "fc.weight",
        "up_proj.weight",
        "mystery.weight",
    ):
        assert subject in message
    assert message.count("wanted:") == message.count("to do:") == 6


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("candidate_selector.weight", "DFlash2"),
        ("mtp.fc.weight", "DeepSeek"),
        ("markov_head.gate_proj.weight", "not of the supported kind"),
        ("layers.2.mlp.up_proj.weight", "unexpected tensor"),
        ("layers.0.self_attn.q_proj.bias", "unexpected tensor"),
    ],
)
def test_leftover_tensors_are_refused_with_their_meaning(refused, name, reason):
    drafter = make_drafter()
    drafter.weights[name] = np.zeros((2, 2), np.float32)
    message = refused(drafter)
    assert name in message and reason in message


def test_long_lists_of_leftovers_are_shortened(refused):
    drafter = make_drafter()
    drafter.weights.update({f"extra.{i:03d}": np.zeros((2, 2), np.float32) for i in range(40)})
    assert "28 more unexpected tensors" in refused(drafter)


@pytest.mark.parametrize("name", ["fc.weight", "norm.weight", "layers.1.self_attn.v_proj.weight"])
def test_missing_tensor_is_named(refused, name):
    drafter = make_drafter()
    del drafter.weights[name]
    assert f"{name}: missing" in refused(drafter)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["layers.0.mlp.up_proj.weight", "norm.weight"])
def test_values_that_are_not_numbers(refused, name, value):
    drafter = make_drafter()
    drafter.weights[name] = drafter.weights[name].copy()
    drafter.weights[name].flat[7] = value
    message = refused(drafter)
    assert f"{name}: holds the value {value}" in message and "finite numbers" in message


def test_values_too_large_for_half_precision(refused):
    drafter = make_drafter()
    drafter.weights["fc.weight"][1, 1] = 70000.0
    message = refused(drafter, "--outtype", "f16")
    assert "fc.weight: holds the value 70144" in message and "use --outtype bf16" in message


def test_whole_numbers_instead_of_weights(refused):
    drafter = make_drafter()
    drafter.weights["fc.weight"] = np.zeros((64, 192), np.int64)
    assert "fc.weight: stored as I64" in refused(drafter)


@pytest.mark.parametrize(
    ("row", "offset", "reason"), [(5, 1, "appear more than once"), (63, 400, "ids outside"), (0, -900, "ids outside")]
)
def test_draft_vocabulary_ids(refused, row, offset, reason):
    drafter = make_drafter(reduced=64)
    offsets = np.zeros(64, np.int64)
    offsets[row] = offset
    drafter.weights["d2t"] = offsets
    assert reason in refused(drafter)


def test_reduced_vocabulary_needs_its_table_and_head(refused):
    drafter = make_drafter(reduced=64)
    del drafter.weights["d2t"]
    assert "d2t: missing" in refused(drafter)
    drafter = make_drafter(reduced=64)
    del drafter.weights["lm_head.weight"]
    assert "lm_head.weight: missing, while the draft vocabulary has 64 of 272" in refused(drafter)


def tokenizer_json(texts):
    return json.dumps({"model": {"type": "BPE", "vocab": {text: i for i, text in enumerate(texts)}, "merges": []}})


def test_tokenizer_of_the_drafter_is_compared_with_the_target(refused, tmp_path):
    texts = vocabulary()[0][:259]
    folder = save_drafter(tmp_path / "checkpoint", make_drafter())
    texts[10], texts[20] = texts[20], texts[10]
    (folder / "tokenizer.json").write_text(tokenizer_json(texts))
    assert "2 token texts differ, first id 10" in refused(make_drafter())
    (folder / "tokenizer.json").write_text(tokenizer_json(vocabulary()[0][:100]))
    assert "100 tokens, the target has 259" in refused(make_drafter())


def test_equal_tokenizer_beside_the_drafter_is_fine(convert, tmp_path):
    folder = save_drafter(tmp_path / "out-checkpoint", make_drafter())
    (folder / "tokenizer.json").write_text(tokenizer_json(vocabulary()[0][:259]))
    assert convert(make_drafter()).exists()


def test_target_of_another_depth_or_vocabulary(refused, tmp_path):
    shallow = write_target(tmp_path / "shallow.gguf", n_layer=4)
    message = refused(make_drafter(), other_target=shallow)
    assert "has 4" in message and "[3, 4] in [1, 3, 4]" in message


def test_layers_for_multi_token_prediction_do_not_count(command, tmp_path):
    target = write_target(tmp_path / "mtp.gguf", n_layer=7, extra={"qwen3.nextn_predict_layers": 1})
    folder = save_drafter(tmp_path / "checkpoint", make_drafter())
    assert command(folder, "--target", target, "--dry-run").code == 0


def test_borrowed_embedding_must_have_the_mask_row(refused, tmp_path):
    cut = write_target(tmp_path / "cut.gguf", n_rows=259)
    assert "260, but the target's embedding has 259 rows" in refused(make_drafter(), other_target=cut)


def test_dedicated_mask_token_is_accepted(command, tmp_path):
    texts = vocabulary()[0]
    texts[65] = "<mask>"
    target = write_target(tmp_path / "mask.gguf", texts=texts)
    drafter = make_drafter()
    drafter.config["mask_token_id"] = 65
    folder = save_drafter(tmp_path / "checkpoint", drafter)
    assert command(folder, "--target", target, "--dry-run").code == 0
    assert drafters.MASK_ID != 65
