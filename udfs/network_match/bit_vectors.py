"""Rules as bit vectors: a bit a term, so that rules on several fields add rows and never multiply.

Each field maps a value to the terms that it speaks for, or that do not ask for the field; the terms
that all fields leave match. Terms are in words as wide as a switch has ports, and bit p - 1 of each
is a term whose events go to port p: the ports of an event are the words OR-ed.

Source: Lakshman and Stiliadis, SIGCOMM 1998.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import NamedTuple

from stackcast.udfs.filters.intervals import Intervals, union
from stackcast.udfs.filters.meaning.normal_form import Term
from stackcast.udfs.network_match.layout import MASK_BITS, ProgramLayout
from stackcast.udfs.network_match.port_terms import PortTerm, ports_in


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


Merged = Mapping[int, Sequence[tuple[Term, set[int]]]]
"""Terms by port, each with the rules that it is of."""


def merged(terms: Iterable[PortTerm]) -> Merged:
    """Unites terms to a port that differ in one field. Of a port, those that most rules share
    come first, of equals those of earlier rules."""
    by_port: dict[int, dict[Term, set[int]]] = {}
    for term, rule, ports in terms:
        for number in ports_in(ports):
            by_port.setdefault(number, {}).setdefault(term, set()).add(rule)
    return {
        number: sorted(_merged(found).items(), key=lambda pair: (-len(pair[1]), min(pair[1])))
        for number, found in sorted(by_port.items())
    }


def most_terms(terms: Merged) -> int:
    """Returns the most terms that one port has."""
    return max(map(len, terms.values()), default=0)


def bit_vectors(
    terms: Merged, passes: int, program: ProgramLayout
) -> tuple[list[BitVectors], set[int]]:
    """Returns the terms as `vectors_in_words` does, with the words and the stages of a program."""
    domains = {s.field: Domain(s.bits, s.kinds == ("exact",)) for s in program.stages}
    options = program.options
    return vectors_in_words(terms, passes, options.words, MASK_BITS, domains, options.rows)


class Domain(NamedTuple):
    """A field of so many bits. single: rows of its table are values."""

    bits: int
    single: bool = False


def vectors_in_words(
    terms: Merged, passes: int, words: int, width: int, domains: Mapping[str, Domain], rows: int
) -> tuple[list[BitVectors], set[int]]:
    """Returns the terms of at most so many ``passes``, and the rules of those without room.

    A pass has so many ``words``, each a bit wide for each port up to ``width``. Where a port has
    more terms than that, those that come last go without. ``rows``: of a table, at most.
    """
    room = words * passes
    held: list[list[tuple[int, Term]]] = []
    refused: set[int] = set()
    for number, own in terms.items():
        refused.update(*(rules for _, rules in own[room:]))
        for place, (term, _) in enumerate(own[:room]):
            at, word = divmod(place, words)
            if at == len(held):
                held.append([])
            held[at].append((1 << (width * word + number - 1), term))
    return [_vectors(each, domains, rows) for each in held], refused


def _merged(terms: Mapping[Term, set[int]]) -> Mapping[Term, set[int]]:
    """Unites terms that differ in one field, by the fields that save most first, as long as one
    does."""
    while saved := _saved(terms):
        for name in sorted(saved, key=lambda name: (-saved[name], name)):
            terms = _united(terms, name)
    return terms


def _saved(terms: Mapping[Term, set[int]]) -> Counter[str]:
    """Counts by field the terms that uniting those which differ in it alone saves."""
    alike = Counter((name, _without(term, name)) for term in terms for name, _ in term)
    saved: Counter[str] = Counter()
    for (name, rest), count in alike.items():
        if count > 1 or rest in terms:
            saved[name] += count - (rest not in terms)
    return saved


def _without(term: Term, name: str) -> Term:
    return tuple(pair for pair in term if pair[0] != name)


def _united(terms: Mapping[Term, set[int]], name: str) -> dict[Term, set[int]]:
    """Unites terms that are alike but for one field; one that does not ask for it has the rest."""
    found: dict[Term, set[int]] = {}
    alike: dict[Term, list[Term]] = {}
    for term, rules in terms.items():
        if any(field == name for field, _ in term):
            alike.setdefault(_without(term, name), []).append(term)
        else:
            found[term] = rules
    for rest, asking in alike.items():
        whole = asking[0]
        if rest in found:
            whole = rest
        elif len(asking) > 1:
            allowed = union([dict(term)[name] for term in asking])
            whole = tuple(sorted((*rest, (name, allowed))))
        found[whole] = found.get(whole, set()).union(*(terms[term] for term in asking))
    return found


def _vectors(
    terms: Sequence[tuple[int, Term]], domains: Mapping[str, Domain], rows: int
) -> BitVectors:
    every = sum(bit for bit, _ in terms)
    asking: dict[str, list[tuple[int, Intervals]]] = {}
    for bit, term in terms:
        for name, allowed in term:
            asking.setdefault(name, []).append((bit, allowed))
    fields = {name: _field(asked, every, domains[name], rows) for name, asked in asking.items()}
    return BitVectors(every, fields)


def _values(low: int, high: int, rows: int) -> Iterable[tuple[int, int]]:
    """Yields the values of a span; the whole, if a table has fewer rows, which is refused where
    entries are made of it."""
    if high - low >= rows:
        return [(low, high)]
    return ((value, value) for value in range(low, high + 1))


def _field(
    asked: Sequence[tuple[int, Intervals]], every: int, domain: Domain, most: int
) -> FieldVectors:
    changes: dict[int, int] = {0: 0, 1 << domain.bits: 0}
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
        cost[bits] += high - low + 1 if domain.single else 1
    otherwise = max(cost, key=lambda bits: (cost[bits], bits == absent))
    rows = [span for span in spans if span[2] != otherwise]
    if domain.single:
        rows = [
            (first, last, bits)
            for low, high, bits in rows
            for first, last in _values(low, high, most)
        ]
    return FieldVectors(tuple(rows), otherwise, absent)
