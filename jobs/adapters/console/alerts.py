"""Alerts that one look at a job's metrics can tell, by the rules that Prometheus is given."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

Metrics = Mapping[str, Sequence[float]]

_RULE = re.compile(r"- alert: (\w+)\n\s+expr: (.*)")
_PART = re.compile(r"(\w+)(?:\{[^}]*\})? (==|>|<) ([\d.]+)(?: \* (\w+))?")
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}


@dataclass(frozen=True)
class Alert:
    """An alert that fires where one of its parts holds: metric, comparison, number, and a metric
    that the number is a multiple of, or empty. Without parts a look cannot tell: rates, and what
    lasts, are for Prometheus."""

    name: str
    parts: tuple[tuple[str, str, float, str], ...] = ()

    def state(self, metrics: Metrics) -> str:
        """Returns ``fires``, ``quiet``, or ``not told`` where nothing of these metrics says."""
        found = [held for part in self.parts if (held := self._holds(part, metrics)) is not None]
        if not found:
            return "not told"
        return "fires" if any(found) else "quiet"

    @staticmethod
    def _holds(part: tuple[str, str, float, str], metrics: Metrics) -> bool | None:
        name, compare, number, other = part
        values = metrics.get(name, ())
        if not values or (other and len(metrics.get(other, ())) != len(values)):
            return None
        bounds = [number * value for value in metrics[other]] if other else [number] * len(values)
        return any(map(_COMPARE[compare], values, bounds))


def read_alerts(path: Path) -> list[Alert]:
    """Return the alerts of a file of rules for Prometheus; none if the file does not exist."""
    if not path.is_file():
        return []
    return [
        Alert(name, _parts(text)) for name, text in _RULE.findall(path.read_text(encoding="utf-8"))
    ]


def _parts(text: str) -> tuple[tuple[str, str, float, str], ...]:
    found = [_PART.fullmatch(part.strip()) for part in text.split(" or ")]
    if not all(found):
        return ()
    return tuple((m[1], m[2], float(m[3]), m[4] or "") for m in found if m)


def read_metrics(text: str) -> dict[str, list[float]]:
    """Returns the values of each metric, whatever their labels. Raises ValueError."""
    found: dict[str, list[float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.value)
    return found
