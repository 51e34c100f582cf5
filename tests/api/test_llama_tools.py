"""Chats with tools and reasoning, on the template of Qwen3.6 and answers from a script."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeSession
from tiny.models import write_tiny_model

from pydspark import Llama
from pydspark.errors import ArgumentError

DATA = Path(__file__).parents[1] / "data"
TEMPLATE = {"tokenizer.chat_template": (DATA / "qwen3_6.jinja").read_text()}
CHATS = {chat["name"]: chat for chat in json.loads((DATA / "qwen3_6_prompts.json").read_text())}
HELLO = [{"role": "user", "content": "hello"}]


class Scripted:
    """A model that says what it is told to say.

    Attributes:
        llama: the model.
    """

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.llama = Llama(path, vocab_only=True, kv_overrides=TEMPLATE)
        self._monkeypatch = monkeypatch

    def answer(self, text: str, *args: Any, **kwargs: Any) -> Any:
        """Has the text answered to ``create_chat_completion``."""
        self.session = FakeSession(self.llama.tokenize(text), per_step=4)
        self._monkeypatch.setattr(self.llama.engine, "_session", lambda: self.session)
        return self.llama.create_chat_completion(*args, **kwargs)

    @property
    def prompt(self) -> str:
        """The last prompt."""
        return self.llama.detokenize(self.session.started[-1].tokens, special=True).decode()


@pytest.fixture
def scripted(tiny_llama_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    model = Scripted(tiny_llama_path, monkeypatch)
    with model.llama:
        yield model


def test_a_chat_with_calls_and_a_second_turn(scripted: Scripted) -> None:
    with_results, second = CHATS["calls and their results"], CHATS["an answer after calls, and the next question"]
    tools, messages = with_results["tools"], with_results["messages"][:1]
    text = (
        "Two places.\nTwo calls.\n</think>\n\n"
        "<tool_call>\n<function=get_weather>\n<parameter=place>\nUlm\n</parameter>\n<parameter=days>\n2\n</parameter>\n"
        "</function>\n</tool_call>\n"
        "<tool_call>\n<function=get_weather>\n<parameter=place>\nBonn\n</parameter>\n</function>\n</tool_call>"
    )
    choice = scripted.answer(text, messages, tools=tools)["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    calls = choice["message"]["tool_calls"]
    assert [json.loads(call["function"]["arguments"]) for call in calls] == [
        {"place": "Ulm", "days": 2},
        {"place": "Bonn"},
    ]
    assert len({call["id"] for call in calls}) == 2
    results = [
        {**result, "tool_call_id": call["id"]} for result, call in zip(with_results["messages"][2:], calls, strict=True)
    ]
    messages = [*messages, choice["message"], *results]

    text = "Both known.\n</think>\n\nRain in Ulm, clear in Bonn."
    choice = scripted.answer(text, messages, tools=tools)["choices"][0]
    assert scripted.prompt == with_results["rendered"]
    assert choice["message"]["reasoning_content"] == "Both known."
    assert choice["message"]["content"] == "Rain in Ulm, clear in Bonn."
    messages = [*messages, choice["message"], second["messages"][-1]]

    scripted.answer("</think>\n\nWind.", messages, tools=tools)
    assert scripted.prompt == second["rendered"]


def test_a_stream_has_the_same_parts(scripted: Scripted) -> None:
    text = 'Hm.\n</think>\n\nSo:\n<tool_call>{"name": "f", "arguments": {"a": [1]}}</tool_call>'
    tools = [{"type": "function", "function": {"name": "f"}}]
    whole = scripted.answer(text, HELLO, tools=tools)["choices"][0]["message"]
    chunks = [chunk["choices"][0] for chunk in scripted.answer(text, HELLO, tools=tools, stream=True)]
    assert (
        "".join(chunk["delta"].get("reasoning_content", "") for chunk in chunks) == whole["reasoning_content"] == "Hm."
    )
    assert "".join(chunk["delta"].get("content", "") for chunk in chunks) == whole["content"] == "So:"
    arguments = [call["function"]["arguments"] for chunk in chunks for call in chunk["delta"].get("tool_calls", ())]
    assert "".join(arguments) == whole["tool_calls"][0]["function"]["arguments"] == '{"a": [1]}'
    assert chunks[-1]["finish_reason"] == "tool_calls"


def test_thinking_can_be_turned_off(scripted: Scripted) -> None:
    for more in ({"enable_thinking": False}, {"chat_template_kwargs": {"enable_thinking": False}}):
        message = scripted.answer("Hi.", HELLO, **more)["choices"][0]["message"]
        assert message == {"role": "assistant", "content": "Hi."}
        assert scripted.prompt.endswith("<think>\n\n</think>\n\n")


@pytest.mark.parametrize("reasoning_format", ["auto", "deepseek", "none"])
def test_where_reasoning_goes(scripted: Scripted, reasoning_format: str) -> None:
    text = "Hm.\n</think>\n\nHi."
    message = scripted.answer(text, HELLO, reasoning_format=reasoning_format)["choices"][0]["message"]
    in_content = {"role": "assistant", "content": text}
    split = {"role": "assistant", "content": "Hi.", "reasoning_content": "Hm."}
    assert message == (in_content if reasoning_format == "none" else split)


def test_calls_are_text_where_there_are_no_tools(scripted: Scripted) -> None:
    text = "</think>\n\n<tool_call>\n<function=f>\n</function>\n</tool_call>"
    tools = [{"type": "function", "function": {"name": "f"}}]
    for more in ({}, {"tools": tools, "tool_choice": "none"}, {"tools": []}):
        choice = scripted.answer(text, HELLO, **more)["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == (text.removeprefix("</think>\n\n"), "stop")
        assert "# Tools" not in scripted.prompt


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "f"}}])
def test_a_call_that_there_is_no_tool_for_cannot_be_demanded(scripted: Scripted, choice: object) -> None:
    with pytest.raises(ArgumentError, match="tool_choice demands a call, but the request has no tools"):
        scripted.llama.create_chat_completion(HELLO, tool_choice=choice)


def test_wrong_arguments_are_refused(scripted: Scripted) -> None:
    with pytest.raises(ArgumentError, match=r"tools\[0\] should be an object"):
        scripted.llama.create_chat_completion(HELLO, tools=["f"])
    with pytest.raises(ArgumentError, match="reasoning_format must be one of auto, deepseek, none"):
        scripted.llama.create_chat_completion(HELLO, reasoning_format="xml")


def test_settings_of_the_constructor_come_between_call_and_file(tiny_llama_path: Path) -> None:
    recommended = {"general.sampling.temp": 0.9, "general.sampling.top_k": 7}
    settings = {"temperature": 0.5, "presence_penalty": 1.5}
    with Llama(tiny_llama_path, vocab_only=True, kv_overrides=recommended, sampling=settings) as llama:
        chosen = llama._sampling(temperature=0.1)
        assert (chosen.temperature, chosen.top_k, chosen.presence_penalty) == (0.1, 7, 1.5)
        assert llama._sampling().temperature == 0.5


def test_the_second_turn_finds_the_first_one_in_the_cache(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "hybrid.gguf", "qwen35")
    with Llama(path, n_ctx=256, n_threads=1, kv_overrides=TEMPLATE) as llama:
        first = llama.engine.chat_prompt(HELLO)
        message = llama.create_chat_completion(HELLO, max_tokens=9, seed=1)["choices"][0]["message"]
        for chat, n_boundary in ([*HELLO, message, *HELLO], 1), ([{"role": "user", "content": "bye"}], 0):
            answer = llama.create_chat_completion(chat, max_tokens=1)
            assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == first.boundaries[n_boundary] > 0
