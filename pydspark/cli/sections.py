"""Parts of reports that are the same for models and drafters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydspark.cli.report import Report, bytes_text, count_text


def report_weights(report: Report, types: Sequence[Mapping[str, Any]]) -> None:
    """Adds the types of the tensors (``tensor_facts``)."""
    report.title("Weights, by how their numbers are stored (q4 = in 4 bits each, f16 = in 16)")
    for used in types:
        report.row(used["type"], bytes_text(used["size"]), f"in {count_text(used['tensors'], 'table')}")


def report_memory(report: Report, memory: Mapping[str, Any], what: str = "") -> None:
    """Adds the memory that is needed and free, of a ``MemoryReport`` as a dictionary; ``what`` says of what."""
    report.title(f"Memory{what} for a context of {memory['n_ctx']:,} tokens (-c)")
    for line in memory["lines"]:
        needed = sum(line[part] for part in ("weights", "kv", "state", "compute"))
        mapped = f"of it {bytes_text(line['mapped'])} stay in the file" if line["mapped"] else ""
        fits = needed - line["mapped"] <= line["free"]
        report.row(
            line["device"],
            f"{bytes_text(needed)} needed, {bytes_text(line['free'])} free",
            "" if fits else "too much: a smaller -c needs less",
        )
        report.row("  weights", bytes_text(line["weights"]), mapped)
        report.row("  context", bytes_text(line["kv"]), "to remember earlier tokens")
        if line["state"]:
            report.row("  state", bytes_text(line["state"]), "of recurrent layers, and to take drafts back")
        report.row("  work space", bytes_text(line["compute"]), "for results in between")
    if memory["checkpoint_bytes"]:
        token, most = bytes_text(memory["token_bytes"]), "at most --cache-ram in all"
        report.row(
            "one checkpoint", bytes_text(memory["checkpoint_bytes"]), f"of a prompt, and {token} a token; {most}"
        )
