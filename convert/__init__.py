"""Converts DSpark and DFlash drafter checkpoints to GGUF, and checks drafter files against a target.

Needs numpy, gguf and safetensors (``pip install "pydspark[convert]"``); it never uses the compiled core.
"""

from __future__ import annotations
