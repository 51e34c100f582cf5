"""Chat templates: messages to prompt text, by the Jinja source in the model file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateSyntaxError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pydspark.errors import ArgumentError, ModelFileError
from pydspark.text.protect import SENTINEL

CHATML_TEMPLATE = """\
{% for message in messages %}
{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\\n' }}
{%- endif %}
"""
"""For models with ChatML markers whose file has no template of its own."""

_NOT_ASCII = re.compile(f"[^\\x00-\\x7f{SENTINEL}]")


class ChatTemplate:
    """A compiled chat template.

    It runs in Jinja's sandbox: no access to Python's internals, no changes to what it is given, no range above 100,000.
    The sandbox does not limit nested loops or the length of the text, so a template is trusted not to waste time.

    Args:
        source: Jinja source.
        bos_token: text of the BOS token, for the template's use.
        eos_token: text of the EOS token, likewise.

    Raises:
        ModelFileError: the source does not compile.
    """

    def __init__(self, source: str, *, bos_token: str = "", eos_token: str = "") -> None:
        self.source = source
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        try:
            self._template = _make_environment().from_string(source)
        except TemplateSyntaxError as error:
            raise ModelFileError(f"the chat template does not compile: line {error.lineno}: {error.message}") from error
        except Exception as error:  # Jinja's output may be too much for Python's own compiler
            raise ModelFileError(f"the chat template does not compile: {type(error).__name__}: {error}") from error

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Sequence[object] | None = None,
        add_generation_prompt: bool = True,
        **kwargs: object,
    ) -> str:
        """The prompt for these messages.

        Args:
            messages: normalized and protected messages.
            tools: protected tool descriptions, in OpenAI's form.
            add_generation_prompt: open the assistant's turn.
            kwargs: further variables of the template, such as ``enable_thinking``.

        Raises:
            ArgumentError: the template refuses the messages (its own words are in the message) or fails on them.
        """
        variables = self._tokens | kwargs
        try:
            return self._template.render(
                variables, messages=messages, tools=tools, add_generation_prompt=add_generation_prompt
            )
        except _RefusalError as error:
            raise ArgumentError(f"the chat template refuses these messages: {error}") from error
        except Exception as error:  # a template is a program: it can fail in any way
            raise ArgumentError(
                f"the chat template fails on these messages: {type(error).__name__}: {error}"
            ) from error


class _RefusalError(Exception):
    """The template called ``raise_exception``."""


class _GenerationTag(Extension):
    """``{% generation %}`` marks the assistant's text for training; here it only stands around it."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _make_environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _format_now
    return environment


def _refuse(words: object) -> NoReturn:
    raise _RefusalError(words)


def _format_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes for HTML, which models were not trained on.
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)
    return _NOT_ASCII.sub(_escape, text) if ensure_ascii else text


def _escape(match: re.Match[str]) -> str:
    # Sentinels are not escaped: they could not be told from text any more.
    return json.dumps(match.group())[1:-1]
