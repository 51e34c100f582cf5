"""ModelParams, SamplingParams and the checks of keywords."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from pydspark.compat import compatible
from pydspark.errors import ArgumentError, UnsupportedError
from pydspark.params import (
    ChatParams,
    ModelParams,
    SamplingParams,
    check_token_ids,
    drafter_type,
    nearest,
    options,
    uses_lookup,
)


@pytest.mark.parametrize("cls", [ModelParams, SamplingParams, ChatParams])
def test_every_field_is_described(cls: type) -> None:
    found = options(cls)
    assert list(found) == [field.name for field in dataclasses.fields(cls)]
    assert all(option.help and not option.help.endswith(".") for option in found.values())


def test_flags_and_environment_names_are_unique() -> None:
    both = [*options(ModelParams).values(), *options(SamplingParams).values()]
    flags = [flag for option in both for flag in option.flags]
    names = [option.env for option in both if option.env]
    assert len(set(flags)) == len(flags)
    assert len(set(names)) == len(names)
    assert all(name.startswith(("LLAMA_ARG_", "DSPARK_ARG_")) for name in names)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p", "repeat_penalty", "presence_penalty"])
def test_values_that_are_not_finite_are_refused(name: str, value: float) -> None:
    with pytest.raises(ArgumentError, match=f"{name} must be a finite number"):
        SamplingParams(**{name: value})


@pytest.mark.parametrize(
    ("name", "given", "kept"),
    [
        ("temperature", -1, 0.0),
        ("temperature", 1_000_000, 1e6),
        ("temperature", 1e300, 1e9),
        ("top_k", -5, 0),
        ("top_k", 10**12, 2**31 - 1),
        ("top_p", 0, 0.0),
        ("top_p", 1.5, 1.0),
        ("min_p", -0.1, 0.0),
        ("max_tokens", -7, -1),
        ("max_tokens", None, None),
        ("max_tokens", 0, 0),
    ],
)
def test_soft_ranges_are_clamped(name: str, given: Any, kept: Any) -> None:
    assert getattr(SamplingParams(**{name: given}), name) == kept


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", "hot"),
        ("temperature", True),
        ("top_k", 1.5),
        ("top_k", None),
        ("top_logprobs", 21),
        ("top_logprobs", -1),
        ("repeat_penalty", 0),
        ("repeat_last_n", -2),
        ("seed", -2),
        ("seed", 2**64),
        ("logprobs", 1),
        ("stop", ""),
        ("stop", ["a", ""]),
        ("stop", [5]),
        ("stop_token_ids", [-1]),
    ],
)
def test_wrong_values_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ArgumentError, match=name):
        SamplingParams(**{name: value})


def test_error_tells_value_and_range() -> None:
    with pytest.raises(ArgumentError, match="top_logprobs must be between 0 and 20, not 21"):
        SamplingParams(top_logprobs=21)


def test_stop_spellings() -> None:
    assert SamplingParams(stop="a").stop == ("a",)
    assert SamplingParams(stop=["a", "b"]).stop == ("a", "b")
    assert SamplingParams(stop=None).stop == ()


@pytest.mark.parametrize(
    "value", [{5: -100, 6: False}, {"5": -100, "6": False}, [[5, -100], [6, False]], [("5", -100), ("6", -math.inf)]]
)
def test_logit_bias_spellings(value: Any) -> None:
    assert SamplingParams(logit_bias=value).logit_bias == {5: -100.0, 6: -math.inf}


@pytest.mark.parametrize(
    "value",
    [{"word": 1}, [["word", -1]], {5: "x"}, {5: math.nan}, {5: math.inf}, {5: True}, {-1: 1}, 7, [7], [[1, 2, 3]]],
)
def test_wrong_logit_bias_is_refused(value: Any) -> None:
    with pytest.raises(ArgumentError, match="logit_bias"):
        SamplingParams(logit_bias=value)


def test_other_names() -> None:
    params = SamplingParams(max_new_tokens=5, repetition_penalty=1.1, stop_strings="x")
    assert (params.max_tokens, params.repeat_penalty, params.stop) == (5, 1.1, ("x",))
    with pytest.raises(ArgumentError, match="max_tokens and max_new_tokens"):
        SamplingParams(max_tokens=4, max_new_tokens=5)


def test_params_can_be_replaced() -> None:
    params = dataclasses.replace(SamplingParams(max_new_tokens=5, logit_bias={1: 2}), top_k=3)
    assert (params.max_tokens, params.logit_bias, params.top_k) == (5, {1: 2.0}, 3)


def test_cache_types() -> None:
    assert (ModelParams().type_k, ModelParams(type_k="Q8_0").type_k, ModelParams(type_v=30).type_v) == (1, 8, 30)
    with pytest.raises(ArgumentError, match="type_k must be one of f32"):
        ModelParams(type_k="q3_k")


@pytest.mark.parametrize(("name", "value"), [("n_ctx", -1), ("n_batch", 0), ("n_gpu_layers", -2), ("use_mmap", 1)])
def test_wrong_model_params_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ArgumentError, match=name):
        ModelParams(**{name: value})


@pytest.mark.parametrize(
    ("spec_type", "drafter", "copies"),
    [
        ("auto", "auto", False),
        ("none", "none", False),
        ("ngram", "none", True),
        ("draft-dspark,ngram", "draft-dspark", True),
        ("ngram,auto", "auto", True),
    ],
)
def test_where_drafts_come_from(spec_type: str, drafter: str, copies: bool) -> None:
    assert ModelParams(spec_type=spec_type).spec_type == spec_type
    assert (drafter_type(spec_type), uses_lookup(spec_type)) == (drafter, copies)


@pytest.mark.parametrize(
    ("spec_type", "words"),
    [
        ("draft-dspark,draft-dflash", "name one drafter at most"),
        ("auto,none", "name one drafter at most"),
        ("", "not ''"),
        ("ngram,", "not 'ngram,'"),
        ("draft-dspark, ngram", "not 'draft-dspark, ngram'"),
        ("eagle3", "one or more .* of auto, none, draft-dspark, draft-dflash, ngram, not 'eagle3'"),
    ],
)
def test_wrong_sources_of_drafts_are_refused(spec_type: str, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        ModelParams(spec_type=spec_type)


def test_variables_of_the_chat_template() -> None:
    assert ChatParams().variables() == {}
    assert ChatParams(enable_thinking=False).variables() == {"enable_thinking": False}
    both = ChatParams(enable_thinking=True, chat_template_kwargs={"preserve_thinking": True})
    assert both.variables() == {"enable_thinking": True, "preserve_thinking": True}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"reasoning_format": "deepseek-legacy"}, "reasoning_format must be one of auto, deepseek, none"),
        ({"enable_thinking": "yes"}, "enable_thinking must be a bool"),
        ({"chat_template_kwargs": "x"}, "chat_template_kwargs must be an object"),
        ({"chat_template_kwargs": {5: 1}}, "chat_template_kwargs must be an object"),
        ({"chat_template_kwargs": {"tools": []}}, "chat_template_kwargs has 'tools', which is an argument of its own"),
        (
            {"enable_thinking": True, "chat_template_kwargs": {"enable_thinking": False}},
            "enable_thinking is given twice",
        ),
    ],
)
def test_wrong_chat_params_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        ChatParams(**given)


@compatible
def sample(temperature: float = 0.8, mirostat_mode: int = 0, grammar: object = None) -> float:
    return temperature


def test_unknown_keyword_names_the_closest() -> None:
    with pytest.raises(
        TypeError, match=r"sample\(\) has no keyword argument 'temprature'; did you mean 'temperature'\?"
    ):
        sample(temprature=1)  # type: ignore[call-arg]


def test_keywords_that_ask_for_nothing_are_accepted() -> None:
    assert sample(0.5, mirostat_mode=0, grammar=None) == 0.5


@pytest.mark.parametrize("given", [{"mirostat_mode": 2}])
def test_keywords_that_ask_for_something_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match=next(iter(given))):
        sample(**given)


def test_nearest() -> None:
    assert nearest("max_token", ["max_tokens", "top_k"]) == "max_tokens"
    assert nearest("zzz", ["max_tokens"]) is None


def test_token_ids_outside_of_the_vocabulary() -> None:
    check_token_ids("prompt", [0, 9], 10)
    with pytest.raises(ArgumentError, match="prompt: token id 10 is not in the vocabulary"):
        check_token_ids("prompt", [10], 10)
