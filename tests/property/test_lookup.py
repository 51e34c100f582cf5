"""Tokens that are copied from earlier text change how fast an answer comes, and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from speculating import MANY_TOKENS, Answer, MakePair, Speculating, costs, speculating, step_until_cancelled
from tiny.pairs import GOOD, MIXED, Pair

from pydspark.errors import ArgumentError
from pydspark.records import Finish

PROMPT = [40, 41, 45, 42, 200, 43, 7]
ARCHITECTURES = ["llama", "qwen3", "qwen3moe", "qwen35", "qwen35moe"]
MOST_COPIED = 16


def copying(pair: Pair, draft: bool = False, **params: object) -> Speculating:
    """A session that copies after two tokens that agree, with its drafter or without."""
    draft_path: Path | None = pair.draft_path if draft else None
    settings = {"spec_type": "auto,ngram" if draft else "ngram", "lookup_match": 2, **params}
    return Speculating(pair.target_path, draft_path, **settings)


def plain(pair: Pair, **params: object) -> Speculating:
    return Speculating(pair.target_path, **params)


def n_copied(answer: Answer) -> int:
    return sum(answer.stats.lookup_drafted_at)


def n_copied_accepted(answer: Answer) -> int:
    return sum(answer.stats.lookup_accepted_at)


# ---- the text ----


@pytest.mark.parametrize("type", ["f32", "q4_0"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_greedy_text_is_that_of_plain_decoding(make_pair: MakePair, architecture: str, type: str) -> None:
    pair = make_pair(MIXED, architecture, type)
    follows = plain(pair).generate(PROMPT, max_tokens=3).tokens
    prompt = PROMPT + follows[:1] + [99, 98] + PROMPT + follows[:2] + [97] + PROMPT  # to be misled by
    wanted = plain(pair).generate(prompt, max_tokens=60).tokens
    for draft in (False, True):
        for lookup_match in (1, 2, 5):
            target = copying(pair, draft, lookup_match=lookup_match)
            answer = target.generate(prompt, max_tokens=60, n_draft_max=5)
            assert answer.tokens == wanted
            assert 0 < n_copied_accepted(answer) < n_copied(answer)


@pytest.mark.parametrize("draft", [False, True], ids=["alone", "with a drafter"])
@pytest.mark.parametrize("architecture", ["llama", "qwen35moe"])
def test_copies_are_verified_as_far_as_they_pay(make_pair: MakePair, architecture: str, draft: bool) -> None:
    pair = make_pair(MIXED, architecture)
    follows = plain(pair).generate(PROMPT, max_tokens=40).tokens
    prompt = PROMPT + follows + [99] + PROMPT
    wanted = plain(pair).generate(prompt, max_tokens=60).tokens
    lengths = {}
    for name, slope in {"cheap": 0.01, "dear": 0.3, "hopeless": 1.0}.items():
        target = copying(pair, draft, lookup_match=1)
        target.session.set_learnt(costs(*(1 + slope * k for k in range(17))), frozen=True)
        answer = target.generate(prompt, max_tokens=60, n_draft_max=None, draft_schedule="auto")
        assert answer.tokens == wanted
        lengths[name] = len(answer.stats.lookup_drafted_at)
    assert lengths["cheap"] >= lengths["dear"] > lengths["hopeless"] == 0


@pytest.mark.parametrize("lookup_max", [0, 1, 3, 16])
def test_no_round_is_longer_than_wanted(make_pair: MakePair, lookup_max: int) -> None:
    pair = make_pair(MIXED)
    wanted = plain(pair).generate(PROMPT, max_tokens=60).tokens
    for draft in (False, True):
        answer = copying(pair, draft).generate(PROMPT, max_tokens=60, n_draft_max=2, lookup_max=lookup_max)
        assert answer.tokens == wanted
        assert (n_copied(answer) > 0) == (lookup_max > 0)
        assert len(answer.stats.drafted_at) <= max(lookup_max, 2 if draft else 0)


@pytest.mark.parametrize("draft", [False, True], ids=["alone", "with a drafter"])
def test_sampled_text_with_coupled_draws_is_that_of_plain_decoding(make_pair: MakePair, draft: bool) -> None:
    pair = make_pair(GOOD)
    target, other = copying(pair, draft), plain(pair)
    answers = []
    for seed in range(20):
        options = {"temperature": 0.8, "draft_sampling": "coupled", "seed": seed, "max_tokens": 40}
        answers.append(target.generate(PROMPT, **options))
        assert answers[-1].tokens == other.generate(PROMPT, **options).tokens
    assert 0 < sum(map(n_copied_accepted, answers)) < sum(map(n_copied, answers))


def test_penalties_bans_and_log_probabilities_are_those_of_plain_decoding(make_pair: MakePair) -> None:
    pair = make_pair(GOOD, "qwen3", "q8_0")
    banned = plain(pair).generate(PROMPT).tokens[2]
    changes = {"repeat_penalty": 1.05, "repeat_last_n": 20, "bias": {banned: float("-inf"), 9: 1.0}}
    options = {"max_tokens": 60, "logprobs": True, "top_logprobs": 3, **changes}
    wanted = plain(pair).generate(PROMPT, **options)
    for draft in (False, True):
        answer = copying(pair, draft, lookup_match=1).generate(PROMPT, **options)
        assert (answer.tokens, answer.logprobs, answer.tops) == (wanted.tokens, wanted.logprobs, wanted.tops)
        assert n_copied(answer) > 0


@pytest.mark.parametrize("draft", [False, True], ids=["alone", "with a drafter"])
def test_a_seed_decides_the_text_whatever_is_held(make_pair: MakePair, draft: bool) -> None:
    pair = make_pair(GOOD)
    used, fresh = copying(pair, draft), copying(pair, draft)
    for seed in range(8):
        options = {"temperature": 1.0, "seed": seed, "max_tokens": 40, "n_draft_max": 3}
        used.hold(PROMPT[: seed % 5] + [7, 7, 7])
        answer = used.generate(PROMPT, reuse_prefix=True, **options)
        assert answer.tokens == fresh.generate(PROMPT, **options).tokens


def test_a_repeated_prompt_is_copied_and_the_drafter_rests(make_pair: MakePair) -> None:
    pair = make_pair(GOOD)
    text = plain(pair).generate(PROMPT, max_tokens=60).tokens
    prompt = PROMPT + text + PROMPT  # the answer to the same words is there already
    answer = copying(pair, draft=True, lookup_match=4).generate(prompt, max_tokens=50, n_draft_max=8)
    assert answer.tokens == plain(pair).generate(prompt, max_tokens=50).tokens
    drafted_for = [step for step in answer.steps if step.n_by_drafter > 0]
    assert len(drafted_for) <= 1 < answer.stats.lookup_rounds


# ---- counts ----


def test_counts_by_source_add_up(make_pair: MakePair) -> None:
    target = copying(make_pair(MIXED), draft=True)
    answer = target.generate(PROMPT, max_tokens=80, n_draft_max=4)
    stats = answer.stats
    assert 0 < stats.lookup_rounds < stats.draft_rounds
    assert sum(stats.drafted_at) == stats.draft_n > n_copied(answer) > 0
    assert sum(stats.accepted_at) == stats.draft_n_accepted > n_copied_accepted(answer) > 0
    shares = zip(stats.lookup_drafted_at, stats.drafted_at, strict=True)
    assert all(copied <= drafted for copied, drafted in shares)
    by_drafter = [min(step.n_by_drafter, len(step.tokens) - 1) for step in answer.steps]
    assert sum(by_drafter) == stats.draft_n_accepted - n_copied_accepted(answer)
    assert stats.accept_len == 1 + stats.draft_n_accepted / stats.draft_rounds


@pytest.mark.parametrize("n_draft_max", [0, 3])
def test_zero_drafts_turn_lookup_off(make_pair: MakePair, n_draft_max: int) -> None:
    answer = copying(make_pair(MIXED)).generate(PROMPT, max_tokens=60, n_draft_max=n_draft_max)
    assert (answer.stats.draft_rounds > 0) == (answer.stats.lookup_rounds > 0) == (n_draft_max > 0)


# ---- state ----


def assert_same_state(one: Speculating, other: Speculating, draft: bool) -> None:
    assert one.session.n_past == other.session.n_past
    if draft:
        assert np.array_equal(one.block_hidden(17, 8), other.block_hidden(17, 8))
    assert np.array_equal(one.next_logits(17), other.next_logits(17))


@pytest.mark.parametrize("rollback", ["replay", "snapshots"])
@pytest.mark.parametrize("draft", [False, True], ids=["alone", "with a drafter"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_copied_runs_leave_the_state_of_decoding_one_by_one(
    make_pair: MakePair, architecture: str, draft: bool, rollback: str
) -> None:
    pair = make_pair(GOOD, architecture, "q4_0")
    target = copying(pair, draft, rollback=rollback)
    straight = speculating(pair) if draft else plain(pair)
    lengths = set()
    for seed in range(4):
        answer = target.generate(PROMPT, temperature=0.7, seed=seed, max_tokens=60, n_draft_max=3)
        lengths |= {len(step.tokens) for step in answer.steps}
        straight.hold(PROMPT)
        for token in answer.tokens[:-1]:
            straight.read([token])
        assert_same_state(target, straight, draft)
    assert len(lengths) > 1


@pytest.mark.parametrize("draft", [False, True], ids=["alone", "with a drafter"])
@pytest.mark.parametrize("architecture", ["llama", "qwen35"])
def test_a_cancelled_copied_run_can_be_taken_again(make_pair: MakePair, architecture: str, draft: bool) -> None:
    pair = make_pair(GOOD, architecture)
    target = copying(pair, draft)
    wanted = plain(pair).generate(PROMPT, max_tokens=MANY_TOKENS).tokens
    target.session.start(target.request(PROMPT, max_tokens=MANY_TOKENS))
    tokens: list[int] = []
    for _ in range(4):
        step_until_cancelled(target, tokens)
        step = target.session.step()
        tokens.extend(step.tokens)
    while step.finish is Finish.NONE:
        step = target.session.step()
        tokens.extend(step.tokens)
    assert tokens == wanted
    assert sum(target.session.stats().lookup_accepted_at) > 0


# ---- ends ----


@pytest.mark.parametrize("draft", [False, True], ids=["alone", "with a drafter"])
@pytest.mark.parametrize("architecture", ["llama", "qwen35moe"])
def test_a_stop_id_ends_a_copied_run(make_pair: MakePair, architecture: str, draft: bool) -> None:
    pair = make_pair(GOOD, architecture)
    target, other = copying(pair, draft), speculating(pair) if draft else plain(pair)
    text = other.generate(PROMPT, n_draft_max=0, max_tokens=60).tokens
    prompt = PROMPT + text[:40] + PROMPT
    text = other.generate(prompt, n_draft_max=0, max_tokens=40).tokens
    places = [i for i, token in enumerate(text[:30]) if token not in text[:i]]
    inside = set()
    for place in places:
        options = {"stop_ids": [text[place]], "max_tokens": 40}
        answer = target.generate(prompt, n_draft_max=3, **options)
        without = other.generate(prompt, n_draft_max=0, **options)
        assert answer.tokens == without.tokens == text[:place]
        assert (answer.finish, answer.stop_id) == (Finish.STOP_ID, text[place])
        assert_same_state(target, other, draft)
        inside.add(len(answer.steps[-1].tokens))
    assert len(inside) > 1


@pytest.mark.parametrize("n_prompt", [40, 50, 61, 62, 63])
def test_a_full_context_ends_a_copied_run(make_pair: MakePair, n_prompt: int) -> None:
    pair = make_pair(GOOD)
    prompt = [5, 6, 7, 8] * 16
    for draft in (False, True):
        target, other = copying(pair, draft, n_ctx=64), speculating(pair, n_ctx=64) if draft else plain(pair, n_ctx=64)
        without = other.generate(prompt[:n_prompt], n_draft_max=0, max_tokens=None)
        answer = target.generate(prompt[:n_prompt], max_tokens=None)
        assert answer.tokens == without.tokens
        assert answer.finish is Finish.CONTEXT
        assert_same_state(target, other, draft)


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 16, 17, 18])
def test_max_tokens_is_met_exactly(make_pair: MakePair, max_tokens: int) -> None:
    pair = make_pair(GOOD)
    prompt = [5, 6, 7, 8] * 8
    answer = copying(pair).generate(prompt, max_tokens=max_tokens)
    assert answer.tokens == plain(pair).generate(prompt, max_tokens=max_tokens).tokens
    assert len(answer.tokens) == max_tokens


# ---- prompts that a lookup could trip over ----


@pytest.mark.parametrize(
    "prompt",
    [[9], [9, 9], [9] * 200, [9, 8] * 100, [9] * 254 + [10], list(range(256)) + list(range(128))],
    ids=["one token", "two", "one over and over", "two over and over", "up to the cache's next step", "all, and again"],
)
@pytest.mark.parametrize("lookup_match", [1, 4, 64])
def test_odd_prompts(make_pair: MakePair, lookup_match: int, prompt: list[int]) -> None:
    pair = make_pair(GOOD)
    wanted = plain(pair).generate(prompt, max_tokens=50).tokens
    for draft in (False, True):
        target = copying(pair, draft, lookup_match=lookup_match)
        for _ in range(2):  # with nothing of the first request left
            assert target.generate(prompt, max_tokens=50).tokens == wanted


@pytest.mark.parametrize("lookup_match", [0, 65])
def test_a_match_out_of_range_is_refused(make_pair: MakePair, lookup_match: int) -> None:
    with pytest.raises(ArgumentError, match="lookup_match must be between 1 and 64"):
        copying(make_pair(GOOD), lookup_match=lookup_match)
