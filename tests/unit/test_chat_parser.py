"""Answers to reasoning, content and tool calls."""

from __future__ import annotations

import json
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydspark.errors import ArgumentError
from pydspark.text.chat_parser import ChatParser
from pydspark.text.chat_parts import CallArguments, CallEnd, CallStart, Content, Part, Reasoning
from pydspark.text.chat_template import ChatTemplate
from pydspark.text.tool_arguments import Tools

TEMPLATE = ChatTemplate((Path(__file__).parents[1] / "data/qwen3_6.jinja").read_text())
PROPERTIES = {
    "s": {"type": "string"},
    "i": {"type": "integer"},
    "n": {"type": "number"},
    "b": {"type": "boolean"},
    "o": {"type": "object"},
    "a": {"type": "array"},
    "s0": {"type": ["string", "null"]},
    "sa": {"anyOf": [{"type": "string"}, {"type": "array"}]},
    "e": {"enum": ["x", "1"]},
    "r": {"$ref": "#/$defs/int"},
    "any": {},
}
PARAMETERS = {"type": "object", "properties": PROPERTIES, "$defs": {"int": {"type": "integer"}}}
TOOLS = Tools([{"type": "function", "function": {"name": "f", "parameters": PARAMETERS}}, {"name": "g"}])


def parser(**options: Any) -> ChatParser:
    numbers = count()
    return ChatParser(**{"tools": TOOLS, "new_id": lambda: f"id{next(numbers)}", **options})


def parse(pieces: list[str], **options: Any) -> list[Part]:
    reader = parser(**options)
    parts = [part for piece in pieces for part in reader.add(piece)]
    return join([*parts, *reader.finish()])


def join(parts: list[Part]) -> list[Part]:
    """Pieces of one kind in a row become one."""
    joined: list[Any] = []
    for part in parts:
        if joined and type(joined[-1]) is type(part) and hasattr(part, "text"):
            joined[-1] = type(part)(**{**vars(part), "text": joined[-1].text + part.text})
        else:
            joined.append(part)
    return joined


def call(body: str, **options: Any) -> list[Part]:
    return parse([f"<tool_call>\n{body}\n</tool_call>"], **options)


def one_call(name: str, arguments: str, index: int = 0) -> list[Part]:
    return [CallStart(index, f"id{index}", name), CallArguments(index, arguments), CallEnd(index)]


# ---- reasoning ----


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("hm\n</think>\n\nYes.", [Reasoning("hm"), Content("Yes.")]),
        ("\n a\n\nb \n</think>Yes. ", [Reasoning("a\n\nb"), Content("Yes. ")]),
        ("</think>\n\nYes.", [Content("Yes.")]),
        ("cut off \n", [Reasoning("cut off")]),
        ("a </thin> <think> b</think>x</think>", [Reasoning("a </thin> <think> b"), Content("x</think>")]),
        ("cut </thi", [Reasoning("cut </thi")]),
        ("<tool_call>\n<function=f>\n</function>\n</tool_call></think>", [Reasoning(
            "<tool_call>\n<function=f>\n</function>\n</tool_call>"
        )]),
    ],
)  # fmt: skip
def test_reasoning_that_the_prompt_has_opened(text: str, parts: list[Part]) -> None:
    assert parse([text], in_reasoning=True) == parts


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("<think>hm</think>Yes.", [Reasoning("hm"), Content("Yes.")]),
        ("\n<think>\nhm\n</think>\n\nYes.", [Reasoning("hm"), Content("Yes.")]),
        ("No <think>hm</think>", [Content("No <think>hm</think>")]),
        ("\n\n<thin", [Content("\n\n<thin")]),
        (" \n", [Content(" \n")]),
        ("", []),
    ],
)
def test_reasoning_that_the_answer_opens(text: str, parts: list[Part]) -> None:
    assert parse([text]) == parts
    assert parse([text], tools=None) == parts
    kept = [Content(text)] if text else []
    assert parse([text], finds_reasoning=False) == kept
    assert parse([text], keeps_reasoning=True) == kept


