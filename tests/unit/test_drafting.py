"""What callers ask of a drafter, and the warnings about one that does not help."""

from __future__ import annotations

from typing import Any

import pytest

from pydspark.drafting import Drafting, drafting_options
from pydspark.errors import ArgumentError
from pydspark.params import SamplingParams
from pydspark.records import DraftInfo, Stats


def drafting(spec_type: str = "auto", has_markov_head: bool = True, has_confidence: bool = True) -> Drafting:
    info = DraftInfo(
        n_layer=2, n_embd=64, block_size=8, n_slots=8, mask_token_id=1, anchor_first=True,
        has_markov_head=has_markov_head, has_confidence=has_confidence, borrows_embedding=True, borrows_head=True,
        n_short_list=0, target_layers=(0, 2), n_bytes=1000,
    )  # fmt: skip
    return Drafting(info, "d.gguf", spec_type)


@pytest.mark.parametrize(
    ("speculative", "call", "fields"),
    [
        (None, {"n_draft_max": None, "draft_conf_min": None}, {}),
        (None, {"n_draft_max": 0, "draft_conf_min": 0.5}, {"n_draft_max": 0, "draft_conf_min": 0.5}),
        (True, {"n_draft_max": 4}, {"n_draft_max": 4}),
        (False, {"draft_sampling": "coupled"}, {"n_draft_max": 0, "draft_sampling": "coupled"}),
        ({}, {}, {}),
        ({"n_max": 4, "conf_min": None}, {}, {"n_draft_max": 4}),
        ({"n_max": 4, "conf_min": 0.25}, {}, {"n_draft_max": 4, "draft_conf_min": 0.25}),
    ],
)
def test_what_a_call_says_about_drafting(speculative: Any, call: dict[str, Any], fields: dict[str, Any]) -> None:
    assert drafting_options(speculative, call) == fields


@pytest.mark.parametrize(
    ("speculative", "call", "message"),
    [
        (False, {"n_draft_max": 2}, "n_draft_max is given twice"),
        ({"n_max": 2}, {"n_draft_max": 2}, "n_draft_max is given twice"),
        ({"max": 2}, {}, "no 'max'; it takes n_max, conf_min and schedule"),
        ("yes", {}, "not 'yes'"),
        (1, {}, "not 1"),
        (0, {}, "not 0"),
    ],
)
def test_what_says_nothing_clear_about_drafting_is_refused(
    speculative: Any, call: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        drafting_options(speculative, call)


def test_the_kind_is_that_of_the_file() -> None:
    assert drafting("draft-dspark").info.kind == "draft-dspark"
    assert drafting("draft-dflash", has_markov_head=False).info.kind == "draft-dflash"
    with pytest.raises(ArgumentError, match="'draft-dflash', but d.gguf is .* 'draft-dspark'"):
        drafting("draft-dflash")


def test_a_threshold_needs_a_confidence_head_unless_nothing_is_drafted() -> None:
    without = drafting(has_confidence=False)
    with pytest.raises(ArgumentError, match=r"draft_conf_min is 0\.5.*d\.gguf has no confidence head"):
        without.check(SamplingParams(draft_conf_min=0.5))
    without.check(SamplingParams(draft_conf_min=0.5, n_draft_max=0))
    without.check(SamplingParams())
    drafting().check(SamplingParams(draft_conf_min=0.5))


def test_more_drafts_than_a_block_has_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    checked = drafting()
    for wanted in (None, 0, 8, 20, 20):
        checked.check(SamplingParams(n_draft_max=wanted))
    assert [record.getMessage() for record in caplog.records] == [
        "n_draft_max is 20, but this drafter proposes at most 8 tokens; 8 it is"
    ]


def counts(n_first: int, n_first_accepted: int) -> Stats:
    """Of rounds that draft three tokens, of which only the first is accepted at times."""
    return Stats(
        5, 0, 1.0, 9, 8.0, 0.5, 4, draft_rounds=n_first, draft_n=3 * n_first, draft_n_accepted=n_first_accepted,
        drafted_at=(n_first,) * 3, accepted_at=(n_first_accepted, 0, 0),
    )  # fmt: skip


NOTHING_DRAFTED = Stats(5, 0, 1.0, 9, 8.0, 0.5, 9)


@pytest.mark.parametrize(
    ("answers", "n_warnings"),
    [
        ([counts(63, 0)], 0),
        ([counts(63, 0), NOTHING_DRAFTED, counts(1, 0)], 1),
        ([counts(60, 3), counts(60, 2), counts(600, 0)], 1),
        ([counts(100, 5)], 0),
        ([counts(100, 4)], 1),
    ],
)
def test_a_pair_that_does_not_fit_is_warned_of_once(
    answers: list[Stats], n_warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    noted = drafting()
    for stats in answers:
        noted.note(stats)
    assert len(caplog.records) == n_warnings
    assert all("d.gguf was probably not trained for this model" in record.getMessage() for record in caplog.records)
