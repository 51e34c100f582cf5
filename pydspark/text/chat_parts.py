"""The parts of an assistant's answer, as they come out of its text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reasoning:
    """The next piece of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True)
class Content:
    """The next piece of the answer."""

    text: str


@dataclass(frozen=True)
class CallStart:
    """A call of a tool begins.

    Attributes:
        index: position among the calls of this answer, from 0.
        id: names the call in the message with its result.
        name: of the tool.
    """

    index: int
    id: str
    name: str


@dataclass(frozen=True)
class CallArguments:
    """The next piece of a call's arguments. Joined, they are a JSON object, unless the call is cut off."""

    index: int
    text: str


@dataclass(frozen=True)
class CallEnd:
    """A call is complete. It does not come for a call that the end of the text cuts off."""

    index: int


TextPart = Reasoning | Content | CallArguments
Part = TextPart | CallStart | CallEnd
