"""Servers in this process, for tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from pydspark import Llama
from pydspark.records import Progress
from pydspark.server.app import make_app
from pydspark.server.listen import Listener, bind, url_of
from pydspark.server.service import Service
from pydspark.server.settings import ServerParams

WAIT_S = 60.0
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 8}
HELLO = [{"role": "user", "content": "hello"}]


def load_pair(target: Path, draft: Path | None = None, **options: Any) -> Callable[[Progress], Llama]:
    """Opens a model on one thread when the server asks for it."""
    options = {"n_ctx": 256, "n_threads": 1, **options}
    return lambda progress: Llama(target, draft=draft, progress=progress, **options)


def wait_until(condition: Callable[[], bool]) -> None:
    """Waits for something to become true."""
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


class Serving:
    """A server that runs while this is entered.

    Args:
        load: opens the model.
        name: of the model.
        sampling, chat, hidden: see ``Service``. Rounds are equally deep unless ``sampling`` says otherwise.
        settings: fields of ``ServerParams``.

    Attributes:
        url: where it is.
        client: for requests to it.
        error: what ended its engine.
    """

    def __init__(
        self,
        load: Callable[[Progress], Llama],
        name: str = "tiny",
        sampling: dict[str, Any] | None = None,
        chat: dict[str, Any] | None = None,
        hidden: tuple[Path, ...] = (),
        **settings: Any,
    ) -> None:
        self.error: BaseException | None = None
        self._is_ready = threading.Event()
        sampling = {"draft_schedule": "fixed", **(sampling or {})}
        self.service = Service(
            ServerParams(**{"metrics": True, "warmup": False, **settings}), load, name, sampling, chat or {},
            hidden, on_ready=lambda model: self._is_ready.set(), on_end=self._note_end,
        )  # fmt: skip
        self._socket = bind("127.0.0.1", 0)
        self._listener = Listener(make_app(self.service), self.service.worker.stop)
        self._thread = threading.Thread(target=self._listener.run, kwargs={"sockets": [self._socket]})
        self.url = url_of(self._socket)
        self.address: tuple[str, int] = self._socket.getsockname()
        self.client = httpx.Client(base_url=self.url, timeout=WAIT_S)

    def _note_end(self, error: BaseException | None) -> None:
        self.error = error
        self._is_ready.set()

    def __enter__(self) -> Serving:
        self.start()
        assert self._is_ready.wait(WAIT_S)
        if self.error is not None:
            self.stop()
            raise self.error
        return self

    def start(self) -> None:
        """Listens, and begins to load."""
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends at once."""
        self.service.worker.stop(in_haste=True)
        self.client.close()
        self._listener.stop()
        self._thread.join(WAIT_S)
        self.service.worker.join(WAIT_S)
        self._socket.close()
        assert not self._thread.is_alive()

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        """A request with a JSON body."""
        return self.client.post(path, json=body, **options)

    def ok(self, path: str, body: Any, **options: Any) -> dict[str, Any]:
        """The JSON of an answer that must be right."""
        response = self.post(path, body, **options)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def error_of(self, path: str, body: Any, status: int = 400) -> dict[str, Any]:
        """The error object of an answer that must be wrong."""
        response = self.post(path, body)
        assert response.status_code == status, response.text
        error: dict[str, Any] = response.json()["error"]
        assert error["code"] == status
        return error

    def stream(self, path: str, body: dict[str, Any]) -> list[str]:
        """The data of every event of a stream."""
        with self.client.stream("POST", path, json={**body, "stream": True}) as response:
            assert response.status_code == 200, response.read()
            assert response.headers["content-type"].startswith("text/event-stream")
            text = "".join(response.iter_text())
        events = [event for event in text.split("\n\n") if event]
        return [line.removeprefix("data: ") for event in events for line in event.split("\n") if line[:5] == "data:"]
