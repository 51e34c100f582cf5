"""Wherever in a block a generation ends, it ends as plain decoding does and leaves the same state behind."""

from __future__ import annotations

import numpy as np
import pytest
from speculating import Answer, MakePair, Speculating, speculating
from tiny.models import TinyShape, vocabulary
from tiny.pairs import GOOD, MIXED, RANDOM, TinyDraft, write_pair

from pydspark.errors import ContextFullError
from pydspark.records import Finish

PROMPT = [40, 41, 45, 42, 200, 43, 7]


def assert_same_end(drafted: Speculating, with_drafts: Answer, plain: Speculating, without: Answer) -> None:
    """The answers agree, and so does what both sessions hold, bit for bit. ``plain`` may have a drafter that idled."""
    assert with_drafts.tokens == without.tokens
    assert (with_drafts.finish, with_drafts.stop_id) == (without.finish, without.stop_id)
    assert with_drafts.stats.predicted_n == without.stats.predicted_n == len(without.tokens)
    assert with_drafts.stats.draft_n_accepted <= len(without.tokens)
    assert drafted.session.n_past == plain.session.n_past
    assert np.array_equal(drafted.block_hidden(17, 7), plain.block_hidden(17, 7))
    if plain.session.n_past < 64:
        assert np.array_equal(drafted.next_logits(17), plain.next_logits(17))


@pytest.mark.parametrize("architecture", ["llama", "qwen3", "qwen3moe", "qwen35", "qwen35moe"])
@pytest.mark.parametrize("quality", [GOOD, MIXED])
def test_a_stop_id_ends_the_text_wherever_it_is_in_a_block(
    make_pair: MakePair, quality: str, architecture: str
) -> None:
    pair = make_pair(quality, architecture)
    drafted, plain = speculating(pair, n_ctx=64), speculating(pair, n_ctx=64)
    text = plain.generate(PROMPT, n_draft_max=0).tokens
    positions = [i for i, token in enumerate(text[:17]) if token not in text[:i]]
    assert len(positions) > 9
    inside = set()
    for position in positions:
        stop_ids = [text[position], 200]
        without = plain.generate(PROMPT, n_draft_max=0, stop_ids=stop_ids)
        with_drafts = drafted.generate(PROMPT, n_draft_max=8, stop_ids=stop_ids)
        assert with_drafts.tokens == text[:position]
        assert (with_drafts.finish, with_drafts.stop_id) == (Finish.STOP_ID, text[position])
        assert_same_end(drafted, with_drafts, plain, without)
        inside.add(len(with_drafts.steps[-1].tokens))
    assert len(inside) > 1  # the stop stood in different places of its block


@pytest.mark.parametrize("draft_accept", ["block", "token"])
@pytest.mark.parametrize("max_tokens", [1, 2, 7, 8, 9])
def test_max_tokens_is_met_exactly(make_pair: MakePair, max_tokens: int, draft_accept: str) -> None:
    pair = make_pair(GOOD)
    drafted, plain = speculating(pair, n_ctx=64), speculating(pair, n_ctx=64)
    for depth in range(9):
        without = plain.generate(PROMPT, n_draft_max=0, max_tokens=max_tokens)
        with_drafts = drafted.generate(PROMPT, n_draft_max=depth, max_tokens=max_tokens, draft_accept=draft_accept)
        assert len(with_drafts.tokens) == max_tokens
        assert with_drafts.finish is Finish.LENGTH
        assert_same_end(drafted, with_drafts, plain, without)


def test_no_tokens_are_given_when_none_are_wanted(make_pair: MakePair) -> None:
    drafted = speculating(make_pair(GOOD))
    answer = drafted.generate(PROMPT, n_draft_max=8, max_tokens=0)
    assert (answer.tokens, answer.finish) == ([], Finish.LENGTH)
    assert answer.stats.draft_n == 0


@pytest.mark.parametrize("quality", [GOOD, RANDOM])
@pytest.mark.parametrize("n_prompt", [55, 56, 57, 62, 63])
def test_a_full_context_ends_the_text_as_in_plain_decoding(make_pair: MakePair, quality: str, n_prompt: int) -> None:
    pair = make_pair(quality)
    drafted, plain = speculating(pair, n_ctx=64), speculating(pair, n_ctx=64)
    prompt = [(11 * i) % 256 for i in range(n_prompt)]
    for depth in (1, 3, 8):
        without = plain.generate(prompt, n_draft_max=0, max_tokens=None)
        with_drafts = drafted.generate(prompt, n_draft_max=depth, max_tokens=None)
        assert with_drafts.finish is Finish.CONTEXT
        assert n_prompt + len(with_drafts.tokens) == 64
        assert_same_end(drafted, with_drafts, plain, without)


@pytest.mark.parametrize("n_prompt", [64, 65])
def test_a_prompt_without_room_for_an_answer_is_refused(make_pair: MakePair, n_prompt: int) -> None:
    drafted = speculating(make_pair(GOOD), n_ctx=64)
    with pytest.raises(ContextFullError):
        drafted.generate([9] * n_prompt, n_draft_max=8)
    assert drafted.generate(PROMPT, n_draft_max=8).stats.draft_n_accepted > 0


@pytest.mark.parametrize("n_draft_max", [0, 3], ids=["plain", "with drafts"])
@pytest.mark.parametrize("draft_sampling", ["probabilistic", "greedy", "coupled"])
def test_padding_is_never_emitted(
    tmp_path_factory: pytest.TempPathFactory, n_draft_max: int, draft_sampling: str
) -> None:
    shape = TinyShape(n_layer=4, n_padding=2, n_nameless=3, padding_gain=50.0)
    pair = write_pair(tmp_path_factory.mktemp("padded"), TinyDraft(), shape=shape)
    n_named = len(vocabulary()[0])
    target = speculating(pair)
    options = {"temperature": 2.0, "max_tokens": 150, "n_draft_max": n_draft_max, "draft_sampling": draft_sampling}
    for seed in range(2):
        tokens = target.generate([5], seed=seed, **options).tokens
        assert max(tokens) < n_named
    (logits,) = target.read(tokens[:100], "result_output")
    assert np.mean(logits.argmax(1) >= n_named) > 0.5  # padding would win mostly
