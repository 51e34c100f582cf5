"""Requests that cannot be served: every one is an error object, and the next request works."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import GREEDY, HELLO, Serving, load_pair
from tiny.pairs import HOSTILE, NEARLY_BIGRAM, TinyDraft, write_pair

from pydspark.server.errors import as_http_error

CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {"messages": HELLO, **GREEDY}


@pytest.fixture(autouse=True)
def still_works(server: Serving) -> Iterator[None]:
    yield
    assert server.ok(CHAT, ASK)["usage"]["completion_tokens"] == 8


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"{:", "not JSON"),
        (b"", "empty"),
        (b"[]", "object"),
        (b"5", "object"),
        (b"null", "object"),
        (b'"hi"', "object"),
        (b'{"messages": "\xff"}', "UTF-8"),
        (b'{"temperature": NaN}', "NaN"),
        (b'{"temperature": 1e999}', "1e999"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "not JSON"),
        (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', "surrogate"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "deep"),
        (b'{"a":' + b"[" * 200 + b"]" * 200 + b"}", "deep"),
    ],
)
def test_bodies_that_are_no_objects(server: Serving, body: bytes, word: str) -> None:
    response = server.client.post(CHAT, content=body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error" and word in error["message"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "nonsense", ""])
def test_the_content_type_does_not_matter(server: Serving, kind: str) -> None:
    response = server.client.post(CHAT, content=json.dumps(ASK), headers={"Content-Type": kind})
    assert response.status_code == 200


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"messages": "hi"}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": [5]}, "messages[0]"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "narrator", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0]"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_k": 1.5}, "top_k"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"max_completion_tokens": []}, "max_completion_tokens"),
        ({"stop": {}}, "stop"),
        ({"stop": [1]}, "stop"),
        ({"stop": ""}, "stop"),
        ({"seed": "one"}, "seed"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": True}, "stream_options"),
        ({"logprobs": 5}, "logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"n": 3}, "n"),
        ({"tools": {}}, "tools"),
        ({"tools": [5]}, "tools[0]"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"tool_choice": 5}, "tool_choice"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": 5}, "response_format"),
        ({"response_format": {"type": "json_object", "schema": {"not": {}}}}, "response_format"),
        ({"json_schema": {"properties": {"a": {"$ref": "http://127.0.0.1/a"}}}}, "json_schema"),
        ({"json_schema": [], "grammar": ""}, "json_schema"),
        ({"json_schema": {}, "grammar": "start: /a/"}, "grammar"),
        ({"grammar": "root ::= x"}, "grammar"),
        ({"grammar": "start: /a/", "ignore_eos": True}, "ignore_eos"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"modalities": ["audio"]}, "modalities"),
        ({"mirostat": 2}, "mirostat"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": 5}, "logit_bias"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"reasoning_format": "raw"}, "reasoning_format"),
        ({"speculative": 3}, "speculative"),
        ({"speculative": {"n_max": -1}}, "n_draft_max"),
        ({"cache_prompt": "no"}, "cache_prompt"),
        ({"sse_ping_interval": "x"}, "sse_ping_interval"),
    ],
)
def test_fields_that_are_wrong_are_named(server: Serving, change: dict[str, Any], param: str) -> None:
    error = server.error_of(CHAT, {**ASK, **change})
    assert error["type"] == "invalid_request_error"
    assert error.get("param") == param or param == "n_draft_max"


def test_nulls_and_unknown_fields_make_no_difference(server: Serving) -> None:
    nulls = dict.fromkeys([
        "temperature", "top_p", "top_k", "seed", "stop", "stream", "stream_options", "logit_bias", "logprobs",
        "top_logprobs", "tools", "tool_choice", "response_format", "user", "n", "max_completion_tokens",
    ])  # fmt: skip
    unknown = {"store": True, "metadata": {"a": "b"}, "frobnicate": 1, "nested": {"x": []}, "logit_bias": {}}
    body = {"messages": HELLO, "max_tokens": 8, "seed": 5}
    expected = server.ok(CHAT, body)["choices"]
    assert server.ok(CHAT, {**nulls, **body})["choices"] == expected
    assert server.ok(CHAT, {**body, **unknown})["choices"] == expected


@pytest.mark.parametrize("stream", [False, True])
def test_prompts_that_are_too_long(server: Serving, stream: bool) -> None:
    for n, status in ((254, 200), (255, 200), (256, 400), (257, 400), (5000, 400)):
        body = {"prompt": [97] * n, "max_tokens": 1, "stream": stream}
        response = server.post("/v1/completions", body)
        assert response.status_code == status, n
        if status == 400:
            error = response.json()["error"]
            assert error["type"] == "exceed_context_size_error"
            assert (error["n_prompt_tokens"], error["n_ctx"]) == (n, 256)


@pytest.mark.parametrize("body", [{"prompt": ""}, {"prompt": []}, {"messages": []}, {"prompt": ["a", "b"]}, {}])
def test_requests_without_a_prompt(server: Serving, body: dict[str, Any]) -> None:
    path = CHAT if "messages" in body else "/v1/completions"
    assert server.error_of(path, body)["type"] == "invalid_request_error"


def test_an_empty_message_is_one(server: Serving) -> None:
    assert server.ok(CHAT, {**ASK, "messages": [{"role": "user", "content": ""}]})["usage"]["prompt_tokens"] > 0


def test_token_ids_that_do_not_exist(server: Serving) -> None:
    for path, body in (
        ("/v1/completions", {"prompt": [99999]}),
        ("/completion", {"prompt": ["a", -1]}),
        ("/detokenize", {"tokens": [99999]}),
        ("/tokenize", {"content": ["a", 99999], "with_pieces": True}),
    ):
        assert "99999" in server.error_of(path, body)["message"] or "-1" in server.error_of(path, body)["message"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", CHAT, 405),
        ("PUT", CHAT, 405),
        ("POST", "/v1/embeddings", 501),
        ("POST", "/infill", 501),
        ("GET", "/v1/models/other", 404),
        ("GET", "/page/../main.py", 404),
        ("GET", "/page/index.html", 404),
    ],
)
def test_routes_that_are_not_there(server: Serving, method: str, path: str, status: int) -> None:
    response = server.client.request(method, path)
    assert response.status_code == status
    assert response.json()["error"]["code"] == status


def test_a_body_that_is_too_large(pair: Any) -> None:
    with Serving(load_pair(pair.target_path), max_body_mib=1) as serving:
        large = json.dumps({**ASK, "padding": "x" * (1 << 20)})
        response = serving.client.post(CHAT, content=large)
        assert response.status_code == 413 and "--max-body" in response.json()["error"]["message"]

        def parts() -> Iterator[bytes]:
            yield from (large[i : i + 65536].encode() for i in range(0, len(large), 65536))

        assert serving.client.post(CHAT, content=parts()).status_code == 413
        assert serving.ok(CHAT, ASK)["model"] == "tiny"


def test_errors_show_no_folders(tmp_path: Path) -> None:
    pair = write_pair(tmp_path, TinyDraft(quality=HOSTILE, confidence="none"), shape=NEARLY_BIGRAM)
    load = load_pair(pair.target_path, pair.draft_path)
    with Serving(load, hidden=(tmp_path,)) as serving:
        error = serving.error_of(CHAT, {**ASK, "speculative": {"conf_min": 0.5}})
        assert "draft.gguf" in error["message"]
        texts = [error["message"], *(serving.client.get(path).text for path in ("/props", "/slots", "/v1/models"))]
        assert not any(str(tmp_path) in text for text in texts)


def test_defects_are_not_told_to_clients(caplog: pytest.LogCaptureFixture) -> None:
    error = as_http_error(KeyError("/secret/folder"))
    assert error.status == 500 and "secret" not in str(error)
    assert "secret" in caplog.text
