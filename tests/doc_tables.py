"""The tables of docs/api.md and docs/server.md. Run as a program, it writes them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from pydspark.cli.flags import Flag
from pydspark.params import INT32_MAX, ChatParams, ModelParams, Option, SamplingParams, options
from pydspark.server.flags import SERVER
from pydspark.server.sampling_fields import MAX_TOKENS, SAMPLING, UNSUPPORTED

DOCS = Path(__file__).parent.parent / "docs"
API, SERVER_PAGE = DOCS / "api.md", DOCS / "server.md"


def table(cls: type) -> str:
    """The Markdown table of a parameter class."""
    defaults = {f.name: f.default for f in fields(cls)}
    lines = ["| parameter | type | default | range | meaning | flag | environment |", "| --- " * 7 + "|"]
    lines += [_line(name, option, defaults[name]) for name, option in options(cls).items()]
    return "\n".join(lines) + "\n"


def _line(name: str, option: Option, default: object) -> str:
    kind = "see meaning" if option.kind is object else option.kind.__name__
    flags = ", ".join(f"`{flag}`" for flag in option.flags)
    env = f"`{option.env}`" if option.env else ""
    return f"| `{name}` | {kind} | `{default!r}` | {_range(option)} | {option.help} | {flags} | {env} |"


def _range(option: Option) -> str:
    if option.low is None and option.high is None:
        return ""
    low = "" if option.low is None else f"{option.low:g}"
    open_end = option.high is None or option.high >= INT32_MAX
    high = "" if open_end else f"{option.high:g}"
    return f"{low} \u2026 {high}".strip() + (", clamped" if option.clamp else "")


def flag_table(flags: Sequence[Flag]) -> str:
    """The Markdown table of some flags."""
    lines = ["| flag | value | default | environment | meaning |", "| --- " * 5 + "|"]
    for flag in flags:
        names = ", ".join(f"`{name}`" for name in (*flag.names, *flag.negatives))
        env = f"`{flag.env}`" if flag.env else ""
        metavar = f"`{flag.metavar}`" if flag.metavar else ""
        lines.append(_cells(names, metavar, flag.default, env, flag.help))
    return "\n".join(lines) + "\n"


def unsupported_table() -> str:
    """The Markdown table of llama-server's flags that dspark-server does not have."""
    by_advice: dict[str, list[str]] = {}
    for name, advice in SERVER.unsupported.items():
        by_advice.setdefault(advice, []).append(f"`{name}`")
    lines = ["| flag | instead |", "| --- " * 2 + "|"]
    lines += [_cells(", ".join(names), advice) for advice, names in by_advice.items()]
    return "\n".join(lines) + "\n"


def field_table() -> str:
    """The Markdown table of the fields that all generating routes have."""
    table = options(SamplingParams)
    lines = ["| field | type | range | meaning |", "| --- " * 4 + "|"]
    rows = {**{name: name for name in SAMPLING}, ", ".join(MAX_TOKENS): "max_tokens"}
    for field, name in rows.items():
        option = table[name]
        kind = "see meaning" if option.kind is object else option.kind.__name__
        lines.append(_cells(", ".join(f"`{part}`" for part in field.split(", ")), kind, _range(option), option.help))
    return "\n".join(lines) + "\n"


def refused_table() -> str:
    """The Markdown table of fields that are refused where they ask for something."""
    lines = ["| field | why |", "| --- " * 2 + "|"]
    lines += [_cells(f"`{name}`", why) for name, (_, why) in UNSUPPORTED.items()]
    return "\n".join(lines) + "\n"


def _cells(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def with_tables(text: str, tables: Mapping[str, str]) -> str:
    """A document with the tables between its marks as they should be."""
    for name, content in tables.items():
        head, begin, rest = text.partition(f"<!-- table: {name} -->\n")
        _, end, tail = rest.partition("<!-- end of table -->")
        assert end, f"there are no marks for the table {name}"
        text = head + begin + content + end + tail
    return text


def tables_of(document: Path) -> dict[str, str]:
    """The tables that a document has, by their names in its marks."""
    if document == API:
        return {cls.__name__: table(cls) for cls in (ModelParams, SamplingParams, ChatParams)}
    flags = {f"flags {title.split(' (')[0].split(',')[0]}": flag_table(flags) for title, flags in SERVER.groups.items()}
    return {**flags, "not supported": unsupported_table(), "fields": field_table(), "refused": refused_table()}


if __name__ == "__main__":
    for document in (API, SERVER_PAGE):
        document.write_text(with_tables(document.read_text(), tables_of(document)))
