"""Which sampling settings hold for a call: its own, the constructor's, the model file's or the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydspark.errors import ArgumentError, ModelFileError
from pydspark.params import SamplingParams, checked, options


class DefaultFloat(float):
    """A default in a signature, told apart from the same number given by the caller."""


class DefaultInt(int):
    """A default in a signature, told apart from the same number given by the caller."""


# metadata key of a GGUF -> field of SamplingParams
_GGUF_SAMPLING = {
    "general.sampling.temp": "temperature",
    "general.sampling.top_k": "top_k",
    "general.sampling.top_p": "top_p",
    "general.sampling.min_p": "min_p",
    "general.sampling.penalty_repeat": "repeat_penalty",
    "general.sampling.penalty_last_n": "repeat_last_n",
}


# What the constructor can set for all calls.
_CONSTRUCTOR_SAMPLING = (
    "temperature", "top_k", "top_p", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty",
)  # fmt: skip


def model_sampling(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The sampling settings that a model file recommends.

    Raises:
        ModelFileError: one of them cannot be used.
    """
    known = options(SamplingParams)
    found = {}
    for key, name in _GGUF_SAMPLING.items():
        if key in metadata:
            try:
                found[name] = checked(key, metadata[key], known[name])
            except ArgumentError as error:
                raise ModelFileError(f"the model file recommends a setting that cannot be used: {error}") from None
    return found


def constructor_sampling(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The sampling settings that a constructor was given for all calls.

    Raises:
        ArgumentError: a setting that it does not take, or out of its range.
    """
    for name in given or {}:
        if name not in _CONSTRUCTOR_SAMPLING:
            raise ArgumentError(f"sampling has no {name!r}; it takes {', '.join(_CONSTRUCTOR_SAMPLING)}")
    known = options(SamplingParams)
    return {name: checked(name, value, known[name]) for name, value in (given or {}).items()}


def sampling_from(call: Mapping[str, Any], recommended: Mapping[str, Any]) -> SamplingParams:
    """Parameters of one call: the caller's values, then the recommended ones, then the signature's defaults."""
    chosen = dict(call)
    for name, value in recommended.items():
        if isinstance(chosen.get(name, DefaultInt()), (DefaultFloat, DefaultInt)):
            chosen[name] = value
    return SamplingParams(**chosen)
