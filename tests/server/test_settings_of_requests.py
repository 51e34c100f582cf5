"""Settings at their edges, over HTTP, with a drafter and without."""

from __future__ import annotations

import json
from typing import Any

import pytest
from serving import HELLO, Serving
from tiny.models import token_id

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    "settings",
    [
        {"top_k": 0}, {"top_k": -1}, {"top_k": 1}, {"top_k": 10**9}, {"top_p": 0}, {"top_p": 1}, {"top_p": 7},
        {"min_p": 0}, {"min_p": 1}, {"temperature": 1e-6}, {"temperature": -1}, {"temperature": 1e6},
        {"repeat_penalty": 1.5, "repeat_last_n": -1}, {"presence_penalty": 2, "frequency_penalty": -2},
    ],
    ids=str,
)  # fmt: skip
def test_edges(server: Serving, settings: dict[str, Any]) -> None:
    for speculative in (True, False):
        body = {"messages": HELLO, "max_tokens": 12, "seed": 3, "speculative": speculative, **settings}
        first, again = (server.ok(CHAT, body)["choices"] for _ in range(2))
        assert first == again


@pytest.mark.parametrize("settings", [{"top_k": 1}, {"top_p": 0}, {"min_p": 1}, {"temperature": 0}], ids=str)
def test_settings_that_leave_one_token(server: Serving, settings: dict[str, Any]) -> None:
    greedy = server.ok(CHAT, {"messages": HELLO, "max_tokens": 20, "temperature": 0})["choices"]
    for speculative in (True, False):
        body = {"messages": HELLO, "max_tokens": 20, "temperature": 1.3, "speculative": speculative, **settings}
        assert server.ok(CHAT, body)["choices"] == greedy


def test_a_character_that_the_limit_cuts_in_two(server: Serving) -> None:
    half = token_id("\u00f0")  # the byte F0, which begins a character of four
    body = {"prompt": "hello", "max_tokens": 1, "logit_bias": {str(half): 1000}, "temperature": 0}
    whole = server.ok("/v1/completions", body)["choices"][0]["text"]
    chunks = [json.loads(event) for event in server.stream("/v1/completions", body)[:-1]]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole == "\ufffd"


def test_the_same_prompt_again_is_drafted_for_as_well(server: Serving) -> None:
    body = {"prompt": "hello world, the " * 10, "max_tokens": 60, "temperature": 0, "ignore_eos": True}
    first = server.ok("/v1/completions", {**body, "cache_prompt": False})
    again = server.ok("/v1/completions", body)
    assert again["timings"]["cache_n"] > 20
    assert again["choices"] == first["choices"]
    rates = [answer["timings"]["draft_n_accepted"] / answer["timings"]["draft_n"] for answer in (first, again)]
    assert rates[1] == pytest.approx(rates[0], abs=0.1)
