"""A request to ``/v1/messages`` as a chat."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pydspark.server.fields import Fields


def messages_of(fields: Fields) -> list[dict[str, Any]]:
    """The chat's messages.

    Raises:
        HttpError: content that is not text.
    """
    system = fields.get("system")
    head = [] if system is None else [{"role": "system", "content": _text(fields, "system")}]
    if fields.array("messages") is None:
        raise fields.error("messages", "a list of messages")
    messages: list[dict[str, Any]] = [*head]
    for message in fields.objects("messages"):
        messages += _messages(message)
    return messages


def _text(fields: Fields, name: str) -> str:
    """A text, or blocks of text, joined."""
    content = fields.get(name)
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise fields.error(name, "a text or a list of blocks")
    return "".join(_text_of(block) for block in fields.objects(name))


def _text_of(block: Fields) -> str:
    if block.get("type") != "text":
        raise block.error("type", "text: this server reads text only")
    return block.needed_text("text")


def _messages(message: Fields) -> Iterator[dict[str, Any]]:
    """One message here can hold results of tools, which are messages of their own in a chat."""
    role = message.needed_text("role")
    if role not in ("user", "assistant", "system"):
        raise message.error("role", "user or assistant")
    content = message.get("content")
    if not isinstance(content, list):
        yield {"role": role, "content": _text(message, "content")}
        return
    texts: list[str] = []
    reasoning: list[str] = []
    calls: list[dict[str, Any]] = []
    has_results = False
    for block in message.objects("content"):
        kind = block.get("type")
        if kind == "tool_result" and role == "user":
            has_results = True
            result = _text(block, "content") if "content" in block else ""
            yield {"role": "tool", "tool_call_id": block.needed_text("tool_use_id"), "content": result}
        elif kind == "tool_use" and role == "assistant":
            calls.append(_call(block))
        elif kind == "thinking":
            reasoning.append(block.needed_text("thinking"))
        elif kind != "redacted_thinking":
            texts.append(_text_of(block))
    if texts or calls or not has_results:
        yield {
            "role": role,
            "content": "".join(texts),
            **({"reasoning_content": "".join(reasoning)} if reasoning else {}),
            **({"tool_calls": calls} if calls else {}),
        }


def _call(block: Fields) -> dict[str, Any]:
    given = block.object("input")
    arguments = {} if given is None else {name: given[name] for name in given}
    function = {"name": block.needed_text("name"), "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"id": block.needed_text("id"), "type": "function", "function": function}


def tools_of(fields: Fields) -> list[dict[str, Any]] | None:
    """The tools that the model is told of, as chats have them."""
    return [_tool(tool) for tool in fields.objects("tools")] or None


def _tool_choice(choice: Fields) -> object:
    """Which tools must be called, as chats have it."""
    if choice.get("type") == "tool":
        return {"type": "function", "function": {"name": choice.needed_text("name")}}
    kinds = {"auto": "auto", "none": "none", "any": "required"}
    if choice.get("type") not in kinds:
        raise choice.error("type", "auto, none, any or tool")
    return kinds[choice["type"]]


def _tool(tool: Fields) -> dict[str, Any]:
    if tool.get("type", "custom") != "custom":
        raise tool.error("type", "custom: this server runs no tools of its own")
    schema = tool.object("input_schema")
    function = {
        "name": tool.needed_text("name"),
        "description": tool.text("description") or "",
        "parameters": {} if schema is None else {name: schema[name] for name in schema},
    }
    return {"type": "function", "function": function}


def chat_fields(fields: Fields) -> Fields:
    """The other fields, with the names that chats have for them."""
    own = ("messages", "system", "tools", "tool_choice", "stop_sequences", "thinking")
    values = {name: fields[name] for name in fields if name not in own}
    if (choice := fields.object("tool_choice")) is not None:
        values["tool_choice"] = _tool_choice(choice)
        values["parallel_tool_calls"] = not choice.flag("disable_parallel_tool_use")
    stop = fields.array("stop_sequences")
    if stop is not None:
        if not all(isinstance(text, str) and text for text in stop):
            raise fields.error("stop_sequences", "a list of texts that are not empty")
        values["stop"] = stop
    thinking = fields.object("thinking")
    if thinking is not None and thinking.text("type") == "disabled":
        values["enable_thinking"] = False
    return Fields(values)
