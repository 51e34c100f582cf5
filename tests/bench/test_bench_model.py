"""``tools/make_bench_model.py`` writes models that load, with weights of a sane size."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import gguf
import numpy as np
import pytest
from pydspark.convert.progress import Progress
from running import Running
from speculating import Speculating

from pydspark._native import Gguf

TOOLS = Path(__file__).parent.parent.parent / "tools"
sys.path.append(str(TOOLS))
from bench_model import drafter, files, target  # noqa: E402
from bench_model.blocks import POOL_BLOCKS, Type, random_bytes  # noqa: E402

N_VOCAB = 512
TYPES = {kind.name.lower(): kind for kind in (Type.Q4_K, Type.Q8_0, Type.NVFP4, Type.BF16, Type.F16, Type.F32)}


def small(arch: str) -> target.Model:
    """The layout of a model, with small sizes."""
    experts = {"n_expert": 8, "n_used": 2, "n_ff_expert": 256} if arch.endswith("moe") else {"n_ff": 256}
    shared = {"n_ff_shared": 256} if arch == "qwen35moe" else {}
    recurrent = {"state": 64, "n_head_k": 4, "n_head_v": 8} if arch.startswith("qwen35") else {}
    n_rot = 32 if recurrent else 128
    return target.Model(arch, 256, 2, 1, 128, n_rot, **experts, **shared, **recurrent)


def write(path: Path, arch: str, kind: str, n_layer: int = 4, seed: int = 0) -> Path:
    model = small(arch)
    tensors = target.target_tensors(model, n_layer, TYPES[kind], N_VOCAB, seed)
    files.write_model(path, arch, target.target_settings(model, n_layer), tensors, N_VOCAB)
    return path


@pytest.mark.parametrize(
    ("arch", "kind"),
    [("qwen35moe", kind) for kind in ("q4_k", "q8_0", "nvfp4", "bf16", "f16", "f32")]
    + [("qwen35", "q4_k"), ("qwen3moe", "q8_0")],
)
def test_models_run_and_their_rows_are_sane(tmp_path: Path, arch: str, kind: str) -> None:
    model = Running(write(tmp_path / "model.gguf", arch, kind))
    assert (model.info.architecture, model.info.n_layer) == (arch, 4)
    logits = model.logits([1, 2, 3, 4, 5, 6, 7, 8])
    assert np.isfinite(logits).all()
    assert 0.3 < logits.std() < 3
    assert len({int(row.argmax()) for row in logits}) > 1


@pytest.mark.parametrize("kind", ["q4_k", "q8_0", "nvfp4", "bf16", "f16", "f32"])
def test_weights_have_the_spread_that_keeps_activations_level(tmp_path: Path, kind: str) -> None:
    tensors = {t.name: t for t in gguf.GGUFReader(write(tmp_path / "model.gguf", "qwen35moe", kind)).tensors}
    for name, n_in in (("blk.0.attn_qkv", 256), ("blk.1.ffn_down_exps", 256), ("blk.3.attn_q", 256)):
        weight = tensors[f"{name}.weight"]
        values = gguf.quants.dequantize(weight.data, weight.tensor_type)
        if f"{name}.scale" in tensors:
            values = values * tensors[f"{name}.scale"].data[0]
        assert abs(values.mean()) < 0.01 / np.sqrt(n_in) * 10
        assert values.std() == pytest.approx(1 / np.sqrt(n_in), rel=0.1)


@pytest.mark.parametrize("kind", ["q4_k", "nvfp4", "bf16"])
def test_the_seed_decides_every_weight(tmp_path: Path, kind: str) -> None:
    one, two, other = (
        write(tmp_path / f"{name}.gguf", "qwen35moe", kind, seed=seed)
        for name, seed in (("one", 0), ("two", 0), ("other", 1))
    )
    assert one.read_bytes() == two.read_bytes()
    tensors = {t.name: t.data for t in gguf.GGUFReader(other).tensors}
    for tensor in gguf.GGUFReader(one).tensors:
        constant = tensor.name.endswith((".scale", "ssm_a"))
        assert np.array_equal(tensor.data, tensors[tensor.name]) == constant, tensor.name


def test_every_row_and_every_expert_is_another_one() -> None:
    n_rows, n_blocks = 248_320, 8  # of a head of 2048 columns
    data = b"".join(random_bytes(Type.Q4_K, n_rows * n_blocks * 256, 1.0, "output", 0))
    rows = np.frombuffer(data, np.uint8).reshape(n_rows, -1)[:, :160]  # a block and what tells the next one
    assert len({row.tobytes() for row in rows}) == n_rows < POOL_BLOCKS


def test_experts_are_chosen_evenly(tmp_path: Path) -> None:
    model = Running(write(tmp_path / "model.gguf", "qwen35moe", "q8_0"))
    n_tokens = 256
    logits = model.session.inspect(range(n_tokens), ["ffn_moe_logits-2"], [8 * n_tokens])[0]
    chosen = np.argsort(np.reshape(logits, (n_tokens, 8)), axis=1)[:, -2:]
    share = np.bincount(chosen.ravel(), minlength=8) / chosen.size
    assert 0.03 < share.min() and share.max() < 0.3


def test_a_drafter_fits_its_target(tmp_path: Path) -> None:
    target = write(tmp_path / "target.gguf", "qwen35moe", "q8_0")
    layers = drafter.feature_layers(4)
    draft = tmp_path / "draft.gguf"
    tensors = drafter.draft_tensors(256, len(layers), Type.Q8_0, n_layer=2, n_vocab=N_VOCAB)
    files.write_model(draft, "dflash", drafter.draft_settings(256, 4, n_layer=2), tensors, N_VOCAB)
    assert Gguf(draft).describe_draft().n_layer == 2
    Gguf(target).check_pair(Gguf(draft))
    answer = Speculating(target, draft).generate([5, 6, 7], n_draft_max=8, max_tokens=12)
    assert answer.tokens == Speculating(target).generate([5, 6, 7], max_tokens=12).tokens
    assert answer.stats.draft_n > 0


@pytest.mark.parametrize("n_layer", [2, 3, 4, 8, 9, 10, 11, 12, 40, 64])
def test_feature_layers_are_inside_the_target(n_layer: int) -> None:
    layers = drafter.feature_layers(n_layer)
    assert layers == sorted(set(layers))
    assert 1 <= layers[0] and layers[-1] <= n_layer - 1
    assert len(layers) == min(8, n_layer - 1)


def test_feature_layers_of_the_real_pair() -> None:
    assert drafter.feature_layers(40) == [2, 7, 12, 17, 23, 28, 33, 38]


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match="--force"):
        write(path, "qwen35moe", "q4_k")
    assert path.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("there", [False, True], ids=["new", "replaced"])
def test_nothing_is_left_of_a_run_that_ends_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
    def interrupt(self: Progress, count: int) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "model.gguf"
    if there:
        path.write_text("mine")
    monkeypatch.setattr(Progress, "add", interrupt)
    tensors = target.target_tensors(small("qwen35moe"), 4, Type.Q4_K, N_VOCAB)
    with pytest.raises(KeyboardInterrupt):
        files.write_model(path, "qwen35moe", {}, tensors, N_VOCAB, force=True)
    assert list(tmp_path.iterdir()) == ([path] if there else [])


def run(*arguments: object, n_bytes: int = resource.RLIM_INFINITY) -> subprocess.CompletedProcess[str]:
    """The command, which may write files of up to ``n_bytes``."""
    return subprocess.run(
        [sys.executable, TOOLS / "make_bench_model.py", *map(str, arguments)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes)),
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("n_bytes", [4096, 20_000_000], ids=["in the header", "in the weights"])
def test_a_full_disk_leaves_what_was_there(tmp_path: Path, n_bytes: int) -> None:
    path = tmp_path / "model.gguf"
    path.write_text("mine")
    ran = run(path, "--force", n_bytes=n_bytes)
    assert ran.returncode == 1
    assert ran.stderr.startswith("error: ") and "File too large" in ran.stderr and str(path) in ran.stderr
    assert path.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [path]


def test_too_little_space_is_told_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
    with pytest.raises(OSError, match="1,000 bytes free"):
        write(tmp_path / "model.gguf", "qwen35moe", "q4_k")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--layers", "1"), "--layers must be at least 2"),
        (("--draft-layers", "0"), "--draft-layers must be at least 1"),
        (("--seed", "-1"), "--seed must be at least 0"),
        (("--type", "q2_k"), "q4_k"),
    ],
)
def test_wrong_usage_is_told(tmp_path: Path, arguments: tuple[str, ...], text: str) -> None:
    ran = run(tmp_path / "model.gguf", *arguments)
    assert ran.returncode == 2 and text in ran.stderr
    assert list(tmp_path.iterdir()) == []
