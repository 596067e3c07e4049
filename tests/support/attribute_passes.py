"""A switch that matches attributes, run from its entries: what its passes make of an event."""

from __future__ import annotations

from collections.abc import Iterable

from stackcast.udfs.network.programs import EVENT, PASSES
from stackcast.udfs.network.programs import VALUES as VALUE_TABLES
from stackcast.udfs.switches.entry import SwitchEntry
from stackcast.udfs.switches.match import Match

LAST = (1 << 32) - 1


class Table:
    """One switch, run from its entries as P4 says; knows nothing of how they came about."""

    def __init__(self, entries: Iterable[SwitchEntry]) -> None:
        self.passes: dict[int, dict[str, int]] = {}
        self.rows = []
        self.values: dict[tuple[int, int, int], list[tuple[int, int, int, int]]] = {}
        for entry in entries:
            params = {name: int.from_bytes(value, "big") for name, value in entry.params}
            (_, kind, number), *others = entry.match
            assert kind == "exact"
            first = int.from_bytes(number, "big")
            parts = {field[0]: Match.parted(*field) for field in others}
            pairs = {
                name: tuple(int.from_bytes(b, "big") for b in (match.value, match.other))
                for name, match in parts.items()
            }
            if entry.table == PASSES:
                self.passes[first] = params
            elif entry.table == EVENT:
                assert entry.priority > 0
                assert all(mask and value & ~mask == 0 for value, mask in pairs.values())
                self.rows.append((entry.priority, first, pairs, params["ports"]))
            else:
                at = int(entry.table.removeprefix(VALUE_TABLES))
                present, _ = pairs["present"]
                low, high = pairs.get("value", (0, LAST))
                rows = self.values.setdefault((at, first, present), [])
                rows.append((entry.priority, low, high, params["terms"]))

    def outcomes(self, keys: dict[str, int]) -> set[tuple[int, ...]]:
        """The ports of each way that an event may take: of equal priorities P4Runtime leaves it
        open."""
        found, number = {0}, 0
        for _ in range(40):
            taken = self.passes.get(number)
            if taken is None:
                break
            rows = self._rows(taken["rows"], keys)
            terms = self._terms(taken["vectors"], taken["terms"], keys)
            ports = sum(
                1 << port
                for port in {
                    bit % 8 + 8 * (taken["subset"] - 1) if taken["subset"] else bit % 64
                    for bit in range(512)
                    if terms >> bit & 1
                }
            )
            found = {before | row | ports for before in found for row in rows}
            number = taken["next"]
            if not number:
                break
        else:
            raise AssertionError("passes without end")
        return {tuple(p + 1 for p in range(64) if mask >> p & 1) for mask in found}

    def _rows(self, number: int, keys: dict[str, int]) -> set[int]:
        hit = [
            (priority, ports)
            for priority, rows, wanted, ports in self.rows
            if rows == number and number
            if all(keys[name] & mask == value for name, (value, mask) in wanted.items())
        ]
        best = max((priority for priority, _ in hit), default=0)
        return {ports for priority, ports in hit if priority == best} or {0}

    def _terms(self, number: int, terms: int, keys: dict[str, int]) -> int:
        if not number:
            return 0
        for at in range(32):
            rows = self.values.get((at, number, keys["bitmask"] >> at & 1), [])
            value = keys[f"value_{at}"]
            fits = [(priority, own) for priority, low, high, own in rows if low <= value <= high]
            if fits:
                best = max(priority for priority, _ in fits)
                (own,) = (own for priority, own in fits if priority == best)
                terms &= own
        return terms


def keys_of(event: dict[int, int], junk: int = 0) -> dict[str, int]:
    """What the parser makes of an event; ``junk`` stands where an attribute is absent."""
    values = {f"value_{i}": event.get(i, junk) for i in range(32)}
    return {"bitmask": sum(1 << i for i in event), **values}
