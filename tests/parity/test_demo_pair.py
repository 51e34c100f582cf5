"""The demo model with its drafter: the text of plain decoding, and drafts as good as where the drafter was made.

``demo-acceptance.json``: prompts that the drafter was not trained on, and what its training code measured on them with
blocks of 8 and 64 new tokens: ``accepted_at`` is the share of rounds in which the i-th draft was accepted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from running import DATA
from speculating import Answer, Speculating

import pydspark
from pydspark._native import Gguf
from pydspark.demo import demo_draft_path, demo_model_path
from pydspark.quantize import quantize
from pydspark.text.tokenizer import Tokenizer
from pydspark.text.vocab import Vocab

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
ACCEPTANCE = json.loads((DATA / "demo-acceptance.json").read_text())


@cache
def vocab() -> Vocab:
    return Vocab.from_metadata(Gguf(demo_model_path()).metadata())


def chat_tokens(text: str) -> list[int]:
    """A prompt as the model was trained on it."""
    turns = (("system", SYSTEM), ("user", text))
    chat = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in turns)
    return list(Tokenizer(vocab()).encode(chat + "<|im_start|>assistant\n", special=True))


def bench_prompts(n: int) -> list[list[int]]:
    lines = files(pydspark).joinpath("bench/prompts.jsonl").read_text().splitlines()[:n]
    assert len(lines) == n
    return [chat_tokens(json.loads(line)["turns"][0]) for line in lines]


def answers(target: Speculating, prompts: Sequence[Sequence[int]], max_tokens: int, **sampling: object) -> list[Answer]:
    settings = {"stop_ids": vocab().eog_ids, "reuse_prefix": True, "max_tokens": max_tokens, **sampling}
    return [target.generate(prompt, **settings) for prompt in prompts]


@pytest.fixture(scope="module")
def demo_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model in the type that it is speculated with."""
    return quantize(demo_model_path(), tmp_path_factory.mktemp("demo") / "demo-q8_0.gguf", "q8_0")


# ---- greedy text ----


def test_a_few_drafted_answers_are_those_of_plain_decoding(demo_copy: Path) -> None:
    target = Speculating(demo_copy, demo_draft_path(), n_ctx=256)
    for prompt in bench_prompts(2):
        without, *drafted = (answers(target, [prompt], 48, n_draft_max=depth)[0] for depth in (0, 1, 3, 8))
        assert without.stats.draft_n == 0
        for answer in drafted:
            assert answer.tokens == without.tokens
            assert answer.stats.draft_n_accepted > 0


@pytest.fixture(scope="module")
def plain_texts(demo_copy: Path) -> list[list[int]]:
    target = Speculating(demo_copy, n_ctx=1024)
    return [answer.tokens for answer in answers(target, bench_prompts(50), 128, reuse_prefix=False)]


@pytest.mark.slow
@pytest.mark.parametrize("depth", range(9))
def test_drafted_answers_are_those_of_plain_decoding(demo_copy: Path, plain_texts: list[list[int]], depth: int) -> None:
    target = Speculating(demo_copy, demo_draft_path(), n_ctx=1024)
    done = answers(target, bench_prompts(50), 128, reuse_prefix=False, n_draft_max=depth)
    assert [i for i, answer in enumerate(done) if answer.tokens != plain_texts[i]] == []


# ---- acceptance ----


def shares(done: Sequence[Answer], n: int) -> tuple[np.ndarray, int]:
    """(share of rounds that accepted draft i, for i < n; number of rounds), over all answers."""
    drafted, accepted = np.zeros(n), np.zeros(n)
    for answer in done:
        for counts, at in ((drafted, answer.stats.drafted_at), (accepted, answer.stats.accepted_at)):
            counts[: len(at)] += at[:n]
    return accepted / drafted, int(drafted[0])


def assert_as_measured(temperature: str, done: Sequence[Answer], n: int) -> None:
    """The first n shares are within four standard deviations of their difference, for rounds that are independent."""
    measured = ACCEPTANCE["measured"][temperature]
    got, n_rounds = shares(done, n)
    for i, (share, wanted) in enumerate(zip(got, measured["accepted_at"], strict=False)):
        spread = np.sqrt(wanted * (1 - wanted) * (1 / n_rounds + 1 / measured["rounds"]))
        assert abs(share - wanted) < 4 * spread, f"draft {i}: {share:.3f}, not {wanted}, in {n_rounds} rounds"


@pytest.mark.parametrize(("name", "temperature"), [("T=0", 0.0), ("T=0.7", 0.7)])
def test_some_drafts_are_accepted_as_often_as_was_measured(demo_copy: Path, name: str, temperature: float) -> None:
    prompts = [chat_tokens(prompt["text"]) for prompt in ACCEPTANCE["prompts"][::10]]
    target = Speculating(demo_copy, demo_draft_path(), n_ctx=256)
    done = answers(target, prompts, 20, temperature=temperature, n_draft_max=2, draft_accept="token")
    assert_as_measured(name, done, 2)


@pytest.mark.slow
@pytest.mark.parametrize("draft_accept", ["token", "block"])
@pytest.mark.parametrize(("name", "temperature"), [("T=0", 0.0), ("T=0.7", 0.7)])
def test_drafts_are_accepted_as_often_as_was_measured(
    demo_copy: Path, name: str, temperature: float, draft_accept: str
) -> None:
    prompts = [chat_tokens(prompt["text"]) for prompt in ACCEPTANCE["prompts"]]
    target = Speculating(demo_copy, demo_draft_path(), n_ctx=512)
    done = answers(target, prompts, 64, temperature=temperature, n_draft_max=8, draft_accept=draft_accept)
    n_accepted = sum(answer.stats.draft_n_accepted for answer in done)
    n_rounds = sum(answer.stats.draft_rounds for answer in done)
    assert abs(1 + n_accepted / n_rounds - ACCEPTANCE["measured"][name]["tokens_per_round"]) < 0.12
    if draft_accept == "token":
        assert_as_measured(name, done, 4)
