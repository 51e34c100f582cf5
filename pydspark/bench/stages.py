"""Where the time of a batch goes: per layer of each kind, and in the head; and what limits it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pydspark._native import Gguf, Model, Session
from pydspark.bench.limits import BytesRead, Memory
from pydspark.bench.report import markdown
from pydspark.params import ModelParams
from pydspark.records import MemoryReport, ModelInfo

KINDS = ("attention", "delta net", "feed-forward", "head")


@dataclass(frozen=True)
class StageTime:
    """What one kind of work takes in one batch: for each layer of that kind, or for the head.

    Attributes:
        best_ms, median_ms: CPU time of the calling thread.
        read_bytes: bytes that it needs from memory at least.
        read_ms: how long it takes to read them.
        compute_ms: how long it would take at the speed per row of the fastest batch, which is the widest one as a rule.
    """

    best_ms: float
    median_ms: float
    read_bytes: float
    read_ms: float
    compute_ms: float

    @property
    def limit_ms(self) -> float:
        """What it cannot be faster than."""
        return max(self.read_ms, self.compute_ms)


@dataclass(frozen=True)
class StageRow:
    """One batch size.

    Attributes:
        n_tokens: rows of the batch, with logits for each.
        times: by kind.
    """

    n_tokens: int
    times: dict[str, StageTime]


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
        self._read = BytesRead(gguf, self.memory, depth)
        self.reading = Memory()
        self._session.measure_stages(max_tokens)  # brings the weights into memory

    def kinds(self) -> list[str]:
        """Those that the model has."""
        return [kind for kind in KINDS if self._counts[kind]]

    def rows(self, widths: Sequence[int], n_rounds: int) -> list[StageRow]:
        """Measures every width once in each round, and the memory's speed."""
        rounds = [self._round(widths) for _ in range(n_rounds)]
        by_kind = {
            kind: self._times(kind, widths, [[times[kind] for times in one] for one in rounds]) for kind in self.kinds()
        }
        return [StageRow(width, {kind: times[i] for kind, times in by_kind.items()}) for i, width in enumerate(widths)]

    def _round(self, widths: Sequence[int]) -> list[dict[str, float]]:
        self.reading.measure()
        # twice, since the first run of a graph also brings its working memory in
        return [self._session.measure_stages(width, 2)[1] for width in widths]

    def _times(self, kind: str, widths: Sequence[int], rounds: Sequence[Sequence[float]]) -> list[StageTime]:
        """Of one kind, for every width. ``rounds``: for all layers of the kind, [n_rounds, n_widths]"""
        columns = [[ms / self._counts[kind] for ms in column] for column in zip(*rounds, strict=True)]
        row_ms = min(min(column) / width for column, width in zip(columns, widths, strict=True))
        found = []
        for column, width in zip(columns, widths, strict=True):
            n_bytes = self._read.of(kind, width)
            read_ms = n_bytes / self.reading.bytes_per_ms
            found.append(StageTime(min(column), statistics.median(column), n_bytes, read_ms, row_ms * width))
        return found


def stage_table(rows: Sequence[StageRow]) -> str:
    """A Markdown table, kind by kind."""
    head = ["", "rows", "best ms", "median ms", "MB", "ms to read them", "ms to compute", "best / longer of the two"]
    return markdown(head, [_cells(kind, row) for kind in rows[0].times for row in rows])


def _cells(kind: str, row: StageRow) -> list[str]:
    time = row.times[kind]
    return [
        kind if kind == "head" else f"{kind}, a layer",
        str(row.n_tokens),
        f"{time.best_ms:.3f}",
        f"{time.median_ms:.3f}",
        f"{time.read_bytes / 1e6:.1f}",
        f"{time.read_ms:.3f}",
        f"{time.compute_ms:.3f}",
        f"{time.best_ms / time.limit_ms:.2f}",
    ]


def stage_json(rows: Sequence[StageRow]) -> list[dict[str, Any]]:
    """The same for machines."""
    return [
        {"n_tokens": row.n_tokens, "stages": {kind: asdict(time) for kind, time in row.times.items()}} for row in rows
    ]
