"""Clients that leave, wait, or come in crowds."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import GREEDY, HELLO, WAIT_S, Serving, load_pair, wait_until

from pydspark import Llama
from pydspark.records import Progress

CHAT = "/v1/chat/completions"
LONG: dict[str, Any] = {"prompt": "hello", "temperature": 0, "max_tokens": 40_000, "ignore_eos": True}


@pytest.fixture(scope="module")
def endless_server(tiny_llama_path: Path) -> Iterator[Serving]:
    """A server whose answers can take many seconds."""
    load = load_pair(tiny_llama_path, n_ctx=50_000, n_ubatch=16, n_batch=16)
    with Serving(load, queue_size=4) as serving:
        yield serving


def is_idle(serving: Serving) -> bool:
    return serving.service.worker.running is None and serving.service.worker.n_waiting == 0


def send(serving: Serving, path: str, body: dict[str, Any]) -> socket.socket:
    """A connection with a request on it."""
    data = json.dumps(body).encode()
    connection = socket.create_connection(serving.address, timeout=WAIT_S)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
    connection.sendall(head.encode() + data)
    return connection


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_that_nobody_reads_any_more_ends(endless_server: Serving, stream: bool) -> None:
    connection = send(endless_server, "/v1/completions", {**LONG, "stream": stream})
    wait_until(lambda: (job := endless_server.service.worker.running) is not None and job.n_decoded > 0)
    job = endless_server.service.worker.running
    assert job is not None
    connection.close()
    wait_until(lambda: is_idle(endless_server))
    assert 0 < job.n_decoded < 40_000
    assert endless_server.ok("/v1/completions", {**LONG, "max_tokens": 3})["usage"]["completion_tokens"] == 3


def test_a_prompt_that_nobody_waits_for_any_more_ends(endless_server: Serving) -> None:
    connection = send(endless_server, "/v1/completions", {**LONG, "prompt": [104] * 30_000})
    wait_until(lambda: (job := endless_server.service.worker.running) is not None and job.n_processed > 0)
    job = endless_server.service.worker.running
    assert job is not None
    connection.close()
    wait_until(lambda: is_idle(endless_server))
    assert job.n_processed < 30_000 and job.n_decoded == 0


def test_a_request_whose_client_has_left_never_runs(endless_server: Serving) -> None:
    first = send(endless_server, "/v1/completions", LONG)
    wait_until(lambda: endless_server.service.worker.running is not None)
    second = send(endless_server, "/v1/completions", LONG)
    wait_until(lambda: endless_server.service.worker.n_waiting == 1)
    second.close()
    wait_until(lambda: endless_server.service.worker.n_waiting == 0)
    first.close()
    wait_until(lambda: is_idle(endless_server))


def test_a_full_line_sends_clients_away(endless_server: Serving) -> None:
    busy = [send(endless_server, "/v1/completions", LONG)]
    wait_until(lambda: endless_server.service.worker.running is not None)
    (slot,) = endless_server.client.get("/slots").json()
    assert slot["is_processing"] and slot["params"]["max_tokens"] == 40_000
    assert endless_server.client.get("/slots", params={"fail_on_no_slot": "1"}).status_code == 503
    busy += [send(endless_server, "/v1/completions", LONG) for _ in range(4)]
    wait_until(lambda: endless_server.service.worker.n_waiting == 4)
    response = endless_server.post(CHAT, {"messages": HELLO})
    assert response.status_code == 503 and int(response.headers["retry-after"]) > 0
    assert response.json()["error"]["type"] == "unavailable_error"
    assert endless_server.client.get("/health").status_code == 200
    for connection in busy:
        connection.close()
    wait_until(lambda: is_idle(endless_server))


def test_a_client_with_many_requests_does_not_hold_up_another(tiny_llama_path: Path) -> None:
    with Serving(load_pair(tiny_llama_path, n_ctx=4096)) as serving:
        done: list[str] = []

        def ask(name: str) -> None:
            body = {"prompt": "hello", "temperature": 0, "max_tokens": 1500, "ignore_eos": True}
            serving.ok("/v1/completions", body, headers={"User-Agent": name})
            done.append(name)

        with ThreadPoolExecutor(7) as pool:
            busy = [pool.submit(ask, "busy") for _ in range(6)]
            wait_until(lambda: serving.service.worker.n_waiting >= 4)
            other = pool.submit(ask, "other")
            for future in (*busy, other):
                future.result(WAIT_S)
        assert done.index("other") <= 3


def test_comments_while_a_prompt_is_read(tiny_llama_path: Path) -> None:
    with Serving(load_pair(tiny_llama_path, n_ctx=50_000, n_ubatch=16, n_batch=16)) as serving:
        connection = send(serving, "/v1/completions", {**LONG, "prompt": [104] * 45_000, "stream": True,
                                                       "sse_ping_interval": 1})  # fmt: skip
        received = b""
        while b":\n\n" not in received:
            part = connection.recv(4096)
            assert part
            received += part
        assert received.startswith(b"HTTP/1.1 200") and b"text/event-stream" in received
        connection.close()
        wait_until(lambda: is_idle(serving))


def test_requests_that_take_too_long_end(tiny_llama_path: Path) -> None:
    with Serving(load_pair(tiny_llama_path, n_ctx=50_000), timeout=1) as serving:
        response = serving.post("/v1/completions", LONG)
        assert response.status_code == 503 and "--timeout" in response.json()["error"]["message"]
        events = serving.stream("/v1/completions", LONG)
        assert json.loads(events[-1])["error"]["code"] == 503
        wait_until(lambda: is_idle(serving))


def test_while_the_model_is_loaded(tiny_llama_path: Path) -> None:
    go_on = threading.Event()

    def load(progress: Progress) -> Llama:
        progress(0.25)
        assert go_on.wait(WAIT_S)
        return Llama(tiny_llama_path, n_ctx=64, n_threads=1)

    serving = Serving(load, api_key=("secret",))
    serving.start()
    try:
        wait_until(lambda: serving.service.worker.fraction > 0)
        for path in ("/health", "/v1/models", "/props"):
            response = serving.client.get(path)
            assert response.status_code == 503
            error = response.json()["error"]
            assert (error["message"], error["type"]) == ("Loading model", "unavailable_error")
            assert error["progress"] == 0.25
        assert serving.client.get("/").status_code == 200
        go_on.set()
        wait_until(lambda: serving.client.get("/health").status_code == 200)
        assert serving.client.get("/v1/models").status_code == 401
    finally:
        go_on.set()
        serving.stop()


def test_stopping_while_requests_wait(tiny_llama_path: Path) -> None:
    serving = Serving(load_pair(tiny_llama_path, n_ctx=50_000))
    with ThreadPoolExecutor(2) as pool, serving:
        running = pool.submit(serving.post, "/v1/completions", LONG)
        wait_until(lambda: serving.service.worker.running is not None)
        waiting = pool.submit(serving.post, "/v1/completions", LONG)
        wait_until(lambda: serving.service.worker.n_waiting == 1)
        serving.service.worker.stop()
        assert waiting.result(WAIT_S).status_code == 503
        assert serving.post(CHAT, {"messages": HELLO}).status_code == 503
        serving.service.worker.stop(in_haste=True)
        assert running.result(WAIT_S).status_code == 503


# ---- crowds ----


def n_open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def vanish(serving: Serving, seed: int) -> None:
    """Connects, asks, reads a little, and is gone."""
    chance = random.Random(seed)
    await asyncio.sleep(chance.random() * 2)
    reader, writer = await asyncio.open_connection(*serving.address)
    body = {**LONG, "max_tokens": 400, "stream": chance.random() < 0.8, "seed": seed}
    data = json.dumps(body).encode()
    writer.write(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n".encode())
    writer.write(f"User-Agent: {seed % 7}\r\n\r\n".encode())
    kind = chance.randrange(4)
    writer.write(data if kind else data[: len(data) // 2])
    if kind > 1:
        await reader.read(chance.choice((1, 100, 2000)))
    if kind > 2:
        await asyncio.sleep(chance.random() * 0.2)
    writer.transport.abort()


async def crowd(serving: Serving, n: int, seed: int) -> None:
    await asyncio.gather(*(vanish(serving, seed + i) for i in range(n)))


def test_two_hundred_clients_that_vanish(tiny_llama_path: Path) -> None:
    with Serving(load_pair(tiny_llama_path, n_ctx=512), queue_size=256) as serving:
        body = {**LONG, "max_tokens": 60}
        expected = serving.ok("/v1/completions", body)["choices"][0]["text"]
        asyncio.run(crowd(serving, 20, 10_000))  # what is made once is made now
        wait_until(lambda: is_idle(serving))
        gc.collect()
        before = (n_open_files(), threading.active_count())
        memory_before = resident_mib()

        is_over = threading.Event()
        texts: list[str] = []

        def steady() -> None:
            with httpx.Client(base_url=serving.url, timeout=WAIT_S, headers={"User-Agent": "steady"}) as client:
                while not is_over.is_set():
                    texts.append(client.post("/v1/completions", json=body).json()["choices"][0]["text"])

        thread = threading.Thread(target=steady)
        thread.start()
        asyncio.run(crowd(serving, 200, 0))
        is_over.set()
        thread.join(WAIT_S)
        wait_until(lambda: is_idle(serving))
        assert len(texts) > 2 and set(texts) == {expected}
        wait_until(lambda: (n_open_files(), threading.active_count()) <= before)
        assert resident_mib() < memory_before + 40
        assert serving.ok(CHAT, {"messages": HELLO, **GREEDY})["model"] == "tiny"
