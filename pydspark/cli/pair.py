"""What a drafter is, and whether it fits a model."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydspark._native import Gguf
from pydspark.cli.facts import memory_facts, tensor_facts
from pydspark.cli.report import Report, bytes_text
from pydspark.cli.sections import report_memory, report_weights
from pydspark.drafting import Drafting
from pydspark.errors import ArgumentError, PairingError, UnsupportedError
from pydspark.params import ModelParams

_KIND_NOTES = {
    "draft-dspark": "each token of a draft knows the one before",
    "draft-dflash": "the tokens of a draft do not know each other",
}


def pair_facts(target_path: Path, draft_path: Path, params: ModelParams) -> dict[str, Any]:
    """Facts about a drafter beside a model, as plain values for JSON.

    What cannot be told is None. ``mismatches`` has every reason why the two do not belong together, ``unsupported``
    every other one why they cannot run.

    Raises:
        ModelFileError: a file is damaged or not a model.
    """
    with closing(Gguf(target_path)) as target, closing(Gguf(draft_path)) as draft:
        metadata = draft.metadata()
        problems: list[str] = []
        drafter = _drafter(draft, draft_path, params.spec_type, problems)
        mismatches = [] if problems else _mismatches(target, draft, problems)
        fits = not problems and not mismatches
        return {
            "target": str(target_path),
            "draft": str(draft_path),
            "name": metadata.get("general.name"),
            "size": sum(Path(file).stat().st_size for file in draft.files),
            **tensor_facts(draft),
            "drafter": drafter,
            "borrowed": _borrowed(drafter),
            "mismatches": mismatches,
            "memory": memory_facts(target, params, problems, draft) if fits else None,
            "unsupported": problems,
            "fits": fits and not problems,
        }


def _drafter(draft: Gguf, path: Path, spec_type: str, problems: list[str]) -> dict[str, Any] | None:
    try:
        info = draft.describe_draft()
        Drafting(info, str(path), spec_type)
    except (ArgumentError, UnsupportedError) as error:
        problems.append(str(error))
        return None
    return {"kind": info.kind, **asdict(info)}


def _mismatches(target: Gguf, draft: Gguf, problems: list[str]) -> list[str]:
    try:
        target.describe()
        target.check_pair(draft)
    except UnsupportedError as error:
        problems.append(str(error))
    except PairingError as error:
        return error.mismatches
    return []


def _borrowed(drafter: Mapping[str, Any] | None) -> list[str]:
    """Tensors that the drafter does not have and takes from the model."""
    names = {"borrows_embedding": "token_embd.weight", "borrows_head": "output.weight"}
    return [name for flag, name in names.items() if drafter is not None and drafter[flag]]


def report_pair(report: Report, facts: Mapping[str, Any]) -> None:
    """Adds what ``pair_facts`` found."""
    report.title(f"Drafter: {facts['name'] or 'without a name'}")
    report.row("file", facts["draft"])
    report.row("size", bytes_text(facts["size"]), "on disk")
    if facts["drafter"] is not None:
        _report_drafter(report, facts["drafter"])
        borrowed = ", ".join(facts["borrowed"]) or "nothing"
        report.row("borrowed", borrowed, "tensors that are the model's own" if facts["borrowed"] else "")
    report_weights(report, facts["tensor_types"])
    if facts["memory"] is not None:
        report_memory(report, facts["memory"], " with the drafter")
    report.title("Pair")
    report.row("model", facts["target"])
    report.row("fits", "yes" if facts["fits"] else "no", "the drafter was made for this model" if facts["fits"] else "")
    for reason in (*facts["mismatches"], *facts["unsupported"]):
        report.row("reason", reason)


def _report_drafter(report: Report, drafter: Mapping[str, Any]) -> None:
    report.row("kind", drafter["kind"], _KIND_NOTES[drafter["kind"]])
    report.row("layers", f"{drafter['n_layer']}", "that a draft goes through once")
    report.row("block", f"{drafter['n_slots']} tokens", "at most in a draft; --spec-draft-n-max")
    short = f"{drafter['n_short_list']:,} tokens" if drafter["n_short_list"] else "none"
    report.row("short list", short, "that drafts are made of; --spec-draft-shortlist")
    report.row("layers read", " ".join(map(str, drafter["target_layers"])), "of the model, whose results it looks at")
    note = "it tells how sure it is; --spec-draft-conf-min" if drafter["has_confidence"] else "no --spec-draft-conf-min"
    report.row("confidence head", "yes" if drafter["has_confidence"] else "no", note)
    report.row("mask token", f"{drafter['mask_token_id']}", "stands for a token to be drafted")
