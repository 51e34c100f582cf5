"""Stop strings in text that arrives in pieces."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydspark.errors import ArgumentError
from pydspark.text.stop import StopMatcher


def _run(stops: Sequence[str], pieces: Iterable[str]) -> tuple[list[str], str | None]:
    matcher = StopMatcher(stops)
    passed = [matcher.add(piece) for piece in pieces]
    return [*passed, matcher.finish()], matcher.hit


def _expected(stops: Sequence[str], text: str) -> tuple[str, str | None]:
    """The definition, tried at every end position."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            longest = max(ending, key=len)
            return text[: end - len(longest)], longest
    return text, None


@pytest.mark.parametrize(
    ("stops", "pieces", "passed", "hit"),
    [
        ([], ["abc", "d"], ["abc", "d", ""], None),
        (["cd"], ["abc", "de"], ["ab", "", ""], "cd"),
        (["abX"], ["ab", "c"], ["", "abc", ""], None),
        (["abX"], ["zab"], ["z", "ab"], None),
        (["b"], ["abc", "b"], ["a", "", ""], "b"),
        (["bcd", "c"], ["abcd"], ["ab", ""], "c"),
        (["cd", "bcd"], ["ab", "cd"], ["a", "", ""], "bcd"),
        (["aab"], ["aaaab"], ["aa", ""], "aab"),
        (["abab", "bac"], ["aba", "c"], ["", "a", ""], "bac"),
        (["é\n"], ["caf", "é", "\n"], ["caf", "", "", ""], "é\n"),
    ],
)
def test_text_is_cut_before_the_stop_string(
    stops: list[str], pieces: list[str], passed: list[str], hit: str | None
) -> None:
    assert _run(stops, pieces) == (passed, hit)


@given(
    stops=st.lists(st.text("ab", min_size=1, max_size=4), max_size=4),
    pieces=st.lists(st.text("abc", max_size=5), max_size=8),
)
def test_result_does_not_depend_on_the_pieces(stops: list[str], pieces: list[str]) -> None:
    text = "".join(pieces)
    passed, hit = _run(stops, pieces)
    assert ("".join(passed), hit) == _expected(stops, text)


@given(stops=st.lists(st.text("ab", min_size=1, max_size=4), max_size=4), text=st.text("abc", max_size=12))
def test_only_a_possible_beginning_is_held_back(stops: list[str], text: str) -> None:
    matcher = StopMatcher(stops)
    passed = matcher.add(text)
    if matcher.hit is None:
        beginnings = [stop[:n] for stop in stops for n in range(1, len(stop) + 1)]
        held = max((part for part in beginnings if text.endswith(part)), key=len, default="")
        assert passed + held == text


@pytest.mark.parametrize("stops", [[""], ["a", ""], ["a", 5], [None]])
def test_stop_strings_that_cannot_be_used_are_refused(stops: list[str]) -> None:
    with pytest.raises(ArgumentError, match=r"stop string \d is"):
        StopMatcher(stops)


def test_one_string_is_one_stop_string() -> None:
    assert _run("bc", ["ab", "c"]) == (["a", "", ""], "bc")


@pytest.mark.parametrize("length", [2, 2_000, 200_000])
def test_work_grows_linearly_whatever_the_stop_strings(length: int) -> None:
    stops = ["a" * length + "b", "a" * (length // 2) + "c"]
    times = []
    for n in (20_000, 200_000):
        start = time.process_time()
        matcher = StopMatcher(stops)
        passed = sum(len(matcher.add("a")) for _ in range(n)) + len(matcher.finish())
        times.append(time.process_time() - start)
        assert passed == n
    assert times[1] < 40 * (times[0] + 0.01)  # quadratic work would be 100 times as much
