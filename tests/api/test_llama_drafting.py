"""``Llama`` with a drafter."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny.pairs import HOSTILE, MIXED, NEARLY_BIGRAM, Pair, TinyDraft, write_pair

from pydspark import Llama, engine
from pydspark.errors import ArgumentError, PairingError, UnsupportedError

GREEDY = {"temperature": 0, "max_tokens": 40}
PROMPT = "hello world, the "


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A target, and a drafter that is right about every other time."""
    return write_pair(tmp_path_factory.mktemp("pair"), TinyDraft(quality=MIXED), shape=NEARLY_BIGRAM)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """The same target, and a drafter without a confidence head that is never right."""
    draft = TinyDraft(quality=HOSTILE, confidence="none")
    return write_pair(tmp_path_factory.mktemp("hostile"), draft, shape=NEARLY_BIGRAM)


def open_pair(pair: Pair, **options: Any) -> Llama:
    return Llama(
        pair.target_path,
        **{"draft": pair.draft_path, "n_ctx": 128, "n_threads": 1, "draft_schedule": "fixed", **options},
    )


@pytest.fixture(scope="module")
def opened(pair: Pair) -> Iterator[Llama]:
    with open_pair(pair, n_draft_max=4) as llama:
        yield llama


@pytest.fixture
def llama(opened: Llama) -> Llama:
    """Target and drafter, with a context of 128 tokens and nothing left of the test before."""
    opened.reset()
    return opened


def text_of(answer: dict[str, Any]) -> str:
    return answer["choices"][0]["text"]


def n_held(llama: Llama) -> int:
    session = llama.engine._parts.session
    assert session is not None
    return session.n_past


# ---- what is generated, and what is told of it ----


def test_the_text_is_that_of_plain_decoding(llama: Llama) -> None:
    plain = llama(PROMPT, speculative=False, **GREEDY)
    for options in ({}, {"n_draft_max": 1}, {"n_draft_max": 8}, {"draft_conf_min": 0.5}, {"draft_accept": "token"}):
        drafted = llama(PROMPT, **options, **GREEDY)
        assert text_of(drafted) == text_of(plain)
        assert drafted["usage"] | {"prompt_tokens_details": None} == plain["usage"] | {"prompt_tokens_details": None}
    chat = [{"role": "user", "content": "hello"}]
    answers = [llama.create_chat_completion(chat, speculative=choice, **GREEDY) for choice in (False, True)]
    assert answers[0]["choices"] == answers[1]["choices"]


def test_timings_tell_what_the_drafter_did(llama: Llama) -> None:
    timings = llama(PROMPT, **GREEDY)["timings"]
    assert timings["predicted_n"] == 40
    assert 0 < timings["draft_n_accepted"] < timings["draft_n"]
    assert sum(timings["drafted_at"]) == timings["draft_n"]
    assert sum(timings["draft_n_accepted_at"]) == timings["draft_n_accepted"]
    assert len(timings["drafted_at"]) == len(timings["draft_n_accepted_at"]) == 4
    assert timings["accept_len"] == 1 + timings["draft_n_accepted"] / timings["draft_rounds"]
    assert timings["accept_rate"] == timings["draft_n_accepted"] / timings["draft_n"]
    assert 0 < timings["draft_ms"] + timings["verify_ms"] <= timings["predicted_ms"]
    assert 0 < timings["host_ms"] < timings["predicted_ms"]
    json.dumps(llama.last_stats, allow_nan=False)
    assert llama.last_stats["n_accepted"] == timings["draft_n_accepted"]


def test_without_drafting_nothing_is_told_of_it(llama: Llama) -> None:
    for options in ({"speculative": False}, {"n_draft_max": 0}, {"speculative": {"n_max": 0}}):
        timings = llama(PROMPT, **options, **GREEDY)["timings"]
        assert [key for key in timings if "draft" in key or "accept" in key] == []
        stats = llama.last_stats
        assert (stats["n_drafted"], stats["accept_len"], stats["accept_rate"]) == (0, 1.0, 0.0)


def test_a_call_says_how_much_to_draft(llama: Llama) -> None:
    for options in ({"n_draft_max": 2}, {"speculative": {"n_max": 2}}):
        assert len(llama(PROMPT, **options, **GREEDY)["timings"]["drafted_at"]) == 2
    chat = llama.create_chat_completion([{"role": "user", "content": "hello"}], n_draft_max=3, **GREEDY)
    assert len(chat["timings"]["drafted_at"]) == 3
    assert len(llama(PROMPT, **GREEDY)["timings"]["drafted_at"]) == 4
    sure = llama(PROMPT, draft_conf_min=0.9, n_draft_max=8, **GREEDY)["timings"]
    assert sure["draft_n"] < 8 * sure["draft_rounds"]


