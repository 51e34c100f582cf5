"""The same drafter written down by different projects gives the same file; what is ambiguous is refused."""

from __future__ import annotations

import pytest
from pydspark.convert.config import read_config
from pydspark.convert.gguf_reader import read_gguf
from tiny import drafters
from tiny.drafters import flat_config, make_drafter, nested_config, speculators_config


def read(config, layout=None):
    problems = []
    return read_config(config, layout, problems), problems


def settings_of(config, layout=None):
    result, problems = read(config, layout)
    assert problems == []
    return result.settings


@pytest.mark.parametrize(
    "config",
    [
        nested_config("dspark_config"),
        nested_config("dflash_config", projector_type="dspark", sample_from_anchor=True),
        speculators_config(),
        {**speculators_config(), "architectures": ["DSparkSpeculator"]},
    ],
    ids=["dspark_config", "dflash_config", "speculators", "speculators class name"],
)
def test_families_agree_with_the_flat_form(config, convert):
    assert settings_of(config) == settings_of(flat_config())
    drafter = make_drafter()
    flat = convert(drafter, name="flat").read_bytes()
    drafter.config = config
    assert convert(drafter, name="other").read_bytes() == flat


def test_layer_numbers_are_stored_as_layer_inputs(convert):
    drafter = make_drafter()
    flat = read_gguf(convert(drafter, name="flat"))
    drafter.config = speculators_config()
    nested = read_gguf(convert(drafter, name="nested"))
    assert drafter.config["aux_hidden_state_layer_ids"] == [2, 4, 5]
    assert flat.get("dflash.target_layers") == nested.get("dflash.target_layers") == [2, 4, 5]


def test_embedding_output_is_layer_minus_one(convert):
    drafter = make_drafter()
    drafter.config["target_layer_ids"] = [-1, 2, 4]
    assert read_gguf(convert(drafter)).get("dflash.target_layers") == [0, 3, 5]


def test_prefixed_root_key_comes_before_section_before_root():
    config = {**flat_config(), "block_size": 5, "dspark_config": {"block_size": 6}}
    assert settings_of(config).block_size == 6
    assert settings_of({**config, "dspark_block_size": 7}).block_size == 7


def test_flat_drafters_start_at_the_anchor():
    assert settings_of(flat_config()).sample_from_anchor is True
    assert settings_of({**flat_config(), "markov_rank": 0}).sample_from_anchor is True


def test_plain_dflash_sections_are_one_plus_n():
    config = nested_config("dflash_config", markov_rank=0)
    config["architectures"] = ["DFlashDraftModel"]
    assert settings_of(config).sample_from_anchor is False


@pytest.mark.parametrize("said", [True, False])
def test_layout_said_by_the_config_is_kept(said):
    assert settings_of(speculators_config(sample_from_anchor=said)).sample_from_anchor is said


@pytest.mark.parametrize("config", [nested_config("dflash_config"), speculators_config(sample_from_anchor=None)])
def test_unsaid_layout_needs_the_flag(config):
    _, problems = read(config)
    assert [problem.subject for problem in problems] == ["sample_from_anchor"]
    assert "--layout" in problems[0].action
    assert settings_of(config, "1+n").sample_from_anchor is False
    assert settings_of(config, "anchor-first").sample_from_anchor is True


@pytest.mark.parametrize(("tokens", "fine"), [(drafters.BLOCK_SIZE, True), (drafters.BLOCK_SIZE - 1, False)])
def test_proposal_length_must_agree_with_the_layout(tokens, fine):
    section = {"proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": tokens}]}
    _, problems = read(speculators_config(speculators_config=section))
    assert (problems == []) is fine


def test_rope_theta_is_found_in_every_place():
    config = flat_config()
    del config["rope_parameters"]
    assert settings_of({**config, "rope_theta": 5e5}).rope_theta == 5e5
    by_kind = {"full_attention": {"rope_theta": 2e6}}
    assert settings_of({**config, "rope_parameters": by_kind}).rope_theta == 2e6


def test_head_size_defaults_to_an_even_split():
    config = flat_config()
    del config["head_dim"]
    assert settings_of(config).head_dim == drafters.N_EMBD // drafters.N_HEAD


def test_keys_that_leaked_from_the_target_are_ignored_and_named(convert):
    drafter = make_drafter()
    plain = convert(drafter, name="plain").read_bytes()
    drafter.config["rope_parameters"]["partial_rotary_factor"] = 0.25
    drafter.config.update(attn_output_gate=True, num_experts=256, sliding_window=4096, use_sliding_window=False)
    result, problems = read(drafter.config)
    assert problems == [] and "partial_rotary_factor" in result.notes[0]
    assert convert(drafter, name="leaked").read_bytes() == plain


def test_sliding_window_layers(convert):
    drafter = make_drafter()
    drafter.config.update(layer_types=["sliding_attention", "full_attention"], sliding_window=8)
    file = read_gguf(convert(drafter))
    assert file.get("dflash.attention.sliding_window") == 8
    assert file.get("dflash.attention.sliding_window_pattern") == [True, False]


def test_causal_window_layers_are_refused():
    config = speculators_config()
    config["transformer_layer_config"].update(layer_types=["sliding_attention"] * 2, sliding_window=8)
    assert [problem.subject for problem in read(config)[1]] == ["sliding_window_non_causal"]
    assert settings_of({**config, "sliding_window_non_causal": True}).window_layers == (True, True)


@pytest.mark.parametrize(
    ("change", "subject"),
    [
        ({"architectures": ["Qwen35DSparkModel"]}, "architectures"),
        ({"architectures": []}, "architectures"),
        ({"model_type": "gemma4"}, "model_type"),
        ({"model_type": "deepseek_v4"}, "model_type"),
        ({"speculators_model_type": "eagle3"}, "speculators_model_type"),
        ({"markov_head_type": "gated"}, "markov_head_type"),
        ({"markov_head_type": "rnn"}, "markov_head_type"),
        ({"markov_head_type": "Vanilla"}, "markov_head_type"),
        ({"conv_kernel_size": 4}, "conv_kernel_size"),
        ({"selector_rank": 8}, "selector_rank"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
        ({"input_embedding_scale": 8.0}, "input_embedding_scale"),
        ({"attention_sink_bias": True}, "attention_sink_bias"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4}}, "rope_scaling"),
        ({"rope_is_neox_style": False}, "rope_is_neox_style"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"causal": True}, "causal"),
        ({"layer_types": ["linear_attention", "full_attention"]}, "layer_types"),
        ({"target_layer_ids": None}, "target_layer_ids"),
        ({"target_layer_ids": "all"}, "target_layer_ids"),
        ({"block_size": None}, "block_size"),
        ({"block_size": 1}, "block_size"),
        ({"block_size": 10**9}, "block_size"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"num_hidden_layers": "6"}, "num_hidden_layers"),
        ({"mask_token_id": None}, "mask_token_id"),
        ({"mask_token_id": True}, "mask_token_id"),
        ({"rms_norm_eps": "1e-6"}, "rms_norm_eps"),
        ({"rope_parameters": {}}, "rope_theta"),
        ({"num_key_value_heads": 3}, "num_attention_heads"),
    ],
)
def test_unsupported_or_missing_keys_are_named(change, subject):
    _, problems = read({**flat_config(), **change})
    assert subject in [problem.subject for problem in problems]
