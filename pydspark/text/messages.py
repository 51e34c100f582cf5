"""Chat messages as clients send them -> as chat templates expect them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydspark.errors import ArgumentError

# Role as sent -> role that templates know.
_ROLES = {
    "developer": "system",
    "system": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


def normalize_messages(messages: object) -> list[dict[str, object]]:
    """Checks messages in OpenAI's form and brings them to one shape.

    ``developer`` becomes ``system`` and ``function`` becomes ``tool``. System messages at the beginning become one,
    with a blank line between their texts; later ones stay where they are, and it is up to the template to take them.
    Text parts are joined with nothing between. Arguments of tool calls that are JSON objects in a string become
    mappings, and none become an empty one. ``reasoning`` is another name of ``reasoning_content``. Fields that are None
    count as absent; other fields are kept.

    Args:
        messages: a list of mappings with ``role`` and ``content``; content is a string, a list of
            ``{"type": "text", "text": ...}``, or, for the assistant, None.

    Returns:
        New mappings with ``role`` and ``content`` as strings, and the remaining fields.

    Raises:
        ArgumentError: anything else; names the index of the message.
    """
    if not isinstance(messages, list):
        raise ArgumentError(f"messages should be a list, but is {type(messages).__name__}")
    if not messages:
        raise ArgumentError("messages is empty; at least one message is needed")
    return _merge_leading_system([_normalize(f"messages[{i}]", message) for i, message in enumerate(messages)])


def _normalize(where: str, message: object) -> dict[str, object]:
    if not isinstance(message, Mapping):
        raise ArgumentError(f"{where} should be an object with role and content, but is {type(message).__name__}")
    fields = {key: value for key, value in message.items() if value is not None}
    role = fields.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise ArgumentError(f"{where}.role is {role!r}; known roles are {', '.join(_ROLES)}")
    fields["role"] = _ROLES[role]
    fields["content"] = _read_content(where, message, role)
    if "reasoning" in fields:
        fields.setdefault("reasoning_content", fields["reasoning"])
    if "tool_calls" in fields:
        fields["tool_calls"] = _read_tool_calls(f"{where}.tool_calls", fields["tool_calls"])
    return fields


def _read_content(where: str, message: Mapping[str, object], role: str) -> str:
    content = message.get("content")
    if content is None:
        # An assistant's turn may consist of tool calls alone.
        if role == "assistant" and ("content" in message or message.get("tool_calls")):
            return ""
        raise ArgumentError(f"{where} ({role}) has no content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_read_part(f"{where}.content[{i}]", part) for i, part in enumerate(content))
    raise ArgumentError(f"{where}.content should be a string or a list of parts, but is {type(content).__name__}")


def _read_part(where: str, part: object) -> str:
    if not isinstance(part, Mapping):
        raise ArgumentError(f"{where} should be an object with type and text, but is {type(part).__name__}")
    if part.get("type") != "text":
        raise ArgumentError(f"{where} is of type {part.get('type')!r}; only 'text' is supported")
    text = part.get("text")
    if not isinstance(text, str):
        raise ArgumentError(f"{where}.text should be a string, but is {type(text).__name__}")
    return text


def _read_tool_calls(where: str, calls: object) -> list[dict[str, object]]:
    if not isinstance(calls, list):
        raise ArgumentError(f"{where} should be a list, but is {type(calls).__name__}")
    return [_read_tool_call(f"{where}[{i}]", call) for i, call in enumerate(calls)]


def _read_tool_call(where: str, call: object) -> dict[str, object]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        raise ArgumentError(f"{where} should be an object with a function")
    if not isinstance(function.get("name"), str):
        raise ArgumentError(f"{where}.function.name should be a string, but is {type(function.get('name')).__name__}")
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        arguments = _parse_arguments(f"{where}.function.arguments", arguments)
    return {**call, "function": {**function, "arguments": arguments}}


def _parse_arguments(where: str, text: str) -> object:
    """The mapping that the text holds, or the text, since a model may have written arguments that are no JSON."""
    try:
        parsed = json.loads(text)
    except ValueError:
        return text
    except RecursionError as error:
        raise ArgumentError(f"{where} is nested too deeply") from error
    return parsed if isinstance(parsed, dict) else text


def _merge_leading_system(messages: list[dict[str, object]]) -> list[dict[str, object]]:
    n_leading = next((i for i, message in enumerate(messages) if message["role"] != "system"), len(messages))
    if n_leading < 2:
        return messages
    text = "\n\n".join(str(message["content"]) for message in messages[:n_leading])
    return [{**messages[0], "content": text}, *messages[n_leading:]]