def test_reasoning_in_the_content_is_kept_as_it_is() -> None:
    text = " hm <tool_call> \n</think>\n\n Yes. "
    assert parse([text], in_reasoning=True, keeps_reasoning=True) == [Content(text)]
    body = "<tool_call>\n<function=f>\n</function>\n</tool_call>"
    parts = parse([f"{body}</think>\n{body}"], in_reasoning=True, keeps_reasoning=True)
    assert parts == [Content(f"{body}</think>"), *one_call("f", "{}")]


def test_the_parser_tells_where_it_is() -> None:
    reader = parser(in_reasoning=True)
    reader.add("hm</think")
    assert reader.in_reasoning
    reader.add(">")
    assert not reader.in_reasoning


# ---- calls in tags ----


def value(key: str, text: str) -> str:
    return f"<parameter={key}>\n{text}\n</parameter>\n"


def function(*values: str, name: str = "f") -> str:
    return f"<function={name}>\n{''.join(values)}</function>"


def argument(key: str, text: str) -> Any:
    """What a parameter's text becomes."""
    parts = call(function(value(key, text)))
    assert [type(part) for part in parts] == [CallStart, CallArguments, CallEnd]
    return json.loads(parts[1].text)[key]  # type: ignore[union-attr]


def test_text_and_calls() -> None:
    text = (
        f"Two:\n\n<tool_call>\n{function(value('s', 'Ulm'), value('i', '2'))}\n</tool_call>\n"
        f"<tool_call>\n{function(name='g')}\n</tool_call>\n"
    )
    first = one_call("f", '{"s": "Ulm", "i": 2}')
    assert parse([text]) == [Content("Two:"), *first, *one_call("g", "{}", 1)]
    assert parse([text + "Done. "])[-1] == Content("\nDone. ")
    assert parse([text], tools=None) == [Content(text)]


def test_calls_behind_reasoning() -> None:
    parts = parse([f"Look.\n</think>\n\n<tool_call>\n{function()}\n</tool_call>"], in_reasoning=True)
    assert parts == [Reasoning("Look."), *one_call("f", "{}")]


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("s", "5", "5"),
        ("s", "null", "null"),
        ("s", " a\n\n\"b\"\\ \n", " a\n\n\"b\"\\ \n"),
        ("s", "", ""),
        ("s", "<b>é</b> </parameter> <parameter=x </function", "<b>é</b> </parameter> <parameter=x </function"),
        ("s", "\n</parameter>\n</parameter>", "\n</parameter>\n</parameter>"),
        ("i", "5", 5),
        ("i", " 5 ", 5),
        ("i", "five", "five"),
        ("n", "1.5", 1.5),
        ("n", "1e999", "1e999"),
        ("n", "NaN", "NaN"),
        ("b", "true", True),
        ("b", "True", True),
        ("o", '{"k": [null, "\\ud83e\\udd99"]}', {"k": [None, "\U0001f999"]}),
        ("o", "{'k': 1}", "{'k': 1}"),
        ("o", "[1]", [1]),
        ("o", '{"k": "\\ud800"}', {"k": "\ud800"}),
        ("a", "[1,\n2]", [1, 2]),
        ("a", "[" * 100_000, "[" * 100_000),
        ("s0", "null", None),
        ("s0", "None", None),
        ("s0", "5", "5"),
        ("sa", '["x"]', ["x"]),
        ("sa", "x", "x"),
        ("e", "1", "1"),
        ("r", "7", 7),
        ("any", "7", 7),
        ("any", '"7"', '"7"'),
        ("unknown", "{}", {}),
        ("unknown", "text", "text"),
    ],
    ids=lambda text: repr(text)[:20],
)  # fmt: skip
def test_arguments_have_the_types_of_the_schema(key: str, text: str, expected: Any) -> None:
    found = argument(key, text)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    "body",
    [
        "<function=f><parameter=s>x</parameter></function>",
        "<function=f>\n<parameter=s>\nx\n</parameter>\n",
        "<function= f >\n<parameter= s >\nx\n</parameter>\n\n</function>\n\n",
    ],
)
def test_some_carelessness_is_forgiven(body: str) -> None:
    assert call(body) == one_call("f", '{"s": "x"}')


