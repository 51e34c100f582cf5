"""Sends an answer while the engine makes it, and stops the engine when nobody reads it any more."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from pydspark.generate import Done
from pydspark.server.errors import HttpError, as_http_error, error_object
from pydspark.server.gate import error_response
from pydspark.server.job import Failure, Item, Job, Told
from pydspark.server.worker import Worker

_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # a proxy should pass every event on at once
]
_PING = b":\n\n"
_GRACE_S = 5.0  # for an answer to reach a client that reads slowly


class Format(Protocol):
    """Turns what the engine tells into what clients of one interface expect."""

    def whole(self, items: Sequence[Told]) -> dict[str, Any]:
        """The answer to a request that is not streamed."""

    def frames(self, item: Told) -> Iterable[str]:
        """Events of a stream for the next item."""

    def error_frame(self, error: Mapping[str, Any]) -> str:
        """The event that ends a stream with an error object."""


def frame(data: Mapping[str, Any], event: str | None = None) -> str:
    """A server-sent event."""
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'), allow_nan=False)}\n\n"


class Reply(Response):
    """The answer of a generation.

    Args:
        worker: runs the job.
        job: not submitted yet.
        answer: how the answer looks.
        stream: whether it is sent while it comes.
        ping_s: seconds of silence after which a comment is sent; -1 = never.
        timeout_s: seconds after which it is given up.
        hidden: folders that errors do not show.

    Raises:
        HttpError: too many jobs are waiting.
    """

    def __init__(
        self,
        worker: Worker,
        job: Job,
        answer: Format,
        stream: bool,
        ping_s: float,
        timeout_s: float,
        hidden: Iterable[Path],
    ) -> None:
        super().__init__()
        self._worker = worker
        self._job = job
        self._answer = answer
        self._stream = stream
        self._ping_s = ping_s if ping_s > 0 else math.inf
        self._timeout_s = timeout_s
        self._end = time.monotonic() + timeout_s
        self._hidden = tuple(hidden)
        worker.submit(job)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the answer."""
        sending = asyncio.ensure_future((self._send_stream if self._stream else self._send_whole)(scope, receive, send))
        leaving = asyncio.ensure_future(_disconnect(receive))
        try:
            limit_s = self._timeout_s + _GRACE_S
            await asyncio.wait({sending, leaving}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            self._worker.cancel(self._job)
            for task in (sending, leaving):
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task

    async def _send_whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        told: list[Told] = []
        response: Response | None = None
        async for batch in self._batches():
            for item in batch:
                if isinstance(item, Failure):
                    response = error_response(as_http_error(item.error), scope["path"], self._hidden)
                else:
                    told.append(item)
        response = response or JSONResponse(self._answer.whole(told))
        await response(scope, receive, send)

    async def _send_stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False
        async for batch in self._batches():
            # Until something is sent, an error still can be an answer of its own.
            if not has_begun and batch and isinstance(batch[0], Failure):
                response = error_response(as_http_error(batch[0].error), scope["path"], self._hidden)
                await response(scope, receive, send)
                return
            if not has_begun:
                has_begun = True
                await send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
            body = "".join(text for item in batch for text in self._frames(item)).encode() if batch else _PING
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _frames(self, item: Item) -> Iterable[str]:
        if isinstance(item, Failure):
            return [self._answer.error_frame(error_object(as_http_error(item.error), self._hidden))]
        return self._answer.frames(item)

    async def _batches(self) -> AsyncIterator[Sequence[Item]]:
        """What comes, up to the end; nothing where the silence has been long."""
        while True:
            left_s = self._end - time.monotonic()
            if left_s <= 0:
                yield (Failure(HttpError(503, "The request took longer than --timeout allows")),)
                return
            batch = await self._job.items.take(min(self._ping_s, left_s))
            yield batch
            if batch and isinstance(batch[-1], (Done, Failure)):
                return


async def _disconnect(receive: Receive) -> None:
    """Waits until the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
