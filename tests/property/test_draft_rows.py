"""Drafts from some rows of the head, candidates or a short list, are those of the whole head cut to these rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gguf
import gguf.quants
import numpy as np
import pytest
from numpy.typing import NDArray
from running import Array
from speculating import F32_CACHES, MakePair, Speculating
from tiny.pairs import GOOD, MIXED, TARGET_SHAPE, Pair, TinyDraft, write_draft, write_pair

from pydspark.errors import ArgumentError

PROMPT = [40, 41, 45, 42, 200, 43, 7]
ANCHOR = 43
N_SPECIAL, MOST_SPARE, ROW_STEP = 3, 256, 8
ATOL = 1e-4

Ids = NDArray[np.int64]


def open_pair(pair: Pair, **params: object) -> Speculating:
    return Speculating(pair.target_path, pair.draft_path, **{**F32_CACHES, "draft_candidates": 64, **params})


def n_rows(pair: Pair) -> int:
    return len(pair.draft_weights["markov_w2.weight"])


def listed(pair: Pair, n: int) -> Ids:
    """Ids of a short list of the n lowest ids: special tokens come with it, and ids up to a multiple of eight."""
    named = pair.mask_token_id  # the first padding token
    ids = {*range(n), *range(named - N_SPECIAL, named)}
    for token in range(n_rows(pair)):
        if len(ids) % ROW_STEP == 0:
            break
        ids.add(token)
    return np.array(sorted(ids))


def block(target: Speculating, n: int, n_base: int, n_logits: int) -> tuple[list[int], Array, Array]:
    """(tokens, base [n, n_base], logits [n, n_logits]) behind ``ANCHOR``, with ``PROMPT`` held."""
    target.hold(PROMPT)
    names = ["draft_base", *(f"draft_logits-{i}" for i in range(n))]
    tokens, values = target.session.inspect_draft(ANCHOR, n, names, [n * n_base, *[n_logits] * n])
    return tokens, np.reshape(values[0], (n, n_base)), np.array(values[1:])


def markov_chain(pair: Pair, base: Array, ids: Ids, n_candidates: int) -> tuple[list[int], Array, Ids]:
    """(tokens, logits of the candidates, their ids), both [n, n_candidates], of base logits [n, len(ids)], greedily."""
    w1, w2 = (pair.draft_weights[f"markov_{name}.weight"] for name in ("w1", "w2"))
    allowed = ids < pair.mask_token_id
    tokens, logits, chosen = [], [], []
    previous = ANCHOR
    for row in base:
        ranked = np.argsort(-np.where(allowed, row, -np.inf), kind="stable")[: min(n_candidates, allowed.sum())]
        rows = np.sort(ranked)
        scores = row[rows] + w2[ids[rows]] @ w1[previous]
        previous = int(ids[rows[scores.argmax()]])
        tokens.append(previous)
        logits.append(scores)
        chosen.append(ids[rows])
    return tokens, np.array(logits), np.array(chosen)


# ---- all rows: nothing changes ----


@pytest.mark.parametrize("type", ["f32", "q8_0", "q4_0"])
@pytest.mark.parametrize(
    "params",
    [{"draft_candidates": 10_000}, {"draft_shortlist": 10_000}, {"draft_candidates": 10_000, "draft_shortlist": 272}],
    ids=["candidates", "short list", "both"],
)
def test_all_rows_give_the_drafts_of_the_whole_head(make_pair: MakePair, type: str, params: dict[str, int]) -> None:
    pair = make_pair(MIXED, "qwen3", type)
    whole = open_pair(pair, draft_candidates=0, draft_shortlist=0)
    some = open_pair(pair, **{"draft_candidates": 0, **params})
    for options in ({}, {"temperature": 1.0}, {"temperature": 0.8, "top_k": 5, "bias": {41: 2.0, 42: -np.inf}}):
        wanted = whole.generate(PROMPT, n_draft_max=8, max_tokens=40, **options)
        answer = some.generate(PROMPT, n_draft_max=8, max_tokens=40, **options)
        assert [step.tokens for step in answer.steps] == [step.tokens for step in wanted.steps]
        assert answer.stats.accepted_at == wanted.stats.accepted_at


@pytest.mark.parametrize(
    "draft",
    [TinyDraft(reduced=90), TinyDraft(own_head=True, own_embedding=True), TinyDraft(markov=False, confidence="none")],
    ids=["reduced vocabulary", "own head", "no Markov head"],
)
def test_so_they_do_with_every_kind_of_head(tmp_path: Path, draft: TinyDraft) -> None:
    pair = write_pair(tmp_path, draft)
    whole, some = open_pair(pair, draft_candidates=0), open_pair(pair, draft_candidates=10_000)
    for target in (whole, some):
        target.hold(PROMPT)
    assert some.session.inspect_draft(ANCHOR, 8)[0] == whole.session.inspect_draft(ANCHOR, 8)[0]


# ---- candidates ----


@pytest.mark.parametrize("n_candidates", [1, 5, 64, 200])
@pytest.mark.parametrize("quantized", [False, True])
def test_candidates_are_the_best_rows_before_the_markov_head(
    tmp_path: Path, make_pair: MakePair, n_candidates: int, quantized: bool
) -> None:
    pair = make_pair(MIXED, "llama", "q4_0") if quantized else write_pair(tmp_path)
    n, rows = 8, n_rows(pair)
    tokens, base, logits = block(open_pair(pair, draft_candidates=n_candidates), n, rows, n_candidates)
    _, wanted_base, _ = block(open_pair(pair, draft_candidates=0), n, rows, rows)
    assert np.array_equal(base, wanted_base)
    wanted, wanted_logits, _ = markov_chain(pair, base, np.arange(rows), n_candidates)
    assert tokens == wanted
    np.testing.assert_allclose(logits, wanted_logits, rtol=0, atol=ATOL)


def test_candidates_of_a_reduced_vocabulary_are_its_rows(tmp_path: Path) -> None:
    pair = write_pair(tmp_path, TinyDraft(reduced=90))
    ids = pair.draft_weights["d2t"]
    tokens, base, logits = block(open_pair(pair, draft_candidates=12), 8, 90, 12)
    by_id = np.zeros((n_rows(write_pair(tmp_path / "whole")), pair.draft.rank), np.float32)
    by_id[ids] = pair.draft_weights["markov_w2.weight"]
    pair.draft_weights["markov_w2.weight"] = by_id
    wanted, wanted_logits, _ = markov_chain(pair, base, ids, 12)
    assert tokens == wanted
    np.testing.assert_allclose(logits, wanted_logits, rtol=0, atol=ATOL)


# ---- short list ----


@pytest.mark.parametrize("n_candidates", [0, 12])
@pytest.mark.parametrize("head", ["the target's", "tied", "the drafter's"])
def test_a_short_list_has_the_rows_of_the_whole_head(tmp_path: Path, head: str, n_candidates: int) -> None:
    own = head == "the drafter's"
    draft = TinyDraft(own_head=own, own_embedding=own)
    pair = write_pair(tmp_path, draft, shape=replace(TARGET_SHAPE, tied=head == "tied"))
    rows, ids = n_rows(pair), listed(pair, 20)
    n, n_spare = 8, min(MOST_SPARE, rows)
    n_logits = n_candidates or len(ids) + n_spare
    short = open_pair(pair, draft_candidates=n_candidates, draft_shortlist=20)
    tokens, base, logits = block(short, n, len(ids) + n_spare, n_logits)
    _, whole, _ = block(open_pair(pair, draft_candidates=0), n, rows, rows)

    np.testing.assert_allclose(base[:, : len(ids)], whole[:, ids], rtol=0, atol=ATOL)
    text = [token for token in dict.fromkeys([*PROMPT, ANCHOR]) if token not in ids]
    n_used = len(ids) + len(text)
    np.testing.assert_allclose(base[:, len(ids) : n_used], whole[:, text], rtol=0, atol=ATOL)
    assert np.all(np.isneginf(base[:, n_used:]))

    all_ids = np.array([*ids, *text])
    wanted, wanted_logits, _ = markov_chain(pair, base[:, :n_used], all_ids, n_candidates or n_used)
    assert tokens == wanted
    if n_candidates:
        np.testing.assert_allclose(logits, wanted_logits, rtol=0, atol=ATOL)


def with_head(pair: Pair, kind: gguf.GGMLQuantizationType) -> Pair:
    """The pair with the target's head in another type."""
    reader = gguf.GGUFReader(pair.target_path)
    path = pair.target_path.with_suffix(f".{kind.name}.gguf")
    writer = gguf.GGUFWriter(path, "llama")
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            sub_type = field.types[-1] if field.types[0] is gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type)
    for tensor in reader.tensors:
        is_head = tensor.name == "output.weight"
        data = gguf.quants.quantize(tensor.data, kind) if is_head else tensor.data
        writer.add_tensor(tensor.name, data, raw_dtype=kind if is_head else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return replace(pair, target_path=path)


@pytest.mark.parametrize("repack", [True, False])
@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "BF16", "F16"])
def test_rows_of_quantized_heads_are_copied_as_they_are(tmp_path: Path, kind: str, repack: bool) -> None:
    pair = with_head(write_pair(tmp_path), gguf.GGMLQuantizationType[kind])
    ids = listed(pair, 60)
    n_spare = min(MOST_SPARE, n_rows(pair))
    n_text = sum(token not in ids for token in {*PROMPT, ANCHOR})
    short = block(open_pair(pair, draft_candidates=4, draft_shortlist=60, repack=repack), 8, len(ids) + n_spare, 4)[1]
    whole = block(open_pair(pair, draft_candidates=4, repack=repack), 8, n_rows(pair), 4)[1]
    np.testing.assert_allclose(short[:, : len(ids)], whole[:, ids], rtol=0, atol=ATOL)
    assert np.isfinite(short).sum() == 8 * (len(ids) + n_text)


