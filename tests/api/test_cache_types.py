"""Types of the attention cache that a model's heads cannot have are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from pydspark import Llama
from pydspark.errors import ArgumentError


@pytest.mark.parametrize("name", ["type_k", "type_v"])
def test_heads_that_are_no_multiple_of_a_block_are_refused(tiny_llama_path: Path, name: str) -> None:
    with pytest.raises(ArgumentError, match=rf"{name}: q8_0 works in blocks of 32, but this model's heads have"):
        Llama(tiny_llama_path, n_ctx=64, n_threads=1, **{name: "q8_0"})
