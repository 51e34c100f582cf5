"""What callers ask of the form of an answer, as a grammar."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydspark.errors import ArgumentError
from pydspark.text.grammar import Grammar
from pydspark.text.tool_arguments import Tools

LlamaGrammar = Grammar  # as llama-cpp-python calls it


def answer_grammar(
    grammar: Grammar | str | None = None,
    response_format: Mapping[str, Any] | None = None,
    json_schema: str | Mapping[str, Any] | None = None,
) -> Grammar | None:
    """The grammar of an answer; None = it may be any text.

    Args:
        grammar: one, or its text in GBNF or in Lark's form.
        response_format: as in OpenAI's API: ``{"type": "text"}``, ``{"type": "json_object"}``, which may have a
            ``schema``, or ``{"type": "json_schema", "json_schema": {"schema": {...}}}``.
        json_schema: a JSON schema.

    Raises:
        ArgumentError: more than one says something, or one of them says something else.
    """
    if grammar is not None and not isinstance(grammar, (str, Grammar)):
        raise ArgumentError(f"grammar must be a LlamaGrammar or a text, not {type(grammar).__name__}")
    given = {
        "grammar": Grammar.from_string(grammar) if isinstance(grammar, str) and grammar else grammar or None,
        "response_format": None if response_format is None else _format_grammar(response_format),
        "json_schema": None if json_schema is None else Grammar.from_json_schema(json_schema),
    }
    wanted = {name: value for name, value in given.items() if isinstance(value, Grammar)}
    if len(wanted) > 1:
        raise ArgumentError(f"{' and '.join(wanted)} both say what form the answer has; give one of them")
    return next((replace(value, name=name) for name, value in wanted.items()), None)


def _format_grammar(response_format: object) -> Grammar | None:
    if not isinstance(response_format, Mapping):
        raise ArgumentError(f"response_format must be an object with a type, not {type(response_format).__name__}")
    kind = response_format.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        schema = response_format.get("schema")
        return Grammar.from_json_object() if schema is None else Grammar.from_json_schema(schema)
    if kind == "json_schema":
        inner = response_format.get("json_schema", response_format)
        schema = inner.get("schema") if isinstance(inner, Mapping) else None
        if not isinstance(schema, Mapping):
            raise ArgumentError("response_format of the type json_schema needs json_schema.schema, an object")
        return Grammar.from_json_schema(schema)
    raise ArgumentError(f"response_format.type must be text, json_object or json_schema, not {kind!r}")


def chosen_tools(tools: Tools | None, choice: object) -> list[str] | None:
    """Names of the tools of which one must be called; None = the model decides.

    Args:
        tools: of the request.
        choice: None, ``"auto"``, ``"required"``, or an object that names a function, as OpenAI's ``tool_choice``.

    Raises:
        ArgumentError: it is something else, or demands a call of a tool that there is not.
    """
    if choice is None or choice == "auto":
        return None
    name = _named(choice)
    if choice != "required" and name is None:
        raise ArgumentError(f"tool_choice must be none, auto, required or an object that names a tool, not {choice!r}")
    names = [] if tools is None else tools.names
    if not names:
        raise ArgumentError("tool_choice demands a call, but the request has no tools")
    if name is None:
        return names
    if name not in names:
        raise ArgumentError(f"tool_choice names {name!r}; the request has the tools {', '.join(names)}")
    return [name]


def _named(choice: object) -> str | None:
    if not isinstance(choice, Mapping):
        return None
    function = choice.get("function", choice)
    name = function.get("name") if isinstance(function, Mapping) else None
    return name if isinstance(name, str) else None
