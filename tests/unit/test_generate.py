"""generate(): events of one request."""

from __future__ import annotations

import pytest
from fakes import ByteDecoder, FakeSession, OneStop, request

from pydspark.generate import Done, Event, Text, Token, generate
from pydspark.records import Finish


def run(text: str | bytes, stop: str | None = None, per_step: int = 1, **more: object) -> list[Event]:
    data = text.encode() if isinstance(text, str) else text
    finish = more.pop("finish", Finish.STOP_ID)
    session = FakeSession(data, per_step, finish)
    return list(generate(session, request(**more), ByteDecoder(), OneStop(stop)))


def joined(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def token_ids(events: list[Event]) -> list[int]:
    return [event.id for event in events if isinstance(event, Token)]


def done(events: list[Event]) -> Done:
    assert isinstance(events[-1], Done)
    assert not any(isinstance(event, Done) for event in events[:-1])
    return events[-1]


@pytest.mark.parametrize("per_step", [1, 2, 3, 8])
def test_text_and_tokens_are_complete_and_characters_are_never_split(per_step: int) -> None:
    text = "a\u00e9\u4e2d\U0001f999b"
    events = run(text, per_step=per_step)
    assert joined(events) == text
    assert bytes(token_ids(events)) == text.encode()
    assert all("\ufffd" not in event.text for event in events if isinstance(event, Text))


def test_each_text_comes_after_the_tokens_that_made_it() -> None:
    events = run("\u4e2db")
    kinds = [type(event).__name__ for event in events]
    assert kinds == ["Token", "Token", "Token", "Text", "Token", "Text", "Done"]


def test_unfinished_character_is_replaced_once_at_the_end() -> None:
    events = run(b"a\xf0\x9f", finish=Finish.LENGTH)
    assert joined(events) == "a\ufffd"
    assert token_ids(events) == [0x61, 0xF0, 0x9F]


@pytest.mark.parametrize("per_step", [1, 2, 5])
def test_stop_string_cuts_text_and_tokens(per_step: int) -> None:
    events = run("one two three", stop="o t", per_step=per_step)
    assert joined(events) == "one tw"
    assert bytes(token_ids(events)) == b"one tw"
    end = done(events)
    assert (end.finish_reason, end.stop, end.stop_id) == ("stop", "o t", None)
    assert end.usage.completion_tokens == len("one two t")


def test_beginning_of_a_stop_string_is_released_when_it_does_not_come() -> None:
    events = run("xab", stop="abc")
    assert joined(events) == "xab"
    assert token_ids(events) == list(b"xab")


def test_token_that_reaches_into_a_stop_string_is_kept() -> None:
    class TwoLetters(ByteDecoder):
        def add(self, token: int) -> str:
            return {1: "ab", 2: "cd"}[token]

    events = list(generate(FakeSession([1, 2]), request(), TwoLetters(), OneStop("bc")))
    assert joined(events) == "a"
    assert token_ids(events) == [1]


@pytest.mark.parametrize(
    ("finish", "reason"), [(Finish.STOP_ID, "stop"), (Finish.LENGTH, "length"), (Finish.CONTEXT, "length")]
)
def test_finish_reason(finish: Finish, reason: str) -> None:
    assert done(run("ab", finish=finish)).finish_reason == reason


def test_nothing_is_run_for_no_tokens() -> None:
    session = FakeSession(b"abc")
    events = list(generate(session, request(max_tokens=0), ByteDecoder(), OneStop()))
    assert session.started == []
    end = done(events)
    assert len(events) == 1
    assert (end.finish_reason, end.usage.prompt_tokens, end.usage.completion_tokens) == ("length", 3, 0)


def test_no_step_is_run_ahead_of_the_reader() -> None:
    session = FakeSession(b"abcdef")
    events = generate(session, request(), ByteDecoder(), OneStop())
    next(events)
    assert session.n_steps == 1
    events.close()
    assert session.n_steps == 1
    again = list(generate(session, request(), ByteDecoder(), OneStop()))
    assert joined(again) == "abcdef"


def test_usage_and_seed_are_reported() -> None:
    end = done(run("abc", prompt=(5, 6, 7, 8)))
    assert (end.usage.prompt_tokens, end.usage.completion_tokens, end.usage.cached_tokens) == (4, 3, 1)
    assert end.seed == 7


# ---- rounds of several tokens ----


@pytest.mark.parametrize("per_step", [1, 2, 3, 4, 5, 8])
def test_after_a_stop_string_the_session_holds_what_plain_decoding_would(per_step: int) -> None:
    session = FakeSession(b"one two three", per_step, drafts=True)
    events = list(generate(session, request(prompt=(1, 2, 3)), ByteDecoder(), OneStop("o t")))
    n_tokens = len("one two t")
    assert session.cuts == [3 + n_tokens - 1]
    assert done(events).usage.completion_tokens == done(events).stats.predicted_n == n_tokens


@pytest.mark.parametrize("finish", [Finish.STOP_ID, Finish.LENGTH])
@pytest.mark.parametrize("n_kept", [1, 2, 3, 4])
def test_only_drafts_before_the_end_of_a_stop_string_count_as_accepted(n_kept: int, finish: Finish) -> None:
    # one round of four tokens, in which a stop string ends with token n_kept
    session = FakeSession(b"abcd", 4, finish, drafts=True)
    stats = done(list(generate(session, request(), ByteDecoder(), OneStop("abcd"[n_kept - 1])))).stats
    n_accepted = min(n_kept, 4 if finish is Finish.STOP_ID else 3)
    assert (stats.predicted_n, stats.draft_n_accepted) == (n_kept, n_accepted)
    assert stats.accepted_at == tuple(int(i < n_accepted) for i in range(4))
    assert stats.draft_n == 4


def test_earlier_rounds_keep_their_counts() -> None:
    session = FakeSession(b"abcdefgh", 4, drafts=True)
    stats = done(list(generate(session, request(), ByteDecoder(), OneStop("f")))).stats
    assert (stats.predicted_n, stats.draft_n_accepted, stats.accepted_at) == (6, 5, (2, 2, 1, 0))


@pytest.mark.parametrize("finish", [Finish.STOP_ID, Finish.LENGTH, Finish.CONTEXT])
def test_an_answer_without_a_stop_string_is_not_cut(finish: Finish) -> None:
    session = FakeSession(b"abcdef", 4, finish, drafts=True)
    stats = done(list(generate(session, request(), ByteDecoder(), OneStop("x")))).stats
    assert (session.cuts, stats) == ([], session.stats())
