"""Blocks of a drafter agree with a reference in plain numpy, whatever was accepted before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ref.draft_block import Block, BlockSettings, ReferenceDrafter
from running import Array
from speculating import F32_CACHES, Speculating
from tiny.models import TinyShape
from tiny.pairs import MIXED, NEARLY_BIGRAM, RMS_EPS, ROPE_BASE, TARGET_SHAPE, Pair, TinyDraft, write_pair

ATOL = 1e-4
PROMPT_LENGTH = 11

VARIANTS = {
    "anchor first": TinyDraft(),
    "anchor in slot 0": TinyDraft(anchor_first=False, confidence="hidden"),
    "reduced vocabulary": TinyDraft(reduced=90),
    "reduced vocabulary, anchor in slot 0": TinyDraft(reduced=90, anchor_first=False),
    "confidence from hidden alone": TinyDraft(confidence="hidden"),
    "no confidence head": TinyDraft(confidence="none"),
    "no Markov head": TinyDraft(markov=False, confidence="none", anchor_first=False),
    "no Markov head, but confidence": TinyDraft(markov=False, confidence="hidden"),
    "own embedding and head": TinyDraft(own_embedding=True, own_head=True),
    "own embedding, borrowed head": TinyDraft(own_embedding=True),
    "mask row in the file": TinyDraft(noise_row=True),
    "mask row in the file, own embedding": TinyDraft(noise_row=True, own_embedding=True, own_head=True),
    "windows smaller than the block": TinyDraft(window=5),
    "windows larger than the block": TinyDraft(window=14, n_layer=3, anchor_first=False),
    "embedding and last usable layer": TinyDraft(target_layers=(-1, 0, 1, 2)),
    "small block": TinyDraft(block_size=2, n_layer=1),
}


def reference_of(pair: Pair) -> ReferenceDrafter:
    draft, weights, target = pair.draft, pair.draft_weights, pair.target_weights
    embedding = weights.get("token_embd.weight", target["token_embd.weight"])
    head = weights.get("output.weight", target.get("output.weight", target["token_embd.weight"]))
    settings = BlockSettings(
        block_size=draft.block_size,
        mask_row=embedding[pair.mask_token_id] if pair.noise_row is None else pair.noise_row,
        anchor_first=draft.anchor_first,
        banned=range(pair.mask_token_id, len(target["token_embd.weight"])),  # padding, the mask first
        windows=[draft.window if il % 2 == 0 else 0 for il in range(draft.n_layer)],
        rms_eps=RMS_EPS,
        rope_base=ROPE_BASE,
    )
    return ReferenceDrafter(settings, weights, embedding, head)


def append(target: Speculating, ids: list[int], draft: TinyDraft) -> Array:
    """Appends tokens to the target and returns their features: [n_tokens, n_layers * n_embd]."""
    names = ["inp_embd" if layer == -1 else f"l_out-{layer}" for layer in draft.target_layers]
    return np.concatenate(target.read(ids, *names), axis=1)


def draft_block(target: Speculating, anchor: int, draft: TinyDraft, n_rows: int) -> Block:
    """The block of the core, in the reference's form."""
    n, n_embd = draft.n_slots, target.info.n_embd
    logits = [f"draft_logits-{i}" for i in range(n)]
    confidence = [f"draft_confidence-{i}" for i in range(n) if draft.confidence != "none"]
    sizes = [n * n_embd, n * n_rows] + [n_rows] * n + [1] * len(confidence)
    tokens, values = target.session.inspect_draft(
        anchor, n, ["draft_hidden", "draft_base", *logits, *confidence], sizes
    )
    return Block(
        hidden=np.reshape(values[0], (n, n_embd)),
        base=np.reshape(values[1], (n, n_rows)),
        logits=np.array(values[2 : 2 + n]),
        tokens=tokens,
        confidence=np.array(values[2 + n :])[:, 0] if confidence else None,
    )


def assert_same_block(got: Block, wanted: Block) -> None:
    assert got.tokens == wanted.tokens
    np.testing.assert_allclose(got.hidden, wanted.hidden, rtol=0, atol=ATOL)
    np.testing.assert_allclose(got.base, wanted.base, rtol=0, atol=ATOL)
    np.testing.assert_allclose(got.logits, wanted.logits, rtol=0, atol=ATOL)
    if wanted.confidence is None:
        assert got.confidence is None
    else:
        np.testing.assert_allclose(got.confidence, wanted.confidence, rtol=0, atol=ATOL)


