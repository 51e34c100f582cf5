"""With a drafter, greedy decoding gives what it gives without, token for token, whatever the drafts are worth."""

from __future__ import annotations

import pytest
from speculating import F32_CACHES, MakePair, Speculating, speculating
from tiny.pairs import GOOD, HOSTILE, MIXED, RANDOM, Pair

PROMPT = [40, 41, 45, 42, 200, 43, 7]
DEPTHS = range(9)


def plain_tokens(pair: Pair, prompt: list[int], max_tokens: int = 24, **params: object) -> list[int]:
    """What the target gives in a session without drafter."""
    return Speculating(pair.target_path, **params).generate(prompt, max_tokens=max_tokens).tokens


@pytest.mark.parametrize("flash_attn", [False, True], ids=["plain attention", "fused attention"])
@pytest.mark.parametrize("type", ["f32", "q8_0", "q4_0"])
@pytest.mark.parametrize("architecture", ["llama", "qwen3", "qwen3moe", "qwen35", "qwen35moe"])
def test_every_depth_gives_the_text_of_plain_decoding(
    make_pair: MakePair, architecture: str, type: str, flash_attn: bool
) -> None:
    caches = F32_CACHES if type == "f32" else {}
    wanted = plain_tokens(make_pair(GOOD, architecture, type), PROMPT, 28, flash_attn=flash_attn, **caches)
    accepted = {}
    for quality in (GOOD, MIXED, RANDOM, HOSTILE):
        target = speculating(make_pair(quality, architecture, type), flash_attn=flash_attn, **caches)
        for depth in DEPTHS if quality == GOOD else (1, 3, 8):
            answer = target.generate(PROMPT, max_tokens=28, n_draft_max=depth)
            assert answer.tokens == wanted, f"{quality} drafter, {depth} drafts"
            assert max(len(step.tokens) for step in answer.steps) <= depth + 1
            assert (answer.stats.draft_n > 0) == (depth > 0)
        accepted[quality] = answer.stats.draft_n_accepted
    assert accepted[GOOD] > accepted[MIXED] > accepted[HOSTILE] == 0


@pytest.mark.parametrize("draft_accept", ["block", "token"])
@pytest.mark.parametrize("draft_sampling", ["greedy", "probabilistic", "coupled"])
def test_how_drafts_are_drawn_and_accepted_does_not_change_greedy_text(
    make_pair: MakePair, draft_sampling: str, draft_accept: str
) -> None:
    wanted = plain_tokens(make_pair(GOOD), PROMPT)
    for quality in (GOOD, MIXED, HOSTILE):
        target = speculating(make_pair(quality))
        for depth in (1, 3, 8):
            answer = target.generate(
                PROMPT, n_draft_max=depth, draft_sampling=draft_sampling, draft_accept=draft_accept
            )
            assert answer.tokens == wanted


@pytest.mark.parametrize(
    "draft",
    [
        {"anchor_first": False},
        {"reduced": 100},
        {"own_embedding": True, "own_head": True, "noise_row": True},
        {"window": 6, "confidence": "none"},
    ],
    ids=lambda draft: " ".join(draft),
)
def test_every_form_of_drafter_gives_the_text_of_plain_decoding(make_pair: MakePair, draft: dict[str, object]) -> None:
    pair = make_pair(MIXED, "qwen3", **draft)
    wanted = plain_tokens(pair, PROMPT, 40)
    target = speculating(pair)
    for depth in DEPTHS:
        assert target.generate(PROMPT, max_tokens=40, n_draft_max=depth).tokens == wanted


@pytest.mark.parametrize("draft_conf_min", [0.5, 0.8, 1.0])
def test_a_confidence_threshold_shortens_rounds_and_keeps_the_text(make_pair: MakePair, draft_conf_min: float) -> None:
    pair = make_pair(MIXED)
    whole = speculating(pair).generate(PROMPT, n_draft_max=8)
    cut = speculating(pair).generate(PROMPT, n_draft_max=8, draft_conf_min=draft_conf_min)
    assert cut.tokens == whole.tokens == plain_tokens(pair, PROMPT)
    assert cut.stats.draft_n < whole.stats.draft_n


