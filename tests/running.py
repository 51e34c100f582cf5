"""Runs a model on the compiled core and reads tensors of its graphs as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pydspark._native import Gguf, Model, Session
from pydspark.params import ModelParams, SamplingParams
from pydspark.records import ModelInfo, Request

Array = NDArray[np.float32]

DATA = Path(__file__).parent / "data"


class Running:
    """A model with one session, on one thread.

    Args:
        path: a GGUF file.
        params: fields of ``ModelParams``.
    """

    def __init__(self, path: Path, **params: object) -> None:
        gguf = Gguf(path)
        settings = ModelParams(**{"n_ctx": 512, "n_threads": 1, **params})
        self.info: ModelInfo = gguf.describe()
        self.session = Session(Model(gguf, settings), settings)

    def read(self, ids: Sequence[int], *names: str) -> dict[str, Array]:
        """Appends tokens as one batch. Returns the named tensors, one row per token."""
        widths = [self.info.n_vocab_rows if name == "result_output" else self.info.n_embd for name in names]
        values = self.session.inspect(ids, names, [width * len(ids) for width in widths])
        return {
            name: np.array(value, np.float32).reshape(len(ids), width)
            for name, value, width in zip(names, values, widths, strict=True)
        }

    def logits(self, ids: Sequence[int]) -> Array:
        """Appends tokens as one batch. Returns [n_tokens, n_vocab_rows]."""
        return self.read(ids, "result_output")["result_output"]

    def prefill(self, ids: Sequence[int]) -> int:
        """Makes ``ids`` the whole sequence. Returns how many tokens of its beginning were held already."""
        self.session.start(Request(tokens=ids, sampling=SamplingParams(temperature=0.0), seed=0))
        return self.session.stats().cache_n


def rms(values: Array) -> float:
    """Root of the mean square."""
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))
