"""Masks of what may follow: texts keep them, drafted or not, and nothing else changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from speculating import MakePair, RuleMask, Speculating, speculating
from tiny.pairs import GOOD, HOSTILE, MIXED, Pair

PROMPT = [40, 41, 45, 42, 200, 43, 7]
ARCHITECTURES = ["llama", "qwen35moe"]
DRAFTING = [
    {"draft_sampling": sampling, "draft_accept": accept}
    for sampling, accept in [("probabilistic", "block"), ("probabilistic", "token"), ("greedy", "block")]
]


def rule(pair: Pair) -> RuleMask:
    return RuleMask(PROMPT, Speculating(pair.target_path).info.n_vocab)


def kept(mask: RuleMask, tokens: Sequence[int]) -> bool:
    before = [PROMPT[-1], *tokens]
    return all(mask.allows(i, before[i], token) for i, token in enumerate(tokens))


@pytest.mark.parametrize("spec_type", ["auto", "auto,ngram"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_greedy_text_is_that_of_plain_decoding(make_pair: MakePair, architecture: str, spec_type: str) -> None:
    for quality in (GOOD, MIXED, HOSTILE):
        pair = make_pair(quality, architecture)
        mask = rule(pair)
        plain = Speculating(pair.target_path).generate(PROMPT, max_tokens=60, mask=mask).tokens
        assert kept(mask, plain)
        assert plain != Speculating(pair.target_path).generate(PROMPT, max_tokens=60).tokens
        for n_draft_max in (1, 3, 8):
            target = speculating(pair, spec_type=spec_type, lookup_match=2)
            answer = target.generate(PROMPT, max_tokens=60, n_draft_max=n_draft_max, mask=mask)
            assert answer.tokens == plain
            assert answer.stats.draft_n > 0


@pytest.mark.parametrize("drafting", DRAFTING)
def test_sampled_text_keeps_the_mask_and_leaves_the_state_of_decoding_one_by_one(
    make_pair: MakePair, drafting: dict[str, object]
) -> None:
    pair = make_pair(GOOD, "qwen35moe", "q4_0")
    mask, drafted, straight = rule(pair), speculating(pair), speculating(pair)
    for seed in range(4):
        options = {"temperature": 1.0, "seed": seed, "max_tokens": 60, "n_draft_max": 8, **drafting}
        answer = drafted.generate(PROMPT, mask=mask, **options)
        assert kept(mask, answer.tokens)
        assert 0 < answer.stats.draft_n_accepted < answer.stats.draft_n
        straight.hold(PROMPT)
        for token in answer.tokens[:-1]:
            straight.read([token])
        assert np.array_equal(drafted.next_logits(17), straight.next_logits(17))


def test_with_a_seed_the_text_does_not_depend_on_drafts(make_pair: MakePair) -> None:
    pair = make_pair(MIXED)
    mask = rule(pair)
    for seed in range(8):
        options = {"temperature": 1.0, "seed": seed, "max_tokens": 40, "draft_sampling": "coupled", "mask": mask}
        plain = Speculating(pair.target_path).generate(PROMPT, **options).tokens
        for n_draft_max in (2, 8):
            assert speculating(pair).generate(PROMPT, n_draft_max=n_draft_max, **options).tokens == plain


class OnlyTokens:
    """Allows some tokens everywhere."""

    def __init__(self, allowed: Sequence[int], n_vocab: int) -> None:
        bits = sum(1 << token for token in allowed)
        self._mask = bits.to_bytes((n_vocab + 31) // 32 * 4, "little")

    def allowed(self, n_tokens: int, last: Sequence[int]) -> bytes:
        return self._mask


def test_a_drafter_that_has_nothing_to_offer_drafts_nothing(make_pair: MakePair) -> None:
    pair = make_pair(GOOD)
    n_vocab = Speculating(pair.target_path).info.n_vocab
    target = speculating(pair, draft_candidates=0, draft_shortlist=8)
    mask = OnlyTokens(range(100, 130), n_vocab)  # none of them has a row when the text begins
    answer = target.generate(PROMPT, max_tokens=20, n_draft_max=4, mask=mask)
    assert set(answer.tokens) <= set(range(100, 130))
    assert answer.tokens == Speculating(pair.target_path).generate(PROMPT, max_tokens=20, mask=mask).tokens
    assert answer.stats.draft_n < 4 * answer.stats.n_rounds


class Failing:
    """Fails at the n-th call."""

    def __init__(self, n: int) -> None:
        self._n = n

    def allowed(self, n_tokens: int, last: Sequence[int]) -> bytes:
        self._n -= 1
        if self._n == 0:
            raise ZeroDivisionError("this mask cannot be made")
        return b"\xff" * 64


@pytest.mark.parametrize("n", [1, 2, 5, 12])
def test_a_mask_that_fails_ends_the_request_and_nothing_else(make_pair: MakePair, n: int) -> None:
    pair = make_pair(MIXED)
    target = speculating(pair)
    wanted = target.generate(PROMPT, max_tokens=20, n_draft_max=4).tokens
    with pytest.raises(ZeroDivisionError, match="this mask cannot be made"):
        target.generate(PROMPT, max_tokens=20, n_draft_max=4, mask=Failing(n))
    assert target.generate(PROMPT, max_tokens=20, n_draft_max=4).tokens == wanted


def test_a_mask_that_leaves_nothing_is_an_error(make_pair: MakePair) -> None:
    pair = make_pair(MIXED)
    target = speculating(pair)
    n_vocab = target.info.n_vocab
    with pytest.raises(ValueError, match="the grammar, logit bias and bans leave no token to draw"):
        target.generate(PROMPT, max_tokens=20, mask=OnlyTokens([], n_vocab))
    assert target.generate(PROMPT, max_tokens=5, mask=OnlyTokens([9], n_vocab)).tokens == [9] * 5
