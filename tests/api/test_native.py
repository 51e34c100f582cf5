"""The compiled core behind its Python objects."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import gguf
import pytest
from tiny.models import MERGES, N_EMBD, vocabulary

import pydspark
from pydspark import _native
from pydspark._native import Gguf, Model, Session, _core, core, loader
from pydspark.errors import ArgumentError, Cancelled, ModelFileError, PydsparkError
from pydspark.params import ModelParams, SamplingParams
from pydspark.records import Finish, Request

N_LONG = 3000
LONG = ModelParams(n_ctx=N_LONG + 8, n_threads=1, n_batch=32, n_ubatch=32)


@pytest.fixture
def file(tiny_llama_path: Path) -> Gguf:
    return Gguf(tiny_llama_path)


@pytest.fixture
def session(file: Gguf) -> Iterator[Session]:
    params = ModelParams(n_ctx=64, n_threads=1)
    session = Session(Model(file, params), params)
    yield session
    session.close()


@pytest.fixture
def long_session(file: Gguf) -> Iterator[Session]:
    """A session whose prompt takes long enough to be stopped."""
    session = Session(Model(file, LONG), LONG)
    yield session
    session.close()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, also where the test process was started to ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def ask(n: int = 3, **sampling: object) -> Request:
    return Request(tokens=[65] * n, sampling=SamplingParams(temperature=0, **sampling), seed=1)


# ---- files ----


def test_metadata_of_all_kinds(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_uint8("a.u8", 200)
    writer.add_int8("a.i8", -5)
    writer.add_uint16("a.u16", 60000)
    writer.add_int16("a.i16", -6)
    writer.add_uint32("a.u32", 4_000_000_000)
    writer.add_int32("a.i32", -7)
    writer.add_uint64("a.u64", 2**63)
    writer.add_int64("a.i64", -(2**62))
    writer.add_float32("a.f32", 0.5)
    writer.add_float64("a.f64", 0.1)
    writer.add_bool("a.bool", True)
    writer.add_string("a.text", "h\u00e9\u4e2d")
    writer.add_array("a.numbers", [1, -2, 3])
    writer.add_array("a.floats", [0.5, 1.5])
    writer.add_array("a.flags", [True, False])
    writer.add_array("a.texts", ["", "x", "\u4e2d"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    metadata = Gguf(tmp_path / "m.gguf").metadata()
    assert {key[2:]: value for key, value in metadata.items() if key.startswith("a.")} == {
        "u8": 200,
        "i8": -5,
        "u16": 60000,
        "i16": -6,
        "u32": 4_000_000_000,
        "i32": -7,
        "u64": 2**63,
        "i64": -(2**62),
        "f32": 0.5,
        "f64": 0.1,
        "bool": True,
        "text": "h\u00e9\u4e2d",
        "numbers": [1, -2, 3],
        "floats": [0.5, 1.5],
        "flags": [True, False],
        "texts": ["", "x", "\u4e2d"],
    }
    assert metadata["a.bool"] is True


def test_large_vocabulary_is_read_quickly(tmp_path: Path) -> None:
    tokens = [f"token {i}" for i in range(248_000)]
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_token_list(tokens)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    opened = Gguf(tmp_path / "m.gguf")
    began = time.process_time()
    assert opened.metadata()["tokenizer.ggml.tokens"] == tokens
    assert time.process_time() - began < 5


def test_file_is_described(file: Gguf, tiny_llama_path: Path) -> None:
    assert (file.version, file.files) == (3, [str(tiny_llama_path)])
    tensors = {tensor.name: tensor for tensor in file.tensors()}
    n_vocab = len(vocabulary()[0])
    assert tensors["token_embd.weight"].shape == (N_EMBD, n_vocab)
    assert tensors["token_embd.weight"].type_name.lower() == "f32"
    assert tensors["token_embd.weight"].n_bytes == N_EMBD * n_vocab * 4
    info = file.describe()
    assert (info.architecture, info.n_vocab, info.n_vocab_rows, info.n_layer) == ("llama", n_vocab, n_vocab, 2)
    assert file.metadata()["tokenizer.ggml.merges"] == MERGES


def test_values_can_be_replaced(file: Gguf) -> None:
    values = {"x.flag": True, "x.count": -3, "x.share": 0.25, "general.name": "other"}
    for key, value in values.items():
        file.override(key, value)
    metadata = file.metadata()
    assert {key: metadata[key] for key in values} == values
    with pytest.raises(ArgumentError, match="'x.list' must be a bool"):
        file.override("x.list", [1])  # type: ignore[arg-type]


def test_file_that_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_text("<html>")
    with pytest.raises(ModelFileError, match="x.gguf"):
        Gguf(tmp_path / "x.gguf")


def test_memory_is_planned_before_loading(file: Gguf) -> None:
    plan = file.memory_plan(ModelParams(n_ctx=64, n_threads=1))
    assert plan.n_ctx == 64
    assert plan.lines[0].weights > 0
    assert plan.lines[0].kv > 0
    assert file.memory_plan(ModelParams(n_ctx=4096, n_threads=1)).lines[0].kv > plan.lines[0].kv


# ---- sessions ----


def test_steps_until_the_limit(session: Session) -> None:
    session.start(ask(max_tokens=2, logprobs=True, top_logprobs=3))
    steps = [session.step()]
    while steps[-1].finish is Finish.NONE:
        steps.append(session.step())
    assert sum(len(step.tokens) for step in steps) == 2
    assert steps[-1].finish is Finish.LENGTH
    first = steps[0]
    assert len(first.logprobs) == len(first.tops) == len(first.tokens)
    assert first.tops[0][0] == (first.tokens[0], first.logprobs[0])
    stats = session.stats()
    assert (stats.prompt_n, stats.cache_n, stats.predicted_n) == (3, 0, 2)
    session.reset()
    assert session.n_past == 0


def test_inspect_returns_tensors_by_name(session: Session) -> None:
    n_vocab = len(vocabulary()[0])
    hidden, logits = session.inspect([65, 66], ["l_out-0", "result_output"], [N_EMBD * 2, n_vocab * 2])
    assert (len(hidden), len(logits)) == (N_EMBD * 2, n_vocab * 2)
    assert any(hidden)


def test_progress_rises_and_can_stop_the_prompt(long_session: Session) -> None:
    seen: list[float] = []

    def stop_later(fraction: float) -> bool:
        seen.append(fraction)
        return len(seen) < 2

    with pytest.raises(Cancelled):
        long_session.start(ask(N_LONG), stop_later)
    assert len(seen) == 2
    assert 0 <= seen[0] <= seen[1] <= 1
    assert long_session.n_past < N_LONG
    long_session.start(ask(3, max_tokens=1))
    assert len(long_session.step().tokens) == 1


def test_error_in_progress_stops_the_prompt_and_comes_out(
    long_session: Session, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(fraction: float) -> bool:
        raise LookupError("in progress")

    with pytest.raises(LookupError, match="in progress"):
        long_session.start(ask(N_LONG), fail)
    assert long_session.n_past < N_LONG
    assert capfd.readouterr() == ("", "")


def test_interrupt_stops_a_long_prompt(
    interruptible: None, long_session: Session, capfd: pytest.CaptureFixture[str]
) -> None:
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        long_session.start(ask(N_LONG))
        timer.join()  # on a machine that was faster than the timer
    assert capfd.readouterr() == ("", "")
    long_session.start(ask(3, max_tokens=1))
    assert len(long_session.step().tokens) == 1


def test_cancel_from_another_thread(long_session: Session) -> None:
    stop = threading.Event()

    def cancel_until_stopped() -> None:
        while not stop.wait(0.05):
            long_session.cancel()

    thread = threading.Thread(target=cancel_until_stopped)
    thread.start()
    try:
        with pytest.raises(Cancelled):
            long_session.start(ask(N_LONG))
    finally:
        stop.set()
        thread.join()


# ---- library ----


def test_library_is_described() -> None:
    assert loader.version_tuple(_native.ggml_version()) >= loader.OLDEST_GGML
    assert loader.version_tuple(_native.ggml_build_version()) >= loader.OLDEST_GGML
    assert "CUDA=" in _native.ggml_build_options()
    assert any(not device.is_gpu for device in _native.devices())


def test_log_goes_to_the_logger(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    waiting = [b"W caf\xc3\xa9 %s\nE second\n", b"D third\n"]

    def take(buffer: object, size: int) -> int:
        text = waiting.pop(0) if waiting else b""
        core.ffi.memmove(buffer, text, len(text))
        return len(text)

    monkeypatch.setattr(core, "lib", SimpleNamespace(pds_log_take=take))
    with caplog.at_level(logging.DEBUG, "pydspark.ggml"):
        _native.drain_log()
    assert caplog.record_tuples == [
        ("pydspark.ggml", logging.WARNING, "caf\u00e9 %s"),
        ("pydspark.ggml", logging.ERROR, "second"),
        ("pydspark.ggml", logging.DEBUG, "third"),
    ]


@pytest.mark.parametrize(("text", "numbers"), [("0.20.2", (0, 20, 2)), ("0.21.0-dirty", (0, 21, 0)), ("?", ())])
def test_version_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert loader.version_tuple(text) == numbers


@pytest.mark.parametrize(
    ("abi", "ggml", "message"),
    [(loader.ABI_VERSION + 1, "0.20.2", "interface"), (loader.ABI_VERSION, "0.9.8", r"ggml 0\.9\.8 .*0\.20\.2")],
)
def test_versions_that_do_not_fit(abi: int, ggml: str, message: str) -> None:
    with pytest.raises(PydsparkError, match=message):
        loader.check_versions(abi, ggml, "0.20.2")


def test_other_ggml_than_built_with_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    loader.check_versions(loader.ABI_VERSION, "0.20.2", "0.20.2")
    assert not caplog.records
    loader.check_versions(loader.ABI_VERSION, "0.21.0", "0.20.2")
    assert "built with ggml 0.20.2 but runs with 0.21.0" in caplog.text


def test_ggml_is_found_in_its_package() -> None:
    files = loader.library_files()
    assert [file.name.split(".")[0] for file in files] == ["libggml-base", "libggml-cpu", "libggml"]
    assert all(file.is_file() for file in files)


def test_library_that_cannot_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "libggml.so").write_text("no library")
    with pytest.raises(ImportError, match="cannot load .*libggml.so"):
        loader.preload([tmp_path / "libggml.so"])


def copy_package(folder: Path, core: bool) -> None:
    """The package in a folder of its own, with or without its compiled part."""
    shutil.copytree(
        Path(pydspark.__file__).parent, folder / "pydspark", ignore=shutil.ignore_patterns("_core*", "__py*")
    )
    if core:
        shutil.copy(_core.__file__, folder / "pydspark" / "_native")


def import_elsewhere(folder: Path) -> subprocess.CompletedProcess[str]:
    """Imports the package from a folder that does not hold ggml."""
    backend = find_spec("_cffi_backend")
    assert backend is not None and backend.origin is not None
    places = {str(Path(backend.origin).parent), str(loader.library_files()[0].parents[2])}
    code = "import pydspark._native as n; print(n.ggml_version())"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sorted(places)])}
    command = [sys.executable, "-S", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=folder, timeout=60)


def test_ggml_in_another_place_than_the_package_is_found(tmp_path: Path) -> None:
    copy_package(tmp_path, core=True)
    ended = import_elsewhere(tmp_path)
    assert (ended.stderr, ended.stdout.strip()) == ("", _native.ggml_version())


def test_missing_compiled_part_is_said_clearly(tmp_path: Path) -> None:
    copy_package(tmp_path, core=False)
    assert "ImportError: the compiled part of pydspark is missing" in import_elsewhere(tmp_path).stderr
