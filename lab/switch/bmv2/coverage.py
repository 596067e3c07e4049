"""Which statements of a program ran: marks in its compiled form, if wanted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.switch.bmv2.source import Source


class Coverage:
    """Writes marks. ``points``: what each number stands for, as ``file:line: kind name (text)``."""

    def __init__(self, source: Source, wanted: bool) -> None:
        self.points: dict[int, str] = {}
        self._source = source
        self.wanted = wanted
        self._numbers: dict[tuple[str, str, int], int] = {}

    def mark(self, kind: str, name: str, node: Mapping[str, Any]) -> None:
        """Note here that ``node`` of the JSON ran. The same node always has one number."""
        if not self.wanted:
            return
        key = (kind, name, id(node))
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.points)
            self.points[number] = f"{_where(node)}{kind} {name}"
        self._source.line(f"covered({number})")


def _where(node: Mapping[str, Any]) -> str:
    info = node.get("source_info")
    if not info:
        return ""
    text = " ".join(str(info.get("source_fragment", "")).split())
    return f"{info.get('filename', '')}:{info.get('line', '')}: ({text}) "
