"""What will be written: every tensor with its source and format, the metadata, and what was decided on the way."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

from .gguf_reader import GgufValue
from .mapping import DRAFT_TO_TARGET, EMBEDDING, OUTPUT, rules, stored_kind
from .settings import DraftSettings
from .share import Sharing
from .target import Target
from .tensors import Bytes, StoredTensor, row_bytes

ALIGNMENT = 32


@dataclass(frozen=True)
class PlanItem:
    """One tensor of the file.

    Attributes:
        name: its GGUF name.
        source: where its values come from.
        kind: number format in the file.
        ids: the values themselves, for a tensor of whole numbers.
    """

    name: str
    source: StoredTensor
    kind: GGMLQuantizationType
    ids: NDArray[np.int64] | None = None

    @property
    def row_bytes(self) -> int:
        return row_bytes(self.source.row_len, self.kind)

    @property
    def n_bytes(self) -> int:
        return self.source.n_rows * self.row_bytes

    @property
    def padded_bytes(self) -> int:
        return (self.n_bytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT

    def id_bytes(self) -> Bytes:
        assert self.ids is not None
        return self.ids.astype("<i8").view(np.uint8).reshape(1, -1)


@dataclass
class Plan:
    """The file to be.

    Attributes:
        items: tensors in file order.
        metadata: keys in file order.
        notes: lines for the reader.
    """

    settings: DraftSettings
    items: list[PlanItem]
    metadata: dict[str, GgufValue]
    notes: list[str] = field(default_factory=list)

    @property
    def data_bytes(self) -> int:
        return sum(item.padded_bytes for item in self.items)


def plan_items(
    settings: DraftSettings,
    tensors: dict[str, StoredTensor],
    target: Target,
    sharing: Sharing,
    outtype: str,
    draft_ids: NDArray[np.int64] | None,
) -> list[PlanItem]:
    """Tensors to write, in the order of the table."""
    sources = dict(tensors)
    for rule, kept in ((EMBEDDING, sharing.embedding), (OUTPUT, sharing.output)):
        sources.pop(rule.source, None)
        if kept is not None:
            sources[rule.source] = kept
    items = []
    for rule in rules(settings.n_layer):
        source = sources.get(rule.source)
        if source is None:
            continue
        ids = draft_ids if rule is DRAFT_TO_TARGET else None
        items.append(PlanItem(rule.name, source, stored_kind(rule, outtype, source.row_len), ids=ids))
    return items


def describe(plan: Plan, target: Target, outfile: str) -> str:
    """The plan as a table for people."""
    rows = [("tensor", "from", "shape", "type", "bytes")]
    for item in plan.items:
        change = (
            item.source.kind.name if item.source.kind is item.kind else f"{item.source.kind.name} -> {item.kind.name}"
        )
        shape = " x ".join(map(str, item.source.shape))
        rows.append((item.name, item.source.name, shape, change, f"{item.n_bytes:,}"))
    settings = plan.settings
    lines = [
        f"{settings.kind} drafter, {settings.n_layer} layers, block of {settings.block_size} ({settings.layout}), "
        f"target layers {list(settings.target_layers)} of {target.n_layer}, mask id {settings.mask_token_id}",
        f"target: {target.name} ({target.architecture}, {len(target.tokens):,} tokens)",
        *plan.notes,
        "",
        *_columns(rows),
        "",
        *(f"{key} = {_short(value.value)}" for key, value in plan.metadata.items()),
        "",
        f"{len(plan.items)} tensors, {plan.data_bytes:,} bytes -> {outfile}",
    ]
    return "\n".join(lines)


def describe_json(plan: Plan, outfile: str) -> str:
    """The plan for programs."""
    tensors = [
        {
            "name": item.name,
            "source": item.source.name,
            "shape": list(item.source.shape),
            "source_type": item.source.kind.name,
            "type": item.kind.name,
            "bytes": item.n_bytes,
        }
        for item in plan.items
    ]
    metadata = {key: _short(value.value) for key, value in plan.metadata.items()}
    whole = {
        "outfile": outfile,
        "bytes": plan.data_bytes,
        "tensors": tensors,
        "metadata": metadata,
        "notes": plan.notes,
    }
    return json.dumps(whole, ensure_ascii=False)


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _short(value: Any) -> Any:
    """Long lists by their length and first values."""
    if isinstance(value, list) and len(value) > 16:
        return f"[{len(value)} values]"
    if isinstance(value, list):
        return [item.decode("utf-8", "replace") if isinstance(item, bytes) else item for item in value]
    if isinstance(value, str) and len(value) > 80:
        return value[:77] + "..."
    return value
