"""The program ``dspark-server`` as a process of its own."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import HELLO, WAIT_S, wait_until

# A process that pytest starts may have been told to ignore Ctrl-C, which the one under test must not inherit.
HEAR = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
PROGRAM = HEAR + ("from pydspark.server.main import main; sys.exit(main())")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("LLAMA_", "DSPARK_"))}


def start(*argv: str, program: str = PROGRAM, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**ENVIRONMENT, **environment},
    )  # fmt: skip


def run(*argv: str, **environment: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr."""
    process = start(*argv, **environment)
    out, err = process.communicate(timeout=WAIT_S)
    return process.returncode, out, err


class Running:
    """A server, from the line on stderr that has the text ``until``.

    Attributes:
        process: its process.
        url: where it is.
        lines: what it has written to stderr.
    """

    def __init__(self, process: subprocess.Popen[str], until: str) -> None:
        self.process = process
        self._until = until
        self.lines: list[str] = []
        self._is_ready = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        assert self._is_ready.wait(WAIT_S), self.lines
        self.url = re.sub(".*listening on ", "", self.lines[-1].strip())

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if self._until in line:
                self._is_ready.set()
        self._is_ready.set()

    def end(self) -> int:
        """Waits for the end. Returns the exit status."""
        status = self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        return status


@contextmanager
def running(*argv: str, program: str = PROGRAM, until: str = "listening on", **environment: str) -> Iterator[Running]:
    process = start("--port", "0", "-t", "1", *argv, program=program, **environment)
    try:
        yield Running(process, until)
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def tiny(tiny_llama_path: Path) -> list[str]:
    return ["-m", str(tiny_llama_path), "-c", "50000", "-ub", "16"]


def test_help_and_version() -> None:
    status, out, err = run("--help")
    assert (status, err) == (0, "") and "--host" in out and "Examples:" in out
    status, out, err = run("--version")
    assert (status, err) == (0, "") and out.startswith("pydspark ")


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (["--prot", "1"], "--port"),
        (["--port", "99999", "--demo"], "port"),
        (["-np", "4", "--demo"], "one request at a time"),
        (["--no-jinja"], "not supported"),
        (["--embeddings"], "not supported"),
        (["--draft-max", "4"], "--spec-draft-n-max"),
        (["model.gguf"], "-m"),
        ([], "name a model"),
    ],
)
def test_wrong_usage(argv: list[str], word: str) -> None:
    status, out, err = run(*argv)
    assert (status, out) == (2, "") and word in err
    assert len(err.splitlines()) == 1


def test_without_the_packages_that_a_server_needs(tiny: list[str]) -> None:
    program = "import sys; sys.modules['uvicorn'] = None; " + PROGRAM
    process = subprocess.run([sys.executable, "-c", program, *tiny], capture_output=True, text=True, timeout=WAIT_S)
    assert process.returncode == 1 and "pip install 'pydspark[server]'" in process.stderr


SLOW = (
    HEAR
    + """
import sys, time
from pydspark.errors import Cancelled
from pydspark.server import main
def load(pair, arguments, terminal, progress, overrides):
    while progress(0.1):
        time.sleep(0.01)
    raise Cancelled("stopped")
main.open_pair = load
sys.exit(main.main())
"""
)


def test_ctrl_c_while_the_model_is_loaded(tiny: list[str]) -> None:
    with running(*tiny, program=SLOW, until="when the model is loaded") as server:
        server.process.send_signal(signal.SIGINT)
        assert server.end() == 130
        assert "Traceback" not in "".join(server.lines)


def test_a_model_that_is_not_there() -> None:
    status, _, err = run("-m", "/nowhere/model.gguf")
    assert status == 1 and "/nowhere/model.gguf" in err


def test_a_model_that_cannot_be_loaded(tmp_path: Path, tiny_llama_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(tiny_llama_path.read_bytes()[:-1000])
    status, _, err = run("-m", str(broken), "--port", "0")
    assert status == 1 and "error: " in err and "Traceback" not in err and "listening" not in err


def test_a_port_that_is_taken(tiny: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        status, _, err = run(*tiny, "--port", str(other.getsockname()[1]))
    assert status == 1 and "cannot listen" in err


def long_answer(server: Running, **more: Any) -> httpx.Response:
    body = {"prompt": "hello", "max_tokens": 4000, "ignore_eos": True, **more}
    return httpx.post(f"{server.url}/v1/completions", json=body, timeout=WAIT_S)


def test_ctrl_c_lets_the_answer_end(tiny: list[str]) -> None:
    with running(*tiny, "--alias", "small") as server:
        answers: list[httpx.Response] = []
        thread = threading.Thread(target=lambda: answers.append(long_answer(server)))
        thread.start()
        wait_until(lambda: httpx.get(f"{server.url}/slots").json()[0]["is_processing"])
        server.process.send_signal(signal.SIGINT)
        thread.join(WAIT_S)
        assert answers[0].json()["usage"]["completion_tokens"] == 4000
        assert answers[0].json()["model"] == "small"
        assert server.end() == 130
        assert "Ctrl-C again" in "".join(server.lines) and "Traceback" not in "".join(server.lines)


def test_a_second_ctrl_c_does_not(tiny: list[str]) -> None:
    with running(*tiny) as server:
        thread = threading.Thread(target=lambda: pytest.raises(httpx.HTTPError, long_answer, server, max_tokens=49_000))
        thread.start()
        wait_until(lambda: httpx.get(f"{server.url}/slots").json()[0]["is_processing"])
        server.process.send_signal(signal.SIGINT)
        wait_until(lambda: "Ctrl-C again" in "".join(server.lines))
        server.process.send_signal(signal.SIGINT)
        assert server.end() == 130
        thread.join(WAIT_S)


def test_terminating(tiny: list[str]) -> None:
    with running(*tiny) as server:
        assert httpx.get(f"{server.url}/health").json() == {"status": "ok"}
        server.process.terminate()
        assert server.end() == 0


def test_settings_from_everywhere(tiny: list[str], tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# mine\nfrom-file\n\n")
    template = tmp_path / "chat.jinja"
    template.write_text("{% for m in messages %}<{{ m.content }}>{% endfor %}")
    argv = [*tiny, "--api-key-file", str(keys), "--chat-template-file", str(template), "-n", "4", "--temp", "0"]
    with running(*argv, LLAMA_ARG_N_PREDICT="9", LLAMA_API_KEY="one,two", LLAMA_ARG_ENDPOINT_METRICS="1") as server:
        for key, status in (("one", 200), ("two", 200), ("from-file", 200), ("# mine", 401)):
            response = httpx.get(f"{server.url}/metrics", headers={"X-Api-Key": key})
            assert response.status_code == status
        headers = {"Authorization": "Bearer two"}
        body = {"messages": HELLO}
        assert httpx.post(f"{server.url}/apply-template", json=body, headers=headers).json() == {"prompt": "<hello>"}
        answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, headers=headers, timeout=WAIT_S).json()
        assert answer["usage"]["completion_tokens"] <= 4 and answer["model"] == "tiny-llama"
        assert not any("/" in str(value) for value in answer.values())
