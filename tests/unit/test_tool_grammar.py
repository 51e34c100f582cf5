"""Demanded tool calls: what the grammar allows is what the parser of answers reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from running import DATA

from pydspark.errors import ArgumentError
from pydspark.prompts import Prompts
from pydspark.text.chat_parser import ChatParser
from pydspark.text.chat_parts import CallArguments, CallStart
from pydspark.text.grammar_mask import GrammarMask
from pydspark.text.tool_arguments import Tools
from pydspark.text.tool_grammar import tool_grammar

pytest_plugins = ["real_vocab"]

TAGGED = (DATA / "qwen3_6.jinja").read_text()
JSON = 'in <tool_call></tool_call> tags: {"name": ..., "arguments": ...}'
WEATHER: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "place": {"type": "string"},
        "days": {"type": "integer"},
        "unit": {"enum": ["C", "F"]},
        "at": {"$ref": "#/$defs/point"},
        "note": {"type": ["string", "null"]},
    },
    "required": ["place", "days"],
    "$defs": {"point": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}},
}
TOOLS = Tools(
    [
        {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}},
        {"type": "function", "function": {"name": "now"}},
    ]
)
HELLO = [{"role": "user", "content": "hello"}]
CALL = (
    "<tool_call>\n<function=get_weather>\n<parameter=place>\nNew <b>\nUlm\n</parameter>\n<parameter=days>\n2\n"
    "</parameter>\n</function>\n</tool_call>"
)
NOW = "<tool_call>\n<function=now>\n</function>\n</tool_call>"


@pytest.fixture(scope="module")
def prompts(qwen_metadata: dict[str, object]) -> Prompts:
    """The text side of Qwen3.6."""
    return Prompts({**qwen_metadata, "tokenizer.chat_template": TAGGED})


def follows(prompts: Prompts, mask: GrammarMask | None, text: str) -> bool:
    """Whether a text may come, and end there."""
    assert mask is not None
    path = [*prompts.tokenizer.encode(text), min(prompts.vocab.eog_ids)]
    for n, token in enumerate(path):
        if not mask.allowed(n, path[:n])[token // 8] >> token % 8 & 1:
            return False
    return True


def calls(text: str) -> list[tuple[str, Any]]:
    """Names and arguments that the parser reads."""
    parser = ChatParser(tools=TOOLS)
    parts = [*parser.add(text), *parser.finish()]
    names = [part.name for part in parts if isinstance(part, CallStart)]
    arguments = [""] * len(names)
    for part in parts:
        if isinstance(part, CallArguments):
            arguments[part.index] += part.text
    return list(zip(names, map(json.loads, arguments), strict=True))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (CALL, [("get_weather", {"place": "New <b>\nUlm", "days": 2})]),
        (NOW, [("now", {})]),
        (f"{NOW}\n{CALL}", [("now", {}), ("get_weather", {"place": "New <b>\nUlm", "days": 2})]),
        (
            CALL.replace(
                "</function>",
                "<parameter=unit>\nF\n</parameter>\n<parameter=at>\n[1, -2.5]\n</parameter>\n"
                "<parameter=note>\nwet\n</parameter>\n</function>",
            ),
            [("get_weather", {"place": "New <b>\nUlm", "days": 2, "unit": "F", "at": [1, -2.5], "note": "wet"})],
        ),
    ],
)
def test_tagged_calls(prompts: Prompts, text: str, wanted: list[tuple[str, Any]]) -> None:
    mask = prompts.mask(tool_grammar(TOOLS, TOOLS.names, TAGGED))
    assert follows(prompts, mask, text)
    assert calls(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "Hello.",
        "",
        CALL + " Well.",
        CALL.replace("get_weather", "get_wether"),
        CALL.replace("\n2\n", "\ntwo\n"),
        CALL.replace("<parameter=days>\n2\n</parameter>\n", ""),
        CALL.replace("</function>", "<parameter=unit>\nK\n</parameter>\n</function>"),
        CALL.replace("</function>", "<parameter=at>\n[1]\n</parameter>\n</function>"),
    ],
)
def test_what_is_no_call_of_the_tools(prompts: Prompts, text: str) -> None:
    assert not follows(prompts, prompts.mask(tool_grammar(TOOLS, TOOLS.names, TAGGED)), text)


def test_calls_in_json(prompts: Prompts) -> None:
    def mask() -> GrammarMask | None:
        return prompts.mask(tool_grammar(TOOLS, TOOLS.names, JSON))

    text = '<tool_call>\n{"name": "get_weather", "arguments": {"place": "Ulm", "days": 2}}\n</tool_call>'
    assert follows(prompts, mask(), text)
    assert calls(text) == [("get_weather", {"place": "Ulm", "days": 2})]
    assert follows(prompts, mask(), '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>')
    assert not follows(prompts, mask(), text.replace("2", '"2"'))
    assert not follows(prompts, mask(), CALL)


def test_one_tool_alone_may_be_called(prompts: Prompts) -> None:
    mask = prompts.mask(tool_grammar(TOOLS, ["now"], TAGGED))
    assert follows(prompts, mask, NOW)
    assert not follows(prompts, prompts.mask(tool_grammar(TOOLS, ["now"], TAGGED)), CALL)


@pytest.mark.parametrize("template", [TAGGED, JSON])
def test_one_call_alone_may_be_made(prompts: Prompts, template: str) -> None:
    call = NOW if template == TAGGED else '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    for text, in_parallel, wanted in ((call, False, True), (call + call, False, False), (call + call, True, True)):
        assert follows(prompts, prompts.mask(tool_grammar(TOOLS, ["now"], template, in_parallel)), text) is wanted


def test_chats_demand_calls(prompts: Prompts) -> None:
    tools = [{"type": "function", "function": {"name": "now"}}]
    prompt = prompts.chat(HELLO, tools, tool_choice="required")
    assert prompt.in_reasoning
    assert follows(prompts, prompt.mask, f"I call it.\n</think>{NOW}")
    assert not follows(prompts, prompts.chat(HELLO, tools, tool_choice="required").mask, "No.\n</think>Hello.")
    assert prompts.chat(HELLO, tools, tool_choice="auto").mask is None
    single = prompts.chat(HELLO, tools, tool_choice="required", parallel_tool_calls=False).mask
    assert not follows(prompts, single, f"Twice.\n</think>{NOW}{NOW}")
    with pytest.raises(ArgumentError, match="tool_choice demands a call, but the request has no tools"):
        prompts.chat(HELLO, tool_choice="required")


def test_templates_without_calls_and_wrong_schemas_are_refused(prompts: Prompts) -> None:
    with pytest.raises(ArgumentError, match="tool_choice demands a call, but the model's chat template has no <tool_c"):
        tool_grammar(TOOLS, ["now"], "{{ messages }}")
    schema = {"type": "object", "properties": {"a": {"type": "integer", "not": {}}}}
    wrong = Tools([{"name": "f", "parameters": schema}])
    with pytest.raises(ArgumentError, match=r"^tools cannot be kept"):
        prompts.mask(tool_grammar(wrong, ["f"], TAGGED))
    with pytest.raises(ArgumentError, match="must be Unicode text"):
        tool_grammar(Tools([{"name": "\ud800"}]), ["\ud800"], TAGGED)
