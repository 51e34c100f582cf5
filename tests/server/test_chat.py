"""Chats and completions over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest
from serving import GREEDY, HELLO, Serving

CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {"messages": HELLO, **GREEDY}


def test_a_chat_has_llama_servers_keys(server: Serving) -> None:
    answer = server.ok(CHAT, ASK)
    assert set(answer) == {
        "choices", "created", "model", "system_fingerprint", "object", "usage", "id", "timings",
    }  # fmt: skip
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "length" and choice["message"]["role"] == "assistant"
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    timings = answer["timings"]
    assert timings["cache_n"] + timings["prompt_n"] == usage["prompt_tokens"]
    assert timings["predicted_n"] == usage["completion_tokens"] == 8
    assert timings["draft_n"] >= timings["draft_n_accepted"] == sum(timings["draft_n_accepted_at"])
    assert answer["model"] == "tiny" and answer["object"] == "chat.completion"


def joined(events: list[str]) -> str:
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


@pytest.mark.parametrize("include_usage", [False, True])
def test_shape_of_a_stream(server: Serving, include_usage: bool) -> None:
    events = server.stream(CHAT, {**ASK, "stream_options": {"include_usage": include_usage}})
    chunks = [json.loads(event) for event in events[:-1]]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    for key in ("id", "created", "model", "system_fingerprint"):
        assert len({chunk[key] for chunk in chunks}) == 1
    with_choices = chunks[:-1] if include_usage else chunks
    deltas = [chunk["choices"][0]["delta"] for chunk in with_choices]
    assert deltas[0] == {"role": "assistant", "content": None} and deltas[-1] == {}
    assert all(set(delta) == {"content"} for delta in deltas[1:-1])
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in with_choices]
    assert reasons == [None] * (len(reasons) - 1) + ["length"]
    assert ("usage" in chunks[-1]) == include_usage
    assert "timings" in chunks[-1] and not any("timings" in chunk for chunk in chunks[:-1])
    assert chunks[-1]["choices"] == [] or not include_usage
    assert joined(events) == server.ok(CHAT, ASK)["choices"][0]["message"]["content"]


def test_stream_of_no_tokens(server: Serving) -> None:
    events = server.stream(CHAT, {**ASK, "max_tokens": 0})
    assert len(events) == 3 and joined(events) == ""
    assert json.loads(events[1])["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9])
def test_limits_hold_inside_of_a_block(server: Serving, n: int) -> None:
    for name in ("n_predict", "max_completion_tokens", "max_tokens"):
        answer = server.ok(CHAT, {"messages": HELLO, "temperature": 0, name: n})
        assert answer["usage"]["completion_tokens"] == n
        assert answer["choices"][0]["finish_reason"] == "length"


def test_the_first_name_of_the_limit_counts(server: Serving) -> None:
    body = {"messages": HELLO, "max_tokens": 5, "max_completion_tokens": 4, "n_predict": 3}
    assert server.ok(CHAT, body)["usage"]["completion_tokens"] == 3
    assert server.ok(CHAT, {**body, "n_predict": None})["usage"]["completion_tokens"] == 4


def test_without_a_limit_the_context_is_one(plain_server: Serving) -> None:
    for limit in ({}, {"max_tokens": None}, {"max_tokens": -1}):
        answer = plain_server.ok("/v1/completions", {"prompt": "hello", "ignore_eos": True, "temperature": 0, **limit})
        usage = answer["usage"]
        assert answer["choices"][0]["finish_reason"] == "length"
        assert usage["total_tokens"] == 64


def test_drafting_does_not_change_what_is_said(server: Serving) -> None:
    body = {**ASK, "max_tokens": 40}
    drafted, plain = server.ok(CHAT, body), server.ok(CHAT, {**body, "speculative": False})
    assert drafted["choices"] == plain["choices"]
    assert "draft_n" in drafted["timings"] and "draft_n" not in plain["timings"]
    few = server.ok(CHAT, {**body, "speculative": {"n_max": 1}})
    assert few["choices"] == plain["choices"]
    assert len(few["timings"]["drafted_at"]) == 1
    dotted = server.ok(CHAT, {**body, "speculative.n_max": 1})
    assert dotted["timings"]["drafted_at"] == few["timings"]["drafted_at"]


def test_speculation_needs_a_drafter(plain_server: Serving) -> None:
    assert plain_server.error_of(CHAT, {**ASK, "speculative": True})["param"] == "speculative"
    assert "draft_n" not in plain_server.ok(CHAT, {**ASK, "speculative": False})["timings"]
    assert plain_server.error_of(CHAT, {**ASK, "speculative": {"depth": 2}})["type"] == "invalid_request_error"


def test_tokens_and_how_they_came(server: Serving) -> None:
    events = server.stream(CHAT, {**ASK, "max_tokens": 24, "return_tokens": True, "timings_per_token": True})
    chunks = [json.loads(event) for event in events[:-1]]
    positions = [position for chunk in chunks for position in chunk.get("draft_positions", ())]
    tokens = [token for chunk in chunks for token in chunk.get("tokens", ())]
    timings = chunks[-1]["timings"]
    assert len(tokens) == len(positions) == timings["predicted_n"] == 24
    accepted = [positions.count(i) for i in range(len(timings["draft_n_accepted_at"]))]
    assert accepted == timings["draft_n_accepted_at"]
    counts = [chunk["timings"]["predicted_n"] for chunk in chunks if "timings" in chunk]
    assert counts == sorted(counts) and len(counts) > 2


def test_what_drafts_have_saved(server: Serving) -> None:
    timings = server.ok(CHAT, {**ASK, "plain_speed": True})["timings"]
    assert timings["plain_per_token_ms"] > 0
    assert timings["saved_ms"] < timings["predicted_n"] * timings["predicted_ms"]
    assert timings["saved_ms"] != 0 and len(timings["depths"]) > 1


def test_seeds(server: Serving) -> None:
    def text(**more: Any) -> str:
        body = {"messages": HELLO, "max_tokens": 12, "temperature": 1.5, "top_k": 0, **more}
        return str(server.ok(CHAT, body)["choices"][0]["message"]["content"])

    assert text(seed=42) == text(seed=42) == text(seed=42)
    assert len({text() for _ in range(4)}) > 1
    assert len({text(seed=-1) for _ in range(4)}) > 1


def test_used_seed_is_told_and_gives_the_text_again(server: Serving) -> None:
    body = {"messages": HELLO, "max_tokens": 12, "temperature": 1.5, "top_k": 0}
    first = server.ok(CHAT, body)
    again = server.ok(CHAT, {**body, "seed": first["timings"]["seed"]})
    assert again["choices"] == first["choices"]


def test_logprobs_are_the_targets_own_with_drafts(server: Serving) -> None:
    body = {**ASK, "logprobs": True, "top_logprobs": 3}
    drafted, plain = server.ok(CHAT, body), server.ok(CHAT, {**body, "speculative": False})
    content = drafted["choices"][0]["logprobs"]["content"]
    assert [item["id"] for item in content] == [item["id"] for item in plain["choices"][0]["logprobs"]["content"]]
    for item, other in zip(content, plain["choices"][0]["logprobs"]["content"], strict=True):
        assert item["logprob"] == pytest.approx(other["logprob"], abs=1e-5)
        assert [top["id"] for top in item["top_logprobs"]] == [top["id"] for top in other["top_logprobs"]]
    spoken = b"".join(bytes(item["bytes"]) for item in content).decode("utf-8", "replace")
    assert spoken == drafted["choices"][0]["message"]["content"]


def test_streamed_logprobs_are_the_same(server: Serving) -> None:
    body = {**ASK, "logprobs": True}
    chunks = [json.loads(event) for event in server.stream(CHAT, body)[:-1]]
    streamed = [item for chunk in chunks for item in (chunk["choices"][0]["logprobs"] or {"content": []})["content"]]
    assert streamed == server.ok(CHAT, body)["choices"][0]["logprobs"]["content"]


def test_banned_token_does_not_come_in_any_spelling(server: Serving) -> None:
    body = {**ASK, "logprobs": True}
    first = server.ok(CHAT, body)["choices"][0]["logprobs"]["content"][0]["id"]
    without = []
    for bias in ({str(first): -100}, [[first, -100]], [[first, False]]):
        for speculative in (True, False):
            answer = server.ok(CHAT, {**body, "logit_bias": bias, "speculative": speculative})
            ids = [item["id"] for item in answer["choices"][0]["logprobs"]["content"]]
            assert first not in ids
            without.append(ids)
    assert all(ids == without[0] for ids in without)
    assert server.error_of(CHAT, {**body, "logit_bias": [["hello", -1]]})["param"] == "logit_bias"
    assert server.error_of(CHAT, {**body, "logit_bias": {"99999": 1}})["param"] == "logit_bias"


def test_stop_texts_are_cut_before_they_are_sent(server: Serving) -> None:
    body = {"prompt": "hello", "temperature": 0, "max_tokens": 30}
    text = server.ok("/v1/completions", body)["choices"][0]["text"]
    stop = text[5:8]
    for speculative in (True, False):
        ask = {**body, "stop": [stop], "speculative": speculative}
        whole = server.ok("/v1/completions", ask)["choices"][0]
        assert whole["text"] == text[: text.index(stop)] and whole["finish_reason"] == "stop"
        chunks = [json.loads(event) for event in server.stream("/v1/completions", ask)[:-1]]
        assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole["text"]
    never = server.ok("/v1/completions", {**body, "stop": stop[:2] + "\u20ac"})["choices"][0]
    assert never["text"] == text
