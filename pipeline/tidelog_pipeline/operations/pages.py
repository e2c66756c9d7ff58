"""Reports as one HTML file each, with pictures in SVG: a browser fetches nothing else."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Bar", "bars", "line_chart", "listed", "page", "table"]

WIDTH = 960
_ROW = 34
_LEFT = 60
_COLORS = ("#2563eb", "#059669", "#d97706", "#7c3aed", "#db2777", "#0891b2", "#65a30d", "#475569")
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1000px; margin: 2em auto; padding: 0 1em;
  color: #1e293b; background: #fff }
table { border-collapse: collapse; margin: 1em 0 } th { text-align: left }
td, th { padding: .2em .8em .2em 0; border-bottom: 1px solid #e2e8f0 }
td.n { text-align: right; font-variant-numeric: tabular-nums } .bad { color: #b91c1c }
svg { width: 100%; height: auto } svg text { font: 12px system-ui, sans-serif; fill: #475569 }
"""

Bar = tuple[int, int, str, str]
"""Start, end, color and text of a part of a row."""


def page(title: str, sections: Iterable[str]) -> str:
    """The whole document."""
    body = "\n".join(sections)
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n<h1>{escape(title)}</h1>\n{body}\n</html>\n"
    )


def table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; numbers are aligned to the right."""
    head = "".join(f"<th>{escape(each)}</th>" for each in titles)
    lines = []
    for row in rows:
        cells = [
            f'<td class="n">{each:,}</td>'
            if isinstance(each, int)
            else f"<td>{escape(str(each))}</td>"
            for each in row
        ]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>"


def listed(title: str, texts: Sequence[str], *, bad: bool = False) -> str:
    """A list under a title; nothing without texts."""
    if not texts:
        return ""
    kind = ' class="bad"' if bad else ""
    items = "".join(f"<li>{escape(each)}</li>" for each in texts)
    return f"<h2{kind}>{escape(title)}</h2><ul{kind}>{items}</ul>"


def bars(rows: Sequence[tuple[str, Sequence[Bar]]]) -> str:
    """Rows of bars over one scale, each with a text that shows under the pointer."""
    low = min((bar[0] for _, row in rows for bar in row), default=0)
    high = max((bar[1] for _, row in rows for bar in row), default=1)
    scale = (WIDTH - _LEFT) / max(high - low, 1)
    height = _ROW * len(rows) + 24
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img">']
    for number, (name, row) in enumerate(rows):
        top = number * _ROW
        parts.append(f'<text x="0" y="{top + 18}">{escape(name)}</text>')
        for start, end, color, text in row:
            left, width = _LEFT + (start - low) * scale, max((end - start) * scale, 1)
            parts.append(
                f'<rect x="{left:.1f}" y="{top + 4}" width="{width:.1f}" height="22" '
                f'fill="{color}" stroke="#fff" stroke-width=".7">'
                f"<title>{escape(text)}</title></rect>"
            )
    parts.append(f'<text x="{_LEFT}" y="{height - 4}">{low:,}</text>')
    parts.append(f'<text x="{WIDTH}" y="{height - 4}" text-anchor="end">{high:,}</text></svg>')
    return "".join(parts)


def line_chart(title: str, names: Sequence[str], series: Sequence[Sequence[float]]) -> str:
    """A chart of one line for each series; `names` are the first and the last of the x-axis."""
    height, top = 180, 10
    high = max((value for each in series for value in each), default=0) or 1
    parts = [f"<h2>{escape(title)}</h2>", f'<svg viewBox="0 0 {WIDTH} {height + 40}" role="img">']
    parts.append(
        f'<text x="0" y="{top + 10}">{high:,.4g}</text><text x="0" y="{height + top}">0</text>'
    )
    parts.append(f'<path d="M{_LEFT} {height + top}H{WIDTH}" stroke="#cbd5e1"/>')
    for number, values in enumerate(series):
        step = (WIDTH - _LEFT) / max(len(values) - 1, 1)
        points = " ".join(
            f"{_LEFT + slot * step:.1f},{top + height * (1 - value / high):.1f}"
            for slot, value in enumerate(values)
        )
        color = _COLORS[number % len(_COLORS)]
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.5"/>'
        )
    parts.append(f'<text x="{_LEFT}" y="{height + 36}">{escape(names[0])}</text>')
    parts.append(
        f'<text x="{WIDTH}" y="{height + 36}" text-anchor="end">{escape(names[-1])}</text>'
    )
    return "".join(parts) + "</svg>"
