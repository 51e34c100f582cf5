"""Drafter files that are wrong, or wrong for their target, are refused with every reason; odd but usable ones work."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import gguf
import numpy as np
import pytest
from speculating import Speculating, speculating
from tiny.gguf_bytes import ARRAY, I32, STRING
from tiny.models import N_EMBD
from tiny.pairs import GOOD, NEARLY_BIGRAM, TARGET_SHAPE, Pair, TinyDraft, write_draft, write_pair

from pydspark._native import Gguf
from pydspark.errors import ArgumentError, ModelFileError, PairingError, UnsupportedError

N_PADDING = TARGET_SHAPE.n_padding

Change = Callable[[Pair], None]


def pair_message(pair: Pair) -> str:
    """Why the pair is refused; checking the files alone says the same as loading them."""
    with pytest.raises(PairingError) as loading:
        speculating(pair)
    with pytest.raises(PairingError) as checking:
        Gguf(pair.target_path).check_pair(Gguf(pair.draft_path))
    assert str(loading.value) == str(checking.value)
    return str(loading.value)


def reasons(message: str) -> list[str]:
    return [line.removeprefix("  - ") for line in message.splitlines() if line.startswith("  - ")]


def rewritten(pair: Pair, change: dict[str, object] | None = None) -> Pair:
    write_draft(pair, N_PADDING, change)
    return pair


def tokens_of(pair: Pair) -> list[str]:
    return list(Gguf(pair.draft_path).metadata()["tokenizer.ggml.tokens"])


# ---- pairs that do not belong together ----


def test_a_fitting_pair_is_accepted(tmp_path: Path) -> None:
    pair = write_pair(tmp_path)
    Gguf(pair.target_path).check_pair(Gguf(pair.draft_path))
    speculating(pair)


def widen_features(pair: Pair) -> None:
    pair.draft_weights["fc.weight"] = np.zeros((N_EMBD, 2 * 48), np.float32)
    rewritten(pair)


def want_last_layer(pair: Pair) -> None:
    rewritten(pair, {"dflash.target_layers": [1, TARGET_SHAPE.n_layer]})


def made_for_another_depth(pair: Pair) -> None:
    rewritten(pair, {"dspark.target.block_count": 6})


def want_layer_that_only_predicts(pair: Pair) -> None:
    n_layer = TARGET_SHAPE.n_layer
    rewritten(pair, {"dflash.target_layers": [1, n_layer], "dspark.target.block_count": n_layer})
    rewrite_target(pair, {"llama.block_count": n_layer + 1, "llama.nextn_predict_layers": 1})


def mask_past_the_embedding(pair: Pair) -> None:
    more = 10
    write_draft(pair, N_PADDING + more, {"tokenizer.ggml.mask_token_id": pair.mask_token_id + more})


def mask_that_text_may_hold(pair: Pair) -> None:
    rewritten(pair, {"tokenizer.ggml.mask_token_id": 65})


def mask_that_ends_text(pair: Pair) -> None:
    rewritten(pair, {"tokenizer.ggml.mask_token_id": pair.mask_token_id - 1})


def map_without_head(pair: Pair) -> None:
    pair.draft_weights["d2t"] = np.arange(50, dtype=np.int64)
    pair.draft_weights["markov_w2.weight"] = pair.draft_weights["markov_w2.weight"][:50]
    rewritten(pair)


def markov_head_of_other_size(pair: Pair) -> None:
    pair.draft_weights["markov_w2.weight"] = pair.draft_weights["markov_w2.weight"][:-3]
    rewritten(pair)


def another_pre_tokenizer(pair: Pair) -> None:
    rewrite_target(pair, pre="qwen2")


def another_merge(pair: Pair) -> None:
    rewrite_target(pair, merges=["h e", "l l"])


def swapped_tokens(pair: Pair) -> None:
    tokens = tokens_of(pair)
    tokens[100], tokens[101] = tokens[101], tokens[100]
    rewrite_target(pair, tokens=tokens)


def fewer_tokens(pair: Pair) -> None:
    rewrite_target(pair, tokens=tokens_of(pair)[:-5], types=[1] * (len(tokens_of(pair)) - 5))


def rewrite_target(pair: Pair, settings: Mapping[str, int] | None = None, **change: object) -> None:
    """Writes the target again with other parts of its tokenizer: ``pre``, ``merges``, ``tokens``, ``types``.

    Args:
        pair: gets the new file.
        settings: further keys, or other values of keys.
        change: the parts.
    """
    settings = settings or {}
    reader = gguf.GGUFReader(pair.target_path)
    path = pair.target_path.with_suffix(".changed.gguf")
    writer = gguf.GGUFWriter(path, "llama")
    changed = {f"tokenizer.ggml.{name.replace('types', 'token_type')}": value for name, value in change.items()}
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.architecture", *settings):
            sub_type = field.types[-1] if field.types[0] is gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, changed.get(name, field.contents()), field.types[0], sub_type)
    for name, value in settings.items():
        writer.add_uint32(name, value)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, np.array(tensor.data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    pair.target_path = path


MISMATCHES: dict[str, tuple[Change, str]] = {
    "features of another width": (widen_features, "hidden size: the drafter takes 96 values from 2 layers"),
    "last layer": (want_last_layer, "target layers: the drafter wants the output of layer 3"),
    "layer that only predicts": (want_layer_that_only_predicts, "target layers: the drafter wants the output of"),
    "depth": (made_for_another_depth, "depth: the drafter was made for a target of 6 layers, the target has 4"),
    "mask past the embedding": (mask_past_the_embedding, "mask id: 280 is not a row of the target's embedding"),
    "mask that text may hold": (mask_that_text_may_hold, "mask id: 65 is"),
    "mask that ends text": (mask_that_ends_text, "mask id: 269 is"),
    "map without head": (map_without_head, "head: the drafter's map has 50 entries"),
    "Markov head of another size": (markov_head_of_other_size, "Markov head: it has 269 rows"),
    "pre-tokenizer": (another_pre_tokenizer, "pre-tokenizer: the drafter was made for"),
    "merges": (another_merge, "tokenizer merges"),
    "token texts": (swapped_tokens, "token texts: 2 differ, first id 100"),
    "vocabulary": (fewer_tokens, "vocabulary: the drafter's has 270 tokens without padding, the target's 267"),
}


@pytest.mark.parametrize("mismatch", MISMATCHES)
def test_a_mismatch_is_the_one_reason_given(tmp_path: Path, mismatch: str) -> None:
    change, wanted = MISMATCHES[mismatch]
    pair = write_pair(tmp_path)
    change(pair)
    (reason,) = reasons(pair_message(pair))
    assert reason.startswith(wanted)


def test_all_mismatches_are_listed_at_once(tmp_path: Path) -> None:
    pair = write_pair(tmp_path)
    tokens = tokens_of(pair)
    tokens[7] = "seven"
    rewrite_target(pair, tokens=tokens, pre="qwen2", merges=["h e"])
    pair.draft_weights["fc.weight"] = np.zeros((N_EMBD, 96), np.float32)
    pair.draft_weights["markov_w2.weight"] = pair.draft_weights["markov_w2.weight"][:-1]
    rewritten(pair, {"dflash.target_layers": [1, 9], "tokenizer.ggml.mask_token_id": 65})
    message = pair_message(pair)
    topics = {reason.partition(":")[0] for reason in reasons(message)}
    wanted = {"hidden size", "target layers", "Markov head", "token texts", "pre-tokenizer", "mask id"}
    assert topics == wanted | {"tokenizer merges"}
    assert str(pair.draft_path) in message and str(pair.target_path) in message
    assert "dspark-convert" in message


def test_a_drafter_of_another_target_is_refused(tmp_path: Path) -> None:
    pair = write_pair(tmp_path, TinyDraft(target_layers=(0, 4)), shape=NEARLY_BIGRAM)
    assert "target layers" in pair_message(pair)


def test_padding_of_another_length_is_no_mismatch(tmp_path: Path) -> None:
    pair = write_pair(tmp_path, TinyDraft(own_embedding=True, own_head=True))
    for name in ("token_embd.weight", "output.weight", "markov_w1.weight", "markov_w2.weight"):
        pair.draft_weights[name] = np.pad(pair.draft_weights[name], ((0, 6), (0, 0)))
    write_draft(pair, N_PADDING + 6)
    plain = Speculating(pair.target_path).generate([40, 41])
    assert speculating(pair).generate([40, 41], n_draft_max=8).tokens == plain.tokens


def test_layers_that_only_predict_are_no_depth(tmp_path: Path) -> None:
    pair = write_pair(tmp_path)
    n_layer = TARGET_SHAPE.n_layer
    rewritten(pair, {"dspark.target.block_count": n_layer})
    wanted = speculating(pair).block_hidden(5, 8)
    rewrite_target(pair, {"llama.block_count": n_layer + 2, "llama.nextn_predict_layers": 2})
    assert np.array_equal(speculating(pair).block_hidden(5, 8), wanted)


# ---- files in the wrong place ----


def test_a_swapped_pair_is_recognised(tmp_path: Path) -> None:
    pair = write_pair(tmp_path)
    with pytest.raises(UnsupportedError, match="is a drafter .* not a target model"):
        Speculating(pair.draft_path, pair.target_path)
    with pytest.raises(UnsupportedError, match="is a drafter .* not a target model"):
        Gguf(pair.draft_path).check_pair(Gguf(pair.target_path))


def test_a_target_cannot_be_a_drafter(tmp_path: Path) -> None:
    pair = write_pair(tmp_path)
    with pytest.raises(UnsupportedError, match="a DSpark drafter has 'dflash'; were target and drafter swapped"):
        Speculating(pair.target_path, pair.target_path)


def test_a_drafter_of_an_early_converter_is_to_be_converted_again(tmp_path: Path) -> None:
    pair = rewritten(write_pair(tmp_path))
    data = pair.draft_path.read_bytes()
    pair.draft_path.write_bytes(data.replace(b"dflash", b"dspark", 1))
    with pytest.raises(UnsupportedError, match="convert the checkpoint again with dspark-convert"):
        speculating(pair)


# ---- files that are wrong by themselves ----

REQUIRED_KEYS = [
    "dflash.block_count",
    "dflash.embedding_length",
    "dflash.feed_forward_length",
    "dflash.attention.head_count",
    "dflash.attention.layer_norm_rms_epsilon",
    "dflash.rope.freq_base",
    "dflash.block_size",
    "dflash.target_layers",
    "tokenizer.ggml.mask_token_id",
]


@pytest.mark.parametrize("key", REQUIRED_KEYS)
def test_a_missing_setting_is_named(tmp_path: Path, key: str) -> None:
    pair = rewritten(write_pair(tmp_path), {key: None})
    with pytest.raises(ModelFileError, match=f"'{key}' is missing"):
        speculating(pair)


WRONG_VALUES: dict[str, list[object]] = {
    "dflash.block_count": [0, 65, 1000000],
    "dflash.block_size": [0, 1, 32],
    "dflash.attention.head_count": [0],
    "dflash.attention.head_count_kv": [3],
    "dflash.attention.key_length": [15],
    "dflash.attention.layer_norm_rms_epsilon": [0.0, -1.0, float("inf"), float("nan")],
    "dflash.rope.freq_base": [0.0, float("inf")],
    "dflash.target_layers": [[1, 1], [3, 1], [-1, 2], [5000, 5001], [1, 2, 3]],
    "tokenizer.ggml.mask_token_id": [272, 100000],
    "dspark.noise_embd": [[1.0] * (N_EMBD - 1)],
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key in WRONG_VALUES for value in WRONG_VALUES[key]])
def test_an_impossible_setting_is_refused(tmp_path: Path, key: str, value: object) -> None:
    pair = rewritten(write_pair(tmp_path), {key: value})
    with pytest.raises(ModelFileError):
        speculating(pair)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dflash.attention.causal", True),
        ("dflash.embedding_scale", 2.0),
        ("dflash.logit_scale", 0.5),
        ("dflash.final_logit_softcapping", 30.0),
        ("dflash.attention.value_scale", 2.0),
    ],
)
def test_other_families_of_drafters_are_refused_by_their_setting(tmp_path: Path, key: str, value: object) -> None:
    pair = rewritten(write_pair(tmp_path), {key: value})
    with pytest.raises(UnsupportedError, match=key):
        speculating(pair)


def test_neutral_settings_of_other_families_change_nothing(tmp_path: Path) -> None:
    pair = write_pair(tmp_path)
    wanted = speculating(pair).block_hidden(5, 8)
    rewritten(pair, {"dflash.attention.causal": False, "dflash.embedding_scale": 1.0, "dflash.rope.dimension_count": 8})
    assert np.array_equal(speculating(pair).block_hidden(5, 8), wanted)


@pytest.mark.parametrize(
    "name",
    ["fc.weight", "enc.output_norm.weight", "output_norm.weight", "markov_w2.weight"]
    + [f"blk.1.{name}.weight" for name in ("attn_norm", "attn_v", "attn_q_norm", "attn_output", "ffn_down")],
)
def test_a_missing_or_misshaped_tensor_is_named(tmp_path: Path, name: str) -> None:
    pair = write_pair(tmp_path)
    whole = pair.draft_weights.pop(name)
    with pytest.raises(ModelFileError, match=name):
        speculating(rewritten(pair))
    pair.draft_weights[name] = np.concatenate([whole, whole], axis=-1)
    with pytest.raises((ModelFileError, PairingError)):
        speculating(rewritten(pair))


@pytest.mark.parametrize(
    "name",
    ["markov_gate.weight", "markov_joint.weight", "candidate_selector.weight", "blk.0.attn_sinks.weight"]
    + ["blk.2.attn_q.weight", "blk.0.post_attention_norm.weight"],
)
def test_tensors_of_other_drafters_are_refused_by_name(tmp_path: Path, name: str) -> None:
    pair = write_pair(tmp_path)
    pair.draft_weights[name] = np.ones((4, 4), np.float32)
    with pytest.raises(UnsupportedError, match=name):
        speculating(rewritten(pair))


@pytest.mark.parametrize(
    "ids",
    [np.zeros(40, np.int64), np.arange(40) + 240, np.arange(40) - 1, np.arange(39), np.arange(40).astype(np.int32)],
    ids=["repeated", "too high", "negative", "too few", "another type"],
)
def test_a_wrong_map_of_a_reduced_vocabulary_is_refused(tmp_path: Path, ids: np.ndarray) -> None:
    pair = write_pair(tmp_path, TinyDraft(reduced=40))
    pair.draft_weights["d2t"] = ids
    with pytest.raises(ModelFileError, match="d2t"):
        speculating(rewritten(pair))


WRONG_LISTS: dict[str, tuple[object, str]] = {
    "too high": ([5, 272], "entry 1 of 'dspark.shortlist' is 272; different ids in 0..271"),
    "far too high": ([2**31 - 1], "entry 0 of 'dspark.shortlist' is 2147483647"),
    "negative": ([7, -1], "entry 1 of 'dspark.shortlist' is -1"),
    "repeated": ([7, 8, 7], "entry 2 of 'dspark.shortlist' is 7"),
    "huge": (list(range(272)) * 1000, "entry 272 of 'dspark.shortlist' is 0"),
    "texts": (["the", "a"], "'dspark.shortlist'"),
    "fractions": ([1.5, 2.5], "'dspark.shortlist'"),
}


@pytest.mark.parametrize("wrong", WRONG_LISTS)
def test_a_wrong_short_list_is_refused(tmp_path: Path, wrong: str) -> None:
    ids, message = WRONG_LISTS[wrong]
    pair = write_pair(tmp_path)
    with pytest.raises(ModelFileError, match=re.escape(message)):
        speculating(rewritten(pair, {"dspark.shortlist": ids}))
    with pytest.raises(ModelFileError, match=re.escape(message)):
        Gguf(pair.draft_path).describe_draft()


def test_an_empty_short_list_is_refused(tmp_path: Path) -> None:
    pair = rewritten(write_pair(tmp_path), {"dspark.shortlist": "none"})
    data = pair.draft_path.read_bytes()
    text = struct.pack("<IQ", STRING, 4) + b"none"
    assert data.count(text) == 1
    pair.draft_path.write_bytes(data.replace(text, struct.pack("<IIQ", ARRAY, I32, 0)))
    with pytest.raises(ModelFileError, match="'dspark.shortlist' is empty; leave it out for the whole vocabulary"):
        speculating(pair)


def test_a_short_list_beside_a_reduced_vocabulary_is_refused(tmp_path: Path) -> None:
    pair = rewritten(write_pair(tmp_path, TinyDraft(reduced=40)), {"dspark.shortlist": [1, 2]})
    with pytest.raises(ModelFileError, match="has both 'dspark.shortlist' and a reduced vocabulary"):
        speculating(pair)


def test_a_short_list_with_ids_behind_the_head_does_not_fit(tmp_path: Path) -> None:
    pair = write_pair(tmp_path, TinyDraft(own_embedding=True, own_head=True))
    for name in ("output.weight", "markov_w2.weight"):
        pair.draft_weights[name] = pair.draft_weights[name][:-1]
    rewritten(pair, {"dspark.shortlist": [3, 271]})
    (reason,) = reasons(pair_message(pair))
    assert reason == "short list: it names token 271, but the head has 271 rows"


# ---- files that are odd, but usable ----


@pytest.mark.parametrize("ids", [[5], list(range(272)), [271, 270, 269, 0]], ids=["one", "all", "unused ones"])
def test_any_other_short_list_drafts_and_keeps_the_text(tmp_path: Path, ids: list[int]) -> None:
    pair = write_pair(tmp_path, TinyDraft(quality=GOOD), shape=NEARLY_BIGRAM)
    wanted = Speculating(pair.target_path).generate([40, 41, 42]).tokens
    target = speculating(rewritten(pair, {"dspark.shortlist": ids}))
    assert Gguf(pair.draft_path).describe_draft().n_short_list == len(ids)
    answer = target.generate([40, 41, 42], n_draft_max=8)
    assert answer.tokens == wanted
    assert answer.stats.draft_n > 0


def test_an_embedding_without_head_drafts_as_well_as_neither(tmp_path: Path) -> None:
    pair = write_pair(tmp_path, TinyDraft(quality=GOOD), shape=NEARLY_BIGRAM)
    without = speculating(pair).generate([40, 41, 42], n_draft_max=8)
    pair.draft_weights["token_embd.weight"] = pair.target_weights["token_embd.weight"]
    rewritten(pair)
    info = Gguf(pair.draft_path).describe_draft()
    assert info.borrows_head and not info.borrows_embedding
    assert [s.tokens for s in speculating(pair).generate([40, 41, 42], n_draft_max=8).steps] == [
        step.tokens for step in without.steps
    ]
    assert without.stats.draft_n_accepted > 0


def test_a_confidence_threshold_needs_a_confidence_head(tmp_path: Path) -> None:
    target = speculating(write_pair(tmp_path, TinyDraft(confidence="none")))
    with pytest.raises(ArgumentError, match="no confidence head"):
        target.generate([40], n_draft_max=3, draft_conf_min=0.5)
    assert target.generate([40], n_draft_max=0, draft_conf_min=0.5).tokens


def test_a_drafter_describes_itself(tmp_path: Path) -> None:
    pair = write_pair(tmp_path, TinyDraft(anchor_first=False, own_head=True, target_layers=(-1, 1, 2)))
    info = Gguf(pair.draft_path).describe_draft()
    assert (info.n_layer, info.n_embd, info.block_size, info.n_slots) == (2, N_EMBD, 8, 7)
    assert (info.anchor_first, info.borrows_head, info.borrows_embedding) == (False, False, True)
    assert (info.has_markov_head, info.has_confidence) == (True, True)
    assert info.target_layers == (-1, 1, 2)
    assert info.mask_token_id == pair.mask_token_id


@pytest.mark.parametrize("markov", [True, False])
def test_a_file_that_does_not_say_its_layout_has_that_of_its_kind(tmp_path: Path, markov: bool) -> None:
    pair = write_pair(tmp_path, TinyDraft(markov=markov, confidence="none"))
    rewritten(pair, {"dflash.sample_from_anchor": None})
    assert Gguf(pair.draft_path).describe_draft().anchor_first == markov
