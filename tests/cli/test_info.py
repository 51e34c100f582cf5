"""``pydspark info``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.conftest import Run
from running import DATA
from tiny.models import N_CTX, N_HEAD, N_HEAD_KV, N_LAYER, token_id, vocabulary, write_tiny_model

import pydspark
from pydspark.cli.facts import loaded_libraries
from pydspark.cli.report import Report, bytes_text


def test_without_a_model_it_tells_what_is_installed(run: Run) -> None:
    ran = run("info")
    assert (ran.status, ran.err) == (0, "")
    for word in (pydspark.__version__, "ggml", "CPU", "threads", "GiB"):
        assert word.lower() in ran.out.lower()


def test_the_same_as_json(run: Run) -> None:
    facts = json.loads(run("info", "--json", "-t", "3", "-tb", "5").out)
    system = facts["system"]
    assert facts["model"] is None
    assert system["version"] == pydspark.__version__
    assert system["threads"] == {"answer": 3, "prompt": 5}
    assert all(Path(library).is_file() for library in [*system["ggml"]["libraries"], system["core_file"]])
    assert len(system["ggml"]["libraries"]) >= 3
    assert system["devices"][0]["memory_total"] >= system["devices"][0]["memory_free"] > 0


def test_a_model_is_described(run: Run, tiny_llama_path: Path) -> None:
    facts = json.loads(run("info", "-m", str(tiny_llama_path), "-c", "128", "--json").out)["model"]
    assert facts["files"] == [{"path": str(tiny_llama_path), "size": tiny_llama_path.stat().st_size}]
    assert (facts["name"], facts["architecture"], facts["unsupported"]) == ("tiny", "llama", [])
    shape = facts["shape"]
    assert (shape["n_layer"], shape["n_head"], shape["n_head_kv"]) == (N_LAYER, N_HEAD, N_HEAD_KV)
    assert shape["n_ctx_train"] == N_CTX
    assert [(used["type"], used["tensors"]) for used in facts["tensor_types"]] == [("f32", 3 + 9 * N_LAYER)]
    assert facts["memory"]["n_ctx"] == 128


def test_its_vocabulary_is_described(run: Run, tiny_llama_path: Path) -> None:
    vocab = json.loads(run("info", "-m", str(tiny_llama_path), "--json").out)["model"]["vocabulary"]
    assert vocab["n_tokens"] == len(vocabulary()[0])
    assert vocab["pre_tokenizer"] == "smollm"
    assert vocab["special_tokens"]["bos"] == {"id": token_id("<|im_start|>"), "text": "<|im_start|>"}
    assert [token["id"] for token in vocab["end_of_generation"]] == [token_id("<|endoftext|>"), token_id("<|im_end|>")]
    assert vocab["chat_templates"] == ["default"]


def test_a_larger_context_needs_more_memory(run: Run, tiny_llama_path: Path) -> None:
    def needed(n_ctx: int, *more: str) -> int:
        facts = json.loads(run("info", "-m", str(tiny_llama_path), "-c", str(n_ctx), "--json", *more).out)
        return sum(line["kv"] for line in facts["model"]["memory"]["lines"])

    assert needed(512) == 2 * needed(256)
    assert needed(256, "-ctk", "f32", "-ctv", "f32") == 2 * needed(256)


def test_the_state_of_recurrent_layers_is_counted(run: Run) -> None:
    model = ("info", "-m", str(DATA / "qwen35moe.gguf"))
    facts = json.loads(run(*model, "--json").out)["model"]
    assert (facts["shape"]["n_layer"], facts["shape"]["n_recurrent"]) == (4, 3)
    n_state = 4 * 3 * 4 * 16 * 16  # bytes: float32, layers, heads, and a matrix for each
    assert facts["memory"]["checkpoint_bytes"] == n_state + 4 * 3 * 3 * 128
    assert sum(line["state"] for line in facts["memory"]["lines"]) > 2 * n_state
    text = run(*model).out
    assert "recurrent" in text and "one checkpoint" in text


def test_what_does_not_fit_is_said(run: Run, tiny_llama_path: Path) -> None:
    assert "too much" in run("info", "-m", str(tiny_llama_path), "-c", "1000000000").out
    assert "too much" not in run("info", "-m", str(tiny_llama_path), "-c", "256").out


def test_the_text_fits_in_eighty_columns(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    write_tiny_model(Path("warm.gguf"), extra={"general.sampling.temp": 0.5})
    ran = run("info", "-m", "warm.gguf")
    assert ran.status == 0
    assert max(map(len, ran.out.splitlines())) <= 80
    for word in ("parameters", "0.5", "<|im_end|>", "Memory", "recommended"):
        assert word in ran.out


def test_a_model_that_cannot_run_is_described_as_far_as_it_goes(run: Run, tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "other.gguf", "mamba")
    ran = run("info", "-m", str(path))
    assert ran.status == 0
    assert "cannot run" in ran.out
    facts = json.loads(run("info", "-m", str(path), "--json").out)["model"]
    assert (facts["shape"], facts["memory"]) == (None, None)
    assert len(facts["unsupported"]) == 1
    assert facts["vocabulary"]["n_tokens"] == len(vocabulary()[0])


@pytest.mark.parametrize(("argv", "status"), [(["model.gguf"], 2), (["-m", "no-such.gguf"], 1), (["-m", __file__], 1)])
def test_what_cannot_be_described_is_an_error(run: Run, argv: list[str], status: int) -> None:
    ran = run("info", *argv)
    assert (ran.status, ran.out) == (status, "")
    assert ran.err.startswith("error: ")


def test_libraries_are_found_where_the_system_does_not_list_them(tmp_path: Path) -> None:
    found = loaded_libraries(tmp_path / "no-such-list")
    assert [Path(library).name for library in found][-1].startswith("libggml.")


def test_explanations_go_below_where_there_is_no_room() -> None:
    wide, narrow = Report(80), Report(40)
    for report in (wide, narrow):
        report.row("label", "value\x1b", "an explanation")
    assert wide.text() == f"  label            value\ufffd{' ' * 17}an explanation\n"
    assert narrow.text() == f"  label            value\ufffd\n{' ' * 19}an explanation\n"


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (3 << 30, "3.0 GiB"), (1 << 50, "1024.0 TiB")],
)
def test_sizes_are_readable(size: int, text: str) -> None:
    assert bytes_text(size) == text
