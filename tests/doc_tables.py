"""The parameter tables of docs/api.md. Run as a program, it writes them again."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from pydspark.params import INT32_MAX, ChatParams, ModelParams, Option, SamplingParams, options

API = Path(__file__).parent.parent / "docs" / "api.md"


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


def with_tables(text: str) -> str:
    """A document with the tables between its marks as they should be."""
    for cls in (ModelParams, SamplingParams, ChatParams):
        head, begin, rest = text.partition(f"<!-- table: {cls.__name__} -->\n")
        _, end, tail = rest.partition("<!-- end of table -->")
        assert end, f"{API.name} has no marks for the table of {cls.__name__}"
        text = head + begin + table(cls) + end + tail
    return text


if __name__ == "__main__":
    API.write_text(with_tables(API.read_text()))
