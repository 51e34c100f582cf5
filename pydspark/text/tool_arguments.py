"""Arguments of tool calls as JSON, by what the tools' schemas say of their types."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from pydspark.errors import ArgumentError

_ANY = frozenset({"string", "integer", "number", "boolean", "null", "object", "array"})
_STRING = frozenset({"string"})
_NO_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
_MAX_DEPTH = 16  # of references and alternatives in a schema
# Values that templates can write as Python does.
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
_SURROGATE = re.compile("[\ud800-\udfff]")


class Tools:
    """The tools of a request.

    Args:
        tools: in OpenAI's form; a function without what stands around it will do.

    Raises:
        ArgumentError: no list, or a tool that is not of this form; names its index.
    """

    def __init__(self, tools: Sequence[object]) -> None:
        if not isinstance(tools, (list, tuple)):
            raise ArgumentError(f"tools should be a list, but is {type(tools).__name__}")
        functions = [_function(f"tools[{i}]", tool) for i, tool in enumerate(tools)]
        self._parameters = {function["name"]: function.get("parameters") for function in functions}

    @property
    def names(self) -> list[str]:
        """What the tools are called."""
        return list(self._parameters)

    def schema(self, tool: str) -> Mapping[str, Any]:
        """The JSON schema of a tool's arguments; one without arguments if the request gave none."""
        schema = self._parameters[tool]
        return schema if isinstance(schema, Mapping) else _NO_ARGUMENTS

    def types(self, tool: str, parameter: str) -> frozenset[str]:
        """JSON types that a parameter can have; all of them if it is not known."""
        schema = self._parameters.get(tool)
        properties = schema.get("properties") if isinstance(schema, Mapping) else None
        if not isinstance(properties, Mapping) or parameter not in properties:
            return _ANY
        return _schema_types(properties[parameter], schema, _MAX_DEPTH)

    def is_text(self, tool: str, parameter: str) -> bool:
        """Whether a parameter can be nothing but a string, so that its text needs no reading."""
        return self.types(tool, parameter) == _STRING

    def to_json(self, tool: str, parameter: str, text: str) -> str:
        """The JSON of a value: what its text says if that is JSON of a type that it can have, else the text."""
        value = _parse(text)
        types = self.types(tool, parameter)
        fits = "string" not in types or not types.isdisjoint(_value_types(value))
        return dump(text if isinstance(value, str) or not fits else value)


def dump(value: object) -> str:
    """JSON as models write it, with no escapes but where a text is not Unicode."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return json.dumps(value, allow_nan=False) if _SURROGATE.search(text) else text


def parse_call(text: str) -> tuple[str, str] | None:
    """Name and JSON arguments of a call that is written ``{"name": ..., "arguments": {...}}``; None if it is not."""
    call = _parse(text)
    name = call.get("name") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(name, str) or not name:
        return None
    arguments = call.get("arguments", {})
    if isinstance(arguments, str):
        arguments = _parse(arguments)
    return (name, dump(arguments)) if isinstance(arguments, dict) else None


def _function(where: str, tool: object) -> Mapping[str, Any]:
    function = tool.get("function", tool) if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise ArgumentError(f"{where} should be an object with a function that has a name, but is {tool!r:.80}")
    return function


def _schema_types(schema: object, root: object, depth: int) -> frozenset[str]:
    if not isinstance(schema, Mapping) or depth == 0:
        return _ANY
    if isinstance(schema.get("$ref"), str):
        return _schema_types(_resolve(schema["$ref"], root), root, depth - 1)
    kind = schema.get("type")
    if isinstance(kind, str):
        return frozenset({kind})
    if isinstance(kind, list):
        return frozenset(name for name in kind if isinstance(name, str))
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list):
        return frozenset().union(*map(_value_types, values))
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(key), list):
            return frozenset().union(*(_schema_types(part, root, depth - 1) for part in schema[key]))
    return _ANY


def _resolve(reference: str, root: object) -> object:
    """What ``#/a/b`` points to in a schema; None if there is nothing."""
    found = root
    for name in reference.removeprefix("#").split("/")[1:]:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _value_types(value: object) -> frozenset[str]:
    if value is None:
        return frozenset({"null"})
    if isinstance(value, bool):
        return frozenset({"boolean"})
    if isinstance(value, int):
        return frozenset({"integer", "number"})
    if isinstance(value, float):
        return frozenset({"number", "integer"} if value.is_integer() else {"number"})
    return frozenset({"string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"})


def _parse(text: str) -> Any:
    """The JSON value that a text is, or the text if it is none."""
    text = text.strip()
    try:
        value = json.loads(_PYTHON_WORDS.get(text, text), parse_constant=_refuse)
        dump(value)  # a number can be too large for a float, and so no JSON any more
    except (ValueError, RecursionError):
        return text
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