def n_head_rows(pair: Pair) -> int:
    return pair.draft.reduced or len(pair.target_weights["token_embd.weight"])


def check_rounds(pair: Pair, counts: list[int], n_prompt: int = PROMPT_LENGTH, **params: object) -> None:
    """Drafts, verifies and keeps a given number of drafts, round after round."""
    rng = np.random.default_rng(5)
    draft = pair.draft
    target = Speculating(pair.target_path, pair.draft_path, draft_candidates=0, **F32_CACHES, **params)
    reference = reference_of(pair)
    reference.inject(append(target, rng.integers(0, 256, n_prompt).tolist(), draft))
    for n_accepted in counts:
        anchor = int(rng.integers(0, 256))
        block = draft_block(target, anchor, draft, n_head_rows(pair))
        assert_same_block(block, reference.block(anchor))
        n_past = target.session.n_past
        features = append(target, [anchor, *block.tokens], draft)
        target.session.cut(n_past + 1 + n_accepted)
        reference.inject(features[: 1 + n_accepted])
        assert target.session.n_past == reference.n_past


def all_counts(draft: TinyDraft) -> list[int]:
    """Every count of accepted drafts, large and small in turn, in eight rounds at least."""
    ascending = range(draft.n_slots + 1)
    in_turn = [count for pair in zip(reversed(ascending), ascending, strict=True) for count in pair][: len(ascending)]
    return in_turn * -(-8 // len(in_turn))


@pytest.mark.parametrize("flash_attn", [False, True], ids=["plain attention", "fused attention"])
@pytest.mark.parametrize("architecture", ["llama", "qwen3", "qwen3moe", "qwen35"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_blocks_match_the_reference(tmp_path: Path, variant: str, architecture: str, flash_attn: bool) -> None:
    pair = write_pair(tmp_path, VARIANTS[variant], architecture)
    check_rounds(pair, all_counts(pair.draft), flash_attn=flash_attn)


@pytest.mark.parametrize("shape", [replace(TARGET_SHAPE, tied=True), replace(TARGET_SHAPE, n_nameless=7)])
@pytest.mark.parametrize("draft", [TinyDraft(), TinyDraft(own_embedding=True)])
def test_a_borrowed_head_is_the_one_that_the_target_uses(tmp_path: Path, draft: TinyDraft, shape: TinyShape) -> None:
    pair = write_pair(tmp_path, draft, shape=shape)
    check_rounds(pair, [0, 3, 8])


def test_blocks_match_the_reference_across_a_step_of_the_cache(tmp_path: Path) -> None:
    pair = write_pair(tmp_path, TinyDraft(window=40))
    check_rounds(pair, [8] * 4, n_prompt=236)  # the cache is read in steps of 256 rows


@pytest.mark.parametrize("variant", ["anchor first", "anchor in slot 0", "reduced vocabulary"])
@pytest.mark.parametrize("architecture", ["llama", "qwen3", "qwen3moe", "qwen35"])
def test_real_rounds_leave_what_the_reference_has(tmp_path: Path, variant: str, architecture: str) -> None:
    draft = replace(VARIANTS[variant], quality=MIXED)
    pair = write_pair(tmp_path, draft, architecture, NEARLY_BIGRAM)
    target = Speculating(pair.target_path, pair.draft_path, draft_candidates=0, **F32_CACHES)
    plain = Speculating(pair.target_path, pair.draft_path, **F32_CACHES)
    prompt = list(range(40, 40 + PROMPT_LENGTH))
    answer = target.generate(prompt, n_draft_max=draft.n_slots, max_tokens=40)
    assert 0 < answer.stats.draft_n_accepted < answer.stats.draft_n

    reference = reference_of(pair)
    held = (prompt + answer.tokens)[: target.session.n_past]
    reference.inject(append(plain, held, draft))
    anchor = answer.tokens[-1]
    assert len(held) == len(prompt + answer.tokens) - 1
    assert_same_block(draft_block(target, anchor, draft, n_head_rows(pair)), reference.block(anchor))
