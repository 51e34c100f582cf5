"""Servers that several tests share."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import Serving, load_pair
from tiny.pairs import MIXED, NEARLY_BIGRAM, Pair, TinyDraft, write_pair


@pytest.fixture(scope="package")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A target, and a drafter that is right about every other time."""
    return write_pair(tmp_path_factory.mktemp("pair"), TinyDraft(quality=MIXED), shape=NEARLY_BIGRAM)


@pytest.fixture(scope="package")
def shared_server(pair: Pair) -> Iterator[Serving]:
    with Serving(load_pair(pair.target_path, pair.draft_path)) as serving:
        yield serving


@pytest.fixture
def server(shared_server: Serving) -> Serving:
    """A server with a tiny pair and a context of 256 tokens."""
    return shared_server


@pytest.fixture
def plain_server(tiny_llama_path: Path) -> Iterator[Serving]:
    """A server without a drafter, for one test, with a context of 64 tokens."""
    with Serving(load_pair(tiny_llama_path, n_ctx=64)) as serving:
        yield serving


@pytest.fixture(autouse=True)
def quiet_log() -> Iterator[None]:
    """No trace of one test's log settings in others."""
    logger = logging.getLogger("pydspark")
    before = logger.level
    yield
    logger.setLevel(before)