def test_the_file_says_which_tokens_and_the_caller_how_many(tmp_path: Path) -> None:
    pair = write_pair(tmp_path)
    order = [200, 7, 100, 101, 102, 9, 60, 61, 62, 63, 64, 65, 66]  # with three special tokens, sixteen
    write_draft(pair, TARGET_SHAPE.n_padding, {"dspark.shortlist": order})
    whole = block(open_pair(pair, draft_shortlist=0), 8, n_rows(pair), 64)[1]
    specials = range(pair.mask_token_id - N_SPECIAL, pair.mask_token_id)
    n_spare = min(MOST_SPARE, n_rows(pair))
    for params, listed_ids in (({}, order), ({"draft_shortlist": 5}, order[:5])):
        ids = np.array(sorted({*listed_ids, *specials}))
        base = block(open_pair(pair, **params), 8, len(ids) + n_spare, 64)[1]
        np.testing.assert_allclose(base[:, : len(ids)], whole[:, ids], rtol=0, atol=ATOL)


def test_tokens_of_the_text_are_drafted_though_they_are_not_listed(make_pair: MakePair) -> None:
    pair = make_pair(GOOD)
    plain = Speculating(pair.target_path).generate(PROMPT, max_tokens=60).tokens
    short = open_pair(pair, draft_shortlist=1)
    seen = short.generate([*plain, *plain[:8]], n_draft_max=8, max_tokens=40)
    unseen = short.generate(PROMPT, n_draft_max=8, max_tokens=8)
    assert seen.stats.accept_len > 1.5
    assert unseen.tokens == plain[:8]


