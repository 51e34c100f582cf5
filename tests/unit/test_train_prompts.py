"""Prompts of the drafter's training are the same wherever it runs, and the held-out ones stay held out."""

from __future__ import annotations

import random
import runpy
from pathlib import Path

PROMPTS = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "train_drafter" / "prompts.py"))


def drawn(seed: int, n: int) -> list[tuple[str, str]]:
    rng = random.Random(seed)
    return [PROMPTS["sample"](rng) for _ in range(n)]


def test_prompts_are_a_function_of_the_seed() -> None:
    assert drawn(1, 50) == drawn(1, 50)
    assert drawn(1, 50) != drawn(2, 50)


def test_a_small_share_is_held_out() -> None:
    texts = [text for _, text in drawn(3, 2000) if text]
    held_out = [text for text in texts if PROMPTS["held_out"](text)]
    assert 0.02 < len(held_out) / len(texts) < 0.1
