"""``python -m pydspark.bench --stages`` and ``--second-turn``: what each kind of layer takes, and what reuse saves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pydspark._native import Gguf
from pydspark.bench.main import main

DATA = Path(__file__).parent.parent / "data"


def measured(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, dict[str, object]]:
    assert main(["--stages", "-t", "1", "-r", "1", "-w", "1,3", *arguments]) == 0
    *text, last = capsys.readouterr().out.strip().split("\n")
    return "\n".join(text), json.loads(last)


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("qwen3", ["attention", "feed-forward", "head"]),
        ("qwen35moe", ["attention", "delta net", "feed-forward", "head"]),
    ],
)
def test_every_kind_of_layer_has_its_time(capsys: pytest.CaptureFixture[str], name: str, kinds: list[str]) -> None:
    text, result = measured(capsys, "-m", str(DATA / f"{name}.gguf"), "-d", "20")
    assert result["depth"] == 20
    rows = result["results"]
    assert isinstance(rows, list)
    assert [row["n_tokens"] for row in rows] == [1, 3]
    for row in rows:
        assert list(row["stages"]) == kinds
        for time in row["stages"].values():
            assert 0 < time["best_ms"] <= time["median_ms"]
            assert time["read_bytes"] > 0 and time["read_ms"] > 0
            assert 0 < time["compute_ms"] <= time["best_ms"] * (1 + 1e-9)  # rounding
    assert all(kind in text for kind in kinds)


def test_memory_is_what_the_sizes_say(capsys: pytest.CaptureFixture[str]) -> None:
    # 1 attention layer with 1 head of 64 in F16, twice; 3 layers of 4 heads of 16 x 16, and 3 inputs of 128 channels
    _, result = measured(capsys, "-m", str(DATA / "qwen35moe.gguf"))
    assert result["context_token_bytes"] == 2 * 64 * 2
    assert result["checkpoint_bytes"] == 3 * 4 * (4 * 16 * 16 + 3 * 128)


def test_bytes_are_those_of_the_weights_that_a_batch_needs(capsys: pytest.CaptureFixture[str]) -> None:
    path = DATA / "qwen35moe.gguf"
    _, result = measured(capsys, "-m", str(path), "-d", "20")
    sizes = {tensor.name: tensor.n_bytes for tensor in Gguf(path).tensors()}

    def layer(il: int, *parts: str) -> int:
        return sum(size for name, size in sizes.items() if name.startswith(tuple(f"blk.{il}.{part}" for part in parts)))

    one, three = (row["stages"] for row in result["results"])  # type: ignore[attr-defined]
    assert one["head"]["read_bytes"] == sizes["output.weight"] + sizes["output_norm.weight"]
    assert one["attention"]["read_bytes"] == layer(3, "attn_") + 20 * 2 * 64 * 2
    assert one["delta net"]["read_bytes"] == layer(0, "attn_", "ssm_") + 2 * 4 * (4 * 16 * 16 + 3 * 128)
    experts = sum(layer(0, f"ffn_{part}_exps") for part in ("gate", "up", "down"))
    others = layer(0, "ffn_", "post_attention_norm") - experts
    # 2 of 8 experts a token; of three tokens 1 - (3/4)^3 of all experts on average
    assert one["feed-forward"]["read_bytes"] == pytest.approx(others + experts / 4)
    assert three["feed-forward"]["read_bytes"] == pytest.approx(others + experts * (1 - 0.75**3))
    for kind in ("head", "attention", "delta net"):
        assert three[kind]["read_bytes"] == one[kind]["read_bytes"]


def test_without_widths_there_is_nothing_to_measure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--stages", "-m", str(DATA / "qwen3.gguf"), "-w", "0"]) == 2
    assert "--widths" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "n_held"), [("qwen3", 124), ("qwen35", 124), ("qwen35moe", 124)])
def test_the_second_turn_evaluates_only_what_is_new(capsys: pytest.CaptureFixture[str], name: str, n_held: int) -> None:
    assert main(["--second-turn", "100", "-t", "1", "-m", str(DATA / f"{name}.gguf")]) == 0
    result = json.loads(capsys.readouterr().out.strip().split("\n")[-1])
    assert result["n_held"] == n_held
    assert result["n_prompt"] == 100 + 24 + 12 + 24
    assert result["same_text"]
