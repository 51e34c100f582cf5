"""Answers keep random schemas, with drafts of all kinds and without, and are then the same."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny.pairs import MIXED, TinyDraft, write_pair

from pydspark import Llama

HELLO = [{"role": "user", "content": "hello"}]
LEAVES = st.one_of(
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.lists(st.sampled_from(["a", "bc", 'd"e', "\n", "\u00e9", 5, None]), min_size=1, max_size=3).map(
        lambda values: {"enum": values}
    ),
    st.tuples(st.integers(-50, 50), st.integers(0, 40)).map(
        lambda pair: {"type": "integer", "minimum": pair[0], "maximum": pair[0] + pair[1]}
    ),
    st.integers(0, 4).map(lambda n: {"type": "string", "maxLength": n}),
)


def branches(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    arrays = st.tuples(inner, st.integers(0, 2)).map(
        lambda pair: {"type": "array", "items": pair[0], "minItems": pair[1], "maxItems": 2}
    )
    return st.one_of(arrays, objects(inner))


def objects(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    def of(properties: dict[str, dict[str, Any]]) -> dict[str, Any]:
        required = [name for i, name in enumerate(properties) if i % 2 == 0]
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    return st.dictionaries(st.sampled_from(["x", "long name", 'y"', "z"]), inner, max_size=3).map(of)


SCHEMAS = objects(st.recursive(LEAVES, branches, max_leaves=4))


def keeps(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value is of a schema of the kinds above."""
    if "enum" in schema:
        return any(type(value) is type(one) and value == one for one in schema["enum"])
    kind = schema["type"]
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "null":
        return value is None
    if kind == "integer":
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return is_whole and schema["minimum"] <= value <= schema["maximum"]
    if kind == "string":
        return isinstance(value, str) and len(value) <= schema["maxLength"]
    if kind == "array":
        is_right = isinstance(value, list) and schema["minItems"] <= len(value) <= 2
        return is_right and all(keeps(item, schema["items"]) for item in value)
    properties = schema["properties"]
    return (
        isinstance(value, dict)
        and set(schema["required"]) <= value.keys() <= properties.keys()
        and all(keeps(item, properties[name]) for name, item in value.items())
    )


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Llama]:
    pair = write_pair(tmp_path_factory.mktemp("pair"), TinyDraft(quality=MIXED))
    options = {"n_ctx": 2048, "n_threads": 1, "spec_type": "auto,ngram", "draft_schedule": "fixed"}
    with Llama(pair.target_path, draft=pair.draft_path, lookup_match=2, **options) as llama:
        yield llama


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(schema=SCHEMAS, seed=st.integers(0, 1000), temperature=st.sampled_from([0.0, 0.8, 1.5]))
def test_answers_keep_their_schema(llama: Llama, schema: dict[str, Any], seed: int, temperature: float) -> None:
    options = {
        "temperature": temperature,
        "seed": seed,
        "max_tokens": 1200,
        "response_format": {"type": "json_object", "schema": schema},
    }
    texts = []
    for more in ({"speculative": False}, {"n_draft_max": 4}, {"draft_schedule": "auto"}):
        choice = llama.create_chat_completion(HELLO, **options, **more)["choices"][0]
        texts.append(choice["message"]["content"])
        if choice["finish_reason"] == "stop":
            assert keeps(json.loads(texts[-1]), schema)
    assert texts[1:] == texts[:-1]
    choice = llama.create_chat_completion(HELLO, **options, draft_sampling="probabilistic", n_draft_max=8)["choices"][0]
    if choice["finish_reason"] == "stop":
        assert keeps(json.loads(choice["message"]["content"]), schema)
