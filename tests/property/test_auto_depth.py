"""Depths that the session chooses by itself change the speed of a text, and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from running import DATA
from speculating import F32_CACHES, Answer, MakePair, Speculating, speculating
from tiny.pairs import GOOD, HOSTILE, MIXED

from pydspark.records import DEPTH_REASONS, Learnt, LearntCost, LearntCosts

PROMPT = [40, 41, 45, 42, 200, 43, 7]
N_SLOTS = 8
AUTO = {"draft_schedule": "auto", "n_draft_max": None}


def costs(*verify: float, draft: float = 0.2) -> Learnt:
    """Costs of batches of 1, 2, ... rows, and of a block."""
    rows = tuple(LearntCost(i + 1, 50.0, ms, 20.0) for i, ms in enumerate(verify))
    return Learnt(LearntCosts(rows), LearntCosts((LearntCost(N_SLOTS, 50.0, draft, 20.0),)))


FLAT = costs(*(1 + 0.02 * k for k in range(9)))
STEEP = costs(*(1 + 0.4 * k for k in range(9)))
STAIRS = costs(1, 1.1, 1.5, 1.5, 2, 2, 2, 2, 2.3)
HOPELESS = costs(*(1.0 + k for k in range(9)), draft=1.0)
CURVES = {"flat": FLAT, "steep": STEEP, "stairs": STAIRS, "hopeless": HOPELESS}


def reasons(answer: Answer) -> dict[str, int]:
    return {name: n for name, n in zip(DEPTH_REASONS, answer.stats.reasons, strict=True) if n}


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("architecture", ["llama", "qwen35moe"])
def test_greedy_text_is_the_plain_one(make_pair: MakePair, architecture: str, curve: str) -> None:
    for quality in (GOOD, MIXED, HOSTILE):
        pair = make_pair(quality, architecture)
        drafted, plain = speculating(pair), Speculating(pair.target_path)
        drafted.session.set_learnt(CURVES[curve], frozen=True)
        for first in range(2):
            prompt = [first, *PROMPT]
            answer = drafted.generate(prompt, max_tokens=60, **AUTO)
            assert answer.tokens == plain.generate(prompt, max_tokens=60).tokens
            assert sum(answer.stats.depths) == sum(answer.stats.reasons) == answer.stats.n_rounds - 1
            assert sum(depth * n for depth, n in enumerate(answer.stats.depths)) == answer.stats.draft_n


def test_good_drafts_are_used_and_bad_ones_are_not(make_pair: MakePair) -> None:
    options = {"max_tokens": 200, **AUTO}
    good, bad = speculating(make_pair(GOOD)), speculating(make_pair(HOSTILE))
    for target in (good, bad):
        target.session.set_learnt(STEEP, frozen=True)
    kept = good.generate(PROMPT, **options)
    assert kept.stats.draft_rounds > 0.8 * kept.stats.n_rounds
    given_up = bad.generate(PROMPT, **options)
    assert 0 < given_up.stats.draft_rounds < 0.15 * given_up.stats.n_rounds
    assert {"parked", "probed"} <= reasons(given_up).keys()


def test_what_cannot_pay_is_never_drafted(make_pair: MakePair) -> None:
    target = speculating(make_pair(GOOD))
    target.session.set_learnt(HOPELESS, frozen=True)
    answer = target.generate(PROMPT, max_tokens=40, **AUTO)
    assert answer.stats.draft_rounds == 0
    assert reasons(answer) == {"parked": 38, "whole": 1}  # the last round has no room for drafts
    assert answer.stats.saved_ms == 0


def test_depths_are_the_same_with_the_same_costs(make_pair: MakePair) -> None:
    texts = []
    for _ in range(2):
        target = speculating(make_pair(MIXED))
        target.session.set_learnt(STAIRS, frozen=True)
        answer = target.generate(PROMPT, temperature=1.0, max_tokens=100, **AUTO)
        texts.append([step.tokens for step in answer.steps])
        assert len(set(answer.stats.depths) - {0}) > 1
    assert texts[0] == texts[1]


def test_with_a_seed_the_text_does_not_depend_on_depths(make_pair: MakePair) -> None:
    pair = make_pair(MIXED)
    for seed in range(5):
        texts = []
        for curve in CURVES.values():
            target = speculating(pair)
            target.session.set_learnt(curve, frozen=True)
            options = {"temperature": 1.0, "max_tokens": 40, "draft_sampling": "coupled", **AUTO}
            texts.append(target.generate(PROMPT, seed=seed, **options).tokens)
        assert texts[1:] == texts[:-1]


def test_sampled_rounds_leave_the_state_of_decoding_one_by_one(make_pair: MakePair) -> None:
    pair = make_pair(GOOD, "qwen35moe", "q4_0")
    drafted, straight = speculating(pair), speculating(pair)
    drafted.session.set_learnt(STAIRS, frozen=True)
    for seed in range(4):
        answer = drafted.generate(PROMPT, temperature=0.7, seed=seed, max_tokens=60, **AUTO)
        assert 0 < answer.stats.draft_n_accepted < answer.stats.draft_n
        straight.hold(PROMPT)
        for token in answer.tokens[:-1]:
            straight.read([token])
        assert np.array_equal(drafted.block_hidden(17, 8), straight.block_hidden(17, 8))
        assert np.array_equal(drafted.next_logits(17), straight.next_logits(17))


def test_costs_are_measured_before_the_first_request_that_needs_them(make_pair: MakePair) -> None:
    target = speculating(make_pair(GOOD))
    target.generate(PROMPT, n_draft_max=0)
    assert not target.session.learnt().draft.rows
    target.generate(PROMPT, **AUTO)
    learnt = target.session.learnt()
    assert {1, 2, 4, 8, 9} <= {cost.n_rows for cost in learnt.verify.rows}
    assert [cost.n_rows for cost in learnt.draft.rows] == [N_SLOTS]
    assert all(cost.ms > 0 for cost in (*learnt.verify.rows, *learnt.draft.rows))


def test_verified_slots_teach_how_reliable_they_are(make_pair: MakePair) -> None:
    target = speculating(make_pair(MIXED))
    answer = target.generate(PROMPT, n_draft_max=N_SLOTS, max_tokens=100)
    bins = [one for one in target.session.learnt().bins if one.kind == "greedy" and one.slot == 0]
    seen = answer.stats.drafted_at[0]
    assert sum(one.weight for one in bins) == pytest.approx(seen, rel=0.1)  # older ones count a little less
    accepted = answer.stats.accepted_at[0] / seen
    assert sum(one.labels for one in bins) / sum(one.weight for one in bins) == pytest.approx(accepted, abs=0.05)


def test_what_was_learnt_can_be_given_to_another_session(make_pair: MakePair) -> None:
    one, other = speculating(make_pair(MIXED)), speculating(make_pair(MIXED))
    one.generate(PROMPT, temperature=1.0, max_tokens=60, n_draft_max=N_SLOTS)
    other.session.set_learnt(one.session.learnt())
    assert other.session.learnt() == one.session.learnt()


@pytest.mark.parametrize("n_ctx", [16, 24])
def test_a_context_too_small_to_measure_costs_in_still_works(make_pair: MakePair, n_ctx: int) -> None:
    pair = make_pair(GOOD)
    target, plain = speculating(pair, n_ctx=n_ctx), Speculating(pair.target_path, n_ctx=n_ctx)
    answer = target.generate(PROMPT, max_tokens=None, **AUTO)
    assert answer.tokens == plain.generate(PROMPT, max_tokens=None).tokens


@pytest.mark.parametrize("curve", ["flat", "steep"])
def test_the_trained_pair_drafts_deeper_where_it_is_surer(curve: str) -> None:
    target = Speculating(
        DATA / "tiny-qwen35moe-Q8_0.gguf", Path(DATA / "dspark-tiny-qwen35moe-BF16.gguf"), **F32_CACHES
    )
    target.session.set_learnt(CURVES[curve], frozen=True)
    prompt = list(range(60, 90))
    answer = target.generate(prompt, temperature=1.0, max_tokens=120, **AUTO)
    depths = answer.stats.depths
    mean = sum(depth * n for depth, n in enumerate(depths)) / sum(depths)
    assert mean > 4 if curve == "flat" else mean < 6
