"""The events of a chat's answer: text as reasoning, content and tool calls."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import replace

from pydspark.generate import Done, Event, Text, Token
from pydspark.text.chat_parser import ChatParser
from pydspark.text.chat_parts import Part

ChatEvent = Token | Part | Done


def chat_events(events: Iterable[Event], parser: ChatParser) -> Generator[ChatEvent, None, None]:
    """Events with their text in parts.

    Tokens come before the parts that they produced. ``Done.finish_reason`` is ``"tool_calls"`` where an answer ends by
    itself after a call that is complete, and ``Done.usage`` counts the tokens of reasoning.

    Args:
        events: of one generation.
        parser: a fresh one.
    """
    n_reasoning = 0
    for event in events:
        if isinstance(event, Token):
            n_reasoning += parser.in_reasoning
            yield event
        elif isinstance(event, Text):
            yield from parser.add(event.text)
        else:
            yield from parser.finish()
            has_ended = event.finish_reason == "stop" and parser.has_calls
            yield replace(
                event,
                finish_reason="tool_calls" if has_ended else event.finish_reason,
                usage=replace(event.usage, reasoning_tokens=n_reasoning),
            )
