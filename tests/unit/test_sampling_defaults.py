"""Which sampling settings hold for a call."""

from __future__ import annotations

from typing import Any

import pytest

from pydspark.errors import ArgumentError, ModelFileError
from pydspark.sampling_defaults import (
    DefaultFloat,
    DefaultInt,
    constructor_sampling,
    model_sampling,
    sampling_from,
)


def test_caller_beats_model_file_beats_defaults() -> None:
    recommended = model_sampling({"general.sampling.temp": 1.0, "general.sampling.top_k": 20, "general.name": "x"})
    assert recommended == {"temperature": 1.0, "top_k": 20}
    call = {"temperature": DefaultFloat(0.2), "top_k": 7, "min_p": DefaultFloat(0.05)}
    params = sampling_from(call, recommended)
    assert (params.temperature, params.top_k, params.min_p) == (1.0, 7, 0.05)
    assert sampling_from({"temperature": 0.2}, recommended).temperature == 0.2
    assert sampling_from({}, recommended).top_k == 20


def test_defaults_in_signatures_are_plain_numbers() -> None:
    assert (DefaultFloat(0.8), DefaultInt(40)) == (0.8, 40)
    assert repr(DefaultFloat(0.8)) == "0.8"


@pytest.mark.parametrize(
    ("key", "value"), [("temp", "hot"), ("temp", float("nan")), ("top_k", 1.5), ("penalty_repeat", 0.0)]
)
def test_a_setting_of_the_file_that_cannot_be_used_is_named(key: str, value: object) -> None:
    with pytest.raises(ModelFileError, match=f"recommends a setting .* general.sampling.{key} must be"):
        model_sampling({f"general.sampling.{key}": value})


def test_settings_of_the_constructor() -> None:
    assert constructor_sampling(None) == {}
    assert constructor_sampling({"temperature": 1, "top_p": 3.0}) == {"temperature": 1.0, "top_p": 1.0}


@pytest.mark.parametrize(
    ("given", "words"),
    [({"temp": 1.0}, "sampling has no 'temp'; it takes temperature, top_k"), ({"top_k": 1.5}, "top_k must be a whole")],
)
def test_wrong_settings_of_the_constructor_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        constructor_sampling(given)
