"""Stacked bars in groups, and dots over logarithmic axes, in the manner of :mod:`plot`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from benchmarks.support.plot import COLOURS, axis, frame, mark, short

_WIDTH, _NAMES, _TOP, _RIGHT, _BOTTOM = 460, 104, 44, 22, 48
_BAR, _GAP = 13, 9


class Bars:
    """Horizontal stacked bars: groups by name, each a list of bars, each a tuple of parts.

    Parts are coloured in order. In a group of several bars, later ones are drawn fainter to denser:
    their order is an order of time. ``up_to`` fixes the end of the axis, so that panels beside each
    other compare.
    """

    width = _WIDTH

    def __init__(
        self,
        title: str,
        x: str,
        groups: Mapping[str, Sequence[tuple[float, ...]]],
        up_to: float = 0.0,
        thin: bool = False,
    ) -> None:
        self._title, self._x, self._groups, self._up_to = title, x, groups, up_to
        self._bar = 4 if thin else _BAR
        bars = sum(len(group) for group in groups.values())
        self.height = _TOP + _BOTTOM + bars * self._bar + len(groups) * _GAP

    def draw(self) -> str:
        longest = max(sum(bar) for group in self._groups.values() for bar in group)
        ticks, across = axis(
            [0.0, max(longest, self._up_to)], _NAMES, _WIDTH - _RIGHT, from_zero=True
        )
        bottom = self.height - _BOTTOM
        parts = [f'<text class="title" x="{_RIGHT}" y="24">{escape(self._title)}</text>']
        for tick in ticks:
            parts.append(
                f'<path class="grid" d="M{across(tick):.1f} {_TOP}V{bottom}"/><text class="soft"'
                f' x="{across(tick):.1f}" y="{bottom + 17}" text-anchor="middle">{short(tick)}'
                "</text>"
            )
        y = _TOP + _GAP / 2
        for name, group in self._groups.items():
            tall = len(group) * self._bar
            parts.append(
                f'<text class="soft" x="{_NAMES - 8}" y="{y + tall / 2 + 4:.1f}"'
                f' text-anchor="end">{escape(name)}</text>'
            )
            for number, bar in enumerate(group):
                dense = 1.0 if len(group) == 1 else 0.45 + 0.55 * number / (len(group) - 1)
                at = 0.0
                for colour, part in zip(COLOURS, bar, strict=False):
                    left, right = across(at), across(at + part)
                    at += part
                    if part > 0:
                        parts.append(
                            f'<rect class="dot {colour}" x="{left:.1f}" y="{y:.1f}"'
                            f' width="{right - left:.1f}" height="{self._bar - 0.5:g}"'
                            f' fill-opacity="{dense:.2f}"/>'
                        )
                y += self._bar
            y += _GAP
        parts.append(
            f'<text class="soft" x="{(_NAMES + _WIDTH - _RIGHT) / 2}" y="{self.height - 12}"'
            f' text-anchor="middle">{escape(self._x)}</text>'
        )
        return "\n".join(parts)


@dataclass(frozen=True)
class Dot:
    """``size`` is a radius in pixels, ``colour`` an index; ``name`` is shown when pointed at."""

    x: float
    y: float
    size: float
    colour: int
    name: str


class Scatter:
    """Dots over logarithmic axes, as large as a panel."""

    width, height = 460, 320

    def __init__(self, title: str, x: str, y: str, dots: Sequence[Dot]) -> None:
        self._title, self._x, self._y, self._dots = title, x, y, dots

    def draw(self) -> str:
        x_ticks, across = axis([dot.x for dot in self._dots], 76, 440, log=True)
        y_ticks, up = axis([dot.y for dot in self._dots], 266, 48, log=True)
        parts = [frame(self._title, self._x, self._y, x_ticks, across, y_ticks, up)]
        # Large ones first: a small dot in front of them stays to be seen.
        parts += [
            mark(dot.colour, across(dot.x), up(dot.y), dot.size, name=dot.name)
            for dot in sorted(self._dots, key=lambda dot: (-dot.size, dot.name))
        ]
        return "\n".join(parts)
