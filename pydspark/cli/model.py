"""Finds and opens the model that the arguments name."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from pydspark import hub
from pydspark.cli.args import Arguments
from pydspark.cli.terminal import Terminal
from pydspark.demo import demo_model_path
from pydspark.errors import ArgumentError
from pydspark.llama import Llama
from pydspark.params import ModelParams

log = logging.getLogger("pydspark.cli")

_SOURCES = {"demo": "--demo", "model": "-m", "hf_repo": "-hf"}


def model_path(arguments: Arguments, env: Mapping[str, str]) -> Path | None:
    """The model file, or None when none is named.

    A model named on the command line comes before one of the environment.

    Raises:
        ArgumentError: more than one is named.
        ModelFileError: it is not there.
    """
    named = [dest for dest in _SOURCES if arguments.get(dest)]
    chosen = [dest for dest in named if dest in arguments.given] or named[:1]
    if len(chosen) > 1:
        raise ArgumentError(f"give one of {' and '.join(_SOURCES[dest] for dest in chosen)}")
    if not chosen:
        return None
    if chosen == ["demo"]:
        return demo_model_path()
    return hub.resolve(arguments.get(chosen[0]), env)


def hub_environment(arguments: Arguments) -> dict[str, str]:
    """This process's environment, with what the arguments say about the network."""
    return {**os.environ, **({"HF_HUB_OFFLINE": "1"} if arguments.get("offline") else {})}


def open_model(arguments: Arguments, terminal: Terminal) -> Llama:
    """Loads the model, with a progress bar.

    Raises:
        ArgumentError: no model is named.
        ModelFileError, UnsupportedError, OutOfMemoryError: it cannot be loaded.
    """
    env = hub_environment(arguments)
    path = model_path(arguments, env)
    if path is None:
        raise ArgumentError("name a model: -m FILE, -m user/repo, or --demo for a small one to try")

    def show(fraction: float) -> bool:
        terminal.progress(f"loading {path.name}", fraction)
        return True

    draft = arguments.get("draft")
    draft_path = None if draft is None else str(hub.resolve(draft, env))
    try:
        llama = Llama(path, draft=draft_path, **arguments.of(ModelParams), progress=show)
    finally:
        terminal.clear_live()
    log.info("%s: %s, context of %d tokens", path, llama.engine.info.architecture, llama.n_ctx())
    return llama
