"""The fields of a request that say how to generate, as all generating routes have them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from pydspark.drafting import drafting_options
from pydspark.params import ChatParams, Option, SamplingParams, options
from pydspark.server.errors import HttpError
from pydspark.server.fields import Fields

log = logging.getLogger("pydspark.server")

SAMPLING = (
    "temperature", "top_k", "top_p", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty",
    "repeat_last_n", "seed", "stop", "ignore_eos", "logit_bias",
)  # fmt: skip
"""Fields that have the name and the meaning of fields of ``SamplingParams``."""

MAX_TOKENS = ("n_predict", "max_completion_tokens", "max_tokens")
"""Names of one field; the first that is there counts."""

# Fields that can ask for what this server does not do: the values that do not, and what to do instead.
UNSUPPORTED: dict[str, tuple[Sequence[Any], str]] = {
    "n": ((1,), "there is one answer to a request; send it again for another"),
    "best_of": ((0, 1), "there is one answer to a request"),
    "suffix": (("",), "filling in the middle is not available"),
    "functions": (([],), "use tools"),
    "function_call": (("none", "auto"), "use tool_choice"),
    "modalities": ((["text"], []), "this server reads and writes text"),
    "audio": ((), "this server reads and writes text"),
    "image_data": (([],), "this server reads and writes text"),
    "web_search_options": ((), "this server does not search"),
    "lora": (([],), "adapters are not available"),
    "mirostat": ((0,), "use top_p or min_p"),
    "typical_p": ((1,), "use top_p or min_p"),
    "top_n_sigma": ((-1, 0), "use top_p or min_p"),
    "xtc_probability": ((0,), "use top_p or min_p"),
    "dry_multiplier": ((0,), "use repeat_penalty"),
    "dynatemp_range": ((0,), "use temperature"),
}
# Fields that are known to make no difference here.
_WITHOUT_EFFECT = frozenset({
    "model", "messages", "prompt", "input", "stream", "stream_options", "user", "metadata", "store", "service_tier",
    "safety_identifier", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "verbosity",
    "prediction", "moderation", "id_slot", "samplers", "mirostat_tau", "mirostat_eta",
    "dynatemp_exponent", "xtc_threshold", "dry_base", "dry_allowed_length", "dry_penalty_last_n",
    "dry_sequence_breakers", "n_keep", "n_discard", "n_indent", "min_keep", "t_max_predict_ms", "penalize_nl",
    "return_tokens", "post_sampling_probs",
})  # fmt: skip
_SPECULATIVE_PREFIX = "speculative."
_told: set[str] = set()  # unknown fields that the log has named


def sampling_call(fields: Fields, can_draft: bool) -> dict[str, Any]:
    """What a request says about sampling and drafting, by field of ``SamplingParams``.

    Raises:
        HttpError: a value that cannot be used.
        ArgumentError: likewise; its message begins with the field.
    """
    known = options(SamplingParams)
    call = {name: fields.value(name, known[name]) for name in SAMPLING if name in fields}
    if not isinstance(call.get("stop", ()), (str, list, tuple)):
        raise fields.error("stop", "a text or a list of texts")
    limit = fields.first(*MAX_TOKENS)
    if limit is not None:
        call["max_tokens"] = fields.value(limit, known["max_tokens"])
    return {**call, **_speculative(fields, can_draft)}


def _speculative(fields: Fields, can_draft: bool) -> dict[str, Any]:
    given = fields.get("speculative")
    dotted = [name for name in fields if name.startswith(_SPECULATIVE_PREFIX)]
    if given is None and dotted:
        given = {name.removeprefix(_SPECULATIVE_PREFIX): fields[name] for name in dotted}
    if given is not None and given is not False and not can_draft:
        raise HttpError(400, f"speculative is {given!r}, but the server runs without a drafter", "speculative")
    return drafting_options(given, {})


def chat_params(fields: Fields, defaults: Mapping[str, Any]) -> ChatParams:
    """What a request says about its chat template and its reasoning.

    Args:
        fields: of the request.
        defaults: fields of ``ChatParams`` that the server was started with.

    Raises:
        HttpError, ArgumentError: a value that cannot be used.
    """
    given = fields.object("chat_template_kwargs")
    variables = {**(defaults.get("chat_template_kwargs") or {})}
    call = {name: value for name, value in defaults.items() if name != "chat_template_kwargs"}
    if given is not None:
        variables |= {name: given[name] for name in given}
        if "enable_thinking" in given:
            call.pop("enable_thinking", None)
    if "reasoning_format" in fields:
        call["reasoning_format"] = fields.value("reasoning_format", options(ChatParams)["reasoning_format"])
    effort = fields.text("reasoning_effort")
    if effort == "none":
        variables.pop("enable_thinking", None)
        call["enable_thinking"] = False
    elif effort is not None:
        variables["reasoning_effort"] = effort
    if "enable_thinking" in fields:
        variables.pop("enable_thinking", None)
        call["enable_thinking"] = fields.flag("enable_thinking")
    if "add_generation_prompt" in fields:
        variables["add_generation_prompt"] = fields.flag("add_generation_prompt")
    return ChatParams(**call, chat_template_kwargs=variables or None)


def top_logprobs(fields: Fields, name: str) -> int:
    """How many alternatives a request wants for each token."""
    return int(fields.value(name, options(SamplingParams)["top_logprobs"])) if name in fields else 0


def refuse_unsupported(fields: Fields) -> None:
    """Raises HttpError for a field that asks for something this server does not do."""
    for name, (neutral, instead) in UNSUPPORTED.items():
        if name in fields and fields[name] not in neutral:
            raise HttpError(400, f"{name} is not supported: {instead}", name)


def tell_unknown(fields: Fields, known: frozenset[str]) -> None:
    """Logs fields that nobody looks at, each once in the life of the server."""
    unknown = set(fields) - known - _WITHOUT_EFFECT - set(UNSUPPORTED) - set(SAMPLING) - set(MAX_TOKENS) - _told
    if unknown and len(_told) < 1000:  # a client could make up names without end
        _told.update(unknown)
        log.info("fields without effect: %s", ", ".join(sorted(unknown))[:500])


def ping_interval(fields: Fields, default: int) -> int:
    """Seconds of silence before a comment is sent into a stream; -1 = never."""
    name = "sse_ping_interval"
    return int(fields.value(name, Option(int, "", low=-1, high=2**31 - 1))) if name in fields else default
