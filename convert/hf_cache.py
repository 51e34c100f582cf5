"""Finds a model that the Hugging Face tools have already downloaded. Never uses the network."""

from __future__ import annotations

import os
import re
from pathlib import Path

from .errors import ConvertError

_REPO = re.compile(r"[\w.-]+/[\w.-]+")


def local_folder(model: str) -> Path:
    """A folder as given, or the cached snapshot of a ``user/name`` repository.

    Raises:
        ConvertError: it is neither.
    """
    path = Path(model).expanduser()
    if path.exists() or not _REPO.fullmatch(model):
        return path
    repo = cache_folder() / f"models--{model.replace('/', '--')}"
    ref = repo / "refs" / "main"
    snapshot = repo / "snapshots" / (ref.read_text().strip() if ref.is_file() else "main")
    if snapshot.is_dir():
        return snapshot
    raise ConvertError(f"{model} is neither a folder nor in the cache {repo.parent}; run 'hf download {model}' first")


def cache_folder() -> Path:
    """Where the Hugging Face tools keep models."""
    for name, below in (
        ("LLAMA_CACHE", ""),
        ("HF_HUB_CACHE", ""),
        ("HUGGINGFACE_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
    ):
        if os.environ.get(name):
            return Path(os.environ[name]).expanduser() / below
    return Path("~/.cache/huggingface/hub").expanduser()
