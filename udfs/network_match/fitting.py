"""As many rules as a switch has room for: those that exceed it are found one by one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from stackcast.udfs.errors import FilterError, StackcastError, SubscriptionError
from stackcast.udfs.filters.compiler.compile import table_of_rules
from stackcast.udfs.filters.compiler.term_table import TermTable
from stackcast.udfs.filters.subscriptions import CheckedRule, Rejection
from stackcast.udfs.messages.specification import Specification
from stackcast.udfs.network_match.cell_tags import HeldCells
from stackcast.udfs.network_match.entries import ProgramEntries, program_entries
from stackcast.udfs.network_match.groups import Grouping, Groups, Way
from stackcast.udfs.network_match.layout import ProgramLayout
from stackcast.udfs.network_match.port_terms import PortTerm
from stackcast.udfs.network_match.refusals import ids_of
from stackcast.udfs.network_match.table_sizes import check_sizes

_NONE = HeldCells()
_EFFORT = 1 << 20
"""Rules with state times failures: so often they are compiled in vain before those that are in
doubt together are refused together."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """Holds the groups and the entries of the rules of a table that a switch has room for.

    refused: the other rules, by number, and what they exceed.
    """

    groups: Groups
    entries: ProgramEntries
    refused: Mapping[int, StackcastError]


@dataclass(frozen=True)
class Fitting:
    """Holds the entries of the rules that a switch has room for, and the others' rejections.

    passes: those of an event.
    """

    entries: ProgramEntries
    passes: int = 1
    rejections: Sequence[Rejection] = ()


def fitting_rules(
    rules: Sequence[CheckedRule],
    specification: Specification,
    program: ProgramLayout,
    switch: str,
    held: HeldCells,
) -> Fitting:
    """Makes the entries of a switch for rules whose receivers are ports. ``held``: as of
    ``program_entries``."""
    table = table_of_rules(rules, specification)
    fitted = fit(table, len(rules), specification, program, {}, held, switch)
    names = ids_of(rules)
    rejections = [
        Rejection(names[at], fault.code, 1, 1, fault.message)
        for at, fault in sorted(fitted.refused.items(), key=lambda pair: pair[0])
    ]
    return Fitting(fitted.entries, fitted.groups.passes, rejections)


def fit(
    table: TermTable,
    count: int,
    specification: Specification,
    program: ProgramLayout,
    ports: Mapping[str, int],
    held: HeldCells = _NONE,
    switch: str = "a switch",
) -> Fitted:
    """Makes the entries of a switch for as many as fit of ``count`` rules, those of ``table``.

    Rules with state or named actions are taken first, in their order. Of all others, the way to
    group them that refuses fewest is taken, and of these that with the fewest passes. Where a port
    has more terms than there is room for, those that fewest rules share are refused; where a table
    has too few rows, those of the rules that ask for its field that come last.
    ports: host name to port; numeric receivers are ports themselves. held: as of
    ``program_entries``.

    Raises FilterError as ``program_entries`` does for what has nothing to do with room.
    """
    return _Search(table, count, specification, program, ports, held, switch).found()


class _Search:
    def __init__(
        self,
        table: TermTable,
        count: int,
        specification: Specification,
        program: ProgramLayout,
        ports: Mapping[str, int],
        held: HeldCells,
        switch: str,
    ) -> None:
        self._specification, self._program = specification, program
        self._ports, self._held, self._switch = ports, held, switch
        self._count = count
        self._grouping = Grouping(table, count, specification, program, ports)

    def found(self) -> Fitted:
        refused = self._without_room(sorted(self._grouping.bound))
        rules = [rule for rule in range(self._count) if rule not in refused]
        best: Fitted | None = None
        failed: list[tuple[Way, FilterError]] = []
        for way in self._grouping.ways():
            try:
                found = self._made(way, rules, refused)
            except FilterError as error:
                failed.append((way, error))
                continue
            if len(found.refused) == len(refused) and found.groups.passes == 1:
                return found
            best = _better(best, found)
        if best is None or len(best.refused) > len(refused):
            with suppress(FilterError):
                best = _better(best, self._made(self._grouping.large, rules, refused))
            for way, fault in failed:
                best = _better(best, self._reduced(way, rules, refused, fault))
        if best is None:
            raise failed[0][1]
        return best

    def _made(
        self, way: Way, rules: Sequence[int], refused: Mapping[int, StackcastError]
    ) -> Fitted:
        groups = way(rules)
        entries = program_entries(
            groups.diagram,
            self._specification,
            self._ports,
            options=self._program.options,
            held=self._held,
            vectors=groups.vectors,
            conjunctions=groups.conjunctions,
        )
        check_sizes(entries.entries, self._program)
        return Fitted(groups, entries, {**refused, **self._no_room(groups.refused)})

    def _without_room(self, rules: Sequence[int]) -> dict[int, StackcastError]:
        """Finds those of the rules with state or actions that do not fit beside those before."""
        refused: dict[int, StackcastError] = {}
        parts, live, failed = [rules], list[int](), 0
        while parts:
            part = parts.pop()
            if not part:
                continue
            try:
                self._made(self._grouping.apart, sorted([*live, *part]), {})
            except FilterError as error:
                failed += 1
                half = len(part) // 2
                if half and failed * len(rules) < _EFFORT:
                    parts += [part[half:], part[:half]]
                else:
                    refused |= dict.fromkeys(part, error)
            else:
                live += part
        return refused

    def _reduced(
        self,
        way: Way,
        rules: Sequence[int],
        refused: Mapping[int, StackcastError],
        error: FilterError,
    ) -> Fitted | None:
        """Makes the entries without the rules that exceed a table; None if that does not help."""
        factor = 1
        while "needed" in error.fields:
            live = set(rules)
            terms = [each for each in self._grouping.terms if each.rule in live]
            gone = _exceeding(terms, error, factor)
            if not gone:
                return None
            refused = {**refused, **dict.fromkeys(gone, error)}
            rules = sorted(live - gone)
            factor *= 2
            try:
                return self._made(way, rules, refused)
            except FilterError as again:
                error = again
        return None

    def _no_room(self, rules: Collection[int]) -> dict[int, StackcastError]:
        """Says of rules to whose terms a port has no room what they ask for, and what it costs."""
        options = self._program.options
        most = options.words * options.passes
        terms: dict[int, list[PortTerm]] = {}
        for each in self._grouping.terms:
            if each.rule in rules:
                terms.setdefault(each.rule, []).append(each)
        found: dict[int, StackcastError] = {}
        for rule, own in terms.items():
            fields = sorted({name for each in own for name, _ in each.term})
            found[rule] = SubscriptionError(
                "NO_ROOM_ON_SWITCHES",
                f"this rule compares {', '.join(fields)} and expands to {len(own)} terms. The "
                f"rules for hosts behind one port of {self._switch} need more than {most} terms, "
                "the capacity of the P4 program besides a diagram and keys, and this rule shares "
                "terms with the fewest other rules: compare fields that other rules compare, or "
                "let the stream match (spark.stackcast.match=spark)",
            )
        return found


def _better(best: Fitted | None, found: Fitted | None) -> Fitted | None:
    if best is None or found is None:
        return best or found
    return min(best, found, key=lambda each: (len(each.refused), each.groups.passes))


def _exceeding(terms: Sequence[PortTerm], error: FilterError, factor: int) -> set[int]:
    """Returns rules that leave the table of an error room for the others, those that come last.

    As many are chosen as have the share of constants of its field by which it is exceeded, times
    ``factor``: a row or two a constant. At least one rule stays if none fits by itself.
    """
    field, needed, room = (error.fields[name] for name in ("field", "needed", "room"))
    first: dict[object, int] = {}
    asking: set[int] = set()
    for term, rule, _ in terms:
        for name, allowed in term:
            if name == field or not field:
                asking.add(rule)
                for span in allowed if field else (rule,):
                    first.setdefault(span, rule)
    firsts = sorted(first.values())
    if error.what == "NO_TABLE":
        firsts, asking = firsts[1:], asking - {firsts[0]}
    if not firsts:
        return set()
    excess = -(-factor * len(firsts) * (needed - room) // needed)
    cut = firsts[max(0, len(firsts) - excess)]
    return {rule for rule in asking if rule >= cut}
