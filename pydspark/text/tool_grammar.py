"""Tool calls as a grammar, in the form that a model's template teaches."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydspark.errors import ArgumentError
from pydspark.text.chat_parser import CALL, END_CALL, END_FUNCTION, END_PARAMETER, FUNCTION, PARAMETER
from pydspark.text.grammar import Grammar, json_rule, lark_grammar
from pydspark.text.tool_arguments import Tools

_DEFINITIONS = ("$defs", "definitions")


def tool_grammar(tools: Tools, names: Sequence[str], template: str, in_parallel: bool = True) -> Grammar:
    """Calls of some tools and nothing else.

    Args:
        tools: what the model was told it can call.
        names: of those that it may call now.
        template: the model's chat template, which shows the form of a call.
        in_parallel: there may be more than one.

    Raises:
        ArgumentError: the template has no form of a call that pydspark knows.
    """
    if CALL not in template:
        raise ArgumentError(f"tool_choice demands a call, but the model's chat template has no {CALL}")
    lines = ["start: call (BLANKS call)*", r"BLANKS: /[ \n]{0,2}/"] if in_parallel else ["start: call"]
    calls = [f"call_{i}" for i in range(len(names))]
    lines.append(f"call: {_text(CALL + chr(10))} ({' | '.join(calls)}) {_text(chr(10) + END_CALL)}")
    for rule, name in zip(calls, names, strict=True):
        lines += _tagged_rules(rule, name, tools) if FUNCTION in template else _json_rules(rule, name, tools)
    return lark_grammar("\n".join(lines), name="tools")


def _text(text: str) -> str:
    """A text as it is."""
    return json.dumps(text, ensure_ascii=False)


def _json_rules(rule: str, name: str, tools: Tools) -> list[str]:
    """``{"name": NAME, "arguments": {...}}``"""
    begin = f'{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": '
    return [
        f"{rule}: {_text(begin)} {rule}_arguments {_text('}')}",
        f"{rule}_arguments: {json_rule(tools.schema(name))}",
    ]


def _tagged_rules(rule: str, name: str, tools: Tools) -> list[str]:
    """``<function=NAME>`` with a ``<parameter=KEY>`` for each argument, in the schema's order."""
    schema = tools.schema(name)
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    required = required if isinstance(required, list) else []
    shared = {key: schema[key] for key in _DEFINITIONS if key in schema}
    arguments, lines = [], []
    for i, (key, part) in enumerate(properties.items()):
        argument = f"{rule}_{i}"
        arguments.append(argument if key in required else f"{argument}?")
        is_text = "string" in tools.types(name, key)
        lines += _argument_rules(argument, key, part if isinstance(part, Mapping) else {}, shared, is_text)
    begin = _text(f"{FUNCTION}{name}>\n")
    return [f"{rule}: {begin} {' '.join(arguments)} {_text(END_FUNCTION)}", *lines]


def _argument_rules(
    rule: str, key: str, schema: Mapping[str, Any], shared: Mapping[str, Any], is_text: bool
) -> list[str]:
    """A value that may be a string is a text without quotes: one of the schema's if it names them, else any."""
    begin, end = _text(f"{PARAMETER}{key}>\n"), _text(f"\n{END_PARAMETER}\n")
    values = schema.get("enum")
    if isinstance(values, list) and values and all(isinstance(value, str) for value in values):
        return [f"{rule}: {begin} ({' | '.join(map(_text, values))}) {end}"]
    if is_text:
        return [f"{rule}: {begin} {rule}_text", f"{rule}_text[suffix={end}]: /(?s:.*)/"]
    return [f"{rule}: {begin} {rule}_json {end}", f"{rule}_json: {json_rule({**schema, **shared})}"]
