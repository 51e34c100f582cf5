"""What was learnt of a pair: what batches cost, and what the drafter's confidence is worth."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from pydspark.calibration import CalibrationFile, calibration_key
from pydspark.cli.report import Report
from pydspark.params import ModelParams
from pydspark.records import LearntBin, LearntCosts

_KIND_NOTES = {
    "greedy": "temperature 0",
    "drawn": "drafts drawn at random, accepted by the ratio of probabilities",
    "certain": "the drafter's likeliest tokens, accepted by the model's probability",
    "coupled": "the same noise on both sides",
}


def calibration_facts(target: Path, draft: Path, params: ModelParams) -> dict[str, Any]:
    """What the file of a pair holds, as plain values for JSON; ``learnt`` is None if there is nothing."""
    file = CalibrationFile(calibration_key(target, draft, params))
    learnt = file.load()
    facts = None
    if learnt is not None:
        facts = {
            "verify": _cost_curve(learnt.verify),
            "draft": _cost_curve(learnt.draft),
            "reliability": {kind: _reliability(bins) for kind, bins in groupby(learnt.bins, key=lambda one: one.kind)},
        }
    return {"path": str(file.path), "target": str(target), "draft": str(draft), "learnt": facts}


def _cost_curve(costs: LearntCosts) -> list[dict[str, float]]:
    return [{"rows": one.n_rows, "ms": one.ms, "depth": one.depth, "batches": one.weight} for one in costs.rows]


def _reliability(bins: Iterable[LearntBin]) -> list[dict[str, float]]:
    """By slot: what the drafter said, and what came of it. ``gap`` is the mean distance of the two over the bins."""
    slots = []
    for slot, group in groupby(bins, key=lambda one: one.slot):
        own = list(group)
        weight = sum(one.weight for one in own)
        said = [one.weight / (1 + math.exp(-one.logits / one.weight)) for one in own]
        slots.append(
            {
                "position": slot + 1,
                "tokens": weight,
                "confidence": sum(said) / weight,
                "accepted": sum(one.labels for one in own) / weight,
                "gap": sum(abs(a - one.labels) for a, one in zip(said, own, strict=True)) / weight,
            }
        )
    return slots


def report_calibration(report: Report, facts: Mapping[str, Any]) -> None:
    """Adds what ``calibration_facts`` found."""
    report.title("Calibration")
    report.row("model", facts["target"])
    report.row("drafter", facts["draft"])
    report.row("file", facts["path"])
    learnt = facts["learnt"]
    if learnt is None:
        report.row("learnt", "nothing yet", "with these settings on this machine; drafting teaches it")
        return
    _report_costs(report, "Milliseconds of a batch by its rows", learnt["verify"], "rows")
    _report_costs(report, "Milliseconds of a draft by its tokens", learnt["draft"], "tokens")
    for kind, slots in learnt["reliability"].items():
        report.title(f"Reliability, {kind}: {_KIND_NOTES[kind]}")
        for slot in slots:
            said = f"confidence {slot['confidence']:.3f}, accepted {slot['accepted']:.3f}, gap {slot['gap']:.3f}"
            report.row(f"position {slot['position']}", f"{said}, {slot['tokens']:.0f} tokens")


def _report_costs(report: Report, title: str, curve: list[dict[str, float]], unit: str) -> None:
    report.title(title)
    for one in curve:
        value = f"{one['ms']:.2f} ms after {one['depth']:.0f} tokens, {one['batches']:.0f} batches"
        report.row(f"{one['rows']} {unit}", value)
