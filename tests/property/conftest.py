"""Pairs for the properties of speculative decoding."""

from __future__ import annotations

from dataclasses import replace

import pytest
from speculating import MakePair
from tiny.pairs import NEARLY_BIGRAM, Pair, TinyDraft, write_pair

from pydspark.quantize import quantize


@pytest.fixture(scope="session")
def make_pair(tmp_path_factory: pytest.TempPathFactory) -> MakePair:
    """Makes a pair of a quality, with a target of an architecture and weight type; the same one for the same wishes."""
    made: dict[tuple[object, ...], Pair] = {}

    def make(quality: str, architecture: str = "llama", type: str = "f32", **draft: object) -> Pair:
        key = (quality, architecture, type, *draft.items())
        if key not in made:
            folder = tmp_path_factory.mktemp("pair")
            pair = write_pair(folder, TinyDraft(quality=quality, **draft), architecture, NEARLY_BIGRAM)
            if type != "f32":
                pair = replace(pair, target_path=quantize(pair.target_path, folder / f"{type}.gguf", type))
            made[key] = pair
        return made[key]

    return make
