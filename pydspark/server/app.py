"""Puts the routes together: requests come in through the gate, errors go out as objects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from pydspark.errors import PydsparkError
from pydspark.server import anthropic, native_completion, openai_chat, openai_text, page_routes, responses
from pydspark.server.access import HostCheck, KeyCheck, OriginCheck
from pydspark.server.anthropic import MessagesRoutes
from pydspark.server.errors import HttpError, as_http_error
from pydspark.server.gate import Gate, error_response
from pydspark.server.native import NativeRoutes
from pydspark.server.native_completion import CompletionRoutes
from pydspark.server.openai_chat import ChatRoutes
from pydspark.server.openai_text import TextRoutes
from pydspark.server.openapi import OpenApiRoutes
from pydspark.server.page_routes import PageRoutes
from pydspark.server.responses import ResponsesRoutes
from pydspark.server.sampling_fields import MAX_TOKENS, SAMPLING
from pydspark.server.service import Service

_HEALTH = ("/health", "/v1/health")
_PUBLIC = page_routes.PATHS.union(_HEALTH)
FIELD_NAMES = frozenset(SAMPLING + MAX_TOKENS).union(
    *(module.KNOWN for module in (openai_chat, openai_text, native_completion, responses, anthropic))
)


def make_app(service: Service) -> ASGIApp:
    """The ASGI application of a service. Its lifespan loads the model, and stops the engine."""
    settings = service.settings
    app = Starlette(routes=routes(service), lifespan=_lifespan(service))
    for kind in (HttpError, HTTPException, PydsparkError, Exception):
        app.add_exception_handler(kind, _error_handler(service))
    return Gate(
        app,
        HostCheck((*settings.allowed_hosts, settings.host)),
        OriginCheck(settings.cors_origins),
        KeyCheck(settings.api_key),
        _PUBLIC if settings.ui else frozenset(_HEALTH),
        service.not_ready,
    )


def routes(service: Service) -> list[Route]:
    """Every route of a service."""
    return [
        *NativeRoutes(service).routes(),
        *ChatRoutes(service).routes(),
        *TextRoutes(service).routes(),
        *CompletionRoutes(service).routes(),
        *ResponsesRoutes(service).routes(),
        *MessagesRoutes(service).routes(),
        *OpenApiRoutes().routes(),
        *(PageRoutes().routes() if service.settings.ui else ()),
    ]


def _lifespan(service: Service) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        service.worker.start()
        yield
        service.worker.stop(in_haste=True)

    return lifespan


def _error_handler(service: Service) -> Callable[[Request, Exception], Response]:
    def answer(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            words = {404: "File Not Found", 405: f"{request.method} is not allowed here"}
            message = words.get(error.status_code, error.detail)
            found = HttpError(error.status_code, message, headers=error.headers)
        else:
            found = as_http_error(error, FIELD_NAMES)
        return error_response(found, request.url.path, service.hidden)

    return answer
