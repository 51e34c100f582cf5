"""The fields of a request that say what form an answer has."""

from __future__ import annotations

from typing import Any

from pydspark.server.errors import HttpError
from pydspark.server.fields import Fields
from pydspark.structured import answer_grammar
from pydspark.text.grammar import Grammar

FORM = ("response_format", "json_schema", "grammar")
"""Fields that all generating routes have, if under other names."""


def form_of(fields: Fields) -> Grammar | None:
    """The grammar of an answer, or None.

    Raises:
        ArgumentError, HttpError: no form that can be kept.
    """
    for name in ("response_format", "json_schema"):
        fields.object(name)  # or an error
    return answer_grammar(fields.text("grammar"), fields.get("response_format"), fields.get("json_schema"))


def text_format(format: Fields | None) -> dict[str, Any]:
    """``text.format`` of a response as the ``response_format`` of a chat.

    Raises:
        HttpError: it has a type that there is not.
    """
    if format is None:
        return {"type": "text"}
    kind = format.get("type", "text")
    if kind == "json_schema":
        return {"type": kind, "json_schema": {name: format[name] for name in format if name != "type"}}
    if kind not in ("text", "json_object"):
        raise HttpError(400, "text.format.type must be text, json_object or json_schema", "text.format")
    return {"type": kind}
