"""Sampled texts have the distribution of the target, whatever is drafted on the way; and what a seed means."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from ref.truncation import change_logits, truncate
from speculating import F32_CACHES, Answer, RuleMask, Speculating, costs, speculating
from tiny.models import TinyShape
from tiny.pairs import GOOD, Pair, TinyDraft, write_pair

Settings = Mapping[str, object]
Floats = NDArray[np.float64]

N_VOCAB = 12  # nine bytes, three specials
PADDING = (12, 13)
SHAPE = TinyShape(n_layer=2, n_bytes=9, n_padding=len(PADDING), layer_gain=0.5, head_gain=2.0)
DRAFT = TinyDraft(quality=GOOD, block_size=4, n_layer=1, target_layers=(-1, 0))
DEPTHS = range(1, DRAFT.block_size + 1)
PROMPT = [3, 0, 2, 2]

N_TOKENS = 3  # of a text: the first is drawn without drafts, the others come out of rounds
N_TEXTS = 30_000

ALL_TOGETHER = {
    "temperature": 0.8,
    "top_k": 8,
    "top_p": 0.95,
    "min_p": 0.02,
    "repeat_penalty": 1.2,
    "presence_penalty": 0.2,
    "frequency_penalty": 0.1,
    "bias": {1: -1.0, 6: -math.inf},
    "draft_conf_min": 0.5,
}
SETTINGS: Mapping[str, Settings] = {
    "temperature 1": {},
    "temperature 0.7, top-k 4, top-p 0.9": {"temperature": 0.7, "top_k": 4, "top_p": 0.9},
    "min-p 0.1": {"min_p": 0.1},
    "penalties": {"repeat_penalty": 1.4, "presence_penalty": 0.3, "frequency_penalty": 0.4, "repeat_last_n": 5},
    "bias and bans": {"bias": {1: -1.5, 5: 1.0, 6: -math.inf}},
    "confidence threshold": {"draft_conf_min": 0.5},
    "all together": ALL_TOGETHER,
}
# flat enough to draft and to copy, but not always
CHEAP = costs(*(1 + 0.01 * k for k in range(17)), draft=0.45, n_slots=1)
METHODS: Mapping[str, Settings] = {
    "by block": {"draft_accept": "block"},
    "by token": {"draft_accept": "token"},
    "likeliest": {"draft_sampling": "greedy"},
    "coupled": {"draft_sampling": "coupled"},
}
# Eight of the fourteen rows are on the short list; the others get rows when the text has used them.
DRAFT_ROWS: Mapping[str, Mapping[str, int]] = {
    "candidates": {"draft_candidates": 4},
    "short list": {"draft_candidates": 0, "draft_shortlist": 2},
    "both": {"draft_candidates": 4, "draft_shortlist": 2},
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return write_pair(tmp_path_factory.mktemp("pair"), DRAFT, shape=SHAPE)


@pytest.fixture(scope="module")
def target(pair: Pair) -> Speculating:
    return speculating(pair, n_ctx=64, **F32_CACHES)


# ---- the distribution of texts ----


def next_distribution(target: Speculating, text: list[int], setting: Settings) -> tuple[NDArray[np.int64], Floats]:
    """(ids, probabilities) of what plain decoding draws from behind the prompt and a text, by the reference."""
    target.session.cut(len(PROMPT) - 1)
    (rows,) = target.read(PROMPT[-1:] + text, "result_output")
    names = ("bias", "repeat_penalty", "presence_penalty", "frequency_penalty", "repeat_last_n")
    changes = {name: setting[name] for name in names if name in setting}
    mask = setting.get("mask")
    before = (PROMPT + text)[-1]
    masked = [i for i in range(N_VOCAB) if not mask.allows(len(text), before, i)] if isinstance(mask, RuleMask) else []
    row = change_logits(rows[-1], PROMPT + text, banned=(*PADDING, *masked), **changes)
    cuts = {name: setting[name] for name in ("temperature", "top_k", "top_p", "min_p") if name in setting}
    return truncate(row, **cuts)


def exact_joint(target: Speculating, setting: Settings) -> Floats:
    """Probabilities of all texts: [N_VOCAB] * N_TOKENS."""
    joint = np.zeros((N_VOCAB,) * N_TOKENS)
    target.hold(PROMPT)

    def extend(text: list[int], probability: float) -> None:
        if len(text) == N_TOKENS:
            joint[tuple(text)] = probability
            return
        for token, share in zip(*next_distribution(target, text, setting), strict=True):
            extend([*text, int(token)], probability * float(share))

    extend([], 1.0)
    return joint


def total_variation(seen: NDArray[np.int64], joint: Floats) -> Floats:
    """Distance of counts [..., texts] of N_TEXTS texts from their probabilities [texts]."""
    return 0.5 * np.abs(seen / N_TEXTS - joint).sum(axis=-1)


def noise_bound(joint: Floats) -> float:
    """Five standard deviations above the mean distance of a perfect sampler."""
    distances = total_variation(np.random.default_rng(1).multinomial(N_TEXTS, joint, size=200), joint)
    return float(distances.mean() + 5 * distances.std())


def assert_exact(target: Speculating, setting: Settings, n_draft_max: int = 3) -> None:
    """The texts of many seeds come as often as they should. With drafts: some were accepted, and some were not."""
    joint = exact_joint(target, setting).ravel()
    seen = np.zeros((N_VOCAB,) * N_TOKENS, np.int64)
    options = {"temperature": 1.0, "n_draft_max": n_draft_max, "max_tokens": 2 * N_TOKENS, "reuse_prefix": True}
    drafted = accepted = 0
    for seed in range(N_TEXTS):
        target.session.start(target.request(PROMPT, **{**options, **setting}, seed=seed))
        text: list[int] = []
        while len(text) < N_TOKENS:
            text.extend(target.session.step().tokens)
        seen[tuple(text[:N_TOKENS])] += 1
        stats = target.session.stats()
        drafted += stats.draft_n
        accepted += stats.draft_n_accepted
    assert total_variation(seen.ravel(), joint) < noise_bound(joint)
    assert (0 < accepted < drafted) == (n_draft_max > 0)


def test_texts_have_the_distribution_of_the_target(target: Speculating) -> None:
    assert_exact(target, ALL_TOGETHER)


def test_so_have_those_with_everything_on(pair: Pair) -> None:
    """Depths by cost, copies, candidates, a short list, a mask, penalties, whole blocks."""
    rows = DRAFT_ROWS["both"]
    target = speculating(pair, n_ctx=64, spec_type="auto,ngram", lookup_match=2, **rows, **F32_CACHES)
    target.session.set_learnt(CHEAP, frozen=True)
    mask = RuleMask(PROMPT, N_VOCAB + len(PADDING))
    setting = {**ALL_TOGETHER, "draft_conf_min": 0.0, "draft_schedule": "auto", "mask": mask}
    assert_exact(target, setting, n_draft_max=1)
    assert_copies(target, setting, n_draft_max=1, least=2)
    assert mask.n_asked > N_TEXTS


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("setting", ["temperature 1", "penalties", "all together"])
@pytest.mark.parametrize("spec_type", ["ngram", "auto,ngram"])
def test_copied_drafts_keep_the_distribution(pair: Pair, spec_type: str, setting: str, method: str) -> None:
    draft_path = None if spec_type == "ngram" else pair.draft_path
    params = {"n_ctx": 64, "spec_type": spec_type, "lookup_match": 1 if draft_path is None else 2, **F32_CACHES}
    target = Speculating(pair.target_path, draft_path, **params)
    assert_exact(target, {**SETTINGS[setting], **METHODS[method]}, n_draft_max=2)
    assert_copies(target, {**SETTINGS[setting], **METHODS[method]})


def assert_copies(target: Speculating, setting: Settings, n_draft_max: int = 2, least: int = 50) -> None:
    """Some of the drafts are copied from earlier text, and some of these are accepted."""
    options = {"temperature": 1.0, "n_draft_max": n_draft_max, "max_tokens": 2 * N_TOKENS, **setting}
    stats = [target.generate(PROMPT, seed=seed, **options).stats for seed in range(300)]
    drafted = sum(sum(s.lookup_drafted_at) for s in stats)
    assert least < sum(sum(s.lookup_accepted_at) for s in stats) < drafted


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("architecture", ["qwen35", "qwen35moe"])
def test_so_have_those_of_hybrid_models(tmp_path: Path, architecture: str, method: str) -> None:
    pair = write_pair(tmp_path, DRAFT, architecture, replace(SHAPE, n_layer=4))
    assert_exact(speculating(pair, n_ctx=64, **F32_CACHES), {**ALL_TOGETHER, **METHODS[method]})


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_every_setting_and_method_keeps_the_distribution(target: Speculating, setting: str, method: str) -> None:
    assert_exact(target, {**SETTINGS[setting], **METHODS[method]})


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("setting", ["temperature 1", "min-p 0.1", "all together"])
@pytest.mark.parametrize("rows", DRAFT_ROWS)
def test_drafts_from_some_rows_keep_the_distribution(pair: Pair, rows: str, setting: str, method: str) -> None:
    target = speculating(pair, n_ctx=64, **DRAFT_ROWS[rows], **F32_CACHES)
    assert_exact(target, {**SETTINGS[setting], **METHODS[method]})


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("setting", ["temperature 1", "all together"])
def test_masks_are_kept_and_nothing_else_changes(target: Speculating, setting: str, method: str) -> None:
    mask = RuleMask(PROMPT, N_VOCAB + len(PADDING))
    assert_exact(target, {**SETTINGS[setting], **METHODS[method], "mask": mask})


@pytest.mark.slow
@pytest.mark.parametrize("draft_sampling", ["probabilistic", "coupled"])
def test_plain_decoding_has_the_distribution(target: Speculating, draft_sampling: str) -> None:
    assert_exact(target, {"draft_sampling": draft_sampling}, n_draft_max=0)


# ---- what a seed means ----


def tokens(target: Speculating, seed: int, **options: object) -> list[int]:
    """A sampled text."""
    answer: Answer = target.generate(PROMPT, **{"temperature": 1.0, "max_tokens": 16, "seed": seed, **options})
    return answer.tokens


@pytest.mark.parametrize(
    "setting",
    [{}, {"temperature": 0.7, "top_k": 4, "top_p": 0.9}, ALL_TOGETHER, {"temperature": 0.0}],
    ids=["temperature 1", "truncated", "all together", "greedy"],
)
def test_coupled_text_is_that_of_plain_decoding_at_every_depth(
    pair: Pair, target: Speculating, setting: Settings
) -> None:
    plain = Speculating(pair.target_path, n_ctx=64, **F32_CACHES)
    options = {**setting, "draft_sampling": "coupled", "max_tokens": 12}
    for seed in range(200):
        wanted = tokens(plain, seed, **options)
        for depth in DEPTHS:
            assert tokens(target, seed, n_draft_max=depth, **options) == wanted, f"seed {seed}, {depth} drafts"


@pytest.mark.parametrize("n_draft_max", [0, 3], ids=["plain", "with drafts"])
@pytest.mark.parametrize("method", METHODS)
def test_a_seed_decides_the_text(target: Speculating, method: str, n_draft_max: int) -> None:
    options = {**METHODS[method], "n_draft_max": n_draft_max}
    texts = [tokens(target, seed, **options) for seed in range(20)]
    assert [tokens(target, seed, **options) for seed in range(20)] == texts
    assert len({tuple(text) for text in texts}) > 15


@pytest.mark.parametrize("method", METHODS)
def test_what_is_held_and_the_size_of_prompt_batches_do_not_change_the_text(
    pair: Pair, target: Speculating, method: str
) -> None:
    options = {**METHODS[method], "n_draft_max": 3}
    wanted = [tokens(target, seed, **options) for seed in range(20)]
    for n_ubatch in (1, 3, 512):
        other = speculating(pair, n_ctx=64, n_ubatch=n_ubatch, **F32_CACHES)
        for seed in range(20):
            other.hold(PROMPT[: seed % 5] + [7, 7, 7])  # shares up to the whole prompt
            assert tokens(other, seed, reuse_prefix=True, **options) == wanted[seed], f"n_ubatch {n_ubatch}"
