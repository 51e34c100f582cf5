"""Answers of a given form, from a tiny model that would rather say something else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tiny.pairs import MIXED, TinyDraft, write_pair

from pydspark import Llama, LlamaGrammar
from pydspark.errors import ArgumentError

HELLO = [{"role": "user", "content": "hello"}]
SHORT: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["cat", "dog"]},
        "legs": {"type": "integer", "minimum": 0, "maximum": 9},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    },
    "required": ["kind", "legs", "tags"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Llama]:
    found = write_pair(tmp_path_factory.mktemp("pair"), TinyDraft(quality=MIXED))
    with Llama(found.target_path, draft=found.draft_path, n_ctx=512, n_threads=1, draft_schedule="fixed") as llama:
        yield llama


def check(answer: Mapping[str, Any]) -> str:
    """The text of an answer that is JSON of ``SHORT``."""
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "stop"
    value = json.loads(choice["message"]["content"])
    assert list(value) == ["kind", "legs", "tags"]
    assert value["kind"] in ("cat", "dog") and value["legs"] in range(10) and len(value["tags"]) <= 3
    return str(choice["message"]["content"])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_answers_keep_a_schema(pair: Llama, temperature: float) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "animal", "schema": SHORT}}
    drafted = 0
    for seed in range(8):
        options = {"temperature": temperature, "seed": seed, "max_tokens": 300, "response_format": form}
        texts = [
            check(pair.create_chat_completion(HELLO, **options, **more))
            for more in ({"speculative": False}, {"n_draft_max": 3}, {"n_draft_max": 8}, {"draft_schedule": "auto"})
        ]
        assert texts[1:] == texts[:-1]
        check(pair.create_chat_completion(HELLO, **options, draft_sampling="probabilistic", n_draft_max=5))
        drafted += pair.last_stats["draft_n"]
    assert drafted > 0


def test_streams_keep_a_schema(pair: Llama) -> None:
    form = {"type": "json_object", "schema": SHORT}
    whole = pair.create_chat_completion(HELLO, temperature=0, max_tokens=300, response_format=form)
    stream = pair.create_chat_completion(HELLO, temperature=0, max_tokens=300, response_format=form, stream=True)
    text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in stream)
    assert text == check(whole)


def test_grammars_of_completions(pair: Llama) -> None:
    for grammar in (LlamaGrammar.from_string('root ::= "yes" | "no"\n'), 'start: "yes" | "no"'):
        answer = pair("Well", grammar=grammar, max_tokens=20, seed=1, logprobs=2)
        assert answer["choices"][0]["text"] in ("yes", "no")
        assert answer["choices"][0]["finish_reason"] == "stop"
        assert len(answer["choices"][0]["logprobs"]["tokens"]) > 0
    ids = pair.generate(pair.tokenize("Well"), grammar="start: /[ab]{5}/")
    assert set(pair.detokenize(list(ids)).decode()) <= {"a", "b"}


def test_an_answer_may_be_cut_in_the_middle(pair: Llama) -> None:
    answer = pair.create_chat_completion(HELLO, max_tokens=3, response_format={"type": "json_object"})
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["choices"][0]["message"]["content"].startswith("{")


def test_a_call_is_demanded(pair: Llama) -> None:
    with pytest.raises(ArgumentError, match="tool_choice demands a call, but the model's chat template has no"):
        tools = [{"type": "function", "function": {"name": "now"}}]
        pair.create_chat_completion(HELLO, tools=tools, tool_choice="required")


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"grammar": "root ::= x"}, "^grammar cannot be read"),
        ({"grammar": 5}, "grammar must be a LlamaGrammar or a text"),
        ({"response_format": {"type": "json_object", "schema": {"not": {}}}}, "^response_format cannot be kept"),
        ({"response_format": {"type": "json_object"}, "grammar": "start: /a/"}, "grammar and response_format both"),
        ({"response_format": {"type": "json_object"}, "tools": [{"name": "f"}]}, "a form of its own and call tools"),
    ],
)
def test_forms_that_cannot_be_kept(pair: Llama, given: dict[str, Any], match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        pair.create_chat_completion(HELLO, **given)
