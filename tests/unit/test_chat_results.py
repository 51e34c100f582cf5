"""Shapes of chats: text, reasoning and tool calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from fakes import ByteDecoder, FakeSession, OneStop, request

from pydspark import chat_results, results
from pydspark.chat import ChatEvent, chat_events
from pydspark.generate import generate
from pydspark.records import Finish
from pydspark.text.chat_parser import ChatParser
from pydspark.text.tool_arguments import Tools

TOOLS = Tools([{"name": "f", "parameters": {"properties": {"s": {"type": "string"}}}}])
CALL = "<tool_call>\n<function=f>\n<parameter=s>\n\u00e9\n</parameter>\n</function>\n</tool_call>"
ANSWER = f"Look.\n</think>\n\nOne:\n\n{CALL}\n{CALL}"


def events(text: str, finish: Finish = Finish.STOP_ID, **options: Any) -> Iterator[ChatEvent]:
    numbers = count()
    parser = ChatParser(**{"tools": TOOLS, "new_id": lambda: f"id{next(numbers)}", **options})
    session = FakeSession(text.encode(), per_step=3, finish=finish)
    return chat_events(generate(session, request(), ByteDecoder(), OneStop()), parser)


def shape(logprobs: bool = False) -> results.Shape:
    return results.new_shape("chatcmpl", "m", lambda token: bytes([token]), logprobs)


def tool_call(number: int, arguments: str = '{"s": "\u00e9"}') -> dict[str, Any]:
    return {"id": f"id{number}", "type": "function", "function": {"name": "f", "arguments": arguments}}


def test_chat() -> None:
    answer = chat_results.chat(events("hi"), shape())
    assert answer["id"].startswith("chatcmpl-")
    assert answer["object"] == "chat.completion"
    message = {"role": "assistant", "content": "hi"}
    assert answer["choices"] == [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}]


def test_chat_stream() -> None:
    chunks = list(chat_results.chat_stream(events("hi"), shape()))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas == [{"role": "assistant"}, {"content": "h"}, {"content": "i"}, {}]
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert "seed" in chunks[-1]["timings"]


def test_streamed_logprobs_are_the_same_as_in_one_piece() -> None:
    whole = chat_results.chat(events("ab\u4e2d"), shape(logprobs=True))["choices"][0]["logprobs"]["content"]
    chunks = chat_results.chat_stream(events("ab\u4e2d"), shape(logprobs=True))
    streamed = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    assert sum((part["content"] for part in streamed if part), []) == whole
    assert [entry["bytes"] for entry in whole] == [[0x61], [0x62], [0xE4], [0xB8], [0xAD]]
    assert list(whole[0]) == ["id", "token", "bytes", "logprob", "top_logprobs"]


def test_reasoning_and_calls() -> None:
    answer = chat_results.chat(events(ANSWER, in_reasoning=True), shape())
    assert answer["choices"][0]["message"] == {
        "role": "assistant",
        "content": "One:",
        "reasoning_content": "Look.",
        "tool_calls": [tool_call(0), tool_call(1)],
    }
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    assert answer["usage"]["completion_tokens_details"] == {"reasoning_tokens": len("Look.\n</think>")}


def test_a_call_alone_has_empty_content() -> None:
    message = chat_results.chat(events(CALL), shape())["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "", "tool_calls": [tool_call(0)]}


@pytest.mark.parametrize(
    ("text", "finish", "reason"),
    [
        (CALL, Finish.STOP_ID, "tool_calls"),
        (CALL, Finish.LENGTH, "length"),
        (CALL[:50], Finish.LENGTH, "length"),
        (CALL[:50], Finish.STOP_ID, "stop"),
        (CALL + CALL[:50], Finish.STOP_ID, "stop"),
        (CALL + " Done.", Finish.STOP_ID, "tool_calls"),
        ("none", Finish.STOP_ID, "stop"),
    ],
)
def test_the_reason_tells_whether_calls_are_complete(text: str, finish: Finish, reason: str) -> None:
    assert chat_results.chat(events(text, finish), shape())["choices"][0]["finish_reason"] == reason
    *_, last = chat_results.chat_stream(events(text, finish), shape())
    assert last["choices"][0]["finish_reason"] == reason


def test_a_call_that_is_cut_off_is_told_as_far_as_it_came() -> None:
    cut = CALL[: CALL.index("</parameter>")]
    message = chat_results.chat(events(cut, Finish.LENGTH), shape())["choices"][0]["message"]
    assert message["tool_calls"] == [tool_call(0, '{"s": "\u00e9\\n')]


def test_streamed_deltas() -> None:
    chunks = list(chat_results.chat_stream(events(ANSWER, in_reasoning=True), shape()))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant"}
    assert deltas[-1] == {}
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "Look."
    assert "".join(delta.get("content", "") for delta in deltas) == "One:"
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    for index in (0, 1):
        first, *rest = (call for call in calls if call["index"] == index)
        assert first == {"index": index, **tool_call(index, "")}
        assert all(set(call) == {"index", "function"} and set(call["function"]) == {"arguments"} for call in rest)
        assert "".join(call["function"]["arguments"] for call in rest) == '{"s": "\u00e9"}'


def test_tokens_of_all_parts_have_logprobs() -> None:
    chunks = chat_results.chat_stream(events(ANSWER, in_reasoning=True), shape(logprobs=True))
    entries = [entry for chunk in chunks for entry in (chunk["choices"][0]["logprobs"] or {"content": []})["content"]]
    assert bytes(byte for entry in entries for byte in entry["bytes"]).decode() == ANSWER


def test_chats_are_valid_json() -> None:
    answer = chat_results.chat(events(ANSWER), shape(logprobs=True))
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
