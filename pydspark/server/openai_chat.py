"""``/v1/chat/completions``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pydspark import results
from pydspark.chat_results import ChatChunks, chat
from pydspark.generate import Done
from pydspark.server.errors import HttpError
from pydspark.server.extras import Extras, progress_object
from pydspark.server.fields import Fields
from pydspark.server.form_fields import FORM
from pydspark.server.job import Ask, PromptProgress, Told, chat_event
from pydspark.server.reply import frame
from pydspark.server.sampling_fields import top_logprobs
from pydspark.server.service import FINGERPRINT, Service

KNOWN = frozenset({
    "messages", "tools", "tool_choice", "parallel_tool_calls", "stream", "stream_options", "logprobs", "top_logprobs",
    "cache_prompt", "timings_per_token", "return_progress", "return_tokens", "plain_speed", "chat_template_kwargs",
    "enable_thinking", "reasoning_format", "reasoning_effort", "add_generation_prompt", "sse_ping_interval",
    "speculative", *FORM,
})  # fmt: skip


class ChatRoutes:
    """Chats in OpenAI's form."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        """The routes."""
        return [
            Route("/v1/chat/completions", self.create, methods=["POST"]),
            Route("/chat/completions", self.create, methods=["POST"]),
            Route("/v1/chat/completions/input_tokens", self.count, methods=["POST"]),
            Route("/apply-template", self.apply_template, methods=["POST"]),
        ]

    async def create(self, request: Request) -> Response:
        """Answers a chat."""
        service = self._service
        fields = await service.read(request, KNOWN)
        stream = fields.flag("stream")
        include_usage = wants_usage(fields)
        ask = await service.in_thread(lambda: self._ask(fields))
        shape = service.shape("chatcmpl", ask)
        answer = ChatFormat(shape, include_usage, fields.flag("return_tokens"))
        return service.reply(request, fields, ask, answer, stream)

    def _ask(self, fields: Fields) -> Ask:
        params = self._service.sampling_params(fields, **_logprobs(fields))
        prompt = self._service.chat_prompt(fields, messages_of(fields), tools_of(fields))
        return ask_of(self._service, fields, prompt=prompt, params=params)

    async def count(self, request: Request) -> Response:
        """Counts the tokens of a chat's prompt."""
        fields = await self._service.read(request, KNOWN)
        messages, tools = messages_of(fields), tools_of(fields)
        prompt = await self._service.in_thread(lambda: self._service.chat_prompt(fields, messages, tools))
        return JSONResponse({"object": "response.input_tokens", "input_tokens": len(prompt.tokens)})

    async def apply_template(self, request: Request) -> Response:
        """The text of a chat's prompt."""
        fields = await self._service.read(request, KNOWN)
        messages, tools = messages_of(fields), tools_of(fields)
        text = await self._service.in_thread(lambda: self._service.chat_text(fields, messages, tools))
        return JSONResponse({"prompt": text})


def ask_of(service: Service, fields: Fields, **what: Any) -> Ask:
    """A generation with what the fields say about how it is told."""
    return Ask(
        **what,
        reuse_prefix=service.reuses_prefix(fields),
        wants_progress=fields.flag("return_progress"),
        wants_timings=fields.flag("timings_per_token"),
        wants_plain_speed=fields.flag("plain_speed"),
    )


def wants_usage(fields: Fields) -> bool:
    """Whether a stream tells its token counts."""
    options = fields.object("stream_options")
    return options is not None and options.flag("include_usage")


def messages_of(fields: Fields) -> list[Any]:
    """The messages of a chat."""
    messages = fields.array("messages")
    if messages is None:
        raise fields.error("messages", "a list of messages")
    return messages


def tools_of(fields: Fields) -> list[Any] | None:
    """The tools that the model is told of."""
    return None if fields.get("tool_choice") == "none" else fields.array("tools") or None


def _logprobs(fields: Fields) -> dict[str, Any]:
    n_top = top_logprobs(fields, "top_logprobs")
    wanted = fields.flag("logprobs")
    if n_top and not wanted:
        raise HttpError(400, "top_logprobs needs logprobs: true", "top_logprobs")
    return {"logprobs": wanted, "top_logprobs": n_top}


class ChatFormat:
    """Answers as chat completions.

    Args:
        shape: what the dictionaries share.
        include_usage: end a stream with the token counts.
        wants_tokens: tell the ids of the tokens.
    """

    def __init__(self, shape: results.Shape, include_usage: bool, wants_tokens: bool) -> None:
        self._shape = shape
        self._include_usage = include_usage
        self._chunks = ChatChunks(shape)
        self._extras = Extras(wants_tokens)
        self._has_begun = False

    def whole(self, items: Sequence[Told]) -> dict[str, Any]:
        """A chat completion."""
        for item in items:
            self._extras.note(item)
        events = [event for item in items if (event := chat_event(item)) is not None]
        answer = chat(events, self._shape)
        (done,) = (event for event in events if isinstance(event, Done))
        extras = {**self._extras.take(), "timings": self._extras.timings(done)}
        return {**answer, "system_fingerprint": FINGERPRINT, **extras}

    def frames(self, item: Told) -> Iterator[str]:
        """Chunks of a chat completion."""
        if not self._has_begun:
            self._has_begun = True
            chunk = self._chunks.begin()
            chunk["choices"][0]["delta"]["content"] = None
            yield self._frame(chunk)
        if isinstance(item, PromptProgress):
            yield self._frame({**self._chunks.empty(), "prompt_progress": progress_object(item)})
            return
        self._extras.note(item)
        event = chat_event(item)
        if isinstance(event, Done):
            yield from self._end(event)
        elif event is not None and (chunk_or_none := self._chunks.add(event)) is not None:
            yield self._frame({**chunk_or_none, **self._extras.take()})

    def _end(self, done: Done) -> Iterator[str]:
        last = self._chunks.add(done) or {}
        timings = {"timings": self._extras.timings(done)}
        extras = self._extras.take()
        if not self._include_usage:
            yield self._frame({**last, **extras, **timings})
        else:
            del last["timings"]
            yield self._frame({**last, **extras})
            head = results.head(self._shape, "chat.completion.chunk")
            yield self._frame({**head, "choices": [], "usage": results.usage(done.usage), **timings})
        yield "data: [DONE]\n\n"

    def error_frame(self, error: Mapping[str, Any]) -> str:
        """The error object."""
        return frame(error)

    def _frame(self, chunk: dict[str, Any]) -> str:
        return frame({**chunk, "system_fingerprint": FINGERPRINT})
