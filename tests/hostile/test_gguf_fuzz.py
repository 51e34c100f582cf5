"""Random damage to a GGUF file: it is refused with an error, or all that it offers can be read."""

from __future__ import annotations

import random
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny.gguf_bytes import ARRAY, STRING, GgufBytes, pack, small_model

from pydspark import _native
from pydspark.errors import ModelFileError, UnsupportedError

N_DAMAGED = 3000
HEADER_SIZE = 24
SMALLEST_ENTRY = 14  # bytes: a name of one letter, a type and a value of one byte


def read_all(path: Path) -> bool:
    """Reads everything a file offers; returns whether it was opened."""
    try:
        file = _native.Gguf(path)
    except (ModelFileError, UnsupportedError):
        return False
    file.metadata()
    file.tensors()
    file.close()
    return True


def damage(data: bytes, rng: random.Random) -> bytes:
    """One to three changes: a number overwritten, bytes left out, or the end cut off."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(changed) + 1)
        size = rng.choice([1, 4, 8])
        kind = rng.randrange(6)
        if kind == 0:
            del changed[at:]
        elif kind == 1:
            del changed[at : at + size]
        else:
            number = rng.choice([rng.randrange(64), 1 << rng.randrange(64), (1 << 64) - 1 - rng.randrange(64)])
            changed[at : at + size] = (number & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    return bytes(changed)


def test_random_damage(tmp_path: Path) -> None:
    data = small_model().build()
    rng = random.Random(1)
    path = tmp_path / "damaged.gguf"
    n_opened = 0
    for _ in range(N_DAMAGED):
        path.unlink(missing_ok=True)
        path.write_bytes(damage(data, rng))
        n_opened += read_all(path)
    assert 0 < n_opened < N_DAMAGED


COUNTS = st.integers(0, 2) | st.integers(0, (1 << 64) - 1)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tail=st.binary(max_size=200), n_values=COUNTS, n_tensors=COUNTS)
def test_noise_after_a_header(tmp_path: Path, tail: bytes, n_values: int, n_tensors: int) -> None:
    path = tmp_path / "noise.gguf"
    path.write_bytes(GgufBytes().build(n_tensors, n_values)[:HEADER_SIZE] + tail)
    room = len(tail) // SMALLEST_ENTRY
    opened = read_all(path)
    assert opened if n_values == n_tensors == 0 else not opened or max(n_values, n_tensors) <= room


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=st.integers(0, 15), item_kind=st.integers(0, 15), count=st.integers(0, 40), body=st.binary(max_size=64))
def test_noise_as_a_value(tmp_path: Path, kind: int, item_kind: int, count: int, body: bytes) -> None:
    head = pack(4, item_kind) + pack(10, count) if kind == ARRAY else b""
    path = tmp_path / "value.gguf"
    path.write_bytes(GgufBytes().raw_value("key", kind, head + body).build())
    if read_all(path):
        assert list(_native.Gguf(path).metadata()) == ["key"]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.binary(max_size=12), max_size=8))
def test_any_bytes_can_be_the_text_of_a_token(tmp_path: Path, texts: list[bytes]) -> None:
    path = tmp_path / "tokens.gguf"
    path.write_bytes(GgufBytes().array("tokenizer.ggml.tokens", STRING, texts).build())
    expected = [text.decode("utf-8", "replace") for text in texts]
    assert _native.Gguf(path).metadata()["tokenizer.ggml.tokens"] == expected
