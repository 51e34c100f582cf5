"""Sessions hold what a straight run holds, in target and drafter, whatever happened in between."""

from __future__ import annotations

import numpy as np
import pytest
from speculating import MANY_TOKENS, Answer, MakePair, Speculating, speculating, step_until_cancelled
from tiny.pairs import GOOD, MIXED

from pydspark.errors import Cancelled
from pydspark.records import Finish

PROMPT = [40, 41, 45, 42, 200, 43, 7]
# at most 32 rows: longer batches are not computed as single tokens are
LONG_PROMPT = [(7 * i) % 256 for i in range(30)]


def assert_same_state(one: Speculating, other: Speculating) -> None:
    """Both hold the same tokens, and what comes next is the same bit for bit."""
    assert one.session.n_past == other.session.n_past
    assert np.array_equal(one.block_hidden(17, 8), other.block_hidden(17, 8))
    assert np.array_equal(one.next_logits(17), other.next_logits(17))


def same_work(one: Answer, other: Answer) -> bool:
    """Whether both answers came in the same rounds."""
    return [step.tokens for step in one.steps] == [step.tokens for step in other.steps]


@pytest.mark.parametrize("flash_attn", [False, True], ids=["plain attention", "fused attention"])
@pytest.mark.parametrize("type", ["f32", "q4_0"])
@pytest.mark.parametrize("architecture", ["llama", "qwen3", "qwen3moe", "qwen35", "qwen35moe"])
def test_rounds_leave_the_state_of_decoding_one_by_one(
    make_pair: MakePair, architecture: str, type: str, flash_attn: bool
) -> None:
    pair = make_pair(MIXED, architecture, type)
    drafted, plain = speculating(pair, flash_attn=flash_attn), speculating(pair, flash_attn=flash_attn)
    for depth in (2, 8):
        answer = drafted.generate(PROMPT, n_draft_max=depth, max_tokens=30)
        assert 0 < answer.stats.draft_n_accepted < answer.stats.draft_n
        plain.generate(PROMPT, n_draft_max=0, max_tokens=30)
        assert_same_state(drafted, plain)


@pytest.mark.parametrize("rollback", ["replay", "snapshots"])
@pytest.mark.parametrize("depth", [1, 2, 3, 5, 8])
def test_recurrent_state_after_any_number_of_rejected_drafts(make_pair: MakePair, depth: int, rollback: str) -> None:
    pair = make_pair(MIXED, "qwen35", "q4_0")
    drafted, straight = speculating(pair, rollback=rollback), speculating(pair)
    answer = drafted.generate(PROMPT, n_draft_max=depth, max_tokens=40)
    assert 0 < answer.stats.draft_n_accepted < answer.stats.draft_n
    straight.hold(PROMPT)
    for token in answer.tokens[:-1]:
        straight.read([token])
    assert_same_state(drafted, straight)


def test_sampled_rounds_leave_the_state_of_decoding_one_by_one(make_pair: MakePair) -> None:
    pair = make_pair(GOOD)
    drafted, straight = speculating(pair), speculating(pair)
    for seed in range(5):
        answer = drafted.generate(PROMPT, n_draft_max=8, temperature=1.0, seed=seed)
        assert 0 < answer.stats.draft_n_accepted < answer.stats.draft_n
        straight.hold(PROMPT)
        for token in answer.tokens[:-1]:
            straight.read([token])
        assert_same_state(drafted, straight)


# ---- rounds without drafts ----


def test_drafts_are_the_same_after_rounds_without(make_pair: MakePair) -> None:
    pair = make_pair(GOOD)
    skipping, drafting = speculating(pair), speculating(pair)
    first = skipping.generate(PROMPT, n_draft_max=0, max_tokens=20)
    assert first.stats.draft_rounds == 0
    assert drafting.generate(PROMPT, n_draft_max=8, max_tokens=20).tokens == first.tokens
    prompt = PROMPT + first.tokens
    answers = [s.generate(prompt, n_draft_max=8, reuse_prefix=True) for s in (skipping, drafting)]
    assert same_work(*answers)
    assert answers[0].stats.draft_n_accepted > 0
    assert_same_state(skipping, drafting)


# ---- reuse of a prefix ----


@pytest.mark.parametrize("n_shared", [0, 3, 12, 29, 30])
def test_a_reused_prefix_serves_target_and_drafter(make_pair: MakePair, n_shared: int) -> None:
    pair = make_pair(GOOD)
    reusing, fresh = speculating(pair), speculating(pair)
    reusing.generate(LONG_PROMPT[:n_shared] + [99] + PROMPT, n_draft_max=8)
    again = reusing.generate(LONG_PROMPT, n_draft_max=8, reuse_prefix=True)
    first = fresh.generate(LONG_PROMPT, n_draft_max=8)
    assert again.stats.cache_n == min(n_shared, 29)
    assert same_work(again, first)
    assert again.stats.draft_n_accepted == first.stats.draft_n_accepted > 0
    assert_same_state(reusing, fresh)


