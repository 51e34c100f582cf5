"""``/v1/messages``, Anthropic's interface."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pydspark.generate import Done, Usage
from pydspark.server.anthropic_input import chat_fields, messages_of, tools_of
from pydspark.server.extras import Extras
from pydspark.server.fields import Fields
from pydspark.server.job import Ask, Told, chat_event
from pydspark.server.openai_chat import ask_of
from pydspark.server.reply import frame
from pydspark.server.service import Service
from pydspark.text.chat_parts import CallArguments, CallStart, Content, Reasoning

KNOWN = frozenset({
    "messages", "system", "tools", "tool_choice", "stop_sequences", "thinking", "stream", "cache_prompt",
    "chat_template_kwargs", "enable_thinking", "plain_speed", "sse_ping_interval", "speculative",
})  # fmt: skip
_MAX_TOKENS = 4096  # of a request that does not say

Events = Iterator[dict[str, Any]]


class MessagesRoutes:
    """Chats in Anthropic's form."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        """The routes."""
        return [
            Route("/v1/messages", self.create, methods=["POST"]),
            Route("/v1/messages/count_tokens", self.count, methods=["POST"]),
        ]

    async def create(self, request: Request) -> Response:
        """Answers a chat."""
        service = self._service
        fields = await service.read(request, KNOWN)
        stream = fields.flag("stream")
        chat = chat_fields(fields)
        ask = await service.in_thread(lambda: self._ask(fields, chat))
        answer = MessagesFormat(service.name, len(ask.prompt.tokens))
        return service.reply(request, chat, ask, answer, stream)

    def _ask(self, fields: Fields, chat: Fields) -> Ask:
        limit = {} if chat.first("max_tokens", "n_predict") else {"max_tokens": _MAX_TOKENS}
        params = self._service.sampling_params(chat, **limit)
        prompt = self._service.chat_prompt(chat, messages_of(fields), tools_of(fields))
        return ask_of(self._service, chat, prompt=prompt, params=params)

    async def count(self, request: Request) -> Response:
        """Counts the tokens of a chat's prompt."""
        fields = await self._service.read(request, KNOWN)
        chat = chat_fields(fields)
        messages, tools = messages_of(fields), tools_of(fields)
        prompt = await self._service.in_thread(lambda: self._service.chat_prompt(chat, messages, tools))
        return JSONResponse({"input_tokens": len(prompt.tokens)})


class MessagesFormat:
    """Answers as messages. A block is open at a time; it ends when something of another kind comes.

    Args:
        model: its name.
        n_prompt: tokens of the prompt.
    """

    def __init__(self, model: str, n_prompt: int) -> None:
        self._model = model
        self._n_prompt = n_prompt
        self._id = f"msg_{uuid.uuid4().hex}"
        self._content: list[dict[str, Any]] = []
        self._is_open = False
        self._has_begun = False
        self._extras = Extras(wants_tokens=False)

    def whole(self, items: Sequence[Told]) -> dict[str, Any]:
        """A message."""
        done: Done | None = None
        for item in items:
            for _ in self._events(item):
                pass
            done = item if isinstance(item, Done) else done
        if done is None:
            raise RuntimeError("the events ended without Done")
        content = [_read_input(block) for block in self._content]
        return {**self._message(content, done), "timings": self._extras.timings(done)}

    def frames(self, item: Told) -> Iterator[str]:
        """Events of a message."""
        return (frame(event, event["type"]) for event in self._events(item))

    def error_frame(self, error: Mapping[str, Any]) -> str:
        """The event of an error."""
        return frame({"type": "error", **error}, "error")

    def _events(self, item: Told) -> Events:
        if not self._has_begun:
            self._has_begun = True
            yield {"type": "message_start", "message": self._message([], None)}
        self._extras.note(item)
        event = chat_event(item)
        if isinstance(event, Reasoning):
            yield from self._need({"type": "thinking", "thinking": "", "signature": ""})
            yield self._add("thinking", "thinking_delta", event.text)
        elif isinstance(event, Content):
            yield from self._need({"type": "text", "text": ""})
            yield self._add("text", "text_delta", event.text)
        elif isinstance(event, CallStart):
            yield from self._close()
            yield from self._need({"type": "tool_use", "id": event.id, "name": event.name, "input": {}})
            self._content[-1]["partial_json"] = ""
        elif isinstance(event, CallArguments):
            yield self._add("partial_json", "input_json_delta", event.text)
        elif isinstance(event, Done):
            yield from self._close()
            end = {"stop_reason": _stop_reason(event), "stop_sequence": event.stop}
            timings = self._extras.timings(event)
            yield {"type": "message_delta", "delta": end, "usage": _usage(event.usage), "timings": timings}
            yield {"type": "message_stop"}

    def _need(self, block: dict[str, Any]) -> Events:
        """Has a block of this kind open."""
        if self._is_open and self._content[-1]["type"] == block["type"]:
            return
        yield from self._close()
        self._content.append(block)
        self._is_open = True
        yield {"type": "content_block_start", "index": len(self._content) - 1, "content_block": dict(block)}

    def _close(self) -> Events:
        if self._is_open:
            self._is_open = False
            yield {"type": "content_block_stop", "index": len(self._content) - 1}

    def _add(self, key: str, kind: str, text: str) -> dict[str, Any]:
        self._content[-1][key] += text
        index = len(self._content) - 1
        return {"type": "content_block_delta", "index": index, "delta": {"type": kind, key: text}}

    def _message(self, content: list[dict[str, Any]], done: Done | None) -> dict[str, Any]:
        usage = Usage(self._n_prompt, 0, 0) if done is None else done.usage
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "content": content,
            "model": self._model,
            "stop_reason": None if done is None else _stop_reason(done),
            "stop_sequence": None if done is None else done.stop,
            "usage": _usage(usage),
        }


def _read_input(block: dict[str, Any]) -> dict[str, Any]:
    """A block with the arguments of a call as an object; of a call that is cut off, an empty one."""
    if block["type"] != "tool_use":
        return block
    text = block.pop("partial_json")
    try:
        value = json.loads(text or "{}")
    except ValueError:
        value = {}
    return {**block, "input": value}


def _stop_reason(done: Done) -> str:
    if done.stop is not None:
        return "stop_sequence"
    return {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}[done.finish_reason]


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    }