# The cache is read in steps of 256 rows.
@pytest.mark.parametrize(("type", "flash_attn"), [("f32", False), ("f32", True), ("q4_0", True)])
def test_text_stays_the_same_where_the_cache_takes_its_next_step(
    make_pair: MakePair, type: str, flash_attn: bool
) -> None:
    pair = make_pair(GOOD, "llama", type)
    with_draft = speculating(pair, flash_attn=flash_attn)
    without = Speculating(pair.target_path, flash_attn=flash_attn)
    for n_prompt in range(240, 261):
        prompt = [(7 * i) % 256 for i in range(n_prompt)]
        answer = with_draft.generate(prompt, n_draft_max=8, max_tokens=18)
        assert answer.tokens == without.generate(prompt, max_tokens=18).tokens, f"{n_prompt} tokens"
        assert answer.stats.draft_n_accepted > 0


def test_two_threads_give_the_text_of_plain_decoding(make_pair: MakePair) -> None:
    pair = make_pair(GOOD, "llama", "q4_0")
    threads = {"n_threads": 2, "n_threads_batch": 2}
    wanted = plain_tokens(pair, PROMPT, 6, **threads)
    assert speculating(pair, **threads).generate(PROMPT, max_tokens=6, n_draft_max=5).tokens == wanted


CHANGES: dict[str, dict[str, object]] = {
    "repeat penalty": {"repeat_penalty": 3.0, "repeat_last_n": -1},
    "presence and frequency": {"presence_penalty": 2.0, "frequency_penalty": 3.0, "repeat_last_n": 50},
    "bias": {"bias": {0: 8.0, 100: -6.0, 101: 4.0}},
    "everything": {"repeat_penalty": 2.0, "frequency_penalty": 5.0, "bias": {7: 3.0, 9: -5.0}},
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("quality", [GOOD, MIXED])
def test_changed_scores_give_the_text_of_plain_decoding(make_pair: MakePair, quality: str, change: str) -> None:
    pair = make_pair(quality)
    options = {"max_tokens": 60, **CHANGES[change]}
    wanted = Speculating(pair.target_path).generate(PROMPT, **options).tokens
    assert wanted != plain_tokens(pair, PROMPT, 60)
    target = speculating(pair)
    for depth in (1, 2, 3, 5, 8):
        answer = target.generate(PROMPT, n_draft_max=depth, **options)
        assert answer.tokens == wanted
        assert answer.stats.draft_n_accepted > 0


def test_a_banned_token_does_not_slip_in_through_a_draft(make_pair: MakePair) -> None:
    pair = make_pair(GOOD)
    without_ban = plain_tokens(pair, PROMPT)
    target = speculating(pair)
    for banned in dict.fromkeys(without_ban[:6]):
        wanted = Speculating(pair.target_path).generate(PROMPT, bias={banned: float("-inf")}).tokens
        answer = target.generate(PROMPT, n_draft_max=8, bias={banned: float("-inf")})
        assert answer.tokens == wanted
        assert banned not in answer.tokens


@pytest.mark.parametrize("flash_attn", [False, True], ids=["plain attention", "fused attention"])
def test_log_probabilities_are_those_of_plain_decoding(make_pair: MakePair, flash_attn: bool) -> None:
    pair = make_pair(GOOD, "qwen3", "q8_0")
    options = {"logprobs": True, "top_logprobs": 4}
    wanted = Speculating(pair.target_path, flash_attn=flash_attn).generate(PROMPT, **options)
    answer = speculating(pair, flash_attn=flash_attn).generate(PROMPT, n_draft_max=8, **options)
    assert answer.stats.draft_n_accepted > 0
    assert (answer.tokens, answer.logprobs, answer.tops) == (wanted.tokens, wanted.logprobs, wanted.tops)


def test_sampled_text_with_coupled_drafts_is_that_of_plain_decoding(make_pair: MakePair) -> None:
    pair = make_pair(GOOD)
    plain, target = Speculating(pair.target_path), speculating(pair)
    n_accepted = 0
    for seed in range(20):
        options = {"temperature": 0.8, "top_p": 0.95, "draft_sampling": "coupled", "seed": seed}
        answer = target.generate(PROMPT, n_draft_max=8, **options)
        assert answer.tokens == plain.generate(PROMPT, **options).tokens
        n_accepted += answer.stats.draft_n_accepted
    assert n_accepted > 0


@pytest.mark.parametrize("draft_sampling", ["greedy", "probabilistic", "coupled"])
def test_a_seed_repeats_its_text(make_pair: MakePair, draft_sampling: str) -> None:
    target = speculating(make_pair(GOOD))
    options = {"temperature": 1.5, "n_draft_max": 5, "draft_sampling": draft_sampling}
    texts = [target.generate(PROMPT, seed=seed, **options).tokens for seed in (1, 2, 1)]
    assert texts[0] == texts[2] != texts[1]