def test_a_long_prompt_given_twice_is_drafted_for_equally_well(make_pair: MakePair) -> None:
    target = speculating(make_pair(GOOD))
    prompt = [(7 * i) % 256 for i in range(300)]
    first, again = (target.generate(prompt, n_draft_max=8, reuse_prefix=True) for _ in range(2))
    assert (first.stats.cache_n, again.stats.cache_n) == (0, 299)
    assert again.tokens == first.tokens
    assert again.stats.draft_n_accepted == first.stats.draft_n_accepted > 0


@pytest.mark.parametrize("n_kept", [1, 8, 20])
def test_a_conversation_can_part_in_the_middle_of_an_answer(make_pair: MakePair, n_kept: int) -> None:
    pair = make_pair(GOOD)
    reusing, fresh = speculating(pair), speculating(pair)
    answer = reusing.generate(PROMPT, n_draft_max=8)
    prompt = PROMPT + answer.tokens[:n_kept] + [98, 99]
    again = reusing.generate(prompt, n_draft_max=8, reuse_prefix=True)
    assert again.stats.cache_n == len(PROMPT) + n_kept
    assert same_work(again, fresh.generate(prompt, n_draft_max=8))
    assert_same_state(reusing, fresh)


@pytest.mark.parametrize("n_kept", [0, 1, 7, 12, 1000])
def test_cut_takes_tokens_from_target_and_drafter(make_pair: MakePair, n_kept: int) -> None:
    pair = make_pair(GOOD)
    cutting, fresh = speculating(pair), speculating(pair)
    held = (PROMPT + cutting.generate(PROMPT, n_draft_max=8).tokens)[: cutting.session.n_past]
    cutting.session.cut(n_kept)
    assert cutting.session.n_past == min(n_kept, len(held))
    for token in held[:n_kept]:
        fresh.read([token])
    assert_same_state(cutting, fresh)


def test_reset_forgets_everything(make_pair: MakePair) -> None:
    pair = make_pair(GOOD)
    used, fresh = speculating(pair), speculating(pair)
    used.generate(LONG_PROMPT, n_draft_max=8)
    used.session.reset()
    assert used.session.n_past == 0
    assert_same_state(used, fresh)


# ---- cancelling ----


@pytest.mark.parametrize("architecture", ["llama", "qwen35moe"])
@pytest.mark.parametrize("n_draft_max", [0, 8], ids=["plain", "with drafts"])
def test_a_cancelled_step_can_be_taken_again(make_pair: MakePair, n_draft_max: int, architecture: str) -> None:
    pair = make_pair(GOOD, architecture)
    target, plain = speculating(pair), speculating(pair)
    wanted = plain.generate(PROMPT, n_draft_max=0, max_tokens=MANY_TOKENS).tokens
    target.session.start(target.request(PROMPT, n_draft_max=n_draft_max, max_tokens=MANY_TOKENS))
    tokens: list[int] = []
    for _ in range(4):
        step_until_cancelled(target, tokens)
        step = target.session.step()
        tokens.extend(step.tokens)
    while step.finish is Finish.NONE:
        step = target.session.step()
        tokens.extend(step.tokens)
    assert tokens == wanted
    assert_same_state(target, plain)


@pytest.mark.parametrize("architecture", ["llama", "qwen35moe"])
def test_a_new_request_after_a_cancelled_step_continues_as_plain_decoding_would(
    make_pair: MakePair, architecture: str
) -> None:
    pair = make_pair(GOOD, architecture)
    target, plain = speculating(pair), speculating(pair)
    target.session.start(target.request(PROMPT, n_draft_max=8, max_tokens=MANY_TOKENS))
    tokens: list[int] = []
    step_until_cancelled(target, tokens)
    prompt = PROMPT + tokens + [9, 10]
    drafted = target.generate(prompt, n_draft_max=8, reuse_prefix=True)
    assert drafted.tokens == plain.generate(prompt, n_draft_max=0).tokens
    assert_same_state(target, plain)


@pytest.mark.parametrize("architecture", ["llama", "qwen35moe"])
def test_a_prompt_that_its_caller_stops_can_be_given_again(make_pair: MakePair, architecture: str) -> None:
    pair = make_pair(GOOD, architecture)
    one_by_one = {"n_batch": 1, "n_ubatch": 1}  # slow enough for the caller to be asked
    target, fresh = speculating(pair, **one_by_one), speculating(pair, **one_by_one)
    prompt = [(7 * i) % 256 for i in range(500)]
    heard: list[float] = []

    def stop(fraction: float) -> bool:
        heard.append(fraction)
        return False

    with pytest.raises(Cancelled):
        target.session.start(target.request(prompt, n_draft_max=8, max_tokens=8), stop)
    assert heard
    n_done = target.session.n_past
    assert n_done < len(prompt)
    again = target.generate(prompt, n_draft_max=8, max_tokens=8, reuse_prefix=True)
    assert again.stats.cache_n == n_done
    assert same_work(again, fresh.generate(prompt, n_draft_max=8, max_tokens=8))
    assert_same_state(target, fresh)
