"""Errors as the objects that clients get."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydspark.errors import ArgumentError, Cancelled, ClosedError, ContextFullError, InternalError, PydsparkError

log = logging.getLogger("pydspark.server")

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    413: "invalid_request_error",
    501: "not_supported_error",
    503: "unavailable_error",
}
# What a message of the Python API begins with, where it is about a value that the caller gave.
_FIELD = re.compile(r"[a-z][a-z_]*(?:\[\d+\])?(?:\.[a-z_]+(?:\[\d+\])?)*")


class HttpError(Exception):
    """A request that is answered with an error.

    Attributes:
        status: of the answer.
        param: the field at fault.
        headers: of the answer.
        details: further keys of the error object.
    """

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.headers = dict(headers or {})
        self.details = dict(details or {})


def bad_field(name: str, wanted: str, value: object) -> HttpError:
    """The error for a field that has the wrong value."""
    return HttpError(400, f"{name} must be {wanted}, not {shown(value)}", name)


def shown(value: object) -> str:
    """A value for a message, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def as_http_error(error: BaseException, fields: Iterable[str] = ()) -> HttpError:
    """Any error as an answer. One that nobody expected is logged, and its words are not passed on.

    Args:
        error: what was raised.
        fields: names of the fields that a request can have, one of which may be at fault.
    """
    if isinstance(error, HttpError):
        return error
    if isinstance(error, (Cancelled, ClosedError)):
        return HttpError(503, "The server is stopping", headers={"Connection": "close"})
    if isinstance(error, InternalError) or not isinstance(error, PydsparkError):
        log.error("%s: %s", type(error).__name__, error, exc_info=error)
        return HttpError(500, "The server has met an error of its own; its log says more")
    details: dict[str, Any] = {"type": error.http_type}
    if isinstance(error, ContextFullError):
        details |= {"n_prompt_tokens": error.n_prompt_tokens, "n_ctx": error.n_ctx}
    param = _param(str(error), fields) if isinstance(error, ArgumentError) else None
    return HttpError(error.http_status, str(error), param, details=details)


def _param(message: str, fields: Iterable[str]) -> str | None:
    found = _FIELD.match(message)
    name = found.group() if found else ""
    return name if re.split(r"[\[.]", name)[0] in set(fields) else None


def error_object(error: HttpError, hidden: Iterable[Path] = ()) -> dict[str, Any]:
    """The body of the answer.

    Args:
        error: what went wrong.
        hidden: folders that clients need not know.
    """
    message = str(error)
    for folder in hidden:
        message = message.replace(f"{folder}/", "")
    details = {"code": error.status, "message": message, "type": _TYPES.get(error.status, "server_error")}
    param = {} if error.param is None else {"param": error.param}
    return {"error": {**details, **param, **error.details}}
