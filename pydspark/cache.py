"""The folder for files that pydspark makes and can make again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydspark.errors import PydsparkError

_ADVICE = "set DSPARK_HOME to a folder that can be used"


def cache_path(env: Mapping[str, str] | None = None) -> Path:
    """Where the folder is: ``$DSPARK_HOME``, else ``$XDG_CACHE_HOME/pydspark``, else ``~/.cache/pydspark``.

    Args:
        env: environment variables; None = this process's.
    """
    env = os.environ if env is None else env
    if env.get("DSPARK_HOME"):
        return Path(env["DSPARK_HOME"]).expanduser().absolute()
    base = Path(env.get("XDG_CACHE_HOME") or "")
    if not base.is_absolute():  # as the XDG rules say
        base = Path(env.get("HOME") or Path.home()) / ".cache"
    return base / "pydspark"


def cache_dir(env: Mapping[str, str] | None = None) -> Path:
    """The folder, made if it is missing.

    Args:
        env: environment variables; None = this process's.

    Raises:
        PydsparkError: it cannot be made or written; the message says how to choose another.
    """
    folder = cache_path(env)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PydsparkError(f"cannot make the cache folder {folder}: {error.strerror}; {_ADVICE}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PydsparkError(f"the cache folder {folder} cannot be written; {_ADVICE}")
    return folder
