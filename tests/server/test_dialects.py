"""The same answer, with reasoning and calls of tools, in every interface, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeSession
from serving import HELLO, Serving

from pydspark import Llama
from pydspark.records import Progress

DATA = Path(__file__).parents[1] / "data"
TEMPLATE = {"tokenizer.chat_template": (DATA / "qwen3_6.jinja").read_text()}
PARAMETERS = {"type": "object", "properties": {"place": {"type": "string"}, "days": {"type": "integer"}}}
FUNCTION = {"name": "get_weather", "description": "The weather.", "parameters": PARAMETERS}
TOOLS = [{"type": "function", "function": FUNCTION}]
IMAGE = {"type": "image"}
SAID = (
    "Two places.\n</think>\n\nOne moment.\n\n"
    "<tool_call>\n<function=get_weather>\n<parameter=place>\nUlm\n</parameter>\n<parameter=days>\n2\n</parameter>\n"
    "</function>\n</tool_call>\n"
    "<tool_call>\n<function=get_weather>\n<parameter=place>\nBonn\n</parameter>\n</function>\n</tool_call>"
)
CALLS = [("get_weather", {"place": "Ulm", "days": 2}), ("get_weather", {"place": "Bonn"})]


class Scripted:
    """A server whose model says what it is told to say.

    Attributes:
        serving: the server.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.session = FakeSession([])
        self.serving = Serving(self._load)

    def _load(self, progress: Progress) -> Llama:
        llama = Llama(self._path, vocab_only=True, kv_overrides=TEMPLATE)
        llama.engine._session = lambda: self.session  # type: ignore[method-assign,assignment,return-value]
        self._llama = llama
        return llama

    def says(self, text: str, per_step: int = 4, drafts: bool = False) -> Serving:
        """The server, whose next answers are this text."""
        self.session = FakeSession(self._llama.tokenize(text), per_step=per_step, drafts=drafts)
        return self.serving

    @property
    def prompt(self) -> str:
        """The last prompt."""
        return self._llama.detokenize(self.session.started[-1].tokens, special=True).decode()


@pytest.fixture(scope="module")
def scripted_model(tiny_llama_path: Path) -> Iterator[Scripted]:
    scripted = Scripted(tiny_llama_path)
    with scripted.serving:
        yield scripted


@pytest.fixture(params=[1, 4, 400])
def scripted(scripted_model: Scripted, request: pytest.FixtureRequest) -> Scripted:
    """Tokens come one by one, some at a time, or all at once."""
    scripted_model.says(SAID, per_step=request.param, drafts=request.param > 1)
    return scripted_model


def events_of(serving: Serving, path: str, body: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The names and the data of a stream's events."""
    with serving.client.stream("POST", path, json={**body, "stream": True}) as response:
        assert response.status_code == 200, response.read()
        texts = [event for event in "".join(response.iter_text()).split("\n\n") if event]
    pairs = [event.split("\n") for event in texts]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in pairs]


def test_chat(scripted: Scripted) -> None:
    (choice,) = scripted.serving.ok("/v1/chat/completions", {"messages": HELLO, "tools": TOOLS})["choices"]
    message = choice["message"]
    assert choice["finish_reason"] == "tool_calls"
    assert (message["reasoning_content"], message["content"]) == ("Two places.", "One moment.")
    calls = [call["function"] for call in message["tool_calls"]]
    assert [(call["name"], json.loads(call["arguments"])) for call in calls] == CALLS


