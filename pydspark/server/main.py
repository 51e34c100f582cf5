"""The program ``dspark-server``."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pydspark.cli.args import Arguments, parse_command
from pydspark.cli.help import command_help
from pydspark.cli.model import Pair, needed_pair, open_pair
from pydspark.cli.program import INTERRUPTED, run_program, version_line
from pydspark.cli.terminal import Output, Terminal
from pydspark.errors import ArgumentError, ModelFileError, UnsupportedError
from pydspark.llama import Llama
from pydspark.params import ChatParams, SamplingParams
from pydspark.records import Progress
from pydspark.server.flags import SERVER
from pydspark.server.settings import ServerParams

_LEVELS = {0: logging.ERROR, 1: logging.ERROR, 2: logging.WARNING, 3: logging.INFO}
_PART = re.compile(r"-\d{5}-of-\d{5}$")
_CHAT_TEMPLATE = "tokenizer.chat_template"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program and returns its exit status.

    Args:
        argv: arguments without the program's name; None = those of the process.
    """
    return run_program(argv, lambda words: parse_command(SERVER, words, os.environ), _run)


def _run(arguments: Arguments, terminal: Terminal) -> int:
    output = Output(sys.stdout)
    if arguments.get("version"):
        output.write(version_line())
        return 0
    if arguments.get("help"):
        output.write(command_help(SERVER, min(shutil.get_terminal_size().columns, 120)))
        return 0
    if arguments.positionals:
        raise ArgumentError(f"unexpected {arguments.positionals[0]!r}: the model is named with -m")
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise UnsupportedError(f"the server needs {error.name}; run: pip install 'pydspark[server]'") from None
    return _serve(arguments, terminal)


def _serve(arguments: Arguments, terminal: Terminal) -> int:
    from pydspark.server.app import make_app
    from pydspark.server.listen import Listener, bind, url_of
    from pydspark.server.service import Service

    _set_log_level(arguments)
    settings = server_params(arguments)
    overrides = _overrides(arguments)
    pair = needed_pair(arguments)
    failures: list[BaseException] = []

    def load(progress: Progress) -> Llama:
        return open_pair(pair, arguments, terminal, progress, overrides)

    def on_ready(model: Llama) -> None:
        if settings.warmup:
            model("a", max_tokens=1)
            model.reset()
        terminal.say(f"listening on {url_of(listener)}", style="bold")

    def on_end(error: BaseException | None) -> None:
        if error is not None:
            failures.append(error)
        server.stop()

    def on_stop() -> None:
        if service.worker.running is not None:
            terminal.say("stopping after the answer that is being written; Ctrl-C again stops at once")
        service.worker.stop()

    service = Service(
        settings=settings,
        load=load,
        name=settings.alias or model_name(pair),
        sampling=arguments.of(SamplingParams),
        chat=arguments.of(ChatParams),
        hidden=tuple({path.parent for path in (pair.target, pair.draft) if path is not None}),
        on_ready=on_ready,
        on_end=on_end,
    )
    with bind(settings.host, settings.port) as listener:
        terminal.say(f"{url_of(listener)} is there when the model is loaded")
        server = Listener(make_app(service), on_stop)
        server.run(sockets=[listener])
    service.worker.join()
    if failures:
        raise failures[0]
    return INTERRUPTED if server.signal == signal.SIGINT else 0


def server_params(arguments: Arguments) -> ServerParams:
    """The settings of the server, with the keys of the key file."""
    settings = ServerParams(**arguments.of(ServerParams))
    if settings.api_key_file is None:
        return settings
    return replace(settings, api_key=settings.api_key + _keys(Path(settings.api_key_file)))


def _keys(path: Path) -> tuple[str, ...]:
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    keys = tuple(line for line in lines if line and not line.startswith("#"))
    if not keys:
        raise ArgumentError(f"--api-key-file {path} has no keys in it")
    return keys


def model_name(pair: Pair) -> str:
    """What a model is called that has no alias."""
    return _PART.sub("", pair.target.stem)


def _overrides(arguments: Arguments) -> dict[str, str] | None:
    file = arguments.get("chat_template_file")
    if file is None:
        return None
    try:
        return {_CHAT_TEMPLATE: Path(file).read_text(encoding="utf-8")}
    except UnicodeDecodeError:
        raise ModelFileError(f"--chat-template-file {file} is not UTF-8") from None


def _set_log_level(arguments: Arguments) -> None:
    logger = logging.getLogger("pydspark")
    level = arguments.get("verbosity")
    if level is not None:
        logger.setLevel(_LEVELS.get(max(level, 0), logging.DEBUG))
    # What the HTTP stack has to say goes the same way.
    stack = logging.getLogger("uvicorn")
    stack.handlers, stack.propagate = logger.handlers, False
    stack.setLevel(max(logger.level, logging.WARNING))