def test_the_latest_tokens_of_a_long_text_have_rows(tmp_path: Path) -> None:
    pair = write_pair(tmp_path, shape=replace(TARGET_SHAPE, n_nameless=40))
    ids = listed(pair, 1)
    target = open_pair(pair, draft_candidates=4, draft_shortlist=1)
    text = [token for token in range(pair.mask_token_id) if token not in ids]
    n_text = len(text)
    assert n_text > MOST_SPARE
    whole = open_pair(pair, draft_candidates=4)
    bases = []
    for one, n_base in ((target, len(ids) + MOST_SPARE), (whole, n_rows(pair))):
        one.hold(text[:-1])
        bases.append(np.array(one.session.inspect_draft(text[-1], 1, ["draft_base"], [n_base])[1][0]))
    spare = bases[0][len(ids) :]
    latest = np.array(text[-MOST_SPARE:])
    wanted = np.empty(MOST_SPARE)
    wanted[(np.arange(n_text)[-MOST_SPARE:]) % MOST_SPARE] = bases[1][latest]
    np.testing.assert_allclose(spare, wanted, rtol=0, atol=ATOL)


# ---- what cannot be ----


def test_a_reduced_vocabulary_cannot_be_shortened_again(tmp_path: Path) -> None:
    pair = write_pair(tmp_path, TinyDraft(reduced=90))
    with pytest.raises(ArgumentError, match="draft_shortlist is 20, but .* has a reduced vocabulary already"):
        open_pair(pair, draft_shortlist=20)
    open_pair(pair, draft_shortlist=0)


def test_bans_that_leave_nothing_to_draft_leave_the_target_alone(make_pair: MakePair) -> None:
    pair = make_pair(GOOD)
    allowed = [150, 160, 170]
    bias = {token: -np.inf for token in range(pair.mask_token_id) if token not in allowed}
    wanted = open_pair(pair, draft_shortlist=0, draft_candidates=0).generate(PROMPT, n_draft_max=0, bias=bias).tokens
    for params in ({"draft_shortlist": 8}, {"draft_shortlist": 8, "draft_candidates": 0}, {"draft_candidates": 1}):
        answer = open_pair(pair, **params).generate(PROMPT, n_draft_max=8, bias=bias)
        assert answer.tokens == wanted
        assert set(wanted) <= set(allowed)
