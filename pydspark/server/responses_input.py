"""A request to ``/v1/responses`` as a chat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydspark.server.errors import HttpError
from pydspark.server.fields import Fields
from pydspark.server.form_fields import text_format

_TEXT_PARTS = ("input_text", "output_text", "text", "refusal", "summary_text", "reasoning_text")


def messages_of(fields: Fields) -> list[dict[str, Any]]:
    """The chat's messages: instructions, then the input.

    Raises:
        HttpError: input that is not text.
    """
    instructions = fields.text("instructions")
    head = [{"role": "system", "content": instructions}] if instructions else []
    given = fields.get("input")
    if isinstance(given, str):
        return [*head, {"role": "user", "content": given}]
    if not isinstance(given, list):
        raise fields.error("input", "a text or a list of items")
    return [*head, *_merged(fields.objects("input"))]


def _merged(items: Iterator[Fields]) -> list[dict[str, Any]]:
    """Messages from items. Reasoning and calls are items of their own here, and parts of one message in a chat."""
    messages: list[dict[str, Any]] = []
    reasoning = ""
    for item in items:
        kind = item.get("type", "message")
        if kind == "reasoning":
            reasoning += _parts(item, "content") or _parts(item, "summary")
            continue
        message = _message(item, kind)
        if message["role"] == "assistant" and reasoning:
            message["reasoning_content"], reasoning = reasoning, ""
        last = messages[-1] if messages else None
        if kind == "function_call" and last is not None and last["role"] == "assistant":
            last["tool_calls"] = [*last.get("tool_calls", ()), *message["tool_calls"]]
        else:
            messages.append(message)
    return messages


def _message(item: Fields, kind: Any) -> dict[str, Any]:
    if kind == "message":
        return {"role": item.needed_text("role"), "content": _parts(item, "content")}
    if kind == "function_call":
        function = {"name": item.needed_text("name"), "arguments": item.needed_text("arguments")}
        call = {"id": item.needed_text("call_id"), "type": "function", "function": function}
        return {"role": "assistant", "content": "", "tool_calls": [call]}
    if kind == "function_call_output":
        return {"role": "tool", "tool_call_id": item.needed_text("call_id"), "content": _parts(item, "output")}
    raise item.error("type", "message, function_call, function_call_output or reasoning")


def _parts(item: Fields, name: str) -> str:
    """Text parts, joined."""
    content = item.get(name)
    if content is None and name in ("content", "summary") and item.get("type") == "reasoning":
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise item.error(name, "a text or a list of parts")
    return "".join(_part(part) for part in item.objects(name))


def _part(part: Fields) -> str:
    if part.get("type") not in _TEXT_PARTS:
        raise part.error("type", "a kind of text: this server reads text only")
    return part.needed_text("refusal" if part["type"] == "refusal" else "text")


def tools_of(fields: Fields) -> list[dict[str, Any]] | None:
    """The tools that the model is told of, as chats have them."""
    return [_tool(tool) for tool in fields.objects("tools")] or None


def _tool(tool: Fields) -> dict[str, Any]:
    if tool.get("type") != "function":
        raise tool.error("type", "function: this server runs no tools of its own")
    function: Mapping[str, Any] = {
        name: tool[name] for name in ("name", "description", "parameters", "strict") if name in tool
    }
    tool.needed_text("name")
    return {"type": "function", "function": dict(function)}


def chat_fields(fields: Fields) -> Fields:
    """The other fields, with the names that chats have for them.

    Raises:
        HttpError: what this server does not do.
    """
    refused = {
        "previous_response_id": "answers are not kept; send the whole chat",
        "conversation": "answers are not kept; send the whole chat",
        "prompt": "there are no prompt templates; send the whole chat",
    }
    for name, instead in refused.items():
        if name in fields:
            raise HttpError(400, f"{name} is not supported: {instead}", name)
    if fields.flag("background"):
        raise HttpError(400, "background is not supported: wait for the answer, or stream it", "background")
    values = {name: fields[name] for name in fields if name not in ("input", "instructions", "tools")}
    reasoning, text = fields.object("reasoning"), fields.object("text")
    if reasoning is not None and reasoning.text("effort") is not None:
        values["reasoning_effort"] = reasoning["effort"]
    values["response_format"] = text_format(None if text is None else text.object("format"))
    if "max_output_tokens" in values:
        limit = fields.whole("max_output_tokens", 1, 2**31 - 1)
        values |= {"max_completion_tokens": limit}
    return Fields(values)
