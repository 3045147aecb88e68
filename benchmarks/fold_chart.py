"""Draws seconds against labelled points, on a logarithmic scale, as an SVG that needs no library."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 850, 520
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 340, 40, 50
_COLOURS = ("#0b6e4f", "#f77f00", "#4361ee", "#b5179e", "#6c757d", "#f72585", "#7209b7", "#7bc950", "#3fa34d")


def chart(title: str, below: str, points: Sequence[str], lines: Mapping[str, Sequence[float]]) -> str:
    """One line for each name; its values belong to the points. `below` says what the points are."""
    values = [value for line in lines.values() for value in line]
    low, high = math.floor(math.log10(min(values)) * 2) / 2, math.ceil(math.log10(max(values)) * 2) / 2
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x(index: int) -> float:
        return _LEFT + width * index / (max(1, len(points) - 1))

    def y(value: float) -> float:
        return _TOP + height * (high - math.log10(value)) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _text(_LEFT, 22, title, 15),
        _text(_LEFT + width / 2, _HEIGHT - 10, below, 12, "middle"),
    ]
    for index, point in enumerate(points):
        parts.append(_text(x(index), _HEIGHT - _BOTTOM + 18, point, 12, "middle"))
    ticks = (step * 10.0**power for power in range(-2, 4) for step in (1, 2, 5))
    for tick in ticks:
        if low <= math.log10(tick) <= high:
            line = f'<line x1="{_LEFT}" x2="{_LEFT + width}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="#ddd"/>'
            parts += [line, _text(_LEFT - 8, y(tick) + 4, f"{tick:g} s", 12, "end")]
    for number, (name, line_values) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        corners = " ".join(f"{x(index):.1f},{y(value):.1f}" for index, value in enumerate(line_values))
        # More lines than colours: the rest are dashed.
        dash = ' stroke-dasharray="5 3"' if number >= len(_COLOURS) else ""
        stroke = 3 if name.startswith("tidefold") else 1.5
        parts.append(f'<polyline points="{corners}" fill="none" stroke="{colour}" stroke-width="{stroke}"{dash}/>')
        level = _TOP + 10 + number * 24
        at = _LEFT + width + 16
        line = f'<line x1="{at}" x2="{at + 18}" y1="{level}" y2="{level}" stroke="{colour}" stroke-width="3"{dash}/>'
        parts.append(line)
        parts.append(_text(at + 24, level + 4, name, 11))
    return "\n".join([*parts, "</svg>", ""])


def _text(x: float, y: float, text: str, size: int, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}">{escape(text)}</text>'