def test_coupled_draws_give_the_same_text_with_and_without_drafts(llama: Llama) -> None:
    options = {"seed": 5, "temperature": 1.0, "max_tokens": 40, "draft_sampling": "coupled"}
    drafted, plain = (llama(PROMPT, speculative=choice, **options) for choice in (True, False))
    assert text_of(drafted) == text_of(plain)
    assert drafted["timings"]["draft_n_accepted"] > 0


def test_the_same_seed_gives_the_same_text(llama: Llama) -> None:
    options = {"seed": 5, "temperature": 1.0, "max_tokens": 40}
    assert text_of(llama(PROMPT, **options)) == text_of(llama(PROMPT, **options))
    assert len({text_of(llama(PROMPT, temperature=1.0, max_tokens=40)) for _ in range(5)}) > 1


@pytest.mark.parametrize("max_tokens", [1, 2, 7, 8, 9])
def test_no_more_tokens_than_asked_for(llama: Llama, max_tokens: int) -> None:
    answer = llama(PROMPT, temperature=0, max_tokens=max_tokens, n_draft_max=8)
    assert answer["usage"]["completion_tokens"] == answer["timings"]["predicted_n"] == max_tokens
    assert answer["choices"][0]["finish_reason"] == "length"


def test_a_banned_token_does_not_come_through_a_draft(llama: Llama) -> None:
    first = next(iter(llama.generate(llama.tokenize(PROMPT), temp=0)))
    for bias in ({first: -100}, [[first, False]]):
        drafted, plain = (llama(PROMPT, logit_bias=bias, speculative=choice, **GREEDY) for choice in (True, False))
        assert text_of(drafted) == text_of(plain)
        assert first not in llama.tokenize(text_of(drafted))


# ---- ends inside of a block ----


def test_a_stop_string_inside_of_a_block_leaves_no_trace(llama: Llama) -> None:
    prompt = llama.tokenize(PROMPT)
    plain = text_of(llama(prompt, speculative=False, **GREEDY))
    for end in range(1, 17):
        stop = plain[end : end + 2]
        ended = []
        for choice in (False, True):
            llama.reset()
            answer = llama(prompt, speculative=choice, n_draft_max=None if not choice else 8, stop=stop, **GREEDY)
            usage = answer["usage"]
            assert usage["completion_tokens"] == answer["timings"]["predicted_n"]
            assert n_held(llama) == len(prompt) + usage["completion_tokens"] - 1
            ended.append((text_of(answer), answer["choices"][0]["finish_reason"], usage))
        assert ended[0] == ended[1]
        stats = llama.last_stats
        # every emitted token is the target's own of a round, or an accepted draft, the last one's own may be cut off
        assert stats["n_rounds"] - 1 <= stats["predicted_n"] - stats["n_accepted"] <= stats["n_rounds"]
        assert sum(stats["accepted_at"]) == stats["n_accepted"]


def test_a_stream_that_is_not_read_on_leaves_what_was_read(llama: Llama) -> None:
    prompt = llama.tokenize(PROMPT)
    whole = text_of(llama(prompt, **GREEDY))
    for n_read in (1, 2, 3, 4, 5, 6):
        held = []
        for choice in (False, True):
            llama.reset()
            tokens = llama.engine.events(prompt, llama._sampling(speculative=choice, **GREEDY))
            texts = [next(tokens) for _ in range(2 * n_read)]  # a token, then its text
            tokens.close()  # type: ignore[attr-defined]
            held.append((n_held(llama), [getattr(event, "id", event) for event in texts]))
        assert held[0] == held[1]
        assert held[0][0] == len(prompt) + n_read - 1
    assert text_of(llama(prompt, **GREEDY)) == whole


@pytest.mark.parametrize("n_prompt", [55, 56, 57, 62, 63])
def test_a_block_that_would_cross_the_end_of_the_context(pair: Pair, n_prompt: int) -> None:
    with open_pair(pair, n_ctx=64, n_draft_max=8) as llama:
        prompt = (llama.tokenize(PROMPT) * 10)[:n_prompt]
        answers = [llama(prompt, max_tokens=None, temperature=0, speculative=choice) for choice in (True, False)]
    assert text_of(answers[0]) == text_of(answers[1])
    assert [answer["choices"][0]["finish_reason"] for answer in answers] == ["length", "length"]
    assert [answer["usage"]["completion_tokens"] for answer in answers] == [64 - n_prompt] * 2


def test_a_repeated_prompt_is_drafted_for_as_well_as_at_first(llama: Llama) -> None:
    first, again = (llama(PROMPT * 4, **GREEDY) for _ in range(2))
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert text_of(again) == text_of(first)
    assert again["timings"]["draft_n_accepted_at"] == first["timings"]["draft_n_accepted_at"]


# ---- opening ----


def test_the_drafter_is_part_of_the_memory(llama: Llama, pair: Pair) -> None:
    with open_pair(pair, draft=None) as plain:
        with_draft, without = llama.engine.memory, plain.engine.memory
    assert with_draft is not None and without is not None
    for part in ("weights", "kv", "compute"):
        assert getattr(with_draft.lines[0], part) > getattr(without.lines[0], part)


