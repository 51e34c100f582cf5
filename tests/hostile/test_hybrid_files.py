"""Models with recurrent layers whose settings or tensors cannot be right, or that hold more than the model itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tiny.models import N_EMBD, N_HEAD_DIM, TinyShape, tiny_weights, write_tiny_model

from pydspark import Llama
from pydspark.errors import ModelFileError, PydsparkError, UnsupportedError

SHAPE = TinyShape(n_layer=4)  # one in four attends


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "model.gguf", "qwen35", shape=SHAPE)


def load(path: Path, **settings: object) -> Llama:
    """Loads a model with other settings than its file's, whose names have dots as ``__``."""
    overrides = {f"qwen35.{key.replace('__', '.')}": value for key, value in settings.items()}
    return Llama(path, n_ctx=64, n_threads=1, kv_overrides=overrides)


@pytest.mark.parametrize(
    ("settings", "kind", "said"),
    [
        ({"ssm__state_size": 0}, ModelFileError, "ssm.state_size' is 0"),
        ({"ssm__state_size": 1 << 40}, ModelFileError, "ssm.state_size' is 1099511627776"),
        ({"ssm__state_size": 8}, ModelFileError, "inner_size' is 64, but 4 value heads of 8 make 32"),
        ({"ssm__group_count": 0}, ModelFileError, "ssm.group_count' is 0"),
        ({"ssm__group_count": 3}, ModelFileError, "4 value heads, not a multiple of their 3 key heads"),
        ({"ssm__group_count": 4}, ModelFileError, "attn_qkv.weight' has shape"),
        ({"ssm__time_step_rank": -1}, ModelFileError, "ssm.time_step_rank' is -1"),
        ({"ssm__conv_kernel": 1}, ModelFileError, "ssm.conv_kernel' is 1, outside 2"),
        ({"ssm__conv_kernel": 5}, ModelFileError, "ssm_conv1d.weight' has shape"),
        ({"ssm__inner_size": 65}, ModelFileError, "inner_size' is 65"),
        ({"full_attention_interval": 0}, ModelFileError, "full_attention_interval' is 0"),
        ({"full_attention_interval": 3}, ModelFileError, "blk.2.attn_qkv.weight' has shape"),
        ({"rope__dimension_count": N_HEAD_DIM}, UnsupportedError, "dimension_sections' leaves some of the 8 rotated"),
        ({"attention__value_length": 8}, ModelFileError, "gated attention needs equal numbers"),
        ({"nextn_predict_layers": 4}, UnsupportedError, "layers that predict further tokens"),
        ({"nextn_predict_layers": -1}, ModelFileError, "nextn_predict_layers' is -1"),
    ],
)
def test_settings_that_cannot_be(path: Path, settings: dict[str, object], kind: type[PydsparkError], said: str) -> None:
    with pytest.raises(kind, match=said):
        load(path, **settings)


@pytest.mark.parametrize(
    "name", ["attn_qkv", "attn_gate", "ssm_alpha", "ssm_beta", "ssm_conv1d", "ssm_norm", "ssm_out"]
)
def test_a_missing_tensor_is_named(tmp_path: Path, name: str) -> None:
    changed = write_tiny_model(tmp_path / "model.gguf", "qwen35", shape=SHAPE, change={f"blk.1.{name}.weight": None})
    with pytest.raises(ModelFileError, match=f"'blk.1.{name}.weight' is missing"):
        Llama(changed, n_threads=1)


def test_a_convolution_in_half_precision_is_refused(tmp_path: Path) -> None:
    name = "blk.0.ssm_conv1d.weight"
    halves = tiny_weights("qwen35", shape=SHAPE)[name].astype(np.float16)
    changed = write_tiny_model(tmp_path / "model.gguf", "qwen35", shape=SHAPE, change={name: halves})
    with pytest.raises(UnsupportedError, match=f"{name}' is of type f16.*F32"):
        Llama(changed, n_threads=1)


def test_layers_that_predict_further_tokens_are_left_alone(tmp_path: Path, path: Path) -> None:
    """They lie behind the others, and are counted with them."""
    behind = {
        "blk.4.nextn.eh_proj.weight": np.zeros((N_EMBD, 2 * N_EMBD), np.float32),
        "blk.4.attn_norm.weight": np.ones(N_EMBD, np.float32),
        "cls.output.weight": np.zeros((2, N_EMBD), np.float32),
    }
    longer = write_tiny_model(tmp_path / "model.gguf", "qwen35", shape=SHAPE, change=behind)
    with pytest.raises(UnsupportedError, match="blk.4"):
        Llama(longer, n_threads=1)
    texts = [
        llama.create_completion("hello", max_tokens=8, temperature=0)["choices"][0]["text"]
        for llama in (load(longer, block_count=5, nextn_predict_layers=1), load(path))
    ]
    assert texts[0] == texts[1] != ""


def test_a_model_of_recurrent_layers_alone_runs(tmp_path: Path) -> None:
    """In a process of its own: what is odd about it could abort."""
    model = write_tiny_model(tmp_path / "model.gguf", "qwen35", shape=TinyShape(n_layer=2))
    code = (
        "import sys; from pydspark import Llama\n"
        "llama = Llama(sys.argv[1], n_threads=1, n_ctx=64)\n"
        "print(len(llama.create_completion('hello', max_tokens=8)['choices'][0]['text']))"
    )
    done = subprocess.run([sys.executable, "-c", code, model], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 0
