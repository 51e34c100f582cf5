"""Where the time of a batch goes: per layer of each kind, and in the head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydspark._native import Gguf, Model, Session
from pydspark.params import ModelParams
from pydspark.records import MemoryReport, ModelInfo

KINDS = ("attention", "delta net", "feed-forward", "head")


@dataclass(frozen=True)
class StageRow:
    """One batch size.

    Attributes:
        n_tokens: rows of the batch, with logits for each.
        ms: milliseconds by kind: for each layer of that kind, or for the head. The fastest repeat counts.
    """

    n_tokens: int
    ms: dict[str, float]


class StageBench:
    """A model that is run in pieces.

    Args:
        gguf: the model's file.
        params: how to run it.
        depth: tokens in the cache before each batch.
        max_tokens: rows of the largest batch.
    """

    def __init__(self, gguf: Gguf, params: ModelParams, depth: int, max_tokens: int) -> None:
        self.info: ModelInfo = gguf.describe()
        self._session = Session(Model(gguf, params), params)
        self.memory: MemoryReport = self._session.memory()
        if depth:
            self._session.inspect([i % self.info.n_vocab for i in range(depth)], (), ())
        self._counts = {
            "attention": self.info.n_layer - self.info.n_recurrent,
            "delta net": self.info.n_recurrent,
            "feed-forward": self.info.n_layer,
            "head": 1,
        }
        self._session.measure_stages(max_tokens)  # brings the weights into memory

    def kinds(self) -> list[str]:
        """Those that the model has."""
        return [kind for kind in KINDS if self._counts[kind]]

    def rows(self, widths: Sequence[int], n_rounds: int) -> list[StageRow]:
        """Measures every width once in each round."""
        rounds = [[self._session.measure_stages(width)[0] for width in widths] for _ in range(n_rounds)]
        return [
            StageRow(width, {kind: min(times[kind] for times in column) / self._counts[kind] for kind in self.kinds()})
            for width, column in zip(widths, zip(*rounds, strict=True), strict=True)
        ]


def stage_table(rows: Sequence[StageRow]) -> str:
    """Milliseconds as a Markdown table."""
    kinds = list(rows[0].ms)
    header = (
        "| rows | " + " | ".join(f"{kind}, ms" if kind == "head" else f"{kind}, ms a layer" for kind in kinds) + " |"
    )
    lines = [header, "| ---: |" + " ---: |" * len(kinds)]
    lines += [f"| {row.n_tokens} | " + " | ".join(f"{row.ms[kind]:.3f}" for kind in kinds) + " |" for row in rows]
    return "\n".join(lines)


def stage_json(rows: Sequence[StageRow]) -> list[dict[str, Any]]:
    """The same for machines."""
    return [{"n_tokens": row.n_tokens, "ms": row.ms} for row in rows]
