"""The compiled core as Python objects.

Every call that can take long releases the GIL. Objects free their memory when they are dropped; a session keeps its
model and drafter alive, and these their files.
"""

from pydspark._native.core import (
    devices,
    drain_log,
    ggml_build_options,
    ggml_build_version,
    ggml_features,
    ggml_version,
)
from pydspark._native.gguf import Gguf
from pydspark._native.model import Draft, Model
from pydspark._native.session import Session

__all__ = [
    "Draft",
    "Gguf",
    "Model",
    "Session",
    "devices",
    "drain_log",
    "ggml_build_options",
    "ggml_build_version",
    "ggml_features",
    "ggml_version",
]
