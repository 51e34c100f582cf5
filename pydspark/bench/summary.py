"""Numbers about the samples of one case."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from pydspark.bench.measure import Case, Sample


@dataclass(frozen=True)
class Row:
    """One case with its samples. Times are milliseconds for all tokens of the case; rates are tokens per second.

    Attributes:
        case: what was measured.
        best_ms, mean_ms, stddev_ms: by the clock.
        mean_ts, stddev_ts, best_ts: the same as rates.
        best_cpu_ms, mean_cpu_ms: CPU time of the calling thread.
        host_ms: median, for one token, of the time outside of graphs; None where it is not known.
        host_share: median of that time's part of a step; None where it is not known.
    """

    case: Case
    best_ms: float
    mean_ms: float
    stddev_ms: float
    mean_ts: float
    stddev_ts: float
    best_ts: float
    best_cpu_ms: float
    mean_cpu_ms: float
    host_ms: float | None
    host_share: float | None


def summarize(case: Case, samples: Sequence[Sample]) -> Row:
    """The row of a case with at least one sample."""
    wall = [sample.wall_ms for sample in samples]
    cpu = [sample.cpu_ms for sample in samples]
    rates = [case.n / ms * 1e3 for ms in wall]
    host = [(sample.host_ms, sample.wall_ms) for sample in samples if sample.host_ms is not None]
    return Row(
        case=case,
        best_ms=min(wall),
        mean_ms=statistics.fmean(wall),
        stddev_ms=_stddev(wall),
        mean_ts=statistics.fmean(rates),
        stddev_ts=_stddev(rates),
        best_ts=max(rates),
        best_cpu_ms=min(cpu),
        mean_cpu_ms=statistics.fmean(cpu),
        host_ms=statistics.median(ms for ms, _ in host) / case.n if host else None,
        host_share=statistics.median(ms / all_ms for ms, all_ms in host) if host else None,
    )


def _stddev(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


@dataclass(frozen=True)
class Ratio:
    """How fast the first of two builds is, in units of the second: above 1 the first is faster.

    Attributes:
        best: by the best times.
        best_cpu: by the best CPU times.
        median_cpu: median over rounds of the CPU times' ratio within a round.
    """

    case: Case
    best: float
    best_cpu: float
    median_cpu: float


def compare(case: Case, ours: Sequence[Sample], theirs: Sequence[Sample]) -> Ratio:
    """Ratios of one case; samples of one round have the same index."""
    return Ratio(
        case=case,
        best=min(s.wall_ms for s in theirs) / min(s.wall_ms for s in ours),
        best_cpu=min(s.cpu_ms for s in theirs) / min(s.cpu_ms for s in ours),
        median_cpu=statistics.median(b.cpu_ms / a.cpu_ms for a, b in zip(ours, theirs, strict=True)),
    )
