"""Fixtures for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny.models import write_tiny_model


@pytest.fixture(scope="session")
def tiny_llama_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny ``llama`` model."""
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny-llama.gguf")


@pytest.fixture(scope="session")
def tiny_qwen3_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny ``qwen3`` model."""
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny-qwen3.gguf", "qwen3")
