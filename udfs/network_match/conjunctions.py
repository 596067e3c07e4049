"""Conjunctions of single values: rules that compare the same fields are rows of one exact table.

A row has the values of these fields as its key, and the ports of all rules that ask for just them.
Tables of other fields are looked up beside it, and their ports OR-ed. So a key costs one row,
whatever else there is.

Source: tuple space search, Srinivasan, Suri and Varghese, SIGCOMM 1999.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from stackcast.udfs.network_match.bit_vectors import merged, most_terms
from stackcast.udfs.network_match.layout import MAX_EXPANDED, ProgramLayout
from stackcast.udfs.network_match.port_terms import PortTerm

_Key = tuple[int, ...]


@dataclass(frozen=True)
class Conjunctions:
    """Holds keys of one set of fields. ports: by the values of ``fields``, a mask of ports."""

    fields: tuple[str, ...]
    ports: Mapping[_Key, int]


class KeySets:
    """Holds the terms that compare some fields with few single values, by the set of these fields.

    others: all other terms.
    """

    def __init__(self, terms: Sequence[PortTerm], program: ProgramLayout) -> None:
        self._options = program.options
        self._place = {stage.field: at for at, stage in enumerate(program.stages)}
        self.others: list[PortTerm] = []
        sets: dict[tuple[str, ...], list[PortTerm]] = {}
        for each in terms:
            if self._is_key(each):
                sets.setdefault(self._fields(each), []).append(each)
            else:
                self.others.append(each)
        most = {fields: most_terms(merged(asking)) for fields, asking in sets.items()}
        self._sets = sorted(sets.items(), key=lambda pair: (-most[pair[0]], pair[0]))

    def placed(self, passes: int) -> tuple[list[list[Conjunctions]], list[PortTerm]]:
        """Returns for each table of keys what it holds in each of so many passes, and the terms
        that have no place.

        Sets of fields that would be most terms of bit vectors have their places first. One that a
        table has no rows for goes on in the next.
        """
        held: list[list[Conjunctions]] = [[] for _ in range(self._options.conjunctions)]
        room = [self._options.rows] * len(held)
        rest = [*self.others]
        for fields, terms in self._sets:
            ports: dict[_Key, int] = {}
            for term in terms:
                for key in _keys(term, fields):
                    ports[key] = ports.get(key, 0) | term.ports
            waiting = list(ports.items())
            while waiting:
                free = [at for at, used in enumerate(held) if room[at] and len(used) < passes]
                if not free:
                    break
                at = min(free, key=lambda at: (len(held[at]), -room[at]))
                part, waiting = waiting[: room[at]], waiting[room[at] :]
                held[at].append(Conjunctions(fields, dict(part)))
                room[at] -= len(part)
            if waiting:
                left = {key for key, _ in waiting}
                rest += [term for term in terms if not left.isdisjoint(_keys(term, fields))]
        return [each for each in held if each], rest

    def _is_key(self, each: PortTerm) -> bool:
        if not 0 < len(each.term) <= self._options.key_fields:
            return False
        count = 1
        for _, allowed in each.term:
            if any(low != high for low, high in allowed):
                return False
            count *= len(allowed)
        return count <= MAX_EXPANDED

    def _fields(self, each: PortTerm) -> tuple[str, ...]:
        return tuple(sorted((name for name, _ in each.term), key=self._place.__getitem__))


def _keys(each: PortTerm, fields: Sequence[str]) -> Iterator[_Key]:
    allowed = dict(each.term)
    return product(*([low for low, _ in allowed[name]] for name in fields))
