"""Bytes that no decent client sends. Whatever comes, the next request is answered, and right."""

from __future__ import annotations

import json
import random
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from serving import GREEDY, Serving

BODY = json.dumps({"prompt": "hello", **GREEDY}).encode()
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n" % len(BODY)
POST = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
REQUEST = HEAD + b"Connection: close\r\n\r\n" + BODY
PATIENCE_S = 20.0


@pytest.fixture(autouse=True)
def still_right(server: Serving) -> Iterator[None]:
    expected = server.ok("/v1/completions", json.loads(BODY))["choices"]
    yield
    assert server.ok("/v1/completions", json.loads(BODY))["choices"] == expected


def exchange(server: Serving, *parts: bytes, pause_s: float = 0.0, ends: bool = True) -> bytes:
    """What comes back for some bytes, until the server closes or has no more to say."""
    received = b""
    with socket.create_connection(server.address, timeout=PATIENCE_S) as connection:
        with suppress(OSError):  # the server may have closed already
            for part in parts:
                connection.sendall(part)
                time.sleep(pause_s)
            if ends:
                connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                received += part
    return received


def test_a_request_byte_by_byte(server: Serving) -> None:
    parts = [REQUEST[i : i + 1] for i in range(len(REQUEST))]
    assert exchange(server, *parts, pause_s=0.001, ends=False).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("n", [1, 20, len(HEAD), len(HEAD) + 22, len(REQUEST) - 1])
def test_a_request_that_is_cut_off(server: Serving, n: int) -> None:
    answer = exchange(server, REQUEST[:n])
    assert b" 200 " not in answer[:20] and b" 500 " not in answer[:20]


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n",
        b"\x00" * 1000,
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",  # no host
        b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /%ff%fe HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 20_000 + b"\r\n",
        POST + b"Content-Length: -1\r\n\r\n",
        POST + b"Content-Length: x\r\n\r\n",
        POST + b"Content-Length: 99999999999999999999\r\n\r\n{}",
        POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
    ],
    ids=range(17),
)  # fmt: skip
def test_garbage(server: Serving, data: bytes) -> None:
    assert exchange(server, data)[9:12] != b"500"


def test_requests_that_do_not_wait_for_answers(server: Serving) -> None:
    one = HEAD + b"\r\n" + BODY
    answer = exchange(server, one * 4 + REQUEST, ends=False)
    assert answer.count(b"HTTP/1.1 200") == 5


def test_random_bytes(server: Serving) -> None:
    chance = random.Random(7)
    for _ in range(60):
        data = bytearray(REQUEST)
        for _ in range(chance.randrange(1, 12)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        answer = exchange(server, bytes(data[: chance.randrange(1, len(data) + 1)]))
        assert answer[9:12] != b"500"


def test_an_answer_that_is_read_slowly(server: Serving) -> None:
    body = json.dumps({"prompt": "hello", "temperature": 0, "max_tokens": 200, "stream": True, "ignore_eos": True})
    head = POST + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body)
    with socket.create_connection(server.address, timeout=PATIENCE_S) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        connection.sendall(head + body.encode())
        received = b""
        while part := connection.recv(512):
            received += part
            time.sleep(0.001)
    assert b"[DONE]" in received
