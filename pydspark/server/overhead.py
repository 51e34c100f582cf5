"""``python -m pydspark.server.overhead``: how much later texts come over HTTP than from the Python API."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPConnection
from statistics import median
from typing import Any

from pydspark.cli.args import parse_command
from pydspark.cli.model import open_model
from pydspark.cli.terminal import Terminal
from pydspark.llama import Llama
from pydspark.server.flags import SERVER

N_REPEATS, N_TOKENS = 9, 64
_MESSAGES = [{"role": "user", "content": "Tell me a long story about a lighthouse and the people who live in it."}]
_SETTINGS: dict[str, Any] = {"temperature": 0, "max_tokens": N_TOKENS}
_LISTENING = re.compile(r"listening on http://([^:]+):(\d+)")

Stream = Callable[[], Iterator[str]]


def main(argv: Sequence[str]) -> None:
    """Measures both in turns, and prints milliseconds.

    Args:
        argv: flags of ``dspark-server`` that name a model and say how to run it.
    """
    arguments = parse_command(SERVER, argv, os.environ)
    command = [sys.executable, "-m", "pydspark.server", *argv, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            connection = _connect(server)
            with open_model(arguments, Terminal(sys.stderr, os.environ, quiet=True)) as llama:
                ways: dict[str, Stream] = {
                    "Python": lambda: _python(llama),
                    "HTTP": lambda: _http(connection),
                }
                for stream in ways.values():
                    _time(stream)  # warms up
                times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
                for _ in range(N_REPEATS):
                    for name, stream in ways.items():
                        times[name].append(_time(stream))
        finally:
            server.terminate()
    print(f"{'':8}{'first text, best':>20}{'median':>12}{'each text, best':>20}{'median':>12}")
    for name, measured in times.items():
        first, each = zip(*measured, strict=True)
        print(f"{name:8}{min(first):17.2f} ms{median(first):9.2f} ms{min(each):17.3f} ms{median(each):9.3f} ms")


def _connect(server: subprocess.Popen[str]) -> HTTPConnection:
    assert server.stderr is not None
    for line in server.stderr:
        if found := _LISTENING.search(line):
            return HTTPConnection(found[1], int(found[2]))
    raise SystemExit("the server has not started; dspark-server with the same flags says why")


def _time(stream: Stream) -> tuple[float, float]:
    """Milliseconds to the first text, and between two texts."""
    begin = time.perf_counter()
    times = [time.perf_counter() for _ in stream()]
    return (times[0] - begin) * 1e3, (times[-1] - times[0]) / max(len(times) - 1, 1) * 1e3


def _python(llama: Llama) -> Iterator[str]:
    llama.reset()  # so that the prompt is evaluated, as the other side is told to
    for chunk in llama.create_chat_completion(_MESSAGES, stream=True, **_SETTINGS):
        if text := chunk["choices"][0]["delta"].get("content"):
            yield text


def _http(connection: HTTPConnection) -> Iterator[str]:
    body = {"messages": _MESSAGES, "stream": True, "cache_prompt": False, **_SETTINGS}
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    response = connection.getresponse()
    while line := response.readline():
        data = line.decode().removeprefix("data: ").strip()
        if not data.startswith("{"):
            continue
        choices = json.loads(data)["choices"]
        if choices and (text := choices[0]["delta"].get("content")):
            yield text


if __name__ == "__main__":
    main(sys.argv[1:])
