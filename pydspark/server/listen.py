"""Runs the application on a socket until somebody stops it."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from pydspark.errors import PydsparkError

INTERRUPTED = 130
_BACKLOG = 512
_KEEP_ALIVE_S = 30


class AddressError(PydsparkError):
    """An address that cannot be listened on."""


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Raises:
        AddressError: somebody else does already, or there is no such address.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        hint = "; is a server running already? --port takes another one" if error.errno == 98 else ""
        raise AddressError(f"cannot listen on {host}, port {port}: {error.strerror or error}{hint}") from None


def url_of(listener: socket.socket) -> str:
    """The address of a socket, for people."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Listener(uvicorn.Server):
    """Serves until it is told to stop: then it lets running answers end, and at the second time it does not.

    Args:
        app: what is served.
        on_stop: called when it begins to end.
    """

    def __init__(self, app: ASGIApp, on_stop: Callable[[], None]) -> None:
        config = uvicorn.Config(
            app, http="h11", ws="none", lifespan="on", log_config=None, access_log=False, server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
        )  # fmt: skip
        super().__init__(config)
        self._on_stop = on_stop
        self.signal: int | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Takes Ctrl-C and SIGTERM over while it runs. One that the process was started to ignore stays ignored."""
        # Only the main thread can take signals over.
        numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
        before = {number: signal.getsignal(number) for number in numbers}
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, self._handle)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            os._exit(INTERRUPTED)  # the second time
        self.signal = number
        self.stop()

    def stop(self) -> None:
        """Accepts nothing new and ends after the running answers. May be called from any thread."""
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends after the running answers; called by uvicorn."""
        self._on_stop()
        await super().shutdown(sockets)
