"""``tools/make_bench_model.py`` writes models that load, with weights of a sane size."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import gguf
import numpy as np
import pytest
from running import Running
from speculating import Speculating

from pydspark._native import Gguf

ROOT = Path(__file__).parent.parent.parent
N_VOCAB = 512


@pytest.fixture(scope="module")
def tool() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("make_bench_model", ROOT / "tools/make_bench_model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def small(tool: ModuleType, arch: str) -> object:
    """The layout of a model, with small sizes."""
    experts = {"n_expert": 8, "n_used": 2, "n_ff_expert": 256} if arch.endswith("moe") else {"n_ff": 256}
    shared = {"n_ff_shared": 256} if arch == "qwen35moe" else {}
    recurrent = {"state": 64, "n_head_k": 4, "n_head_v": 8} if arch.startswith("qwen35") else {}
    n_rot = 32 if recurrent else 128
    return tool.Model(arch, 256, 2, 1, 128, n_rot, **experts, **shared, **recurrent)


def write(tool: ModuleType, path: Path, arch: str, kind: str, n_layer: int = 4) -> Path:
    model = small(tool, arch)
    tensors = tool.target_tensors(model, n_layer, tool.TYPES[kind], N_VOCAB)
    tool.write(path, arch, tool.target_settings(model, n_layer), tensors, N_VOCAB, force=False)
    return path


@pytest.mark.parametrize(
    ("arch", "kind"),
    [("qwen35moe", kind) for kind in ("q4_k", "q8_0", "nvfp4", "bf16", "f16", "f32")]
    + [("qwen35", "q4_k"), ("qwen3moe", "q8_0")],
)
def test_models_run_and_their_rows_are_sane(tool: ModuleType, tmp_path: Path, arch: str, kind: str) -> None:
    model = Running(write(tool, tmp_path / "model.gguf", arch, kind))
    assert (model.info.architecture, model.info.n_layer) == (arch, 4)
    logits = model.logits([1, 2, 3, 4, 5, 6, 7, 8])
    assert np.isfinite(logits).all()
    assert 0.3 < logits.std() < 3
    assert len({int(row.argmax()) for row in logits}) > 1


@pytest.mark.parametrize("kind", ["q4_k", "q8_0", "nvfp4", "bf16", "f16", "f32"])
def test_weights_have_the_spread_that_keeps_activations_level(tool: ModuleType, tmp_path: Path, kind: str) -> None:
    tensors = {t.name: t for t in gguf.GGUFReader(write(tool, tmp_path / "model.gguf", "qwen35moe", kind)).tensors}
    for name, n_in in (("blk.0.attn_qkv", 256), ("blk.1.ffn_down_exps", 256), ("blk.3.attn_q", 256)):
        weight = tensors[f"{name}.weight"]
        values = gguf.quants.dequantize(weight.data, weight.tensor_type)
        if f"{name}.scale" in tensors:
            values = values * tensors[f"{name}.scale"].data[0]
        assert abs(values.mean()) < 0.01 / np.sqrt(n_in) * 10
        assert values.std() == pytest.approx(1 / np.sqrt(n_in), rel=0.1)


def test_the_same_file_comes_out_twice(tool: ModuleType, tmp_path: Path) -> None:
    one, two = (write(tool, tmp_path / name, "qwen35moe", "q4_k") for name in ("one.gguf", "two.gguf"))
    assert one.read_bytes() == two.read_bytes()


def test_a_drafter_fits_its_target(tool: ModuleType, tmp_path: Path) -> None:
    target = write(tool, tmp_path / "target.gguf", "qwen35moe", "q8_0")
    layers = tool.feature_layers(4)
    draft = tmp_path / "draft.gguf"
    tensors = tool.draft_tensors(256, len(layers), tool.TYPES["q8_0"], N_VOCAB)
    tool.write(draft, "dflash", tool.draft_settings(256, 4), tensors, N_VOCAB, force=False)
    Gguf(target).check_pair(Gguf(draft))
    answer = Speculating(target, draft).generate([5, 6, 7], n_draft_max=8, max_tokens=12)
    assert answer.tokens == Speculating(target).generate([5, 6, 7], max_tokens=12).tokens
    assert answer.stats.draft_n > 0


@pytest.mark.parametrize("n_layer", [2, 4, 8, 9, 40, 64])
def test_feature_layers_are_inside_the_target(tool: ModuleType, n_layer: int) -> None:
    layers = tool.feature_layers(n_layer)
    assert layers == sorted(set(layers))
    assert 1 <= layers[0] and layers[-1] <= n_layer - 1
    assert len(layers) == min(8, n_layer - 1)


def test_an_existing_file_is_kept(tool: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match="--force"):
        write(tool, path, "qwen35moe", "q4_k")
    assert path.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_left_of_a_run_that_ends_early(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tool, "_tell", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write(tool, tmp_path / "model.gguf", "qwen35moe", "q4_k")
    assert list(tmp_path.iterdir()) == []
