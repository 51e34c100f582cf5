"""Who is served: hosts, origins, keys; and what pages are told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import GREEDY, HELLO, Serving, load_pair

from pydspark.server.access import HostCheck, KeyCheck, OriginCheck, split_host

CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {"messages": HELLO, **GREEDY}


@pytest.fixture(scope="module")
def locked(tiny_llama_path: Path) -> Iterator[Serving]:
    """A server with two keys."""
    load = load_pair(tiny_llama_path, n_ctx=64)
    with Serving(load, api_key=("right", "other"), cors_origins=("https://chat.example",)) as serving:
        yield serving


@pytest.mark.parametrize(
    ("host", "is_allowed"),
    [
        (None, True),
        ("localhost:8080", True),
        ("LOCALHOST", True),
        ("127.0.0.1", True),
        ("[::1]:8080", True),
        ("192.168.1.7:8080", True),
        ("mine.example", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("evil.example:80@localhost", True),  # what stands before the @ is no host
        ("", False),
        ("[", False),
    ],
)
def test_hosts(host: str | None, is_allowed: bool) -> None:
    assert HostCheck(["mine.example"]).allows(host) == is_allowed
    assert HostCheck(["*"]).allows(host)


def test_host_without_port_and_brackets() -> None:
    assert [split_host(host) for host in ("A.b:1", "[::1]:2", "c")] == ["a.b", "::1", "c"]


@pytest.mark.parametrize(
    ("origin", "is_allowed"),
    [
        ("http://localhost:3000", True),
        ("http://127.0.0.1:8080", True),
        ("https://[::1]", True),
        ("http://192.168.1.7:8080", True),  # the same origin as the server's
        ("null", False),
        ("https://evil.example", False),
        ("https://localhost.evil.example", False),
        ("file://", False),
        ("chrome-extension://localhost", False),
    ],
)
def test_origins(origin: str, is_allowed: bool) -> None:
    assert OriginCheck(["localhost"]).allows(origin, "192.168.1.7:8080") == is_allowed
    assert OriginCheck(["*"]).allows(origin, None)


def test_only_origins_that_are_named() -> None:
    check = OriginCheck(["https://chat.example/"])
    assert check.allows("https://chat.example", None)
    assert not check.allows("http://localhost:3000", "127.0.0.1:8080")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Bearer"}, 401),
        ({"Authorization": "Basic right"}, 401),
        ({"Authorization": "Bearer right"}, 200),
        ({"authorization": "bearer other"}, 200),
        ({"X-Api-Key": "right"}, 200),
        ({"X-Api-Key": "righ"}, 401),
    ],
)
def test_keys(locked: Serving, headers: dict[str, str], status: int) -> None:
    response = locked.post(CHAT, ASK, headers=headers)
    assert response.status_code == status
    if status == 401:
        assert response.json()["error"] == {"code": 401, "message": "Invalid API Key", "type": "authentication_error"}


def test_no_keys_are_no_lock() -> None:
    assert not KeyCheck([])


def test_paths_without_a_key(locked: Serving) -> None:
    assert locked.client.get("/health").json() == {"status": "ok"}
    assert locked.client.get("/").status_code == 200
    for path in ("/v1/models", "/props", "/slots", "/metrics", "/nowhere"):
        assert locked.client.get(path).status_code == 401


def test_preflight_needs_no_key(locked: Serving) -> None:
    wanted = "authorization,content-type,x-stainless-os"
    headers = {"Origin": "https://chat.example", "Access-Control-Request-Headers": wanted}
    response = locked.client.options(CHAT, headers=headers)
    assert response.status_code == 204
    assert response.headers["access-control-allow-origin"] == "https://chat.example"
    assert response.headers["access-control-allow-headers"] == wanted
    assert "POST" in response.headers["access-control-allow-methods"]


def test_pages_are_told_of_errors_and_streams_too(locked: Serving) -> None:
    page = {"Origin": "https://chat.example"}
    refused = locked.post(CHAT, ASK, headers=page)
    assert refused.status_code == 401 and refused.headers["access-control-allow-origin"] == "https://chat.example"
    assert "origin" in refused.headers["vary"].lower()
    streamed = locked.post(CHAT, {**ASK, "stream": True}, headers={**page, "X-Api-Key": "right"})
    assert streamed.headers["access-control-allow-origin"] == "https://chat.example"


@pytest.mark.parametrize("origin", ["null", "https://evil.example", "http://localhost:3000"])
def test_other_pages_are_refused(locked: Serving, origin: str) -> None:
    response = locked.post(CHAT, ASK, headers={"Origin": origin, "X-Api-Key": "right"})
    assert response.status_code == 403
    assert "access-control-allow-origin" not in response.headers
    assert response.json()["error"]["type"] == "permission_error"


def test_names_that_were_made_to_point_here_are_refused(server: Serving) -> None:
    response = server.client.get("/health", headers={"Host": "evil.example"})
    assert response.status_code == 403
    assert server.client.get("/health", headers={"Host": "localhost:1"}).status_code == 200


def test_pages_of_this_machine_may_come_in(server: Serving) -> None:
    response = server.post(CHAT, ASK, headers={"Origin": "http://localhost:3000"})
    assert response.headers["access-control-allow-origin"] == "http://localhost:3000"
