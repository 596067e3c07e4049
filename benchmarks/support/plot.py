"""Diagrams as SVG, in the manner of docs/pictures: one file, light and dark, no library.

A drawing has ``width`` and ``height`` and draws itself with its upper left corner at the origin;
:func:`svg` puts drawings beside and below each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from math import ceil, floor, log10
from typing import Literal, Protocol

_WIDTH, _HEIGHT = 460, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 20, 48, 54
COLOURS = tuple("abcdefghijkl")
"""Classes of colours, told apart best in this order; each has a mark's shape, too, and those from
the seventh on are dashed. The first ones are those of the reports: orange, green, magenta."""
#: Marks around the origin: circle, square, triangle, diamond, triangle upside down, cross.
_SHAPES = (
    "M-1 0a1 1 0 1 0 2 0a1 1 0 1 0-2 0z",
    "M-.9-.9h1.8v1.8h-1.8z",
    "M0-1.2 1.1.8h-2.2z",
    "M0-1.3 1.1 0 0 1.3-1.1 0z",
    "M0 1.2-1.1-.8h2.2z",
    "M-.4-1.1h.8v.7h.7v.8h-.7v.7h-.8v-.7h-.7v-.8h.7z",
)

_LIGHT = [
    "#0b63ce",
    "#d4480b",
    "#217a3c",
    "#b3107f",
    "#6b4fc8",
    "#8a6d00",
    "#00798c",
    "#c0392b",
    "#5d7a00",
    "#7a4b2a",
    "#1f3a93",
    "#4a5568",
]
_DARK = [
    "#6cb2ff",
    "#ff9a4d",
    "#6fd28c",
    "#ff7ac6",
    "#b3a1ff",
    "#e3c341",
    "#4fd0de",
    "#ff8a80",
    "#b5d65a",
    "#d9a67e",
    "#8fa6ff",
    "#aab6c5",
]
_DASHED = 6


def _paint(colours: Sequence[str]) -> str:
    return " ".join(
        f".line.{name} {{ stroke: {colour} }} .dot.{name}, .key.{name} {{ fill: {colour} }}"
        for name, colour in zip(COLOURS, colours, strict=True)
    )


_STYLE = f"""<style>
  .ground {{ fill: #f6f8fa; stroke: #d8dee6 }} .grid {{ stroke: #d8dee6 }} text {{ fill: #18212d }}
  .soft {{ fill: #5a6675; font-size: 11.5px }} .title {{ font-weight: 600 }}
  .line {{ fill: none; stroke-width: 2 }} .dot, .key {{ stroke: none }}
  .faint {{ stroke: #b4bdc8; fill: none }} .node {{ fill: #8793a1 }} .ink {{ fill: #18212d }}
  .dashed {{ stroke-dasharray: 6 3 }} .dotted {{ stroke-dasharray: 1 4; stroke-linecap: round }}
  {_paint(_LIGHT)}
  @media (prefers-color-scheme: dark) {{
    .ground {{ fill: #12171e; stroke: #2b343f }} .grid {{ stroke: #2b343f }}
    text {{ fill: #e7ebf0 }} .soft {{ fill: #9ba8b7 }}
    .faint {{ stroke: #46515e }} .node {{ fill: #77838f }} .ink {{ fill: #e7ebf0 }}
    {_paint(_DARK)}
  }}
</style>"""

Curve = Sequence[tuple[float, float]]
"""Points (x, y), x ascending."""
Corner = Literal["top left", "top right", "bottom left", "bottom right", "none"]


class Drawing(Protocol):
    """A drawing that :func:`svg` arranges."""

    @property
    def width(self) -> float: ...
    @property
    def height(self) -> float: ...
    def draw(self) -> str:
        """SVG with the upper left corner at the origin."""


class Panel:
    """One diagram: curves by name over common axes; ``log`` makes both axes logarithmic, or ``x``.

    On logarithmic axes all coordinates must be over 0. ``names`` is the corner for the curves'
    names: one that the curves leave free; ``none`` where a :class:`Legend` has them.
    ``from_zero``: the vertical axis begins at 0.
    """

    width, height = _WIDTH, _HEIGHT

    def __init__(
        self,
        title: str,
        x: str,
        y: str,
        curves: Mapping[str, Curve],
        log: bool | Literal["x"] = False,
        names: Corner = "top left",
        from_zero: bool = True,
    ) -> None:
        if not 0 < len(curves) <= len(COLOURS) or not all(curves.values()):
            raise ValueError(f"a panel shows 1 to {len(COLOURS)} curves with points")
        self._title, self._curves, self._log, self._names = title, curves, log, names
        self._x, self._y, self._from_zero = x, y, from_zero

    def draw(self) -> str:
        """Draws the panel with its upper left corner at the origin."""
        points = [point for curve in self._curves.values() for point in curve]
        x_axis = axis([x for x, _ in points], _LEFT, _WIDTH - _RIGHT, log=bool(self._log))
        y_axis = axis(
            [y for _, y in points],
            _HEIGHT - _BOTTOM,
            _TOP,
            log=self._log is True,
            from_zero=self._from_zero,
        )
        across, up = x_axis[1], y_axis[1]
        parts = [frame(self._title, self._x, self._y, x_axis[0], across, y_axis[0], up)]
        for number, (name, curve) in enumerate(self._curves.items()):
            colour = COLOURS[number]
            dashed = " dashed" if number >= _DASHED else ""
            way = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in curve)
            parts.append(f'<polyline class="line {colour}{dashed}" points="{way}"/>')
            parts += [mark(number, across(x), up(y), 3.2) for x, y in curve]
            if name and self._names != "none":
                parts.append(self._name(number, name))
        return "\n".join(parts)

    def _name(self, number: int, name: str) -> str:
        """Returns the curve's name with its mark, in their corner."""
        top = _TOP + 16
        if self._names.startswith("bottom"):
            top = _HEIGHT - _BOTTOM - 8 - 16 * (len(self._curves) - 1)
        y = top + 16 * number
        left = self._names.endswith("left")
        x, anchor = (_LEFT + 24, "") if left else (_WIDTH - _RIGHT - 24, ' text-anchor="end"')
        text = f'<text class="key {COLOURS[number]}" x="{x}" y="{y}"{anchor}>{escape(name)}</text>'
        return mark(number, x + (-10 if left else 10), y - 4, 4) + text


class Legend:
    """Names of colours in rows, as wide as ``columns`` panels.

    of: what bears the colours: lines with marks, marks alone, or areas, which have no shape.
    """

    def __init__(
        self,
        names: Sequence[str],
        columns: int = 1,
        of: Literal["lines", "marks", "areas"] = "lines",
    ) -> None:
        self.width = _WIDTH * columns
        self._names, self._of = names, of
        self._each = max(150, 50 + 8 * max(map(len, names)))
        self._a_row = max(1, (self.width - 2 * _RIGHT) // self._each)
        self.height = 20 + 20 * ceil(len(names) / self._a_row)

    def draw(self) -> str:
        parts = []
        for number, name in enumerate(self._names):
            x = 2 * _RIGHT + number % self._a_row * self._each
            y = 18 + number // self._a_row * 20
            colour = COLOURS[number]
            dashed = " dashed" if number >= _DASHED else ""
            sign = mark(0 if self._of == "areas" else number, x + 16, y - 4, 6, colour)
            if self._of == "lines":
                line = f'<path class="line {colour}{dashed}" d="M{x} {y - 4}h26"/>'
                sign = line + mark(number, x + 13, y - 4, 4)
            parts.append(
                f'{sign}<text class="key {colour}" x="{x + 32}" y="{y}">{escape(name)}</text>'
            )
        return "\n".join(parts)


def mark(number: int, x: float, y: float, size: float, colour: str = "", name: str = "") -> str:
    """A mark of the shape and the colour of a number, or in another colour.

    name: what a reader is told who points at it; such marks let others shine through.
    """
    # Of two colours that are like each other, c and i for instance, the shapes are not.
    shape = _SHAPES[(number + number // len(_SHAPES)) % len(_SHAPES)]
    colour = colour or COLOURS[number]
    place = f'transform="translate({x:.1f} {y:.1f}) scale({size:.1f})" d="{shape}"'
    if not name:
        return f'<path class="dot {colour}" {place}/>'
    title = f"<title>{escape(name)}</title>"
    return f'<path class="dot {colour}" {place} fill-opacity=".75">{title}</path>'


def frame(
    title: str,
    x: str,
    y: str,
    x_ticks: Sequence[float],
    across: Callable[[float], float],
    y_ticks: Sequence[float],
    up: Callable[[float], float],
) -> str:
    """Title, grid, ticks and names of the axes of a diagram as large as a panel."""
    parts = [f'<text class="title" x="{_LEFT}" y="24">{escape(title)}</text>']
    for tick in x_ticks:
        at = across(tick)
        parts.append(
            f'<path class="grid" d="M{at:.1f} {_TOP}V{_HEIGHT - _BOTTOM}"/><text class="soft"'
            f' x="{at:.1f}" y="{_HEIGHT - _BOTTOM + 17}" text-anchor="middle">{short(tick)}</text>'
        )
    for tick in y_ticks:
        at = up(tick)
        parts.append(
            f'<path class="grid" d="M{_LEFT} {at:.1f}H{_WIDTH - _RIGHT}"/><text class="soft"'
            f' x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{short(tick)}</text>'
        )
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    parts.append(
        f'<text class="soft" x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 14}"'
        f' text-anchor="middle">{escape(x)}</text><text class="soft" text-anchor="middle"'
        f' transform="translate(20 {middle}) rotate(-90)">{escape(y)}</text>'
    )
    return "\n".join(parts)


def axis(
    values: Sequence[float], start: float, end: float, log: bool = False, from_zero: bool = False
) -> tuple[list[float], Callable[[float], float]]:
    """Ticks, and the place of a value."""
    if log:
        low, high = floor(log10(min(values))), ceil(log10(max(values)))
        high = max(high, low + 1)
        ticks = [10.0**power for power in range(low, high + 1)]
        return ticks, lambda value: start + (log10(value) - low) / (high - low) * (end - start)
    first, last = (0.0 if from_zero else min(values)), max(values)
    step = _step((last - first or 1.0) / 5)
    ticks = [step * number for number in range(floor(first / step), ceil(last / step) + 1)]
    first, last = ticks[0], max(ticks[-1], ticks[0] + step)
    return ticks, lambda value: start + (value - first) / (last - first) * (end - start)


def svg(title: str, text: str, panels: Sequence[Drawing], columns: int = 0) -> str:
    """The panels beside each other, ``columns`` in a row (0: all).

    A drawing wider than a column begins a row of its own. ``title`` and ``text`` are for those who
    cannot see them.
    """
    rows: list[list[Drawing]] = [[]]
    for panel in panels:
        wide = rows[-1] and panel.width > rows[-1][0].width
        if (columns and len(rows[-1]) == columns) or wide:
            rows.append([])
        rows[-1].append(panel)
    width = max(sum(panel.width for panel in row) for row in rows)
    height = sum(max(panel.height for panel in row) for row in rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img"'
        ' aria-labelledby="title text" font-family="system-ui, \'Segoe UI\', Roboto,'
        ' \'DejaVu Sans\', sans-serif" font-size="13">',
        f'<title id="title">{escape(title)}</title>\n<desc id="text">{escape(text)}</desc>',
        _STYLE,
        f'<rect class="ground" x=".5" y=".5" width="{width - 1:g}" height="{height - 1:g}"'
        ' rx="14"/>',
    ]
    top = 0.0
    for row in rows:
        left = 0.0
        for panel in row:
            parts.append(f'<g transform="translate({left:g} {top:g})">\n{panel.draw()}\n</g>')
            left += panel.width
        top += max(panel.height for panel in row)
    return "\n".join([*parts, "</svg>", ""])


def _step(rough: float) -> float:
    power = 10.0 ** floor(log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)


def short(value: float) -> str:
    """Returns a number as an axis says it."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
