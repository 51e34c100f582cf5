"""pydspark: exact DSpark speculative decoding of GGUF models on one machine.

Names are imported when first used, so that tools which need no compiled core (``pydspark.convert``) start without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydspark.errors import PydsparkError as PydsparkError
    from pydspark.llama import Llama as Llama
    from pydspark.params import SamplingParams as SamplingParams
    from pydspark.structured import LlamaGrammar as LlamaGrammar

__all__ = ["Llama", "LlamaGrammar", "PydsparkError", "SamplingParams", "__version__"]
__version__ = "0.1.0"

_HOMES = {
    "Llama": "pydspark.llama",
    "LlamaGrammar": "pydspark.structured",
    "PydsparkError": "pydspark.errors",
    "SamplingParams": "pydspark.params",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'pydspark' has no attribute {name!r}")
