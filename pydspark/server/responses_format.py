"""Answers in the form of OpenAI's responses: items, and events about them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydspark.generate import Done, Usage
from pydspark.server.extras import Extras
from pydspark.server.job import Told, chat_event
from pydspark.server.reply import frame
from pydspark.text.chat_parts import CallArguments, CallEnd, CallStart, Content, Reasoning

Events = Iterator[dict[str, Any]]


def new_id(prefix: str) -> str:
    """A fresh id."""
    return f"{prefix}_{uuid.uuid4().hex}"


class ResponsesFormat:
    """Answers as responses. An item is open at a time; it ends when something of another kind comes.

    Args:
        head: what does not change while the answer comes.
    """

    def __init__(self, head: Mapping[str, Any]) -> None:
        self._head = dict(head)
        self._output: list[dict[str, Any]] = []
        self._is_open = False
        self._has_begun = False
        self._n_events = 0
        self._extras = Extras(wants_tokens=False)

    def whole(self, items: Sequence[Told]) -> dict[str, Any]:
        """A response."""
        events = [event for item in items for event in self._events(item)]
        response: dict[str, Any] = events[-1]["response"]
        return response

    def frames(self, item: Told) -> Iterator[str]:
        """Events of a response."""
        for event in self._events(item):
            numbered = {"type": event["type"], "sequence_number": self._n_events, **event}
            self._n_events += 1
            yield frame(numbered, event["type"])

    def error_frame(self, error: Mapping[str, Any]) -> str:
        """The event of an error."""
        details = error["error"]
        data = {"type": "error", "sequence_number": self._n_events, "param": None, **details}
        return frame({**data, "code": details["type"]}, "error")

    def _events(self, item: Told) -> Events:
        if not self._has_begun:
            self._has_begun = True
            yield {"type": "response.created", "response": self._response("in_progress")}
            yield {"type": "response.in_progress", "response": self._response("in_progress")}
        self._extras.note(item)
        event = chat_event(item)
        if isinstance(event, Reasoning):
            yield from self._need("reasoning", {"summary": [], "content": [_part("reasoning_text")]})
            yield self._add_text(event.text, "reasoning_text")
        elif isinstance(event, Content):
            yield from self._need("message", {"role": "assistant", "content": [_part("output_text")]})
            yield self._add_text(event.text, "output_text")
        elif isinstance(event, CallStart):
            yield from self._close()
            call = {"call_id": event.id, "name": event.name, "arguments": ""}
            yield from self._need("function_call", call)
        elif isinstance(event, CallArguments):
            self._output[-1]["arguments"] += event.text
            yield {"type": "response.function_call_arguments.delta", **self._place(), "delta": event.text}
        elif isinstance(event, CallEnd):
            yield from self._close()
        elif isinstance(event, Done):
            yield from self._close(event)
            yield self._end(event)

    # ---- items ----

    def _need(self, kind: str, fields: dict[str, Any]) -> Events:
        """Has an item of this kind open."""
        if self._is_open and self._output[-1]["type"] == kind:
            return
        yield from self._close()
        prefix = {"reasoning": "rs", "message": "msg", "function_call": "fc"}[kind]
        item = {"id": new_id(prefix), "type": kind, "status": "in_progress", **fields}
        self._output.append(item)
        self._is_open = True
        parts = item.get("content", [])
        yield {"type": "response.output_item.added", "output_index": len(self._output) - 1, "item": _copy(item, [])}
        for part in parts:
            yield {"type": "response.content_part.added", **self._place(), "content_index": 0, "part": dict(part)}

    def _close(self, done: Done | None = None) -> Events:
        """Ends the item that is open; with ``done``, because the answer ends."""
        if not self._is_open:
            return
        self._is_open = False
        item = self._output[-1]
        is_cut = done is not None and done.finish_reason == "length"
        item["status"] = "incomplete" if is_cut else "completed"
        if item["type"] == "function_call":
            text = {"arguments": item["arguments"], "name": item["name"]}
            yield {"type": "response.function_call_arguments.done", **self._place(), **text}
        for part in item.get("content", []):
            place = {**self._place(), "content_index": 0}
            yield {"type": f"response.{part['type']}.done", **place, "text": part["text"], **_logprobs(part["type"])}
            yield {"type": "response.content_part.done", **place, "part": dict(part)}
        index = len(self._output) - 1
        yield {"type": "response.output_item.done", "output_index": index, "item": _copy(item)}

    def _add_text(self, text: str, kind: str) -> dict[str, Any]:
        self._output[-1]["content"][0]["text"] += text
        return {
            "type": f"response.{kind}.delta", **self._place(), "content_index": 0, "delta": text, **_logprobs(kind),
        }  # fmt: skip

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._output[-1]["id"], "output_index": len(self._output) - 1}

    # ---- the whole ----

    def _end(self, done: Done) -> dict[str, Any]:
        status = "incomplete" if done.finish_reason == "length" else "completed"
        response = {
            **self._response(status),
            "usage": _usage(done.usage),
            "timings": self._extras.timings(done),
        }
        return {"type": f"response.{status}", "response": response}

    def _response(self, status: str) -> dict[str, Any]:
        reason = {"reason": "max_output_tokens"} if status == "incomplete" else None
        output = [_copy(item) for item in self._output]
        return {**self._head, "status": status, "incomplete_details": reason, "output": output, "usage": None}


def _part(kind: str) -> dict[str, Any]:
    return {"type": kind, "text": "", **({"annotations": [], "logprobs": []} if kind == "output_text" else {})}


def _logprobs(kind: str) -> dict[str, Any]:
    return {"logprobs": []} if kind == "output_text" else {}


def _copy(item: Mapping[str, Any], content: list[Any] | None = None) -> dict[str, Any]:
    """An item as it is now; ``content`` in place of its own."""
    copy = dict(item)
    if "content" in copy:
        copy["content"] = [dict(part) for part in item["content"]] if content is None else content
    return copy


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
