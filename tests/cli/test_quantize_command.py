"""``pydspark quantize``."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from cli.conftest import PROGRAM, Run

from pydspark._native import Gguf


def test_summary_tells_sizes_and_types(run: Run, tiny_llama_path: Path, tmp_path: Path) -> None:
    ran = run("quantize", str(tiny_llama_path), str(tmp_path / "copy.gguf"), "Q8_0")
    assert (ran.status, ran.out) == (0, "")
    types = [tensor.type_name for tensor in Gguf(tmp_path / "copy.gguf").tensors()]
    assert f"{types.count('q8_0')} q8_0, {types.count('f32')} f32" in ran.err
    assert str(tmp_path / "copy.gguf") in ran.err and "->" in ran.err
    assert len(ran.err.splitlines()) == 1


def test_quiet_says_nothing(run: Run, tiny_llama_path: Path, tmp_path: Path) -> None:
    ran = run("quantize", "-q", str(tiny_llama_path), str(tmp_path / "copy.gguf"), "f16")
    assert (ran.status, ran.out, ran.err) == (0, "", "")
    assert (tmp_path / "copy.gguf").is_file()


def test_existing_file_needs_force(run: Run, tiny_llama_path: Path, tmp_path: Path) -> None:
    there = tmp_path / "there.gguf"
    there.write_text("old")
    ran = run("quantize", str(tiny_llama_path), str(there), "f16")
    assert ran.status == 1
    assert str(there) in ran.err and "exists already" in ran.err and len(ran.err.splitlines()) == 1
    assert run("quantize", str(tiny_llama_path), str(there), "f16", "--force").status == 0


@pytest.mark.parametrize("arguments", [(), ("in.gguf",), ("in.gguf", "out.gguf"), ("a", "b", "q8_0", "c")])
def test_wrong_number_of_arguments_is_wrong_usage(run: Run, arguments: tuple[str, ...]) -> None:
    ran = run("quantize", *arguments)
    assert ran.status == 2 and "IN OUT TYPE" in ran.err


def test_unknown_type_is_wrong_usage(run: Run, tiny_llama_path: Path, tmp_path: Path) -> None:
    ran = run("quantize", str(tiny_llama_path), str(tmp_path / "copy.gguf"), "q9")
    assert ran.status == 2 and "q8_0" in ran.err and "q9" in ran.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("n_bytes", [0, 4096, 200_000], ids=["nothing", "part of the header", "part of the weights"])
def test_a_full_disk_leaves_what_was_there(tiny_llama_path: Path, tmp_path: Path, n_bytes: int) -> None:
    there = tmp_path / "there.gguf"
    there.write_text("old")
    command = ["quantize", "--force", str(tiny_llama_path), str(there), "f16"]
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *command],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes)),
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1
    assert str(there) in ran.stderr and "writing failed: File too large" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == [there] and there.read_text() == "old"
