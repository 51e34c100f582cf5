"""Facts, text and loading options of Llama."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny.models import N_CTX, N_EMBD, token_id, vocabulary

from pydspark import Llama
from pydspark.errors import ModelFileError, UnsupportedError


def test_facts(llama: Llama) -> None:
    assert (llama.n_ctx(), llama.n_vocab(), llama.n_embd()) == (64, len(vocabulary()[0]), N_EMBD)
    assert (llama.token_bos(), llama.token_eos()) == (token_id("<|im_start|>"), token_id("<|im_end|>"))
    assert llama.detokenize([llama.token_nl()]) == b"\n"
    metadata = llama.metadata
    assert metadata["general.architecture"] == "llama"
    assert metadata["tokenizer.ggml.add_bos_token"] == "false"
    assert metadata["llama.block_count"] == "2"
    assert "tokenizer.ggml.tokens" not in metadata


@pytest.mark.parametrize("text", ["", " ", "a", " a", "  a", "\n a", "a ", "\t\n x", "hello world", "\u4e2d\U0001f999"])
def test_text_survives_tokens(llama: Llama, text: str) -> None:
    ids = llama.tokenize(text)
    assert ids == llama.tokenize(text.encode())
    assert llama.detokenize(ids) == text.encode()


def test_control_tokens_only_when_asked_for(llama: Llama) -> None:
    end = token_id("<|im_end|>")
    assert llama.tokenize("<|im_end|>", special=True) == [end]
    assert end not in llama.tokenize("<|im_end|>")
    assert (llama.detokenize([end]), llama.detokenize([end], special=True)) == (b"", b"<|im_end|>")


def test_context_of_the_model(tiny_llama_path: Path) -> None:
    with Llama(tiny_llama_path, n_ctx=0, n_threads=1) as llama:
        assert llama.n_ctx() == N_CTX


def test_vocabulary_alone(tiny_llama_path: Path) -> None:
    with Llama(tiny_llama_path, vocab_only=True) as llama:
        assert llama.detokenize(llama.tokenize("hello")) == b"hello"
        assert llama.n_embd() == N_EMBD
        with pytest.raises(UnsupportedError, match="vocab_only"):
            llama("hello")


@pytest.mark.parametrize(
    "options",
    [
        {"use_mmap": False},
        {"n_batch": 4, "n_ubatch": 2},
        {"repack": False},
    ],
)
def test_how_it_is_run_does_not_change_the_text(tiny_llama_path: Path, llama: Llama, options: dict[str, Any]) -> None:
    ask: dict[str, Any] = {"temperature": 0, "max_tokens": 12}
    expected = llama("hello world hello world", **ask)["choices"]
    with Llama(model=tiny_llama_path, n_ctx=64, **{"n_threads": 1, **options}) as other:
        assert other("hello world hello world", **ask)["choices"] == expected


@pytest.mark.parametrize("n_threads", [None, 0, -1])
def test_number_of_threads_is_found_when_not_given(
    tiny_llama_path: Path, monkeypatch: pytest.MonkeyPatch, n_threads: int | None
) -> None:
    asked = []
    monkeypatch.setattr("pydspark._native.gguf.default_threads", lambda: asked.append(True) or 1)
    with Llama(tiny_llama_path, n_ctx=64, n_threads=n_threads) as llama:
        assert llama("hello", max_tokens=1)["usage"]["completion_tokens"] <= 1
    assert asked


def test_threads_are_told_and_too_many_are_warned_of(
    tiny_llama_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pydspark._native.session.usable_cpus", lambda: 2)
    for threads, warnings in (((1, 2), 0), ((3, 1), 1), ((1, 3), 1)):
        caplog.clear()
        with caplog.at_level(logging.INFO, "pydspark"):
            Llama(tiny_llama_path, n_ctx=64, n_threads=threads[0], n_threads_batch=threads[1]).close()
        told = [record.getMessage() for record in caplog.records if "threads" in record.getMessage()]
        assert told[0] == f"threads: {threads[0]} for answers, {threads[1]} for prompts"
        assert [message.startswith("3 threads are too many") for message in told[1:]] == [True] * warnings


def test_other_architecture(tiny_qwen3_path: Path) -> None:
    with Llama(tiny_qwen3_path, n_ctx=64, n_threads=1) as llama:
        assert llama.metadata["general.architecture"] == "qwen3"
        assert llama("hello", max_tokens=5, temperature=0)["usage"]["completion_tokens"] <= 5


def test_metadata_can_be_replaced(tiny_llama_path: Path) -> None:
    overrides = {"tokenizer.ggml.add_bos_token": True, "general.sampling.temp": 0.0, "general.name": "other"}
    with Llama(tiny_llama_path, vocab_only=True, kv_overrides=overrides) as llama:
        assert llama.metadata["general.name"] == "other"
        assert llama.tokenize("a")[0] == token_id("<|im_start|>")


def test_start_token_makes_an_empty_prompt_possible(tiny_llama_path: Path) -> None:
    overrides = {"tokenizer.ggml.add_bos_token": True}
    with Llama(tiny_llama_path, n_ctx=64, n_threads=1, kv_overrides=overrides) as llama:
        for prompt in ("", []):
            assert llama(prompt, max_tokens=2)["usage"]["prompt_tokens"] == 1


def test_from_pretrained_finds_a_file_of_the_cache(tiny_llama_path: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "models--user--tiny" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "tiny-Q8_0.gguf").symlink_to(tiny_llama_path)
    with Llama.from_pretrained("user/tiny", "*Q8_0*", cache_dir=tmp_path, vocab_only=True) as llama:
        assert llama.model_path == str(snapshot / "tiny-Q8_0.gguf")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="does not exist"):
        Llama(tmp_path / "missing.gguf")


def test_layers_for_a_gpu_are_no_error_without_one(tiny_llama_path: Path) -> None:
    with Llama(tiny_llama_path, n_ctx=64, n_threads=1, n_gpu_layers=99) as llama:
        assert llama("hello", max_tokens=1)["usage"]["completion_tokens"] <= 1


LOCK_WITHOUT_PERMISSION = """
import ctypes, logging, resource, sys
from pydspark import Llama
logging.basicConfig(format="%(levelname)s %(message)s")
resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
nothing = (ctypes.c_uint32 * 6)()  # not even the superuser may lock without its capabilities
assert ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), nothing) == 0
with Llama(sys.argv[1], n_ctx=64, n_threads=1, use_mlock=True) as llama:
    print(llama("hello", max_tokens=1)["usage"]["completion_tokens"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="takes permissions from a process as on Linux")
def test_memory_that_cannot_be_locked_is_a_warning(tiny_llama_path: Path) -> None:
    command = [sys.executable, "-c", LOCK_WITHOUT_PERMISSION, str(tiny_llama_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "1\n")
    assert ended.stderr.count("WARNING") == 1 and "could not be locked in memory (see 'ulimit -l')" in ended.stderr


def test_verbose_shows_the_log(tiny_llama_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("pydspark")
    monkeypatch.setattr(logger, "level", logging.NOTSET)
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "propagate", False)
    Llama(tiny_llama_path, vocab_only=True, verbose=True).close()
    assert logger.level == logging.INFO
    assert [type(handler) for handler in logger.handlers] == [logging.StreamHandler]
