"""Demanded calls and forms of answers on every route, with a model that would rather say something else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from running import DATA
from serving import HELLO, Serving
from tiny.pairs import MIXED, TinyDraft, write_pair

from pydspark import Llama
from pydspark.records import Progress

TEMPLATE = {"tokenizer.chat_template": (DATA / "qwen3_6.jinja").read_text()}
UNIT = {"type": "object", "properties": {"unit": {"enum": ["C", "F"]}}, "required": ["unit"]}
FUNCTIONS = [{"name": name, "parameters": UNIT} for name in ("get_weather", "set_unit")]
TOOLS = [{"type": "function", "function": function} for function in FUNCTIONS]
SCHEMA = {"type": "object", "properties": {"pet": {"enum": ["cat", "dog"]}}, "required": ["pet"]}
SHORT = {**SCHEMA, "additionalProperties": False}
ASK: dict[str, Any] = {"max_tokens": 400, "temperature": 1.0, "chat_template_kwargs": {"enable_thinking": False}}


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    pair = write_pair(tmp_path_factory.mktemp("pair"), TinyDraft(quality=MIXED))

    def load(progress: Progress) -> Llama:
        options = {"n_ctx": 2048, "n_threads": 1, "kv_overrides": TEMPLATE}
        return Llama(pair.target_path, draft=pair.draft_path, progress=progress, **options)

    with Serving(load) as running:
        yield running


def check(name: str, arguments: Any, names: set[str]) -> None:
    assert name in names
    assert arguments["unit"] in ("C", "F")


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("required", {"get_weather", "set_unit"}),
        ({"type": "function", "function": {"name": "set_unit"}}, {"set_unit"}),
    ],
)
@pytest.mark.parametrize("speculative", [False, {"n_max": 8}])
def test_chats_call(serving: Serving, choice: Any, names: set[str], speculative: Any) -> None:
    for seed in range(4):
        body = {**ASK, "messages": HELLO, "tools": TOOLS, "tool_choice": choice, "seed": seed}
        answer = serving.ok("/v1/chat/completions", {**body, "speculative": speculative})["choices"][0]
        calls = answer["message"]["tool_calls"]
        if answer["finish_reason"] != "length":  # the last call may be cut
            assert answer["finish_reason"] == "tool_calls"
            assert answer["message"].get("content") in (None, "")
        for call in calls[:1]:
            check(call["function"]["name"], json.loads(call["function"]["arguments"]), names)


def test_messages_and_responses_call(serving: Serving) -> None:
    tools = [{"name": f["name"], "input_schema": f["parameters"]} for f in FUNCTIONS]
    body = {**ASK, "messages": HELLO, "tools": tools}
    for choice, names in (
        ({"type": "any"}, {"get_weather", "set_unit"}),
        ({"type": "tool", "name": "set_unit"}, {"set_unit"}),
    ):
        first = serving.ok("/v1/messages", {**body, "tool_choice": choice})["content"][0]
        assert first["type"] == "tool_use"
        check(first["name"], first["input"], names)
    body = {"chat_template_kwargs": {"enable_thinking": False}, "max_output_tokens": 400, "input": "hello"}
    tools = [{"type": "function", **function} for function in FUNCTIONS]
    choice = {"type": "function", "name": "get_weather"}
    first = serving.ok("/v1/responses", {**body, "tools": tools, "tool_choice": choice})["output"][0]
    assert first["type"] == "function_call"
    check(first["name"], json.loads(first["arguments"]), {"get_weather"})


def test_a_demanded_call_may_be_one_alone(serving: Serving) -> None:
    alone = {**ASK, "messages": HELLO, "tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False}
    for seed in range(2):
        answer = serving.ok("/v1/chat/completions", {**alone, "seed": seed})["choices"][0]
        assert answer["finish_reason"] == "tool_calls" and len(answer["message"]["tool_calls"]) == 1
    tools = [{"name": f["name"], "input_schema": f["parameters"]} for f in FUNCTIONS]
    choice = {"type": "any", "disable_parallel_tool_use": True}
    answer = serving.ok("/v1/messages", {**ASK, "messages": HELLO, "tools": tools, "tool_choice": choice})
    assert answer["stop_reason"] == "tool_use" and [block["type"] for block in answer["content"]] == ["tool_use"]
    body = {"chat_template_kwargs": {"enable_thinking": False}, "max_output_tokens": 400, "input": "hello"}
    tools = [{"type": "function", **function} for function in FUNCTIONS]
    more = {"tools": tools, "tool_choice": "required", "parallel_tool_calls": False}
    answer = serving.ok("/v1/responses", {**body, **more})
    assert [item["type"] for item in answer["output"]] == ["function_call"] and not answer["parallel_tool_calls"]


def pet(text: str) -> None:
    assert json.loads(text)["pet"] in ("cat", "dog")


@pytest.mark.parametrize("speculative", [False, {"n_max": 8}])
def test_forms_on_every_route(serving: Serving, speculative: Any) -> None:
    more = {**ASK, "speculative": speculative}
    form = {"type": "json_schema", "json_schema": {"name": "pet", "schema": SHORT}}
    pet(
        serving.ok("/v1/chat/completions", {**more, "messages": HELLO, "response_format": form})["choices"][0]
        ["message"]["content"]
    )  # fmt: skip
    pet(serving.ok("/v1/completions", {**more, "prompt": "x", "response_format": form})["choices"][0]["text"])
    pet(serving.ok("/completion", {**more, "prompt": "x", "json_schema": SHORT})["content"])
    answer = serving.ok("/completion", {**more, "prompt": "x", "grammar": 'root ::= "yes" | "no"\n', "n_probs": 2})
    assert answer["content"] in ("yes", "no")
    assert "".join(entry["token"] for entry in answer["completion_probabilities"]) == answer["content"]
    text = {"format": {"type": "json_schema", "name": "pet", "schema": SHORT}}
    body = {"input": "x", "text": text, "max_output_tokens": 400, "speculative": speculative}
    body["chat_template_kwargs"] = {"enable_thinking": False}
    answer = serving.ok("/v1/responses", body)
    pet(answer["output"][0]["content"][0]["text"])
    assert answer["text"] == text


def test_streams_have_the_form(serving: Serving) -> None:
    body = {**ASK, "messages": HELLO, "response_format": {"type": "json_object", "schema": SHORT}}
    events = serving.stream("/v1/chat/completions", body)
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event)["choices"][0] for event in events[:-1]]
    pet("".join(chunk["delta"].get("content") or "" for chunk in chunks))


@pytest.mark.parametrize(
    "wrong",
    [
        {"type": "object", "properties": {"a": {"not": {}}}},
        {"$ref": "#"},
        {"$ref": "https://example.com/schema"},
        {"$ref": "file:///etc/passwd"},
        {"type": "string", "pattern": "(["},
        {"type": "string", "pattern": "(?=a)b"},
        {"allOf": [{"anyOf": [{"properties": {f"{i}{j}": {"type": "integer"}}} for j in range(4)]} for i in range(8)]},
    ],
)
def test_a_schema_that_cannot_be_kept_is_refused_before_anything_is_sent(
    serving: Serving, wrong: dict[str, Any]
) -> None:
    for path, body in (
        ("/v1/chat/completions", {"messages": HELLO, "response_format": {"type": "json_object", "schema": wrong}}),
        ("/v1/completions", {"prompt": "x", "json_schema": wrong}),
        ("/completion", {"prompt": "x", "json_schema": wrong}),
        ("/v1/responses", {"input": "x", "text": {"format": {"type": "json_schema", "schema": wrong}}}),
    ):
        response = serving.post(path, {**body, "stream": True})
        assert response.status_code == 400
        assert "cannot be kept" in response.json()["error"]["message"]


def test_texts_that_are_no_grammar_are_refused(serving: Serving) -> None:
    for grammar in ("root ::= root", "start: /(/", "root ::= " + "(" * 20_000):
        response = serving.post("/completion", {"prompt": "x", "grammar": grammar, "stream": True})
        assert response.status_code == 400, grammar[:40]
        assert "grammar" in response.json()["error"]["message"]
    assert serving.ok("/completion", {"prompt": "x", "grammar": 'root ::= "yes"\n'})["content"] == "yes"
