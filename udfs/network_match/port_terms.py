"""The terms of rules without state, each with the ports that want its events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from stackcast.udfs.filters.compiler.term_table import TermTable
from stackcast.udfs.filters.meaning.normal_form import Term


class PortTerm(NamedTuple):
    """Holds a term of a rule; bit p - 1 of ``ports`` is port p."""

    term: Term
    rule: int
    ports: int


def port_terms(table: TermTable, port: Callable[[str], int]) -> list[PortTerm]:
    """Returns the terms of rules without state or named actions, by rule.

    port: of a receiver, from 1 on.
    """
    ports = {
        number: _mask(port(token) for token in tokens if isinstance(token, str))
        for tokens, number in table.outcomes.items()
    }
    found = [PortTerm(term, rule, ports[number]) for term, rule, number in table.terms]
    for block in table.blocks:
        outcome = table.outcome[block.rule].tolist()
        for (term, rule), number in zip(block.terms(), outcome, strict=True):
            found.append(PortTerm(term, rule, ports[number]))
    return sorted(found, key=lambda each: each.rule)


def ports_in(mask: int) -> Sequence[int]:
    """Returns the ports of a mask, ascending."""
    found = []
    while mask:
        lowest = mask & -mask
        found.append(lowest.bit_length())
        mask ^= lowest
    return found


def _mask(ports: Iterable[int]) -> int:
    mask = 0
    for port in ports:
        mask |= 1 << (port - 1)
    return mask
