"""What a session has learnt, between the core's record and Python's."""

from __future__ import annotations

from typing import Any

from pydspark._native.core import ffi, lib
from pydspark.records import LEARNT_KINDS, Learnt, LearntBin, LearntCost, LearntCosts


def learnt_from(record: Any) -> Learnt:
    """From a ``pds_learnt``: what holds anything."""
    bins = [
        LearntBin(kind, slot, i, bin.weight, bin.logits, bin.labels)
        for kind, slots in zip(LEARNT_KINDS, record.kinds, strict=True)
        for slot, row in enumerate(slots.bins)
        for i, bin in enumerate(row)
        if bin.weight > 0
    ]
    return Learnt(_costs_from(record.verify), _costs_from(record.draft), tuple(bins))


def learnt_record(learnt: Learnt) -> Any:
    """A ``pds_learnt``."""
    record = ffi.new("pds_learnt *")
    _fill_costs(record.verify, learnt.verify)
    _fill_costs(record.draft, learnt.draft)
    for bin in learnt.bins:
        if bin.slot < lib.PDS_LEARNT_SLOTS and bin.index < lib.PDS_LEARNT_BINS:
            place = record.kinds[LEARNT_KINDS.index(bin.kind)].bins[bin.slot][bin.index]
            place.weight, place.logits, place.labels = bin.weight, bin.logits, bin.labels
    return record


def _costs_from(record: Any) -> LearntCosts:
    rows = [LearntCost(n, cost.weight, cost.ms, cost.depth) for n, cost in enumerate(record.rows) if cost.weight > 0]
    return LearntCosts(tuple(rows), record.depth_var, record.depth_cov)


def _fill_costs(record: Any, costs: LearntCosts) -> None:
    for cost in costs.rows:
        if cost.n_rows < lib.PDS_LEARNT_ROWS:
            place = record.rows[cost.n_rows]
            place.weight, place.ms, place.depth = cost.weight, cost.ms, cost.depth
    record.depth_var, record.depth_cov = costs.depth_var, costs.depth_cov
