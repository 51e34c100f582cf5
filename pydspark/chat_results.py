"""A chat's events as the dictionaries of OpenAI's API and llama-cpp-python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydspark import results
from pydspark.chat import ChatEvent
from pydspark.generate import Done, Token
from pydspark.text.chat_parts import CallArguments, CallEnd, CallStart, Content, Part, Reasoning


def chat(events: Iterable[ChatEvent], shape: results.Shape) -> dict[str, Any]:
    """A chat completion."""
    tokens: list[Token] = []
    parts: list[Part] = []
    for event in events:
        if isinstance(event, Token):
            tokens.append(event)
        elif isinstance(event, Done):
            choice = {
                "index": 0,
                "message": message(parts),
                "logprobs": _chat_logprobs(tokens, shape) if shape.logprobs else None,
                "finish_reason": event.finish_reason,
            }
            return {**results.head(shape, "chat.completion"), "choices": [choice], **results.tail(event)}
        else:
            parts.append(event)
    raise RuntimeError("the events ended without Done")


def message(parts: Sequence[Part]) -> dict[str, Any]:
    """The assistant's message. ``reasoning_content`` and ``tool_calls`` are there if there is something in them."""
    content = "".join(part.text for part in parts if isinstance(part, Content))
    reasoning = "".join(part.text for part in parts if isinstance(part, Reasoning))
    arguments: dict[int, list[str]] = {}
    for part in parts:
        if isinstance(part, CallArguments):
            arguments.setdefault(part.index, []).append(part.text)
    calls = [_call(part, "".join(arguments.get(part.index, ()))) for part in parts if isinstance(part, CallStart)]
    return {
        "role": "assistant",
        "content": content,
        **({"reasoning_content": reasoning} if reasoning else {}),
        **({"tool_calls": calls} if calls else {}),
    }


def _call(start: CallStart, arguments: str) -> dict[str, Any]:
    return {"id": start.id, "type": "function", "function": {"name": start.name, "arguments": arguments}}


class ChatChunks:
    """Turns the events of one answer into chunks of a chat completion, one by one.

    Args:
        shape: what the chunks share.
    """

    def __init__(self, shape: results.Shape) -> None:
        self._shape = shape
        self._tokens: list[Token] = []  # since the last chunk

    def begin(self) -> dict[str, Any]:
        """The first chunk: the role."""
        return self._chunk({"role": "assistant"}, None)

    def empty(self) -> dict[str, Any]:
        """A chunk that says nothing, for what stands beside it."""
        return self._chunk({}, None)

    def add(self, event: ChatEvent) -> dict[str, Any] | None:
        """The chunk for an event, if it makes one; the last one has the finish reason."""
        if isinstance(event, Token):
            self._tokens.append(event)
            return None
        if isinstance(event, CallEnd):
            return None
        if isinstance(event, Done):
            return {**self._chunk({}, event.finish_reason), "timings": results.timings(event.stats, event.seed)}
        return self._chunk(_delta(event), None)

    def _chunk(self, delta: dict[str, Any], reason: str | None) -> dict[str, Any]:
        tokens, self._tokens = self._tokens, []
        logprobs = _chat_logprobs(tokens, self._shape) if self._shape.logprobs and tokens else None
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return {**results.head(self._shape, "chat.completion.chunk"), "choices": [choice]}


def chat_stream(events: Iterable[ChatEvent], shape: results.Shape) -> Iterator[dict[str, Any]]:
    """Chunks of a chat completion: the role, then what comes, then the finish reason."""
    chunks = ChatChunks(shape)
    begun = False
    for event in events:
        # Only now is it known that the prompt was accepted.
        if not begun:
            yield chunks.begin()
            begun = True
        chunk = chunks.add(event)
        if chunk is not None:
            yield chunk


def _delta(part: Content | Reasoning | CallStart | CallArguments) -> dict[str, Any]:
    if isinstance(part, Content):
        return {"content": part.text}
    if isinstance(part, Reasoning):
        return {"reasoning_content": part.text}
    call = {"function": {"arguments": part.text}} if isinstance(part, CallArguments) else _call(part, "")
    return {"tool_calls": [{"index": part.index, **call}]}


def token_logprobs(tokens: Sequence[Token], shape: results.Shape) -> list[dict[str, Any]]:
    """Log-probabilities of tokens, and of the likeliest ones in their places."""
    return [
        {
            **_chat_logprob(token.id, token.logprob, shape),
            "top_logprobs": [_chat_logprob(id, logprob, shape) for id, logprob in token.top],
        }
        for token in tokens
    ]


def _chat_logprobs(tokens: Sequence[Token], shape: results.Shape) -> dict[str, Any]:
    return {"content": token_logprobs(tokens, shape), "refusal": None}


def _chat_logprob(id: int, logprob: float | None, shape: results.Shape) -> dict[str, Any]:
    piece = shape.piece(id)
    return {
        "id": id,
        "token": piece.decode("utf-8", "replace"),
        "bytes": list(piece),
        "logprob": results.finite(logprob),
    }
