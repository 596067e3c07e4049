"""Curves as SVG, in the manner of docs/pictures: one file, light and dark, no library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from math import ceil, floor, log10
from typing import Literal

_WIDTH, _HEIGHT = 460, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 20, 48, 54
_COLOURS = ("a", "b", "c", "d")

_STYLE = """<style>
  .ground { fill: #f6f8fa; stroke: #d8dee6 } .grid { stroke: #d8dee6 } text { fill: #18212d }
  .soft { fill: #5a6675; font-size: 11.5px } .title { font-weight: 600 }
  .line { fill: none; stroke-width: 2 } .dot, .key { stroke: none }
  .line.a { stroke: #0b63ce } .line.b { stroke: #d4480b }
  .line.c { stroke: #217a3c } .line.d { stroke: #a3245f }
  .dot.a, .key.a { fill: #0b63ce } .dot.b, .key.b { fill: #d4480b }
  .dot.c, .key.c { fill: #217a3c } .dot.d, .key.d { fill: #a3245f }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #12171e; stroke: #2b343f } .grid { stroke: #2b343f }
    text { fill: #e7ebf0 } .soft { fill: #9ba8b7 }
    .line.a { stroke: #6cb2ff } .line.b { stroke: #ff9a4d }
    .line.c { stroke: #6fd28c } .line.d { stroke: #f283b8 }
    .dot.a, .key.a { fill: #6cb2ff } .dot.b, .key.b { fill: #ff9a4d }
    .dot.c, .key.c { fill: #6fd28c } .dot.d, .key.d { fill: #f283b8 }
  }
</style>"""

Curve = Sequence[tuple[float, float]]
"""Points (x, y), x ascending."""
Corner = Literal["top left", "top right", "bottom left", "bottom right"]


class Panel:
    """One diagram: curves by name over common axes; ``log`` makes both axes logarithmic.

    On logarithmic axes all coordinates must be over 0. ``names`` is the corner for the curves'
    names: one that the curves leave free.
    """

    def __init__(
        self,
        title: str,
        x: str,
        y: str,
        curves: Mapping[str, Curve],
        log: bool = False,
        names: Corner = "top left",
    ) -> None:
        if not 0 < len(curves) <= len(_COLOURS) or not all(curves.values()):
            raise ValueError(f"a panel shows 1 to {len(_COLOURS)} curves with points")
        self._title, self._x, self._y, self._curves, self._log = title, x, y, curves, log
        self._names = names

    def draw(self) -> str:
        """The panel with its upper left corner at the origin."""
        points = [point for curve in self._curves.values() for point in curve]
        x_ticks, across = self._axis([x for x, _ in points], _LEFT, _WIDTH - _RIGHT, False)
        y_ticks, up = self._axis([y for _, y in points], _HEIGHT - _BOTTOM, _TOP, True)
        parts = [f'<text class="title" x="{_LEFT}" y="24">{escape(self._title)}</text>']
        for tick in x_ticks:
            x = across(tick)
            parts.append(
                f'<path class="grid" d="M{x:.1f} {_TOP}V{_HEIGHT - _BOTTOM}"/><text class="soft"'
                f' x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 17}" text-anchor="middle">'
                f"{_short(tick)}</text>"
            )
        for tick in y_ticks:
            y = up(tick)
            parts.append(
                f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/><text class="soft"'
                f' x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_short(tick)}</text>'
            )
        middle = (_TOP + _HEIGHT - _BOTTOM) / 2
        parts.append(
            f'<text class="soft" x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 14}"'
            f' text-anchor="middle">{escape(self._x)}</text><text class="soft" text-anchor="middle"'
            f' transform="translate(20 {middle}) rotate(-90)">{escape(self._y)}</text>'
        )
        for number, (name, curve) in enumerate(self._curves.items()):
            colour = _COLOURS[number]
            way = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in curve)
            parts.append(f'<polyline class="line {colour}" points="{way}"/>')
            parts += [
                f'<circle class="dot {colour}" cx="{across(x):.1f}" cy="{up(y):.1f}" r="3"/>'
                for x, y in curve
            ]
            if name:
                parts.append(
                    f'<text class="key {colour}" {self._place(number)}>{escape(name)}</text>'
                )
        return "\n".join(parts)

    def _place(self, number: int) -> str:
        """Where the name of this curve is."""
        top = _TOP + 16
        if self._names.startswith("bottom"):
            top = _HEIGHT - _BOTTOM - 8 - 16 * (len(self._curves) - 1)
        y = top + 16 * number
        if self._names.endswith("left"):
            return f'x="{_LEFT + 10}" y="{y}"'
        return f'x="{_WIDTH - _RIGHT - 10}" y="{y}" text-anchor="end"'

    def _axis(
        self, values: list[float], start: float, end: float, from_zero: bool
    ) -> tuple[list[float], Callable[[float], float]]:
        """Ticks, and the place of a value."""
        if self._log:
            low, high = floor(log10(min(values))), ceil(log10(max(values)))
            high = max(high, low + 1)
            ticks = [10.0**power for power in range(low, high + 1)]
            return ticks, lambda value: start + (log10(value) - low) / (high - low) * (end - start)
        first, last = (0.0 if from_zero else min(values)), max(values)
        step = _step((last - first or 1.0) / 5)
        ticks = [step * number for number in range(floor(first / step), ceil(last / step) + 1)]
        first, last = ticks[0], max(ticks[-1], ticks[0] + step)
        return ticks, lambda value: start + (value - first) / (last - first) * (end - start)


def svg(title: str, text: str, panels: Sequence[Panel]) -> str:
    """The panels beside each other. ``title`` and ``text`` are for those who cannot see them."""
    width = _WIDTH * len(panels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {_HEIGHT}" role="img"'
        ' aria-labelledby="title text" font-family="system-ui, \'Segoe UI\', Roboto,'
        ' \'DejaVu Sans\', sans-serif" font-size="13">',
        f'<title id="title">{escape(title)}</title>\n<desc id="text">{escape(text)}</desc>',
        _STYLE,
        f'<rect class="ground" x=".5" y=".5" width="{width - 1}" height="{_HEIGHT - 1}" rx="14"/>',
    ]
    parts += [
        f'<g transform="translate({_WIDTH * number} 0)">\n{panel.draw()}\n</g>'
        for number, panel in enumerate(panels)
    ]
    return "\n".join([*parts, "</svg>", ""])


def _step(rough: float) -> float:
    power = 10.0 ** floor(log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)


def _short(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
