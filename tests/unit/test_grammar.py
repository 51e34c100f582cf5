"""Grammars on a real vocabulary, and what they allow along an answer that may be taken back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydspark.errors import ArgumentError
from pydspark.prompts import Prompts
from pydspark.structured import answer_grammar, chosen_tools
from pydspark.text.grammar import Grammar
from pydspark.text.grammar_mask import GrammarMask
from pydspark.text.tool_arguments import Tools

pytest_plugins = ["real_vocab"]

PERSON: Mapping[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
NESTED: dict[str, Any] = {}
for _ in range(10_000):
    NESTED = {"items": NESTED}


@pytest.fixture(scope="module")
def prompts(qwen_metadata: dict[str, object]) -> Prompts:
    """The text side of Qwen3.6."""
    return Prompts(qwen_metadata)


def mask_of(prompts: Prompts, grammar: Grammar, **options: bool) -> GrammarMask:
    mask = prompts.mask(grammar, **options)
    assert mask is not None
    return mask


def allows(mask: bytes, token: int) -> bool:
    return bool(mask[token // 8] >> token % 8 & 1)


def follows(prompts: Prompts, mask: GrammarMask, text: str) -> bool:
    """Whether a text may come, and end there."""
    tokens = prompts.tokenizer.encode(text)
    for n, token in enumerate(tokens):
        if not allows(mask.allowed(n, tokens[:n]), token):
            return False
    return allows(mask.allowed(len(tokens), tokens), min(prompts.vocab.eog_ids))


@pytest.mark.parametrize(
    ("grammar", "right", "wrong"),
    [
        (Grammar.from_json_schema(PERSON), ['{"name": "Ann", "age": 3}', '{\n  "name":"",\n  "age":-12\n}'], ["{}"]),
        (Grammar.from_json_schema(json.dumps(PERSON)), ['{"name": "Ann", "age": 3}'], ['{"name": "Ann", "age": "3"}']),
        (Grammar.from_json_object(), ["{}", '{"a": [1, null, {"b": true}]}'], ["[]", '"a"', "{", "{} {}"]),
        (Grammar.from_regex("[a-c]+[0-9]{2}"), ["abc12", "a00"], ["abc1", "abcd12", "12"]),
        (Grammar.from_string('root ::= "yes" | "no"\n'), ["yes", "no"], ["maybe", "yesno", ""]),
        (Grammar.from_string('start: "- " /[a-z]+/ ("\\n" start)?'), ["- a", "- a\n- b"], ["- ", "a"]),
        (
            Grammar.from_string(r'root ::= "\u00e9\x41\u0042\\u" [\U0001F600\u00ea-\u00ef]'),
            ["éAB\\uï", "éAB\\u😀"],
            ["éAB\\uð"],
        ),
    ],
)
def test_what_grammars_allow(prompts: Prompts, grammar: Grammar, right: list[str], wrong: list[str]) -> None:
    for text in right:
        assert follows(prompts, mask_of(prompts, grammar), text)
    for text in wrong:
        assert not follows(prompts, mask_of(prompts, grammar), text)


def test_grammar_files(prompts: Prompts, tmp_path: Path) -> None:
    file = tmp_path / "yes.gbnf"
    file.write_text('root ::= "yes"\n')
    assert follows(prompts, mask_of(prompts, Grammar.from_file(file)), "yes")
    with pytest.raises(ArgumentError, match=r"no\.gbnf of a grammar cannot be read"):
        Grammar.from_file(tmp_path / "no.gbnf")


@pytest.mark.parametrize(
    "schema",
    [
        {"not": {"type": "string"}},
        {"type": "object", "properties": {"a": {"$ref": "https://example.com/a"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}},
        {"type": "colour"},
        {"type": "string", "pattern": "(["},
        {"if": {"type": "string"}, "then": {"minLength": 3}},
        {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
        {"$ref": "#"},
        {"enum": ["\ud800"]},
    ],
)
def test_schemas_that_cannot_be_kept_are_refused(prompts: Prompts, schema: Mapping[str, Any]) -> None:
    grammar = answer_grammar(json_schema=schema)
    with pytest.raises(ArgumentError, match=r"^json_schema cannot be kept: "):
        prompts.mask(grammar)


@pytest.mark.parametrize("text", ["root ::= nowhere", "start: nowhere", "root ::= (", 'start: "a'])
def test_grammars_that_are_wrong_are_refused(prompts: Prompts, text: str) -> None:
    with pytest.raises(ArgumentError, match=r"^grammar cannot be (kept|read): "):
        prompts.mask(answer_grammar(text))


def test_a_grammar_that_allows_nothing_is_refused(prompts: Prompts) -> None:
    with pytest.raises(ArgumentError, match="^grammar cannot be kept: "):
        prompts.mask(answer_grammar('start: "a" & "b"\n'))
    with pytest.raises(ArgumentError, match="^grammar cannot be kept: "):
        prompts.mask(Grammar.from_regex("[^\\s\\S]"))


def test_deep_schemas_end_in_an_error_or_a_mask(prompts: Prompts) -> None:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(400):
        schema = {"type": "array", "items": schema}
    try:
        assert prompts.mask(answer_grammar(json_schema=schema)) is not None
    except ArgumentError as error:
        assert "json_schema cannot be kept" in str(error)


# ---- along an answer that is taken back ----


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_a_mask_depends_on_the_text_alone(prompts: Prompts, data: st.DataObject) -> None:
    walked = mask_of(prompts, Grammar.from_json_schema(PERSON))
    answer: list[int] = []
    texts = ['{"name": "Ann', '{"name": "B', '{ "name": "Ann", "age": 7', '{"name": "Ann", "age": 12}']
    for _ in range(8):
        path = prompts.tokenizer.encode(data.draw(st.sampled_from(texts)))
        n = data.draw(st.integers(0, len(path)))
        if path[: len(answer)] != answer or n < len(answer):
            continue
        fresh = mask_of(prompts, Grammar.from_json_schema(PERSON))
        assert walked.allowed(n, path[:n]) == fresh.allowed(n, path[:n])
        window = data.draw(st.integers(0, len(answer)))  # what cannot have changed need not be told
        assert walked.allowed(n, path[window:n]) == fresh.allowed(n, path[:n])
        answer = path[: data.draw(st.integers(len(answer), n))]


def test_after_an_end_only_ends_may_follow(prompts: Prompts) -> None:
    mask = mask_of(prompts, Grammar.from_string('root ::= "yes"\n'))
    end = min(prompts.vocab.eog_ids)
    yes = prompts.tokenizer.encode("yes")
    for path in ([*yes, end], [*yes, end, end]):
        allowed = mask.allowed(len(path), path)
        assert {token for token in range(prompts.vocab.n_vocab) if allows(allowed, token)} == prompts.vocab.eog_ids
    assert not allows(mask.allowed(0, []), end)
    assert allows(mask.allowed(len(yes), yes), end)


def test_the_grammar_begins_behind_reasoning(prompts: Prompts) -> None:
    mask = mask_of(prompts, Grammar.from_string('root ::= "yes"\n'), in_reasoning=True)
    end = min(prompts.vocab.eog_ids)
    thought, yes = prompts.tokenizer.encode("Well: no.\n</think>"), prompts.tokenizer.encode("yes")
    for n in range(len(thought)):
        allowed = mask.allowed(n, thought[:n])
        assert all(allows(allowed, token) for token in (thought[n], yes[0], 99)) and not allows(allowed, end)
    assert not allows(mask.allowed(len(thought), thought), thought[0])
    path = thought + yes
    assert allows(mask.allowed(len(thought), thought), yes[0])
    assert allows(mask.allowed(len(path), path), end)
    assert allows(mask.allowed(3, thought[:3]), 99)  # taken back into reasoning
    assert allows(mask.allowed(len(path), path), end)


def test_what_a_grammar_does_not_allow_is_an_error(prompts: Prompts) -> None:
    mask = mask_of(prompts, Grammar.from_string('root ::= "yes"\n'))
    no = prompts.tokenizer.encode("no")
    with pytest.raises(ArgumentError, match="grammar cannot be followed"):
        mask.allowed(len(no), no)


# ---- what callers say ----


def test_forms_of_answers() -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": PERSON, "strict": True}}
    same = answer_grammar(json_schema=PERSON)
    assert same is not None
    for given_format in (schema, {"type": "json_schema", "schema": PERSON}, {"type": "json_object", "schema": PERSON}):
        found = answer_grammar(response_format=given_format)
        assert found is not None and found.source == same.source and found.name == "response_format"
    for nothing in ({}, {"response_format": {"type": "text"}}, {"grammar": ""}):
        assert answer_grammar(**nothing) is None
    assert answer_grammar(Grammar.from_json_object()) is not None


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"response_format": {"type": "xml"}}, "response_format.type must be text, json_object or json_schema"),
        ({"response_format": {"type": "json_schema"}}, "response_format of the type json_schema needs"),
        ({"response_format": "json"}, "response_format must be an object"),
        ({"json_schema": "{"}, "json_schema is no JSON"),
        ({"json_schema": "5"}, "json_schema must be an object"),
        ({"json_schema": '{"items":' * 100_000}, "json_schema is no JSON"),
        ({"json_schema": {"enum": [{1}]}}, "a schema cannot be written as JSON"),
        ({"json_schema": {"minimum": float("nan")}}, "a schema cannot be written as JSON"),
        ({"response_format": {"type": "json_object", "schema": NESTED}}, "a schema cannot be written as JSON"),
        ({"grammar": 'start: "\ud800"'}, "a grammar must be Unicode text"),
        ({"grammar": 'root ::= "\\UFFFFFFFF"'}, "is no character"),
        ({"grammar": 5}, "grammar must be a LlamaGrammar or a text"),
        ({"grammar": "x", "json_schema": {}}, "grammar and json_schema both say"),
    ],
)
def test_forms_that_are_wrong(wrong: dict[str, Any], match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        answer_grammar(**wrong)


def test_choices_of_tools() -> None:
    tools = Tools([{"type": "function", "function": {"name": name}} for name in ("f", "g")])
    assert chosen_tools(tools, None) is None and chosen_tools(None, "auto") is None
    assert chosen_tools(tools, "required") == ["f", "g"]
    assert chosen_tools(tools, {"type": "function", "function": {"name": "g"}}) == ["g"]
    assert chosen_tools(tools, {"type": "function", "name": "g"}) == ["g"]
    for choice, match in (
        ({"type": "function", "function": {"name": "h"}}, "tool_choice names 'h'; the request has the tools f, g"),
        ("always", "tool_choice must be none, auto, required or an object"),
    ):
        with pytest.raises(ArgumentError, match=match):
            chosen_tools(tools, choice)
    with pytest.raises(ArgumentError, match="tool_choice demands a call, but the request has no tools"):
        chosen_tools(None, "required")
