"""Requests made from the published description: whatever they ask, the server has an answer that is no defect."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from serving import Serving
from starlette.routing import Route

from pydspark.server import app as server_app
from pydspark.server.openapi import document

SCHEMA = schemathesis.openapi.from_dict(document())
OPERATIONS = [result.ok() for result in SCHEMA.get_all_operations()]
LIMITS = ("max_tokens", "n_predict", "max_completion_tokens", "max_output_tokens")


def send(server: Serving, case: schemathesis.Case) -> httpx.Response:
    body = case.body
    if isinstance(body, dict):
        limits = {name: n for name, n in body.items() if name in LIMITS and isinstance(n, int)}
        body = {**body, "max_tokens": 3, "max_output_tokens": 3, **{name: min(n, 3) for name, n in limits.items()}}
    options: dict[str, Any] = {} if case.method == "GET" else {"json": body}
    return server.client.request(case.method, case.path, **options)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_every_operation(server: Serving, operation: Any) -> None:
    @given(st.data())
    @settings(max_examples=25, deadline=None, database=None, derandomize=True,
              suppress_health_check=list(HealthCheck), phases=[Phase.generate])  # fmt: skip
    def check(data: st.DataObject) -> None:
        response = send(server, data.draw(operation.as_strategy()))
        assert response.status_code < 500, response.text
        if response.status_code != 200:
            assert response.json()["error"]["code"] == response.status_code

    check()


def test_the_description_is_published(server: Serving) -> None:
    assert server.client.get("/openapi.json").json() == document()


def test_every_path_of_the_description_is_a_route(server: Serving) -> None:
    routes = {
        (route.path, method)
        for route in server_app.routes(server.service)
        if isinstance(route, Route)
        for method in route.methods or ()
    }
    for path, operations in document()["paths"].items():
        for method in operations:
            assert (path, method.upper()) in routes
