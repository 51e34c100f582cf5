"""Shapes of completions and chats."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import pytest
from fakes import ByteDecoder, FakeSession, OneStop, request

from pydspark import results
from pydspark.generate import Done, Event, Usage, generate
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


def test_completion_stream() -> None:
    chunks = list(results.completion_stream(events("h\u00e9"), shape(echo="> ")))
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["> ", "h", "\u00e9", ""]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, None, "stop"]
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    assert ["timings" in chunk for chunk in chunks] == [False, False, False, True]
    assert not any("usage" in chunk for chunk in chunks)


def test_legacy_logprobs_line_up_with_the_text() -> None:
    logprobs = results.completion(events("abc, stop", ", s"), shape(logprobs=True))["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["a", "b", "c"]
    assert logprobs["text_offset"] == [0, 1, 2]
    assert logprobs["token_logprobs"] == [-0.5] * 3
    assert logprobs["top_logprobs"][0] == {"a": -0.5, "b": -9999.0}


def test_streamed_legacy_offsets_go_on() -> None:
    chunks = results.completion_stream(events("ab"), shape(logprobs=True))
    offsets = [part["text_offset"] for chunk in chunks if (part := chunk["choices"][0]["logprobs"])]
    assert offsets == [[0], [1]]


@pytest.mark.parametrize("n", [0, 1, 2])
def test_timings_are_finite_for_few_tokens(n: int) -> None:
    timings = results.timings(Stats(n, 0, 0.0, n, 0.0, 0.0, n), seed=3)
    assert list(timings) == TIMINGS
    assert all(math.isfinite(value) for value in timings.values())


DRAFTED = Stats(
    5, 0, 1.0, 9, 8.0, 0.5, 4,
    draft_rounds=3, draft_n=8, draft_n_accepted=6, draft_ms=2.0, verify_ms=5.0, drafted_at=(3, 3, 2),
    accepted_at=(3, 2, 1), saved_ms=12.5, depths=(0, 1, 0, 2), reasons=(0, 0, 1, 0, 2),
)  # fmt: skip


def test_timings_tell_of_drafting_only_if_the_drafter_ran() -> None:
    timings = results.timings(DRAFTED, seed=3)
    assert {key: value for key, value in timings.items() if key not in TIMINGS} == {
        "draft_n": 8,
        "draft_n_accepted": 6,
        "draft_rounds": 3,
        "accept_len": 3.0,
        "accept_rate": 0.75,
        "drafted_at": [3, 3, 2],
        "draft_n_accepted_at": [3, 2, 1],
        "draft_ms": 2.0,
        "verify_ms": 5.0,
        "host_ms": 0.5,
        "saved_ms": 12.5,
        "depths": [0, 1, 0, 2],
        "depth_reasons": {"cost": 1, "whole": 2},
    }
    assert set(timings) - set(results.timings(Stats(5, 0, 1.0, 9, 8.0, 0.5, 9), seed=3)) == timings.keys() - TIMINGS


@pytest.mark.parametrize(
    ("counts", "accept_len"),
    [(DRAFTED, 3.0), (Stats(5, 0, 1.0, 0, 0.0, 0.0, 0), 1.0), (Stats(1, 0, 0, 3, 9, 0, 3), 1.0)],
)
def test_stats_have_the_same_names_with_and_without_drafts(counts: Stats, accept_len: float) -> None:
    done = Done("length", None, None, Usage(5, counts.predicted_n, 0), counts, 3)
    stats = results.stats(done)
    names = "n_rounds n_drafted n_accepted accept_rate accept_len accepted_at drafted_at"
    times = "prompt_ms decode_ms draft_ms verify_ms host_ms"
    assert set(f"{names} {times}".split()) <= stats.keys()
    found = stats["n_drafted"], stats["n_accepted"], stats["accept_len"]
    assert found == (counts.draft_n, counts.draft_n_accepted, accept_len)
    json.dumps(stats, allow_nan=False)


def test_results_are_valid_json() -> None:
    answer = results.completion(events("a"), shape(logprobs=True))
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
