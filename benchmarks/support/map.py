"""A network on a map, and what one notification does to its links, in the manner of `plot`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from benchmarks.support.plot import COLOURS

_TOP, _EDGE, _CAPTION = 44, 26, 22
Place = tuple[float, float]
Pair = tuple[str, str]


@dataclass(frozen=True)
class Map:
    """Switches at ``places`` (x to the right, y up), links between them, and marks.

    ways: links in a colour, ``(u, v, colour, class)`` with class ``""``, ``dashed`` or ``dotted``;
    several over one link are drawn beside each other. dots: switch → (colour, radius). names:
    switch → text beside it. caption: one line below.
    """

    title: str
    places: Mapping[str, Place]
    links: Sequence[Pair]
    ways: Sequence[tuple[str, str, int, str]] = ()
    dots: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    caption: str = ""
    width: float = 460
    height: float = 330

    def draw(self) -> str:
        spot = self._spots()
        parts = [f'<text class="title" x="{_EDGE}" y="24">{escape(self.title)}</text>']
        parts += [
            f'<path class="faint" d="{_line(spot[u], spot[v], 0.0)}"/>' for u, v in self.links
        ]
        beside: dict[Pair, int] = {}
        for u, v, colour, style in self.ways:
            pair = (min(u, v), max(u, v))
            number = beside[pair] = beside.get(pair, -1) + 1
            shift = (number + 1) // 2 * (4.0 if number % 2 else -4.0)
            way = _line(spot[pair[0]], spot[pair[1]], shift)
            parts.append(f'<path class="line {COLOURS[colour]} {style}" d="{way}"/>')
        for name, (x, y) in spot.items():
            if name not in self.dots:
                parts.append(f'<circle class="node" cx="{x:.1f}" cy="{y:.1f}" r="2"/>')
        for name, (number, radius) in self.dots.items():
            x, y = spot[name]
            parts.append(
                f'<circle class="dot {COLOURS[number]}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}">'
                f"<title>{escape(name)}</title></circle>"
            )
        for name, text in self.names.items():
            x, y = spot[name]
            parts.append(
                f'<text class="soft" x="{x + 6:.1f}" y="{y - 5:.1f}">{escape(text)}</text>'
            )
        parts.append(
            f'<text class="soft" x="{_EDGE}" y="{self.height - 12}">{escape(self.caption)}</text>'
        )
        return "\n".join(parts)

    def _spots(self) -> dict[str, Place]:
        """Returns the switches' places; one scale for both directions would waste space."""
        xs = [x for x, _ in self.places.values()]
        ys = [y for _, y in self.places.values()]
        wide = self.width - 2 * _EDGE
        tall = self.height - _TOP - _CAPTION - _EDGE
        across, up = wide / (max(xs) - min(xs) or 1.0), tall / (max(ys) - min(ys) or 1.0)
        return {
            name: (_EDGE + (x - min(xs)) * across, _TOP + (max(ys) - y) * up)
            for name, (x, y) in self.places.items()
        }


def _line(start: Place, end: Place, shift: float) -> str:
    """A straight line, moved aside by ``shift`` pixels."""
    (x1, y1), (x2, y2) = start, end
    long = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5 or 1.0
    dx, dy = -(y2 - y1) / long * shift, (x2 - x1) / long * shift
    return f"M{x1 + dx:.1f} {y1 + dy:.1f}L{x2 + dx:.1f} {y2 + dy:.1f}"
