"""With ``verify="exact"`` a row of a batch is, bit by bit, what its token gives when it is decoded alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from running import Array, Running
from tiny.models import TinyShape, write_tiny_model

from pydspark.quantize import TYPES, quantize

ARCHITECTURES = ("llama", "qwen3moe")
# rows of 256 values, the blocks of K-quants
WIDE = TinyShape(n_embd=256, n_ff=512)
N_CTX = 512
DEPTHS = (20, 252)  # the second batch begins in the first step of cache rows and ends in the next
WIDTHS = (2, 3, 4, 5, 8, 9)


@pytest.fixture(scope="module", params=product(ARCHITECTURES, TYPES), ids="-".join)
def quantized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """(architecture and type, such a model)."""
    architecture, kind = request.param
    folder = tmp_path_factory.mktemp(kind)
    source = write_tiny_model(folder / "f32.gguf", architecture, shape=WIDE)
    return f"{architecture} {kind}", quantize(source, folder / "model.gguf", kind)


def single_and_batched(model: Running) -> Iterator[tuple[Array, Array]]:
    """Logits [n, n_vocab] of the same tokens, decoded one by one and as one batch."""
    ids = np.random.default_rng(1).integers(0, model.info.n_vocab, N_CTX).tolist()
    for depth in sorted(DEPTHS, reverse=True):
        model.session.cut(depth)
        if model.session.n_past < depth:
            model.logits(ids[model.session.n_past : depth])
        single = np.concatenate([model.logits([token]) for token in ids[depth : depth + max(WIDTHS)]])
        for width in WIDTHS:
            model.session.cut(depth)
            yield single[:width], model.logits(ids[depth : depth + width])


@pytest.mark.parametrize("repack", [True, False])
@pytest.mark.parametrize("flash_attn", [True, False])
def test_batched_rows_equal_single_tokens(quantized: tuple[str, Path], flash_attn: bool, repack: bool) -> None:
    kind, path = quantized
    for single, batched in single_and_batched(Running(path, flash_attn=flash_attn, repack=repack)):
        np.testing.assert_array_equal(batched, single, err_msg=f"{kind}, {len(single)} rows")


@pytest.mark.parametrize("kind", ["q4_1", "q4_0"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("flash_attn", [True, False])
def test_so_do_they_with_two_threads(tmp_path: Path, architecture: str, kind: str, flash_attn: bool) -> None:
    path = quantize(write_tiny_model(tmp_path / "f32.gguf", architecture, shape=WIDE), tmp_path / "model.gguf", kind)
    for single, batched in single_and_batched(Running(path, flash_attn=flash_attn, n_threads=2)):
        np.testing.assert_array_equal(batched, single)


@pytest.mark.parametrize("kind", ["f32", "q4_0"])
def test_so_do_they_with_plain_experts(tmp_path: Path, kind: str) -> None:
    path = quantize(write_tiny_model(tmp_path / "f32.gguf", "qwen3moe", shape=WIDE), tmp_path / "model.gguf", kind)
    for single, batched in single_and_batched(Running(path, fused_experts=False)):
        np.testing.assert_array_equal(batched, single)


def test_fast_rows_differ_with_two_threads(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "f32.gguf", shape=WIDE)
    model = Running(path, verify="fast", n_threads=2)
    assert any((single != batched).any() for single, batched in single_and_batched(model))
