"""Reads the JSON object of a request, within limits."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

from starlette.requests import ClientDisconnect, Request

from pydspark.server.errors import HttpError

MAX_DEPTH = 100
_LARGE = 1 << 16  # bytes from which on parsing would hold up others


async def read_object(request: Request, max_bytes: int) -> dict[str, Any]:
    """The fields of the body that are not null.

    Raises:
        HttpError: it is too large, no JSON, no object, or nested too deeply.
    """
    data = await _read(request, max_bytes)
    parse = asyncio.to_thread(parse_object, data) if len(data) > _LARGE else None
    return await parse if parse is not None else parse_object(data)


async def _read(request: Request, max_bytes: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    data = bytearray()
    try:
        async for part in request.stream():
            data += part
            if len(data) > max_bytes:
                raise _too_large(max_bytes)
    except ClientDisconnect:
        raise HttpError(400, "The request ended before its body did") from None
    return bytes(data)


def _too_large(max_bytes: int) -> HttpError:
    # The rest of the body is not read, so the connection is of no more use.
    message = f"The request is larger than {max_bytes >> 20} MiB; see --max-body"
    return HttpError(413, message, headers={"Connection": "close"})


def parse_object(data: bytes) -> dict[str, Any]:
    """The fields of a JSON object that are not null.

    Raises:
        HttpError: something else, or nested too deeply.
    """
    try:
        value = json.loads(data.decode("utf-8-sig"), parse_constant=_refuse, parse_float=_finite)
    except UnicodeDecodeError:
        raise HttpError(400, "The body is not UTF-8") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise HttpError(400, f"The body is not JSON: {error}" if data else "The body is empty") from None
    if not isinstance(value, Mapping):
        raise HttpError(400, f"The body must be a JSON object, not {_kind(value)}")
    _check(value, has_escapes=b"\\u" in data)
    return {name: item for name, item in value.items() if item is not None}


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _kind(value: object) -> str:
    names = {list: "an array", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _check(value: object, has_escapes: bool) -> None:
    """Refuses what is nested too deeply, and texts that no encoding can hold."""
    level: list[object] = [value]
    for _ in range(MAX_DEPTH):
        below: list[object] = []
        for item in level:
            if isinstance(item, dict):
                below += item.values()
                if has_escapes:
                    below += item.keys()
            elif isinstance(item, list):
                below += item
            elif has_escapes and isinstance(item, str):
                _check_text(item)
        if not below:
            return
        level = below
    raise _too_deep()


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise HttpError(400, "A text in the body has half of a surrogate pair, such as \\ud800") from None


def _too_deep() -> HttpError:
    return HttpError(400, f"The body is nested deeper than {MAX_DEPTH} levels")
