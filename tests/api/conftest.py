"""Models for the tests of the Python API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pydspark import Llama


@pytest.fixture(scope="package")
def shared_llama(tiny_llama_path: Path) -> Iterator[Llama]:
    with Llama(tiny_llama_path, n_ctx=64, n_threads=1) as llama:
        yield llama


@pytest.fixture
def llama(shared_llama: Llama) -> Llama:
    """A tiny model with a context of 64 tokens and nothing left of the test before."""
    shared_llama.reset()
    return shared_llama