def test_streamed_chat(scripted: Scripted) -> None:
    body = {"messages": HELLO, "tools": TOOLS, "stream_options": {"include_usage": True}}
    chunks = [json.loads(event) for event in scripted.serving.stream("/v1/chat/completions", body)[:-1]]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "Two places."
    assert "".join(delta.get("content") or "" for delta in deltas) == "One moment."
    calls: dict[int, dict[str, Any]] = {}
    for delta in deltas:
        for part in delta.get("tool_calls", ()):
            if "id" in part:
                assert part["type"] == "function" and part["index"] not in calls
                calls[part["index"]] = {"name": part["function"]["name"], "arguments": ""}
            calls[part["index"]]["arguments"] += part["function"]["arguments"]
    assert [(call["name"], json.loads(call["arguments"])) for _, call in sorted(calls.items())] == CALLS
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks if chunk["choices"]][-1] == "tool_calls"
    assert chunks[-1]["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0


def test_reasoning_can_stay_in_the_content(scripted: Scripted) -> None:
    body = {"messages": HELLO, "tools": TOOLS, "reasoning_format": "none"}
    message = scripted.serving.ok("/v1/chat/completions", body)["choices"][0]["message"]
    assert "reasoning_content" not in message and "</think>" in message["content"]


@pytest.mark.parametrize(
    "off",
    [{"enable_thinking": False}, {"reasoning_effort": "none"}, {"chat_template_kwargs": {"enable_thinking": False}}],
)
def test_thinking_can_be_turned_off(scripted: Scripted, off: dict[str, Any]) -> None:
    scripted.serving.ok("/v1/chat/completions", {"messages": HELLO})
    assert scripted.prompt.endswith("<think>\n")
    scripted.serving.ok("/v1/chat/completions", {"messages": HELLO, **off})
    assert scripted.prompt.endswith("<think>\n\n</think>\n\n")


def test_tools_that_the_model_is_not_told_of(scripted: Scripted) -> None:
    scripted.serving.ok("/v1/chat/completions", {"messages": HELLO, "tools": TOOLS, "tool_choice": "none"})
    assert "get_weather" not in scripted.prompt


def test_responses(scripted: Scripted) -> None:
    tools = [{"type": "function", **FUNCTION}]
    answer = scripted.serving.ok("/v1/responses", {"input": "hello", "tools": tools, "instructions": "Be brief."})
    assert "Be brief." in scripted.prompt and "get_weather" in scripted.prompt
    assert answer["object"] == "response" and answer["status"] == "completed"
    reasoning, message, *calls = answer["output"]
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "Two places."}]
    assert message["content"][0]["text"] == "One moment."
    assert [(call["name"], json.loads(call["arguments"])) for call in calls] == CALLS
    assert answer["usage"]["output_tokens_details"]["reasoning_tokens"] > 0


def test_streamed_responses(scripted: Scripted) -> None:
    body = {"input": "hello", "tools": [{"type": "function", **FUNCTION}]}
    events = events_of(scripted.serving, "/v1/responses", body)
    assert all(name == data["type"] for name, data in events)
    assert [data["sequence_number"] for _, data in events] == list(range(len(events)))
    assert [name for name, _ in events[:2]] == ["response.created", "response.in_progress"]
    assert events[-1][0] == "response.completed"
    final = events[-1][1]["response"]
    for kind, text in (("reasoning_text", "Two places."), ("output_text", "One moment.")):
        deltas = [data["delta"] for name, data in events if name == f"response.{kind}.delta"]
        done = [data["text"] for name, data in events if name == f"response.{kind}.done"]
        assert "".join(deltas) == text and done == [text]
    done = [data["arguments"] for name, data in events if name == "response.function_call_arguments.done"]
    assert list(map(json.loads, done)) == [arguments for _, arguments in CALLS]
    added = [data["item"]["id"] for name, data in events if name == "response.output_item.added"]
    ended = [data["item"] for name, data in events if name == "response.output_item.done"]
    assert added == [item["id"] for item in ended] and final["output"] == ended


def test_messages(scripted: Scripted) -> None:
    tools = [{"name": "get_weather", "description": "The weather.", "input_schema": PARAMETERS}]
    body = {"messages": HELLO, "tools": tools, "system": "Be brief.", "max_tokens": 500}
    answer = scripted.serving.ok("/v1/messages", body)
    assert "Be brief." in scripted.prompt and "get_weather" in scripted.prompt
    assert answer["type"] == "message" and answer["stop_reason"] == "tool_use"
    thinking, text, *calls = answer["content"]
    assert thinking == {"type": "thinking", "thinking": "Two places.", "signature": ""}
    assert text == {"type": "text", "text": "One moment."}
    assert [(call["name"], call["input"]) for call in calls] == CALLS


def test_streamed_messages(scripted: Scripted) -> None:
    tools = [{"name": "get_weather", "input_schema": PARAMETERS}]
    events = events_of(scripted.serving, "/v1/messages", {"messages": HELLO, "tools": tools, "max_tokens": 500})
    assert all(name == data["type"] for name, data in events)
    assert [name for name, _ in (events[0], *events[-2:])] == ["message_start", "message_delta", "message_stop"]
    assert events[-2][1]["delta"]["stop_reason"] == "tool_use"
    starts = [data for name, data in events if name == "content_block_start"]
    stops = [data["index"] for name, data in events if name == "content_block_stop"]
    assert [start["index"] for start in starts] == stops == [0, 1, 2, 3]
    assert [start["content_block"]["type"] for start in starts] == ["thinking", "text", "tool_use", "tool_use"]
    texts = ["", "", "", ""]
    for name, data in events:
        if name == "content_block_delta":
            (text,) = (value for key, value in data["delta"].items() if key != "type")
            texts[data["index"]] += text
    assert texts[:2] == ["Two places.", "One moment."]
    assert list(map(json.loads, texts[2:])) == [arguments for _, arguments in CALLS]


