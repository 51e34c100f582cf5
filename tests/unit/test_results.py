"""Shapes of completions and chats."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import pytest
from fakes import ByteDecoder, FakeSession, OneStop, request

from pydspark import results
from pydspark.generate import Event, generate
from pydspark.records import Stats

TIMINGS = [
    "cache_n",
    "prompt_n",
    "prompt_ms",
    "prompt_per_token_ms",
    "prompt_per_second",
    "predicted_n",
    "predicted_ms",
    "predicted_per_token_ms",
    "predicted_per_second",
    "seed",
]


def events(text: str, stop: str | None = None) -> Iterator[Event]:
    return generate(FakeSession(text.encode()), request(), ByteDecoder(), OneStop(stop))


def shape(prefix: str = "cmpl", logprobs: bool = False, echo: str = "") -> results.Shape:
    return results.new_shape(prefix, "m", lambda token: bytes([token]), logprobs, echo)


def test_completion() -> None:
    answer = results.completion(events("hi"), shape(echo="> "))
    assert list(answer) == ["id", "object", "created", "model", "choices", "usage", "timings"]
    assert answer["id"].startswith("cmpl-")
    assert answer["object"] == "text_completion"
    assert answer["choices"] == [{"text": "> hi", "index": 0, "logprobs": None, "finish_reason": "stop"}]
    assert answer["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "total_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 1},
    }


def test_chat() -> None:
    answer = results.chat(events("hi"), shape("chatcmpl"))
    assert answer["id"].startswith("chatcmpl-")
    assert answer["object"] == "chat.completion"
    message = {"role": "assistant", "content": "hi"}
    assert answer["choices"] == [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}]


def test_completion_stream() -> None:
    chunks = list(results.completion_stream(events("h\u00e9"), shape(echo="> ")))
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["> ", "h", "\u00e9", ""]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, None, "stop"]
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    assert ["timings" in chunk for chunk in chunks] == [False, False, False, True]
    assert not any("usage" in chunk for chunk in chunks)


def test_chat_stream() -> None:
    chunks = list(results.chat_stream(events("hi"), shape("chatcmpl")))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas == [{"role": "assistant"}, {"content": "h"}, {"content": "i"}, {}]
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert list(chunks[-1]["timings"]) == TIMINGS


def test_legacy_logprobs_line_up_with_the_text() -> None:
    logprobs = results.completion(events("abc, stop", ", s"), shape(logprobs=True))["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["a", "b", "c"]
    assert logprobs["text_offset"] == [0, 1, 2]
    assert logprobs["token_logprobs"] == [-0.5] * 3
    assert logprobs["top_logprobs"][0] == {"a": -0.5, "b": -9999.0}


def test_streamed_logprobs_are_the_same_as_in_one_piece() -> None:
    whole = results.chat(events("ab\u4e2d"), shape(logprobs=True))["choices"][0]["logprobs"]["content"]
    chunks = results.chat_stream(events("ab\u4e2d"), shape(logprobs=True))
    streamed = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    assert sum((part["content"] for part in streamed if part), []) == whole
    assert [entry["bytes"] for entry in whole] == [[0x61], [0x62], [0xE4], [0xB8], [0xAD]]
    assert list(whole[0]) == ["id", "token", "bytes", "logprob", "top_logprobs"]


def test_streamed_legacy_offsets_go_on() -> None:
    chunks = results.completion_stream(events("ab"), shape(logprobs=True))
    offsets = [part["text_offset"] for chunk in chunks if (part := chunk["choices"][0]["logprobs"])]
    assert offsets == [[0], [1]]


@pytest.mark.parametrize("n", [0, 1, 2])
def test_timings_are_finite_for_few_tokens(n: int) -> None:
    timings = results.timings(Stats(n, 0, 0.0, n, 0.0, 0.0, n), seed=3)
    assert list(timings) == TIMINGS
    assert all(math.isfinite(value) for value in timings.values())


def test_results_are_valid_json() -> None:
    answer = results.chat(events("a"), shape(logprobs=True))
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