def test_loading_is_told_once_from_beginning_to_end(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("Model", "Draft"):
        monkeypatch.setattr(engine, name, tells_its_progress(getattr(engine, name)))
    seen: list[float] = []
    open_pair(pair, progress=lambda fraction: seen.append(fraction) is None).close()
    target, draft = (path.stat().st_size for path in (pair.target_path, pair.draft_path))
    assert seen == [0.0, seen[1], seen[1], 1.0]
    assert seen[1] == pytest.approx(target / (target + draft), abs=0.05)


def tells_its_progress(load: Callable[..., Any]) -> Callable[..., Any]:
    """The core tells nothing of what takes a moment only."""

    def loaded(*arguments: Any) -> Any:
        for fraction in (0.0, 1.0):
            assert arguments[-1](fraction)
        return load(*arguments)

    return loaded


def test_other_names_of_the_drafter(pair: Pair) -> None:
    with open_pair(pair, draft=None, draft_model=str(pair.draft_path)) as llama:
        assert llama.draft_path == str(pair.draft_path)
    with pytest.raises(ArgumentError, match="one of draft and draft_model"):
        open_pair(pair, draft_model=pair.draft_path)
    with pytest.raises(UnsupportedError, match="draft_model=.*draft="):
        open_pair(pair, draft=None, draft_model=object())


def test_the_kind_of_drafter(pair: Pair) -> None:
    open_pair(pair, spec_type="draft-dspark").close()
    with open_pair(pair, spec_type="none") as llama:
        assert llama.draft_path is None
        with pytest.raises(ArgumentError, match="speculative=True needs a drafter"):
            llama(PROMPT, speculative=True)
    with pytest.raises(ArgumentError, match="draft.gguf is a drafter of the kind 'draft-dspark'"):
        open_pair(pair, spec_type="draft-dflash")
    with pytest.raises(ArgumentError, match="spec_type must be one of auto, none, draft-dspark, draft-dflash"):
        open_pair(pair, spec_type="eagle3")


def test_a_threshold_without_a_confidence_head_is_refused_at_once(hostile: Pair) -> None:
    with pytest.raises(ArgumentError, match="draft_conf_min is 0.5.*no confidence head"):
        open_pair(hostile, draft_conf_min=0.5)
    with open_pair(hostile) as llama:
        for options in ({"draft_conf_min": 0.5}, {"speculative": {"conf_min": 0.5}}):
            with pytest.raises(ArgumentError, match="draft_conf_min is 0.5.*no confidence head"):
                llama(PROMPT, stream=True, **options)
        assert text_of(llama(PROMPT, draft_conf_min=0.5, speculative=False, **GREEDY))


def test_swapped_target_and_drafter(pair: Pair) -> None:
    with pytest.raises(UnsupportedError, match="draft.gguf is a drafter .*pass it as draft"):
        Llama(pair.draft_path, draft=pair.target_path)
    with pytest.raises(UnsupportedError, match="swapped"):
        Llama(pair.target_path, draft=pair.target_path)


def test_a_drafter_for_another_model(pair: Pair, tiny_llama_path: Path) -> None:
    with pytest.raises(PairingError, match=r"draft.gguf was not made for .*tiny-llama.gguf:\n  - .*\n  - "):
        Llama(tiny_llama_path, draft=pair.draft_path)
    with pytest.raises(PairingError):
        Llama(tiny_llama_path, draft=pair.draft_path, vocab_only=True)


def test_a_drafter_that_is_never_right_is_warned_of(hostile: Pair, caplog: pytest.LogCaptureFixture) -> None:
    with open_pair(hostile) as llama, caplog.at_level(logging.WARNING, "pydspark"):
        texts = {text_of(llama(PROMPT, speculative=choice, **GREEDY)) for choice in (True, True, False)}
    assert len(texts) == 1
    assert "only 0 had a first token that was accepted" in caplog.text


def test_a_plain_step_is_measured_without_a_trace(llama: Llama) -> None:
    text = text_of(llama(PROMPT, **GREEDY))
    held = n_held(llama)
    step_ms = llama.engine.plain_step_ms()
    assert step_ms is not None and step_ms > 0
    assert n_held(llama) == held
    assert text_of(llama(PROMPT, **GREEDY)) == text


def test_a_pair_of_one_repo(pair: Pair, tmp_path: Path) -> None:
    for name, path in (("m-Q8_0.gguf", pair.target_path), ("dspark-m-Q8_0.gguf", pair.draft_path)):
        (tmp_path / name).symlink_to(path)
    for options in ({"draft_filename": "dspark-*"}, {"draft_repo_id": "user/model"}):
        llama = Llama.from_pretrained("user/model", local_dir=tmp_path, n_ctx=64, n_threads=1, **options)
        assert llama.draft_path == str(tmp_path / "dspark-m-Q8_0.gguf")
        llama.close()
