"""Rules as bit vectors: a bit a term, so that rules on several fields add rows and never multiply.

Each field maps a value to the terms that it speaks for, or that do not ask for the field; the terms
that all fields leave match. Terms are in words as wide as a switch has ports, and bit p - 1 of each
is a term whose events go to port p: the ports of an event are the words OR-ed.

Source: Lakshman and Stiliadis, SIGCOMM 1998.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from udfs.filters.compiler.term_table import TermTable
from udfs.filters.intervals import Intervals, union
from udfs.filters.meaning.normal_form import Term
from udfs.network_match.layout import MASK_BITS, MAX_EXPANDED, ProgramOptions


@dataclass(frozen=True)
class FieldVectors:
    """Holds the terms that each value of a field allows.

    rows: (low, high, terms), disjoint and ascending. otherwise: the terms of all other values.
    absent: those of an event that lacks the field, which is to ask for it in vain.
    """

    rows: tuple[tuple[int, int, int], ...]
    otherwise: int
    absent: int


@dataclass(frozen=True)
class BitVectors:
    """Holds the terms that an event meets in one pass. ``terms``: the bits that stand for one."""

    terms: int
    fields: Mapping[str, FieldVectors]


def bit_vectors(
    table: TermTable,
    port: Callable[[str], int],
    options: ProgramOptions,
    maximum: Mapping[str, int],
    single: Iterable[str] = (),
) -> tuple[list[BitVectors], list[int]]:
    """Returns the terms of rules without state, a pass each, and the rules that found no room.

    port: of a receiver, from 1 on. maximum: largest value of each field. single: fields of which
    rows are values. Terms to a port that differ in one field become one. Where a port still has
    more than ``options`` allow, those that fewest rules share go without, of equals the later ones.
    """
    by_port: dict[int, dict[Term, set[int]]] = {}
    for term, rule, tokens in _terms(table):
        for number in {port(token) for token in tokens}:
            by_port.setdefault(number, {}).setdefault(term, set()).add(rule)
    room = options.words * options.passes
    passes: list[list[tuple[int, Term]]] = []
    refused: set[int] = set()
    for number, terms in sorted(by_port.items()):
        held = sorted(_merged(terms).items(), key=lambda pair: (-len(pair[1]), min(pair[1])))
        refused.update(*(rules for _, rules in held[room:]))
        for place, (term, _) in enumerate(held[:room]):
            at, word = divmod(place, options.words)
            if at == len(passes):
                passes.append([])
            passes[at].append((1 << (MASK_BITS * word + number - 1), term))
    exact = frozenset(single)
    return [_vectors(terms, maximum, exact) for terms in passes], sorted(refused)


def _terms(table: TermTable) -> Iterator[tuple[Term, int, Sequence[str]]]:
    receivers = {
        number: tuple(token for token in tokens if isinstance(token, str))
        for tokens, number in table.outcomes.items()
    }
    for block in table.blocks:
        outcome = table.outcome[block.rule].tolist()
        for (term, rule), number in zip(block.terms(), outcome, strict=True):
            yield term, rule, receivers[number]
    for term, rule, number in table.terms:
        yield term, rule, receivers[number]


def _merged(terms: Mapping[Term, set[int]]) -> Mapping[Term, set[int]]:
    """Unites terms that differ in one field, by the field that saves most, as long as one does."""
    while True:
        names = sorted({name for term in terms for name, _ in term})
        fewest = min((_united(terms, name) for name in names), key=len, default=terms)
        if len(fewest) == len(terms):
            return terms
        terms = fewest


def _united(terms: Mapping[Term, set[int]], name: str) -> dict[Term, set[int]]:
    """Unites terms that are alike but for one field; one that does not ask for it has the rest."""
    alike: dict[Term, list[tuple[Intervals | None, set[int]]]] = {}
    for term, rules in terms.items():
        rest = tuple(pair for pair in term if pair[0] != name)
        alike.setdefault(rest, []).append((dict(term).get(name), rules))
    found: dict[Term, set[int]] = {}
    for rest, parts in alike.items():
        asked = [allowed for allowed, _ in parts if allowed is not None]
        whole = rest
        if len(asked) == len(parts):
            whole = tuple(sorted((*rest, (name, union(asked)))))
        found[whole] = set().union(*(rules for _, rules in parts))
    return found


def _vectors(
    terms: Sequence[tuple[int, Term]], maximum: Mapping[str, int], single: frozenset[str]
) -> BitVectors:
    every = sum(bit for bit, _ in terms)
    asking: dict[str, list[tuple[int, Intervals]]] = {}
    for bit, term in terms:
        for name, allowed in term:
            asking.setdefault(name, []).append((bit, allowed))
    fields = {
        name: _field(asked, every, maximum[name], name in single) for name, asked in asking.items()
    }
    return BitVectors(every, fields)


def _values(low: int, high: int) -> Iterable[tuple[int, int]]:
    if high - low >= MAX_EXPANDED:
        return [(low, high)]
    return ((value, value) for value in range(low, high + 1))


def _field(
    asked: Sequence[tuple[int, Intervals]], every: int, maximum: int, single: bool
) -> FieldVectors:
    changes: dict[int, int] = {0: 0, maximum + 1: 0}
    for bit, allowed in asked:
        for value in chain.from_iterable((low, high + 1) for low, high in allowed):
            changes[value] = changes.get(value, 0) ^ bit
    absent = every - sum(bit for bit, _ in asked)
    current, spans = absent, list[tuple[int, int, int]]()
    for low, end in pairwise(sorted(changes)):
        current ^= changes[low]
        if spans and spans[-1][2] == current:
            spans[-1] = (spans[-1][0], end - 1, current)
        else:
            spans.append((low, end - 1, current))
    # What costs most to list is left to the rows' end.
    cost: Counter[int] = Counter()
    for low, high, bits in spans:
        cost[bits] += high - low + 1 if single else 1
    otherwise = max(cost, key=lambda bits: (cost[bits], bits == absent))
    rows = [span for span in spans if span[2] != otherwise]
    if single:
        # A wider range is refused where entries are made of it.
        rows = [
            (first, last, bits) for low, high, bits in rows for first, last in _values(low, high)
        ]
    return FieldVectors(tuple(rows), otherwise, absent)