def test_a_missing_end_of_a_call_is_forgiven() -> None:
    text = f"<tool_call>\n{function()}\n"
    assert parse([text]) == one_call("f", "{}")
    assert parse([f"{text}{text}"]) == [*one_call("f", "{}"), *one_call("f", "{}", 1)]


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>",
        "a <tool_call> b",
        " <tool_call>\n</tool_call> ",
        "<tool_call>\n<function=f",
        "<tool_call>\n<function=>\n</function>\n</tool_call>",
        "<tool_call>\n<function=f>",
        "<tool_call>\n<function=f>\nnothing\n</function>\n</tool_call>",
        "<tool_call>\n<function=f>\n<parameter=s",
        "<tool_call>\n<function=f>\n<parameter=\n>x",
        "<tool_call>{}</tool_call>",
        '<tool_call>{"name": "f"',
        '<tool_call>{"name": 5}</tool_call>',
        '<tool_call>{"name": "f", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>',
        '<tool_call>{"name": "f"}{</tool_call> x <tool_cal',
        "<function=f>\n</function>",
    ],
)
def test_what_is_no_call_is_content(text: str) -> None:
    assert parse([text]) == [Content(text)]
    good = f"<tool_call>\n{function()}\n</tool_call>"
    if "{" not in text or text.rstrip().endswith("</tool_call>"):
        assert parse([text + good]) == [Content(text.rstrip()), *one_call("f", "{}")]


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ("<parameter=s>\nab\n</param", '{"s": "ab\\n</param'),
        ("<parameter=s>\nab\n</parameter>\n", '{"s": "ab'),
        ("<parameter=i>\n5", '{"i": 5'),
        ("<parameter=i>\n5\n</parameter>\n<parameter=s>\n", '{"i": 5, "s": "'),
    ],
)
def test_a_call_that_is_cut_off_does_not_end(body: str, arguments: str) -> None:
    reader = parser()
    parts = join([*reader.add(f"<tool_call>\n<function=f>\n{body}"), *reader.finish()])
    assert parts == [CallStart(0, "id0", "f"), CallArguments(0, arguments)]
    assert not reader.has_calls


def test_strings_are_passed_on_while_they_come() -> None:
    reader = parser()
    reader.add("<tool_call>\n<function=f>\n<parameter=s>\n")
    assert reader.add("one ") == [CallArguments(0, "one ")]
    assert reader.add("two\n") == [CallArguments(0, "two")]
    assert not reader.has_calls
    assert reader.add("</parameter>\n</function>") == [CallArguments(0, '"}'), CallEnd(0)]
    assert reader.has_calls


# ---- calls in JSON ----


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ('{"name": "f", "arguments": {"s": "é <b>\\n"}}', '{"s": "é <b>\\n"}'),
        ('{"arguments": {"i": 1.50}, "name": "f", "id": 3}', '{"i": 1.5}'),
        ('{"name": "f"}', "{}"),
        ('{"name": "f", "arguments": "{\\"i\\": 1}"}', '{"i": 1}'),
    ],
)
def test_calls_in_json(body: str, arguments: str) -> None:
    assert call(body) == one_call("f", arguments)
    assert parse([f"<tool_call>{body}"]) == one_call("f", arguments)


# ---- tools ----


@pytest.mark.parametrize("tool", [5, {}, {"function": 3}, {"type": "function", "function": {"name": None}}])
def test_tools_without_a_name_are_refused(tool: object) -> None:
    with pytest.raises(ArgumentError, match=r"tools\[1\] should be an object with a function that has a name"):
        Tools([{"name": "f"}, tool])


def test_tools_that_are_no_list_are_refused() -> None:
    with pytest.raises(ArgumentError, match="tools should be a list, but is dict"):
        Tools({"name": "f"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "schema", [5, {"properties": 5}, {"properties": {"k": 5}}, {"properties": {"k": {"$ref": "#/properties/k"}}}]
)
def test_schemas_that_say_nothing_are_ignored(schema: object) -> None:
    assert Tools([{"name": "f", "parameters": schema}]).to_json("f", "k", "5") == "5"


# ---- any text ----

PIECES = [
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<function=f>", "</function>", "<parameter=s>",
    "<parameter=i>", "</parameter>", "<function=", "<parameter=", ">", "<", "</", "\n", " ", "\n\n", "a", "5", "{", "}",
    '{"name": "f", "arguments": {}}', '"', "\\", "<tool_call>\n<function=f>\n<parameter=s>\n",
    "\n</parameter>\n</function>\n</tool_call>", "é",
]  # fmt: skip
TEXTS = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=3)), max_size=14).map("".join)
OPTIONS = st.fixed_dictionaries(
    {
        "in_reasoning": st.booleans(),
        "finds_reasoning": st.booleans(),
        "keeps_reasoning": st.booleans(),
        "tools": st.sampled_from([None, TOOLS]),
    }
)


