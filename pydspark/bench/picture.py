"""Bars as a picture (SVG) that reads on light and dark pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

_BAR, _GAP, _BELOW, _HEIGHT, _LEFT, _TOP = 9, 16, 96, 220, 44, 46
_COLOURS = (
    "#7f8c8d",
    "#8ecae6",
    "#58a6d6",
    "#2f7fb8",
    "#1d5a8a",
    "#c58b2a",
    "#d1495b",
    "#6a994e",
    "#9467bd",
    "#17becf",
)


def bars(title: str, groups: Mapping[str, Mapping[str, float]], names: Sequence[str]) -> str:
    """A picture of values around 1.

    Args:
        title: above it.
        groups: by the label below each group of bars: values by name.
        names: of the bars, in order.
    """
    top = max([1.2, *(value for group in groups.values() for value in group.values())]) * 1.05
    group_width = len(names) * _BAR + _GAP
    width, height = _LEFT + len(groups) * group_width + _GAP, _TOP + _HEIGHT + _BELOW

    def y(value: float) -> float:
        return _TOP + _HEIGHT * (1 - value / top)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        "<style>text{font:11px sans-serif;fill:#444}line{stroke:#999}.one{stroke:#d1495b;stroke-dasharray:4 3}"
        "@media(prefers-color-scheme:dark){text{fill:#ccc}line{stroke:#777}}</style>",
        f'<text x="{_LEFT}" y="16" font-weight="bold">{escape(title)}</text>',
    ]
    x = float(_LEFT)
    for name, colour in zip(names, _COLOURS, strict=False):
        parts.append(f'<rect x="{x:.0f}" y="24" width="9" height="9" fill="{colour}"/>')
        parts.append(f'<text x="{x + 12:.0f}" y="33">{escape(name)}</text>')
        x += 24 + 6.5 * len(name)
    for tick in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0):
        if tick <= top:
            kind = ' class="one"' if tick == 1.0 else ""
            parts.append(f'<line x1="{_LEFT}" x2="{width - _GAP}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"{kind}/>')
            parts.append(f'<text x="{_LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for i, (label, group) in enumerate(groups.items()):
        left = _LEFT + _GAP / 2 + i * group_width
        for j, (name, colour) in enumerate(zip(names, _COLOURS, strict=False)):
            value = group[name]
            parts.append(
                f'<rect x="{left + j * _BAR:.1f}" y="{y(value):.1f}" width="{_BAR - 1}" '
                f'height="{_TOP + _HEIGHT - y(value):.1f}" fill="{colour}">'
                f"<title>{escape(f'{label}, {name}: {value:.3f}')}</title></rect>"
            )
        middle, foot = left + group_width / 2 - _GAP / 2, _TOP + _HEIGHT + 12
        parts.append(
            f'<text x="{middle:.1f}" y="{foot}" text-anchor="end" transform="rotate(-40 {middle:.1f} {foot})">'
            f"{escape(label)}</text>"
        )
    return "\n".join([*parts, "</svg>\n"])
