"""Finds and opens the models that the arguments name."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydspark import hub
from pydspark.cli.args import Arguments
from pydspark.cli.terminal import Terminal
from pydspark.demo import demo_draft_path, demo_model_path, demo_target
from pydspark.drafting import DRAFTING
from pydspark.errors import ArgumentError
from pydspark.llama import Llama
from pydspark.params import ModelParams, drafter_type, uses_lookup
from pydspark.records import Progress

log = logging.getLogger("pydspark.cli")

_TARGETS = {"demo": "--demo", "model": "-m", "hf_repo": "-hf"}
_DRAFTERS = {"draft": "-md", "draft_repo": "-hfd"}


@dataclass(frozen=True)
class Pair:
    """Files of a model and of its drafter, if there is one. ``is_demo``: both come with packages."""

    target: Path
    draft: Path | None
    is_demo: bool = False


def find_pair(arguments: Arguments) -> Pair | None:
    """The files that are named, or None when no model is.

    What the command line names comes before what the environment does.

    Raises:
        ArgumentError: more than one model or drafter is named, or a drafter without a model.
        ModelFileError: a file is not there.
    """
    env = hub_environment(arguments)
    target = _source(arguments, _TARGETS)
    drafter = _source(arguments, _DRAFTERS)
    if target is None:
        if drafter in arguments.given:
            raise ArgumentError(f"{_DRAFTERS[drafter]} needs a model to draft for: -m FILE")
        return None
    spec_type = arguments.get("spec_type") or ModelParams.spec_type
    if target != "demo":
        model, draft = arguments.get(target), arguments.get(drafter) if drafter else None
        return Pair(hub.resolve(model, env), hub.resolve_draft(draft, model, spec_type, env))
    if drafter in arguments.given:
        draft_path = hub.resolve_draft(arguments.get(drafter), "", spec_type, env)
    else:  # one that the environment names is for another model
        wants_draft = drafter_type(spec_type) != "none" and demo_draft_path().is_file()
        draft_path = demo_draft_path() if wants_draft else None
    return Pair(demo_model_path(), draft_path, is_demo=True)


def _source(arguments: Arguments, flags: Mapping[str, str]) -> str | None:
    """The one of some arguments that counts, by name."""
    named = [dest for dest in flags if arguments.get(dest)]
    chosen = [dest for dest in named if dest in arguments.given] or named[:1]
    if len(chosen) > 1:
        raise ArgumentError(f"give one of {' and '.join(flags[dest] for dest in chosen)}")
    return chosen[0] if chosen else None


def hub_environment(arguments: Arguments) -> dict[str, str]:
    """This process's environment, with what the arguments say about the network."""
    return {**os.environ, **({"HF_HUB_OFFLINE": "1"} if arguments.get("offline") else {})}


def open_model(arguments: Arguments, terminal: Terminal) -> Llama:
    """Loads the model and its drafter, with a progress bar.

    Raises:
        ArgumentError: no model is named.
        ModelFileError, UnsupportedError, OutOfMemoryError: it cannot be loaded.
        PairingError: the drafter was not made for the model.
    """
    return open_pair(needed_pair(arguments), arguments, terminal)


def needed_pair(arguments: Arguments) -> Pair:
    """The files that are named; see ``find_pair``.

    Raises:
        ArgumentError: no model is named.
    """
    pair = find_pair(arguments)
    if pair is None:
        raise ArgumentError("name a model: -m FILE, -m user/repo, or --demo for a small one to try")
    return pair


def open_pair(
    pair: Pair,
    arguments: Arguments,
    terminal: Terminal,
    progress: Progress = lambda fraction: True,
    overrides: Mapping[str, str] | None = None,
) -> Llama:
    """Loads a model and its drafter, with a progress bar; see ``open_model``.

    Args:
        pair: the files.
        arguments: how to run them.
        terminal: shows the progress.
        progress: told the fraction done, too; a false result stops.
        overrides: metadata to replace.
    """
    model_params = arguments.of(ModelParams)
    checks_drafts = pair.draft is not None or uses_lookup(model_params.get("spec_type", ModelParams.spec_type))
    target = _faster_demo(terminal) if pair.is_demo and checks_drafts else pair.target

    def show(fraction: float) -> bool:
        terminal.progress(f"loading {target.name}", fraction)
        return progress(fraction)

    drafting = {name: arguments.get(name) for name in DRAFTING if name in arguments.values}
    settings = {**model_params, **drafting}
    try:
        llama = Llama(target, draft=pair.draft, kv_overrides=overrides, progress=show, **settings)
    finally:
        terminal.clear_live()
    log.info("%s: %s, context of %d tokens", target, llama.engine.info.architecture, llama.n_ctx())
    if llama.engine.drafting is not None:
        log.info("%s: drafter of the kind %s", pair.draft, llama.engine.drafting.info.kind)
    return llama


def _faster_demo(terminal: Terminal) -> Path:
    """The demo model in the form that checks drafts faster; the first time it is made."""

    def show(fraction: float) -> bool:
        terminal.progress("copying the demo model", fraction)
        return True

    try:
        return demo_target(show, terminal.say)
    finally:
        terminal.clear_live()
