"""Closing, dropping and leaving."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from pydspark import Llama
from pydspark.errors import ClosedError, ModelFileError, UnsupportedError

ASK: dict[str, Any] = {"temperature": 0, "max_tokens": 12}


@pytest.fixture
def own(tiny_llama_path: Path) -> Llama:
    return Llama(tiny_llama_path, n_ctx=64, n_threads=1)


def test_close_twice(own: Llama) -> None:
    own.close()
    own.close()


def test_calls_after_close(own: Llama) -> None:
    own.close()
    for call in (lambda: own("hello"), lambda: own("hello", stream=True), own.reset):
        with pytest.raises(ClosedError):
            call()


def test_with_statement_closes(tiny_llama_path: Path) -> None:
    with Llama(tiny_llama_path, n_ctx=64, n_threads=1) as llama:
        assert llama("hello", **ASK)["choices"]
    with pytest.raises(ClosedError):
        llama("hello")


def test_close_in_the_middle_of_a_stream(own: Llama) -> None:
    stream = own("hello", stream=True, **ASK)
    next(stream)
    own.close()
    with pytest.raises(ClosedError):
        next(stream)


def test_close_by_another_thread_while_tokens_come(own: Llama) -> None:
    begun, raised = threading.Event(), []

    def read() -> None:
        try:
            while True:
                for _ in own("hello", stream=True, max_tokens=None):
                    begun.set()
        except ClosedError:
            raised.append(True)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert begun.wait(30)
    own.close()
    thread.join(30)
    assert raised == [True]


def test_stream_outlives_the_name_of_its_model(tiny_llama_path: Path) -> None:
    stream = Llama(tiny_llama_path, n_ctx=64, n_threads=1)("hello", stream=True, **ASK)
    assert list(stream)[-1]["choices"][0]["finish_reason"] in ("stop", "length")


def test_failed_constructor_leaves_nothing_open(tmp_path: Path, tiny_llama_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(tiny_llama_path.read_bytes()[:-1000])
    for _ in range(50):
        with pytest.raises(ModelFileError):
            Llama(broken, n_ctx=64)
        with pytest.raises(UnsupportedError):
            Llama(tiny_llama_path, kv_overrides={"tokenizer.ggml.pre": "unknown"})
    assert not [line for line in Path("/proc/self/maps").read_text().splitlines() if str(tmp_path) in line]


LEAVE = """
import sys
from pydspark import Llama
llama = Llama(sys.argv[1], n_ctx=64, n_threads=1)
stream = llama("hello", stream=True, max_tokens=None)
next(stream)
{more}
"""


@pytest.mark.parametrize(
    "more",
    [
        "",
        "del llama",
        "llama.self = llama; llama.stream = stream; del llama, stream",
        "llama.close()",
        "import threading; threading.Thread(target=lambda: [list(llama('x', stream=True)) for i in range(10**6)], "
        "daemon=True).start()",
    ],
    ids=["as it is", "dropped", "in a cycle", "closed", "busy in a thread"],
)
def test_leaving_is_silent(tiny_llama_path: Path, more: str) -> None:
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", LEAVE.format(more=more), str(tiny_llama_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
