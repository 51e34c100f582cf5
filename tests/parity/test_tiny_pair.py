"""The trained tiny pair runs as measured when it was trained, and drafting changes nothing about its text."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from running import DATA
from speculating import F32_CACHES, MANY_TOKENS, Speculating, step_until_cancelled

from pydspark.records import Finish

TARGET, DRAFTER = DATA / "tiny-qwen35moe-Q8_0.gguf", DATA / "dspark-tiny-qwen35moe-BF16.gguf"
CASES = json.loads((DATA / "tiny-pair-prompts.json").read_text())["prompts"]
METRICS = json.loads((DATA / "tiny-pair-metrics.json").read_text())["pair"]
VALUES = np.load(DATA / "tiny-qwen35moe.npz")
END = 1498
FREE = ("story", "explain")
BLOCK = 8
TAPS = [1, 3, 5, 6]


@pytest.fixture(scope="module")
def drafted() -> Speculating:
    return Speculating(TARGET, DRAFTER)


@pytest.fixture(scope="module")
def plain() -> Speculating:
    return Speculating(TARGET)


def test_the_target_computes_what_it_was_trained_to(plain: Speculating) -> None:
    """Against the training code in float32; here matrix products round activations to 8 bits."""
    plain.session.reset()
    *outs, logits = plain.read(VALUES["ids"], *(f"l_out-{layer}" for layer in TAPS), "result_output")
    for layer, out in zip(TAPS, outs, strict=True):
        wanted = VALUES[f"out{layer}"]
        assert np.linalg.norm(out - wanted) < 0.02 * np.linalg.norm(wanted)
    top = VALUES["top_ids"]
    errors = np.abs(np.take_along_axis(logits, top, axis=1) - VALUES["top_logits"])
    assert errors.mean() < 0.05
    assert errors.max() < 1.5  # where rounding chooses another expert
    sure = VALUES["top_logits"][:, 0] - VALUES["top_logits"][:, 1] > 0.5
    assert sure.mean() > 0.5
    assert np.array_equal(logits.argmax(1)[sure], top[sure, 0])


def test_answers_are_those_of_the_training_code(plain: Speculating) -> None:
    same = [plain.generate(case["prompt"], max_tokens=len(case["answer"])).tokens == case["answer"] for case in CASES]
    assert np.mean(same) > 0.7  # where two tokens are nearly equal, rounding decides


# ---- drafting ----


@pytest.mark.parametrize("depth", range(1, BLOCK + 1))
def test_drafted_text_is_the_plain_one(drafted: Speculating, plain: Speculating, depth: int) -> None:
    for case in CASES[::2]:
        options = {"max_tokens": 40, "stop_ids": [END]}
        with_drafts = drafted.generate(case["prompt"], n_draft_max=depth, **options)
        without = plain.generate(case["prompt"], **options)
        assert with_drafts.tokens == without.tokens, case["question"]
        assert (with_drafts.finish, with_drafts.stop_id) == (without.finish, without.stop_id)
        assert drafted.session.n_past == plain.session.n_past
        assert np.array_equal(drafted.next_logits(17), plain.next_logits(17))


def accept_len(drafted: Speculating, cases: list[dict[str, object]], **options: object) -> float:
    """Tokens per round that drafts."""
    stats = [
        drafted.generate(case["prompt"], n_draft_max=BLOCK, max_tokens=160, stop_ids=[END], **options).stats
        for case in cases
    ]
    return 1 + sum(one.draft_n_accepted for one in stats) / sum(one.draft_rounds for one in stats)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_drafts_are_accepted_as_often_as_was_measured(drafted: Speculating, temperature: float) -> None:
    measured = METRICS[f"temperature_{temperature:.0f}"]["templated"]["accept_len"]
    cases = [case for case in CASES if case["category"] not in FREE]
    # other questions than those of the metrics, and few of them
    assert abs(accept_len(drafted, cases, temperature=temperature) - measured) < 1.5
    assert measured > 4


@pytest.mark.parametrize(
    "n_texts", [pytest.param(800, id="few texts"), pytest.param(30_000, id="many texts", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("accept", ["block", "token"])
def test_texts_have_the_distribution_of_the_target(accept: str, n_texts: int) -> None:
    """Two tokens out of one round, where the target is least sure, against all that they can be."""
    drafted = Speculating(TARGET, DRAFTER, **F32_CACHES)
    options = {"temperature": 1.3, "top_k": 4, "max_tokens": 4}
    prompt = next(case["prompt"] for case in CASES if case["category"] == "story")
    prompt = prompt + plain_start(drafted, prompt, 3)

    def shares(text: list[int]) -> list[tuple[int, float]]:
        drafted.session.cut(len(prompt) - 1)
        (rows,) = drafted.read([*prompt[-1:], *text], "result_output")
        best = np.argsort(-rows[-1], kind="stable")[:4]
        weights = np.exp((rows[-1][best] - rows[-1][best].max()).astype(np.float64) / 1.3)
        return list(zip(best.tolist(), weights / weights.sum(), strict=True))

    drafted.hold(prompt)
    expected = {
        (a, b, c): p * q * r for a, p in shares([]) for b, q in shares([a]) for c, r in shares([a, b])
    }  # the first is drawn from the prompt's last row
    seen: Counter[tuple[int, ...]] = Counter()
    for seed in range(n_texts):
        answer = drafted.generate(
            prompt, seed=seed, n_draft_max=3, draft_accept=accept, reuse_prefix=True, boundaries=[len(prompt) - 1],
            **options,
        )  # fmt: skip
        seen[tuple(answer.tokens[:3])] += 1
    chances = np.array(list(expected.values()))
    counts = np.array([seen[text] for text in expected])
    assert counts.sum() == n_texts
    noise = np.abs(np.random.default_rng(1).multinomial(n_texts, chances, size=300) / n_texts - chances).sum(1) / 2
    assert np.abs(counts / n_texts - chances).sum() / 2 < noise.mean() + 5 * noise.std()
    assert chances.max() < 0.9


def plain_start(session: Speculating, prompt: list[int], n: int) -> list[int]:
    """The first tokens of the greedy answer."""
    return session.generate(prompt, n_draft_max=0, max_tokens=n).tokens


def test_sampled_rounds_leave_the_state_of_a_straight_run(drafted: Speculating, plain: Speculating) -> None:
    for seed, case in enumerate(CASES[::4]):
        answer = drafted.generate(case["prompt"], n_draft_max=BLOCK, temperature=1.5, seed=seed, max_tokens=40)
        assert 0 < answer.stats.draft_n_accepted < answer.stats.draft_n
        plain.hold(case["prompt"])
        for token in answer.tokens[:-1]:
            plain.read([token])
        assert np.array_equal(drafted.next_logits(17), plain.next_logits(17))


def test_a_stop_in_the_middle_of_a_block_ends_text_and_state_there(drafted: Speculating, plain: Speculating) -> None:
    case = CASES[0]
    whole = drafted.generate(case["prompt"], n_draft_max=BLOCK, max_tokens=60)
    longest = max(range(len(whole.steps)), key=lambda i: len(whole.steps[i].tokens))
    start = sum(len(step.tokens) for step in whole.steps[:longest])
    block = whole.steps[longest].tokens
    stop = next(token for token in block[1:-1] if token not in whole.tokens[: start + 1])
    answer = drafted.generate(case["prompt"], n_draft_max=BLOCK, max_tokens=60, stop_ids=[stop])
    assert answer.finish is Finish.STOP_ID
    assert answer.tokens == whole.tokens[: whole.tokens.index(stop)]
    plain.generate(case["prompt"], max_tokens=60, stop_ids=[stop])
    assert np.array_equal(drafted.next_logits(17), plain.next_logits(17))


def test_a_cancelled_round_can_be_taken_again(drafted: Speculating, plain: Speculating) -> None:
    case = CASES[0]
    drafted.session.start(drafted.request(case["prompt"], n_draft_max=BLOCK, max_tokens=MANY_TOKENS))
    tokens: list[int] = []
    step_until_cancelled(drafted, tokens)
    while (step := drafted.session.step()).finish is Finish.NONE:
        tokens.extend(step.tokens)
    tokens.extend(step.tokens)
    assert tokens == plain.generate(case["prompt"], max_tokens=MANY_TOKENS).tokens
    assert np.array_equal(drafted.next_logits(17), plain.next_logits(17))