def test_chats_with_results_of_tools_are_the_same_prompt_in_every_interface(scripted_model: Scripted) -> None:
    serving = scripted_model.says("Fine.\n</think>\n\nIt rains.")
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"place": "Ulm"}'}}
    prompts = []
    for path, body in (
        (
            "/v1/chat/completions",
            {
                "messages": [
                    *HELLO,
                    {"role": "assistant", "content": "", "reasoning_content": "Hm.", "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "c1", "content": "rain"},
                ],
                "tools": TOOLS,
            },
        ),
        (
            "/v1/responses",
            {
                "input": [
                    *HELLO,
                    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
                    {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": '{"place": "Ulm"}'},
                    {"type": "function_call_output", "call_id": "c1", "output": "rain"},
                ],
                "tools": [{"type": "function", **FUNCTION}],
            },
        ),
        (
            "/v1/messages",
            {
                "messages": [
                    *HELLO,
                    {
                        "role": "assistant",
                        "content": [
                            {"type": "thinking", "thinking": "Hm.", "signature": ""},
                            {"type": "tool_use", "id": "c1", "name": "get_weather", "input": {"place": "Ulm"}},
                        ],
                    },
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "rain"}]},
                ],
                "tools": [{"name": "get_weather", "description": "The weather.", "input_schema": PARAMETERS}],
            },
        ),
    ):
        serving.ok(path, body)
        prompts.append(scripted_model.prompt)
    assert "Hm." in prompts[0] and "rain" in prompts[0]
    assert prompts[1] == prompts[0] and prompts[2] == prompts[0]


def test_counting_tokens(scripted_model: Scripted) -> None:
    serving = scripted_model.says("x")
    n = serving.ok("/v1/chat/completions/input_tokens", {"messages": HELLO})["input_tokens"]
    assert n == serving.ok("/v1/chat/completions", {"messages": HELLO})["usage"]["prompt_tokens"]
    assert serving.ok("/v1/responses/input_tokens", {"input": "hello"})["input_tokens"] == n
    assert serving.ok("/v1/messages/count_tokens", {"messages": HELLO}) == {"input_tokens": n}


def test_why_answers_end(scripted_model: Scripted) -> None:
    serving = scripted_model.says("Hm.\n</think>\n\none STOP two")
    body = {"messages": HELLO, "stop_sequences": ["STOP"], "max_tokens": 99}
    answer = serving.ok("/v1/messages", body)
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", "STOP")
    assert answer["content"][-1]["text"] == "one "


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/responses", {"input": 5}, "input"),
        ("/v1/responses", {"input": [5]}, "input[0]"),
        ("/v1/responses", {"input": [{"type": "item_reference"}]}, "input[0].type"),
        ("/v1/responses", {"input": [{"role": "user", "content": [IMAGE]}]}, "input[0].content[0].type"),
        ("/v1/responses", {"input": "x", "previous_response_id": "r"}, "previous_response_id"),
        ("/v1/responses", {"input": "x", "background": True}, "background"),
        ("/v1/responses", {"input": "x", "max_output_tokens": 0}, "max_output_tokens"),
        ("/v1/responses", {"input": "x", "tools": [{"type": "web_search"}]}, "tools[0].type"),
        ("/v1/responses", {"input": "x", "text": {"format": {"type": "xml"}}}, "text.format"),
        ("/v1/messages", {}, "messages"),
        ("/v1/messages", {"messages": [{"content": "x"}]}, "messages[0].role"),
        ("/v1/messages", {"messages": [{"role": "user", "content": [IMAGE]}]}, "messages[0].content[0].type"),
        ("/v1/messages", {"messages": HELLO, "tool_choice": {"type": "any"}}, "tool_choice"),
        ("/v1/messages", {"messages": HELLO, "stop_sequences": [5]}, "stop_sequences"),
        ("/v1/messages", {"messages": HELLO, "system": 5}, "system"),
    ],
)  # fmt: skip
def test_fields_that_are_wrong_are_named(scripted_model: Scripted, path: str, body: dict[str, Any], param: str) -> None:
    response = scripted_model.says("x").post(path, body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
    assert (response.json().get("type") == "error") == (path == "/v1/messages")
