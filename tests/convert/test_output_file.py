"""The output appears whole or not at all: existing files, full disks, signals, kills."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pydspark.convert import writer
from pydspark.convert.cli import main
from tiny.drafters import make_drafter, save_drafter

# Runs the command, but acts after a few pieces of data have been written.
_HALF_WAY = """
import os, resource, signal, sys
from pydspark.convert import cli, writer
signal.signal(signal.SIGINT, signal.default_int_handler)  # where tests run in the background it is ignored
encode, seen = writer.encode_rows, []
def stop(*arguments):
    seen.append(1)
    if len(seen) == 6:
        {action}
    return encode(*arguments)
writer.encode_rows = stop
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.fixture
def folder(tmp_path):
    return save_drafter(tmp_path / "checkpoint", make_drafter())


@pytest.fixture
def half_way(tmp_path, folder, target):
    """Converts in a process of its own, with ``action`` half-way; the output folder is ``tmp_path / "out"``."""
    (tmp_path / "out").mkdir()

    def run(action: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        code = _HALF_WAY.format(action=action)
        command = [sys.executable, "-c", code, folder, "--target", target, "--outfile", tmp_path / "out" / "a.gguf"]
        return subprocess.run([*command, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60)

    return run


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_signals_leave_nothing_behind(half_way, tmp_path, name, code):
    result = half_way(f"os.kill(os.getpid(), signal.{name})")
    assert result.returncode == code
    assert left_in(tmp_path / "out") == []
    assert "Traceback" not in result.stderr


def test_signals_leave_the_file_that_was_there(half_way, tmp_path):
    (tmp_path / "out" / "a.gguf").write_text("precious")
    assert half_way("os.kill(os.getpid(), signal.SIGTERM)", "--force").returncode == 143
    assert left_in(tmp_path / "out") == ["a.gguf"]
    assert (tmp_path / "out" / "a.gguf").read_text() == "precious"


def test_kill_never_leaves_the_final_name_and_the_next_run_cleans_up(half_way, tmp_path, command, folder, target):
    assert half_way("os.kill(os.getpid(), signal.SIGKILL)").returncode == -signal.SIGKILL
    (leftover,) = left_in(tmp_path / "out")
    assert leftover.startswith(".a.gguf.") and leftover.endswith(".partial")
    assert command(folder, "--target", target, "--outfile", tmp_path / "out" / "a.gguf").code == 0
    assert left_in(tmp_path / "out") == ["a.gguf"]


def test_file_size_limit(half_way, tmp_path):
    result = half_way("resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))")
    assert result.returncode == 1
    assert "File too large; nothing was left behind" in result.stderr
    assert left_in(tmp_path / "out") == []
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 65536


def test_partial_file_of_a_running_conversion_is_left_alone(tmp_path):
    outfile = tmp_path / "a.gguf"
    with writer._partial(outfile) as partial:
        writer.remove_stale(outfile)
        assert partial.exists()
    assert left_in(tmp_path) == []


def test_partial_files_of_other_outputs_are_left_alone(tmp_path):
    (tmp_path / ".b.gguf.1.partial").touch()
    (tmp_path / ".a.gguf.1.partial").touch()
    writer.remove_stale(tmp_path / "a.gguf")
    assert left_in(tmp_path) == [".b.gguf.1.partial"]


def test_too_little_space(command, folder, target, tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    result = command(folder, "--target", target, "--outfile", "a.gguf")
    assert result.code == 1 and "1,000 bytes free, the file needs" in result.err
    assert "a.gguf" not in left_in(tmp_path)


def test_existing_file_needs_force(command, folder, target, tmp_path):
    outfile = tmp_path / "a.gguf"
    outfile.write_text("precious")
    result = command(folder, "--target", target, "--outfile", outfile)
    assert result.code == 1 and "exists; give --force" in result.err
    assert outfile.read_text() == "precious"
    assert command(folder, "--target", target, "--outfile", outfile, "--force").code == 0
    assert outfile.read_bytes()[:4] == b"GGUF"


def test_file_that_appears_meanwhile_is_kept(command, folder, target, tmp_path, monkeypatch):
    outfile, sync = tmp_path / "a.gguf", os.fsync
    monkeypatch.setattr("os.fsync", lambda handle: (sync(handle), outfile.write_text("precious")))
    result = command(folder, "--target", target, "--outfile", outfile)
    assert result.code == 1 and "appeared while converting" in result.err
    assert outfile.read_text() == "precious" and not list(tmp_path.glob(".*.partial"))


@pytest.mark.parametrize("name", ["target.gguf", "checkpoint/model.safetensors", "checkpoint/config.json"])
def test_inputs_are_never_overwritten(command, folder, target, tmp_path, name):
    before = (tmp_path / name).read_bytes()
    result = command(folder, "--target", target, "--outfile", tmp_path / name, "--force")
    assert result.code == 1 and "is one of the inputs" in result.err
    assert (tmp_path / name).read_bytes() == before


def test_link_to_an_input_is_that_input(command, folder, target, tmp_path):
    (tmp_path / "link.gguf").symlink_to(target)
    result = command(folder, "--target", target, "--outfile", tmp_path / "link.gguf", "--force")
    assert result.code == 1 and "is one of the inputs" in result.err


def test_output_folder_is_missing(command, folder, target):
    result = command(folder, "--target", target, "--outfile", "nowhere/a.gguf")
    assert result.code == 1 and "the folder nowhere does not exist" in result.err


def test_output_folder_is_read_only(command, folder, target, tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    result = command(folder, "--target", target, "--outfile", tmp_path / "a.gguf")
    assert result.code == 1 and "cannot be written" in result.err


def test_output_is_a_folder(command, folder, target, tmp_path):
    result = command(folder, "--target", target, "--outfile", tmp_path)
    assert result.code == 1 and "is a folder" in result.err


def test_file_mode_follows_the_umask(command, folder, target, tmp_path):
    before = os.umask(0o027)
    try:
        assert command(folder, "--target", target, "--outfile", "a.gguf").code == 0
    finally:
        os.umask(before)
    assert (tmp_path / "a.gguf").stat().st_mode & 0o777 == 0o640


def test_wrong_bytes_on_disk_are_found_before_the_file_gets_its_name(folder, target, tmp_path, monkeypatch, capsys):
    encode = writer.encode_rows

    def flip(*arguments):
        data = encode(*arguments).copy()
        data[0, 0] ^= 1
        return data

    monkeypatch.setattr(writer, "encode_rows", flip)
    assert main([str(folder), "--target", str(target), "--outfile", str(tmp_path / "a.gguf")]) == 1
    assert "differ from" in capsys.readouterr().err
    assert not (tmp_path / "a.gguf").exists() and not list(tmp_path.glob(".*.partial"))


def test_piecewise_writing_gives_the_same_file(command, folder, target, tmp_path, monkeypatch):
    assert command(folder, "--target", target, "--outfile", "whole.gguf").code == 0
    monkeypatch.setattr("pydspark.convert.tensors.CHUNK_BYTES", 1000)
    assert command(folder, "--target", target, "--outfile", "pieces.gguf").code == 0
    assert (tmp_path / "pieces.gguf").read_bytes() == (tmp_path / "whole.gguf").read_bytes()
