"""Results as a table for people and as one line of JSON for programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pydspark.bench.measure import Kind
from pydspark.bench.summary import Ratio, Row

MEASURED = (
    "pp: tokens of a prompt; tg: tokens generated greedily; sampled: the same with default sampling; batch: tokens "
    "evaluated at once with logits for each; @ d: tokens in the cache before.\n"
    "CPU: CPU time of the calling thread, which does not count waiting for the CPU. Host: time outside of graphs.\n"
)
NS_PER_MS = 1e6


def table(rows: Sequence[Row]) -> str:
    """A Markdown table of one build's results."""
    head = ["test", "t/s", "best t/s", "ms", "best ms", "best CPU ms", "host ms per token", "host share"]
    return markdown(head, [_cells(row) for row in rows])


def _cells(row: Row) -> list[str]:
    return [
        row.case.name,
        f"{row.mean_ts:.1f} \u00b1 {row.stddev_ts:.1f}",
        f"{row.best_ts:.1f}",
        f"{row.mean_ms:.2f} \u00b1 {row.stddev_ms:.2f}",
        f"{row.best_ms:.2f}",
        f"{row.best_cpu_ms:.2f}",
        "" if row.host_ms is None else f"{row.host_ms:.3f}",
        "" if row.host_share is None else f"{row.host_share:.1%}",
    ]


def ratio_table(ratios: Sequence[Ratio]) -> str:
    """A Markdown table that compares two builds."""
    head = ["test", "best", "best CPU", "median CPU"]
    cells = [[r.case.name, *(f"{value:.2f}x" for value in (r.best, r.best_cpu, r.median_cpu))] for r in ratios]
    return markdown(head, cells)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, all columns but the first aligned to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def facts_text(facts: Mapping[str, Any]) -> str:
    """One line per fact."""
    return "".join(f"{name}: {_plain(value)}\n" for name, value in facts.items())


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def row_json(row: Row) -> dict[str, Any]:
    """A row under the names that llama-bench uses, and some of our own."""
    case = row.case
    return {
        "test": case.name,
        "n_prompt": case.n if case.kind is Kind.PROMPT else 0,
        "n_gen": case.n if case.kind in (Kind.GREEDY, Kind.SAMPLED) else 0,
        "n_batch_rows": case.n if case.kind is Kind.BATCH else 0,
        "n_depth": case.depth,
        "avg_ns": round(row.mean_ms * NS_PER_MS),
        "stddev_ns": round(row.stddev_ms * NS_PER_MS),
        "min_ns": round(row.best_ms * NS_PER_MS),
        "avg_ts": row.mean_ts,
        "stddev_ts": row.stddev_ts,
        "max_ts": row.best_ts,
        "avg_cpu_ns": round(row.mean_cpu_ms * NS_PER_MS),
        "min_cpu_ns": round(row.best_cpu_ms * NS_PER_MS),
        "host_ms_per_token": row.host_ms,
        "host_share": row.host_share,
    }


def ratio_json(ratio: Ratio) -> dict[str, Any]:
    """A comparison of one case."""
    return {"test": ratio.case.name, **{name: value for name, value in asdict(ratio).items() if name != "case"}}
