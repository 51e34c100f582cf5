"""``/v1/responses``."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pydspark.server.fields import Fields
from pydspark.server.job import Ask
from pydspark.server.openai_chat import ask_of
from pydspark.server.responses_format import ResponsesFormat, new_id
from pydspark.server.responses_input import chat_fields, messages_of, tools_of
from pydspark.server.service import Service

KNOWN = frozenset({
    "input", "instructions", "max_output_tokens", "tools", "tool_choice", "parallel_tool_calls", "stream", "text",
    "reasoning", "include", "background", "previous_response_id", "conversation", "truncation", "max_tool_calls",
    "top_logprobs", "cache_prompt", "chat_template_kwargs", "enable_thinking", "plain_speed", "sse_ping_interval",
    "speculative",
})  # fmt: skip


class ResponsesRoutes:
    """Answers in the form of OpenAI's responses."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        """The routes."""
        return [
            *(Route(path, self.create, methods=["POST"]) for path in ("/v1/responses", "/responses")),
            Route("/v1/responses/input_tokens", self.count, methods=["POST"]),
        ]

    async def create(self, request: Request) -> Response:
        """Answers an input."""
        service = self._service
        fields = await service.read(request, KNOWN)
        stream = fields.flag("stream")
        chat = chat_fields(fields)
        ask = await service.in_thread(lambda: self._ask(fields, chat))
        return service.reply(request, chat, ask, ResponsesFormat(self._head(fields, ask)), stream)

    def _ask(self, fields: Fields, chat: Fields) -> Ask:
        prompt = self._service.chat_prompt(chat, messages_of(fields), tools_of(fields))
        return ask_of(self._service, chat, prompt=prompt, params=self._service.sampling_params(chat))

    async def count(self, request: Request) -> Response:
        """Counts the tokens of an input."""
        fields = await self._service.read(request, KNOWN)
        chat = chat_fields(fields)
        messages, tools = messages_of(fields), tools_of(fields)
        prompt = await self._service.in_thread(lambda: self._service.chat_prompt(chat, messages, tools))
        return JSONResponse({"object": "response.input_tokens", "input_tokens": len(prompt.tokens)})

    def _head(self, fields: Fields, ask: Ask) -> dict[str, Any]:
        """What does not change while the answer comes."""
        metadata = fields.object("metadata")
        return {
            "id": new_id("resp"),
            "object": "response",
            "created_at": int(time.time()),
            "background": False,
            "error": None,
            "instructions": fields.text("instructions"),
            "max_output_tokens": ask.params.max_tokens,
            "metadata": {} if metadata is None else {name: metadata[name] for name in metadata},
            "model": self._service.name,
            "parallel_tool_calls": fields.flag("parallel_tool_calls", True),
            "previous_response_id": None,
            "reasoning": fields.get("reasoning", {"effort": None, "summary": None}),
            "store": False,
            "temperature": ask.params.temperature,
            "text": fields.get("text", {"format": {"type": "text"}}),
            "tool_choice": fields.get("tool_choice", "auto"),
            "tools": fields.array("tools") or [],
            "top_p": ask.params.top_p,
            "truncation": "disabled",
        }
