"""Models whose weights have types that ggml knows, but cannot compute with."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from tiny.pairs import Pair, write_pair

from pydspark import Llama
from pydspark.errors import UnsupportedError

# numbers of types whose data is no longer than that of F32
Q8_1, I8, I16, I32 = 9, 24, 25, 26


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return write_pair(tmp_path_factory.mktemp("pair"))


def retyped(source: Path, folder: Path, tensor: str, number: int) -> Path:
    """A copy of a file that says another type of one tensor."""
    data = bytearray(source.read_bytes())
    name = struct.pack("<Q", len(tensor)) + tensor.encode()
    at = data.index(name) + len(name)
    (n_dims,) = struct.unpack_from("<I", data, at)
    struct.pack_into("<I", data, at + 4 + 8 * n_dims, number)
    path = folder / source.name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("number", [Q8_1, I8, I16, I32])
@pytest.mark.parametrize(
    ("tensor", "use"),
    [
        ("token_embd.weight", "as an embedding table"),
        ("blk.1.ffn_up.weight", "in a matrix product"),
        ("output_norm.weight", "element by element"),
    ],
)
def test_types_that_are_not_for_weights(tmp_path: Path, pair: Pair, tensor: str, use: str, number: int) -> None:
    path = retyped(pair.target_path, tmp_path, tensor, number)
    with pytest.raises(UnsupportedError, match=f"'{tensor}' is of type .*, which CPU cannot use {use}"):
        Llama(path, n_ctx=64, n_threads=1)


@pytest.mark.parametrize("tensor", ["fc.weight", "markov_w1.weight", "markov_w2.weight", "conf_proj.weight"])
def test_the_same_in_a_drafter(tmp_path: Path, pair: Pair, tensor: str) -> None:
    path = retyped(pair.draft_path, tmp_path, tensor, I8)
    with pytest.raises(UnsupportedError, match=f"draft.gguf: tensor '{tensor}' is of type i8"):
        Llama(pair.target_path, draft=path, n_ctx=64, n_threads=1)