@settings(max_examples=500, deadline=None)
@given(text=TEXTS, options=OPTIONS, data=st.data())
def test_parts_do_not_depend_on_how_the_text_is_cut(text: str, options: dict[str, Any], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[begin:end] for begin, end in pairwise([0, *cuts, len(text)])]
    whole = parse([text], **options)
    assert parse(pieces, **options) == whole
    assert parse(list(text), **options) == whole


@settings(max_examples=500, deadline=None)
@given(text=TEXTS, options=OPTIONS)
def test_nothing_is_lost_and_complete_calls_are_json(text: str, options: dict[str, Any]) -> None:
    parts = parse([text], **options)
    ended = {part.index for part in parts if isinstance(part, CallEnd)}
    starts = [part.index for part in parts if isinstance(part, CallStart)]
    assert starts == list(range(len(starts)))
    assert set(starts) - ended <= {len(starts) - 1}
    for part in parts:
        if isinstance(part, CallArguments) and part.index in ended:
            assert isinstance(json.loads(part.text), dict)
    if not starts:
        tags = "" if options["keeps_reasoning"] else "<think></think>"
        shown = "".join(part.text for part in parts if isinstance(part, (Reasoning, Content)))
        if not tags or not any(tag in text for tag in ("<think>", "</think>")):
            assert "".join(shown.split()) == "".join(text.split())


NAMES = st.text("abcxyz_-", min_size=1, max_size=5)
STRINGS = st.lists(
    st.one_of(st.sampled_from(["</parameter>", "<parameter=", "\n", "<", "é"]), st.text(max_size=3))
).map("".join)
VALUES = {
    "s": STRINGS.filter(lambda text: "</parameter>" not in text),
    "i": st.integers(),
    "n": st.floats(allow_nan=False, allow_infinity=False),
    "b": st.booleans(),
    "o": st.dictionaries(st.text("abc<>"), st.one_of(st.none(), st.integers(), st.text("abc<>é\n"))),
    "a": st.lists(st.one_of(st.none(), st.integers(), st.text("abc<>é\n"))),
}


@settings(max_examples=300, deadline=None)
@given(
    calls=st.lists(st.tuples(NAMES, st.fixed_dictionaries({}, optional=VALUES)), min_size=1, max_size=3),
    content=st.text("ab \n<", max_size=6).map(str.strip),
    reasoning=st.text("ab \n<", max_size=6).map(str.strip),
)
def test_what_the_template_writes_is_read_back(
    calls: list[tuple[str, dict[str, Any]]], content: str, reasoning: str
) -> None:
    turn = {
        "role": "assistant",
        "content": content,
        "reasoning_content": reasoning,
        "tool_calls": [{"function": {"name": name, "arguments": arguments}} for name, arguments in calls],
    }
    question = {"role": "user", "content": "?"}
    prompt = TEMPLATE.render([question])
    text = TEMPLATE.render([question, turn], add_generation_prompt=False)[len(prompt) :].removesuffix("<|im_end|>\n")
    tools = Tools([{"name": name, "parameters": PARAMETERS} for name, _ in calls])
    parts = parse([text], in_reasoning=True, tools=tools)
    names = [part.name for part in parts if isinstance(part, CallStart)]
    arguments = [json.loads(part.text) for part in parts if isinstance(part, CallArguments)]
    assert list(zip(names, arguments, strict=True)) == calls
    assert "".join(part.text for part in parts if isinstance(part, Content)) == content
    assert "".join(part.text for part in parts if isinstance(part, Reasoning)) == reasoning
