"""The middleware that every request passes first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pydspark.server.access import HostCheck, KeyCheck, OriginCheck
from pydspark.server.errors import HttpError, error_object

_METHODS = "GET, POST, OPTIONS"
_PREFLIGHT_AGE_S = "600"
_SAFETY_HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}


def error_response(error: HttpError, path: str, hidden: Iterable[Path] = ()) -> Response:
    """An error in the shape that clients of this path expect."""
    body = error_object(error, hidden)
    if path.startswith("/v1/messages"):
        body = {"type": "error", **body}
    return JSONResponse(body, error.status, error.headers)


class Gate:
    """Checks host, origin, whether the model is there, and the key, in this order; answers preflight requests.

    Args:
        app: what is behind it.
        hosts, origins, keys: the checks.
        public: paths that need neither a key nor a model.
        not_ready: the error to answer with while there is no model, or None.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: HostCheck,
        origins: OriginCheck,
        keys: KeyCheck,
        public: frozenset[str],
        not_ready: Callable[[], HttpError | None],
    ) -> None:
        self._app = app
        self._hosts = hosts
        self._origins = origins
        self._keys = keys
        self._public = public
        self._not_ready = not_ready

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request, or passes on what is none."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin, host = headers.get("origin"), headers.get("host")
        is_allowed = origin is not None and self._origins.allows(origin, host)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer = MutableHeaders(scope=message)
                answer.update(_SAFETY_HEADERS)
                if origin is not None:
                    answer.add_vary_header("Origin")
                if origin is not None and is_allowed:
                    answer["Access-Control-Allow-Origin"] = origin
            await send(message)

        response = self._answer(scope, headers, origin, host, is_allowed)
        await (response or self._app)(scope, receive, send_with_headers)

    def _answer(
        self, scope: Scope, headers: Headers, origin: str | None, host: str | None, is_allowed: bool
    ) -> Response | None:
        path = scope["path"]
        if not self._hosts.allows(host):
            return error_response(HttpError(403, "This Host is not allowed; see --allowed-hosts"), path)
        if origin is not None and not is_allowed:
            return error_response(HttpError(403, "This Origin is not allowed; see --cors-origins"), path)
        if scope["method"] == "OPTIONS":
            return _preflight(headers)
        if path in self._public:
            return None
        error = self._not_ready()
        if error is None and not self._keys.allows(headers):
            error = HttpError(401, "Invalid API Key", headers={"WWW-Authenticate": "Bearer"})
        return None if error is None else error_response(error, path)


def _preflight(headers: Headers) -> Response:
    wanted = headers.get("access-control-request-headers")
    answer = {"Allow": _METHODS, "Access-Control-Allow-Methods": _METHODS, "Access-Control-Max-Age": _PREFLIGHT_AGE_S}
    if wanted is not None:
        answer["Access-Control-Allow-Headers"] = wanted
    return Response(status_code=204, headers=answer)
