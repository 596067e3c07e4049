"""As many rules as a switch has room for: those that exceed it are found one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from udfs.errors import FilterError, StackcastError, SubscriptionError
from udfs.filters.compiler.compile import table_of_rules
from udfs.filters.subscriptions import CheckedRule, Rejection
from udfs.messages.specification import Specification
from udfs.network_match.entries import ProgramEntries, program_entries
from udfs.network_match.groups import groups_of
from udfs.network_match.layout import ProgramLayout
from udfs.network_match.refusals import rules_without
from udfs.network_match.table_sizes import check_sizes

_EFFORT = 1 << 20
"""Rules times failures: so often rules are compiled in vain before those that are in doubt together
are refused together. Ten failures of 100,000 rules take a minute or two."""


@dataclass(frozen=True)
class Fitting:
    """Holds the entries of the rules that a switch has room for, and the others' rejections.

    passes: those of an event, one a group of rules.
    """

    entries: ProgramEntries
    passes: int = 1
    rejections: Sequence[Rejection] = ()


def fitting_rules(
    rules: Sequence[CheckedRule],
    specification: Specification,
    program: ProgramLayout,
    switch: str,
    slots: Mapping[str, tuple[int, int]] | None,
) -> Fitting:
    """Makes the entries of a switch for rules whose receivers are ports.

    Of terms to one port, those that fewest rules share find no room first. Where anything else
    does not fit, rules without state are taken first, then all in their order, as many as fit.
    """

    def made(those: Sequence[CheckedRule]) -> Fitting:
        table = table_of_rules(those, specification)
        groups = groups_of(table, len(those), specification, program, {})
        entries = program_entries(
            groups.diagram,
            specification,
            {},
            options=program.options,
            slots=slots,
            vectors=groups.vectors,
        )
        check_sizes(entries.entries, program)
        fault = _no_room(switch, program)
        rejections = [_rejection(those[at].id, fault) for at in groups.refused]
        return Fitting(entries, groups.passes, rejections)

    try:
        return made(rules)
    except FilterError:
        pass
    table = table_of_rules(rules, specification)
    bound = {*table.kept, *table.updates}
    parts = [
        [rule.id for at, rule in enumerate(rules) if at in bound],
        [rule.id for at, rule in enumerate(rules) if at not in bound],
    ]
    others = {rule.id for rule in rules}
    failed, rejections = 0, list[Rejection]()
    while parts:
        part = parts.pop()
        if not part:
            continue
        try:
            made(rules_without(rules, others.difference(part), specification))
        except FilterError as error:
            failed += 1
            half = len(part) // 2
            if half and failed * len(rules) < _EFFORT:
                parts += [part[half:], part[:half]]
            else:
                rejections += [_rejection(rule, error) for rule in part]
        else:
            others.difference_update(part)
    fitting = made(rules_without(rules, others, specification))
    return replace(fitting, rejections=[*rejections, *fitting.rejections])


def _no_room(switch: str, program: ProgramLayout) -> SubscriptionError:
    most = program.options.words * program.options.passes
    return SubscriptionError(
        "NO_ROOM_ON_SWITCHES",
        f"rules for hosts behind one port of {switch} come to more than {most} terms, all that the "
        "switches' program has room for beside a diagram, and fewest other rules share a term "
        "with this one: compare fields that other rules compare, or let the stream match "
        "(spark.stackcast.match=spark)",
    )


def _rejection(rule: str, fault: StackcastError) -> Rejection:
    return Rejection(rule, fault.code, 1, 1, fault.message)
