"""Messages as clients send them."""

from __future__ import annotations

import pytest

from pydspark.errors import ArgumentError
from pydspark.text.messages import normalize_messages


def _roles_and_texts(messages: object) -> list[tuple[object, object]]:
    return [(message["role"], message["content"]) for message in normalize_messages(messages)]


def _message(role: str, content: object = "x") -> dict[str, object]:
    return {"role": role, "content": content}


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        (["developer", "user"], ["system", "user"]),
        (["system", "developer", "user"], ["system", "user"]),
        (["user", "assistant", "system", "user"], ["user", "assistant", "system", "user"]),
        (["user", "function"], ["user", "tool"]),
        (["system"], ["system"]),
        (["developer", "system"], ["system"]),
    ],
)
def test_roles(roles: list[str], expected: list[str]) -> None:
    assert [message["role"] for message in normalize_messages(list(map(_message, roles)))] == expected


def test_leading_system_messages_are_joined_by_a_blank_line() -> None:
    messages = [_message("system", "A"), _message("developer", "B"), _message("user", "C")]
    assert _roles_and_texts(messages) == [("system", "A\n\nB"), ("user", "C")]


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_text_parts_are_joined(role: str) -> None:
    parts = [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]
    assert _roles_and_texts([_message(role, parts)]) == [(role, "AB")]
    assert _roles_and_texts([_message(role, [])]) == [(role, "")]


def test_assistant_may_come_without_text() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert _roles_and_texts([_message("assistant", None)]) == [("assistant", "")]
    assert _roles_and_texts([{"role": "assistant", "tool_calls": [call]}]) == [("assistant", "")]


def test_none_counts_as_absent_and_other_fields_are_kept() -> None:
    message = {"role": "user", "content": "x", "name": "ann", "tool_calls": None, "extra": {"a": None}}
    assert normalize_messages([message]) == [{"role": "user", "content": "x", "name": "ann", "extra": {"a": None}}]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"a": [1, "b"]}', {"a": [1, "b"]}),
        ({"a": 1}, {"a": 1}),
        ('{"a": ', '{"a": '),
        ("[1]", "[1]"),
        ("", {}),
        (None, {}),
        ('{"a": ' + "9" * 5000 + "}", '{"a": ' + "9" * 5000 + "}"),
    ],
    ids=["object", "mapping", "cut short", "no object", "empty", "none", "number too long"],
)
def test_arguments_of_tool_calls(arguments: object, expected: object) -> None:
    message = {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": arguments}}]}
    [normalized] = normalize_messages([message])
    assert normalized["tool_calls"] == [{"id": "1", "function": {"name": "f", "arguments": expected}}]


def test_reasoning_has_two_names() -> None:
    message = {"role": "assistant", "content": "x", "reasoning": "a"}
    assert normalize_messages([message])[0]["reasoning_content"] == "a"
    assert normalize_messages([{**message, "reasoning_content": "b"}])[0]["reasoning_content"] == "b"


def test_what_was_given_is_not_changed() -> None:
    message = {"role": "developer", "content": [{"type": "text", "text": "A"}]}
    normalize_messages([message, message])
    assert message == {"role": "developer", "content": [{"type": "text", "text": "A"}]}


def _calls(calls: object) -> list[object]:
    return [{"role": "assistant", "content": "", "tool_calls": calls}]


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ("hi", "messages should be a list, but is str"),
        (None, "messages should be a list, but is NoneType"),
        ([], "messages is empty"),
        ([5], r"messages\[0\] should be an object.*but is int"),
        (
            [_message("user"), _message("narrator")],
            r"messages\[1\].role is 'narrator'; known roles are developer, system",
        ),
        ([{"content": "x"}], r"messages\[0\].role is None"),
        ([{"role": ["user"], "content": "x"}], r"messages\[0\].role is \['user'\]"),
        ([{"role": "user"}], r"messages\[0\] \(user\) has no content"),
        ([_message("user", None)], r"messages\[0\] \(user\) has no content"),
        ([{"role": "assistant"}], r"messages\[0\] \(assistant\) has no content"),
        ([_message("user", 5)], r"messages\[0\].content should be a string or a list of parts, but is int"),
        ([_message("user", ["A"])], r"messages\[0\].content\[0\] should be an object.*but is str"),
        ([_message("user", [{"type": "image_url"}])], r"content\[0\] is of type 'image_url'; only 'text'"),
        ([_message("user", [{"type": "input_audio"}])], r"content\[0\] is of type 'input_audio'"),
        ([_message("user", [{}])], r"content\[0\] is of type None"),
        ([_message("user", [{"type": "text"}])], r"content\[0\].text should be a string, but is NoneType"),
        (_calls({}), r"messages\[0\].tool_calls should be a list, but is dict"),
        (_calls([5]), r"tool_calls\[0\] should be an object with a function"),
        (_calls([{"function": "f"}]), r"tool_calls\[0\] should be an object with a function"),
        (_calls([{"function": {}}]), r"tool_calls\[0\].function.name should be a string, but is NoneType"),
        (_calls([{"function": {"name": "f", "arguments": "[" * 100_000}}]), "arguments is nested too deeply"),
    ],
)
def test_what_cannot_be_used_is_named(messages: object, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        normalize_messages(messages)
