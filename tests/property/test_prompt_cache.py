"""Prompts that begin alike are not evaluated twice, even where the state cannot be cut at any position."""

from __future__ import annotations

import numpy as np
import pytest
from speculating import MakePair, Speculating, speculating
from tiny.pairs import GOOD, MIXED

N_SYSTEM = 40
SYSTEM = [(7 * i) % 256 for i in range(N_SYSTEM)]
FIRST = [*SYSTEM, 30, 31, 32]
SECOND = [*SYSTEM, 50, 51, 52, 53]
OTHER = [(11 * i + 3) % 256 for i in range(60)]


def ask(target: Speculating, prompt: list[int], n_shared: int = N_SYSTEM, depth: int = 8) -> tuple[list[int], int]:
    """Tokens of the answer, and how many of the prompt were held."""
    boundaries = (n_shared,) if n_shared <= len(prompt) else ()
    answer = target.generate(prompt, n_draft_max=depth, reuse_prefix=True, boundaries=boundaries)
    return answer.tokens, answer.stats.cache_n


def assert_same_state(one: Speculating, other: Speculating) -> None:
    assert one.session.n_past == other.session.n_past
    assert np.array_equal(one.block_hidden(17, 8), other.block_hidden(17, 8))
    assert np.array_equal(one.next_logits(17), other.next_logits(17))


@pytest.mark.parametrize("rollback", ["replay", "snapshots"])
def test_the_second_question_reuses_the_system_prompt(make_pair: MakePair, rollback: str) -> None:
    pair = make_pair(MIXED, "qwen35")
    reusing, fresh = speculating(pair, rollback=rollback), speculating(pair, rollback=rollback)
    assert ask(reusing, FIRST)[1] == 0
    tokens, n_held = ask(reusing, SECOND)
    assert n_held == N_SYSTEM
    assert (tokens, 0) == ask(fresh, SECOND)
    assert_same_state(reusing, fresh)


def test_a_conversation_comes_back_after_another_one(make_pair: MakePair) -> None:
    pair = make_pair(GOOD, "qwen35")
    reusing, fresh = speculating(pair), speculating(pair)
    ask(reusing, FIRST)
    assert ask(reusing, OTHER, n_shared=50)[1] == 0  # its rows of the caches are written over
    tokens, n_held = ask(reusing, SECOND)
    assert n_held == N_SYSTEM
    assert (tokens, 0) == ask(fresh, SECOND)
    assert_same_state(reusing, fresh)


def test_a_longer_checkpoint_builds_on_a_shorter_one(make_pair: MakePair) -> None:
    pair = make_pair(GOOD, "qwen35")
    reusing, fresh = speculating(pair), speculating(pair)
    long = [*SECOND, *range(60, 90)]
    for target in (reusing, fresh):
        target.generate(long, reuse_prefix=True, boundaries=(N_SYSTEM, 44, 60))
    ask(reusing, OTHER, n_shared=50)
    changed = [*long[:65], 9]
    tokens, n_held = ask(reusing, changed, n_shared=60)
    assert n_held == 60
    assert tokens == ask(fresh, changed, n_shared=60)[0]
    assert_same_state(reusing, fresh)


def test_without_boundaries_the_prompt_itself_can_be_asked_again(make_pair: MakePair) -> None:
    target = speculating(make_pair(GOOD, "qwen35"))
    first, again = (target.generate(FIRST, n_draft_max=8, reuse_prefix=True) for _ in range(2))
    assert (first.stats.cache_n, again.stats.cache_n) == (0, len(FIRST) - 1)
    assert again.tokens == first.tokens


def test_an_answer_is_continued_without_a_checkpoint(make_pair: MakePair) -> None:
    target = speculating(make_pair(GOOD, "qwen35"), cache_ram=0)
    answer = target.generate(FIRST, n_draft_max=8)
    n_past = target.session.n_past
    again = target.generate([*FIRST, *answer.tokens, 5], n_draft_max=8, reuse_prefix=True)
    assert again.stats.cache_n == n_past > len(FIRST)


def test_the_cache_can_be_turned_off(make_pair: MakePair) -> None:
    target = speculating(make_pair(GOOD, "qwen35"), cache_ram=0)
    assert [ask(target, prompt)[1] for prompt in (FIRST, SECOND, OTHER)] == [0, 0, 0]


def test_nothing_is_reused_unless_it_may_be(make_pair: MakePair) -> None:
    target = speculating(make_pair(GOOD, "qwen35"))
    ask(target, FIRST)
    answer = target.generate(FIRST, reuse_prefix=False)
    assert answer.stats.cache_n == 0
    assert answer.stats.prompt_n == len(FIRST)


@pytest.mark.parametrize("boundaries", [(0,), (-1,), (44,), (5, 5), (9, 3)])
def test_boundaries_that_make_no_sense_are_refused(make_pair: MakePair, boundaries: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="boundar"):
        speculating(make_pair(GOOD, "qwen35")).generate(FIRST, boundaries=boundaries)
