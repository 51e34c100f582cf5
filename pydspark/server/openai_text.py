"""``/v1/completions``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pydspark import results
from pydspark.generate import Done, Text, Token
from pydspark.server.errors import HttpError
from pydspark.server.extras import Extras
from pydspark.server.fields import Fields
from pydspark.server.form_fields import FORM
from pydspark.server.job import Ask, Told
from pydspark.server.openai_chat import ask_of, wants_usage
from pydspark.server.reply import frame
from pydspark.server.sampling_fields import top_logprobs
from pydspark.server.service import FINGERPRINT, Service
from pydspark.text.chat_parts import Content

KNOWN = frozenset({
    "prompt", "echo", "stream", "stream_options", "logprobs", "cache_prompt", "timings_per_token", "return_tokens",
    "plain_speed", "sse_ping_interval", "speculative", *FORM,
})  # fmt: skip


class TextRoutes:
    """Text completions in OpenAI's form."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        """The routes."""
        return [Route("/v1/completions", self.create, methods=["POST"])]

    async def create(self, request: Request) -> Response:
        """Continues a prompt."""
        service = self._service
        fields = await service.read(request, KNOWN)
        stream, echo = fields.flag("stream"), fields.flag("echo")
        include_usage = wants_usage(fields)
        prompt = one_prompt(fields)
        if echo and "logprobs" in fields:
            raise HttpError(400, "echo with logprobs is not supported: the prompt's are not kept", "echo")
        ask = await service.in_thread(lambda: self._ask(fields, prompt))
        echoed = service.engine.prompts.text(prompt) if echo else ""
        shape = service.shape("cmpl", ask, echoed)
        answer = TextFormat(shape, include_usage, fields.flag("return_tokens"))
        return service.reply(request, fields, ask, answer, stream)

    def _ask(self, fields: Fields, prompt: str | list[int]) -> Ask:
        n_top = top_logprobs(fields, "logprobs")
        params = self._service.sampling_params(fields, logprobs="logprobs" in fields, top_logprobs=n_top)
        tokens = self._service.engine.prompts.encode(prompt)
        return ask_of(self._service, fields, prompt=self._service.text_prompt(fields, tokens), params=params)


def one_prompt(fields: Fields) -> str | list[int]:
    """The prompt: a text, token ids, or a list with one of these."""
    prompt = fields.get("prompt")
    if isinstance(prompt, list) and prompt and all(isinstance(item, (str, list)) for item in prompt):
        if len(prompt) > 1:
            raise HttpError(400, f"prompt has {len(prompt)} prompts; this server takes one at a time", "prompt")
        prompt = prompt[0]
    if isinstance(prompt, str) or isinstance(prompt, list) and all(map(is_token, prompt)):
        return prompt
    raise fields.error("prompt", "a text or a list of token ids")


def is_token(value: object) -> bool:
    """Whether a value may be a token id."""
    return isinstance(value, int) and not isinstance(value, bool)


class TextFormat:
    """Answers as text completions.

    Args:
        shape: what the dictionaries share.
        include_usage: end a stream with the token counts.
        wants_tokens: tell the ids of the tokens.
    """

    def __init__(self, shape: results.Shape, include_usage: bool, wants_tokens: bool) -> None:
        self._shape = shape
        self._include_usage = include_usage
        self._chunks = results.CompletionChunks(shape)
        self._extras = Extras(wants_tokens)
        self._has_begun = False

    def whole(self, items: Sequence[Told]) -> dict[str, Any]:
        """A text completion."""
        for item in items:
            self._extras.note(item)
        events = [event for item in items if (event := plain_event(item)) is not None]
        done = events[-1]
        assert isinstance(done, Done)
        extras = {**self._extras.take(), "timings": self._extras.timings(done)}
        return {**results.completion(events, self._shape), "system_fingerprint": FINGERPRINT, **extras}

    def frames(self, item: Told) -> Iterator[str]:
        """Chunks of a text completion."""
        if not self._has_begun:
            self._has_begun = True
            first = self._chunks.begin()
            if first is not None:
                yield self._frame(first)
        self._extras.note(item)
        event = plain_event(item)
        chunk = None if event is None else self._chunks.add(event)
        if isinstance(event, Done) and chunk is not None:
            yield from self._end(chunk, event)
        elif chunk is not None:
            yield self._frame({**chunk, **self._extras.take()})

    def _end(self, last: dict[str, Any], done: Done) -> Iterator[str]:
        timings = {"timings": self._extras.timings(done)}
        extras = self._extras.take()
        if not self._include_usage:
            yield self._frame({**last, **extras, **timings})
        else:
            del last["timings"]
            yield self._frame({**last, **extras})
            head = results.head(self._shape, "text_completion")
            yield self._frame({**head, "choices": [], "usage": results.usage(done.usage), **timings})
        yield "data: [DONE]\n\n"

    def error_frame(self, error: Mapping[str, Any]) -> str:
        """The error object."""
        return frame(error)

    def _frame(self, chunk: dict[str, Any]) -> str:
        return frame({**chunk, "system_fingerprint": FINGERPRINT})


def plain_event(item: Told) -> Token | Text | Done | None:
    """An item as an event of a text completion, or None if it is none."""
    if isinstance(item, Content):
        return Text(item.text)
    return item if isinstance(item, (Token, Done)) else None
