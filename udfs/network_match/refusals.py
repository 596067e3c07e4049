"""Rules that the stream can match and the switches' program cannot, each by itself.

A program has tables for some fields of its format. One rule that asks for another field would keep
all rules from becoming its entries, so such a rule is found before, and refused alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stackcast.udfs.errors import SubscriptionError
from stackcast.udfs.filters.compiler.compile import table_of_rules
from stackcast.udfs.filters.intervals import Intervals, complement
from stackcast.udfs.filters.meaning.normal_form import MESSAGE_TYPE
from stackcast.udfs.filters.nodes import CellUpdate
from stackcast.udfs.filters.subscriptions import CheckedRule, CheckedRules, Rejection
from stackcast.udfs.messages.specification import Specification
from stackcast.udfs.network_match.layout import MAX_EXPANDED, ProgramLayout

_DECLARE = "declare one with @query_counter"


def refused_by_program(
    rules: Sequence[CheckedRule], specification: Specification, program: ProgramLayout
) -> list[Rejection]:
    """Finds rules that no program can take, whatever other rules there are, in their order.

    They ask for a field that ``program`` has no table for, for a range of values of one that it
    matches exactly (NO_TABLE), or for a window that none of its registers has (NO_SLOT).
    """
    table = table_of_rules(rules, specification)
    stages = {stage.field: stage for stage in program.stages}
    exact = {
        name: (1 << stage.bits) - 1
        for name, stage in stages.items()
        if stage.kinds == ("exact",) and name != MESSAGE_TYPE
    }
    found: dict[int, str] = {}
    for block in table.blocks:
        for name, low, high in zip(block.names, block.lows, block.highs, strict=True):
            wrong = np.full(len(block), name not in stages)
            if name in exact:
                # Either the range or what it leaves out must be few values: the rest is by default.
                wide = np.uint64(MAX_EXPANDED)
                others = np.maximum(low, np.uint64(exact[name]) - high)
                wrong = (high - low >= wide) & (others > wide)
            for rule in block.rule[wrong].tolist():
                found.setdefault(rule, _why(name, name in stages))
    read = {operand.field for operand in program.operands}
    outcomes = {number: tokens for tokens, number in table.outcomes.items()}
    for term, rule, outcome in table.terms:
        for name, spans in term:
            if name in table.cells:
                continue
            if name not in stages:
                found.setdefault(rule, _why(name, False))
            elif name in exact and _wide(spans) and _wide(complement(spans, exact[name])):
                found.setdefault(rule, _why(name, True))
        for token in outcomes[outcome]:
            if isinstance(token, CellUpdate) and token.field not in {None, *read}:
                found.setdefault(rule, _why(str(token.field), False))
    windows = {block.microseconds for block in program.blocks}
    for rule, cells in table.kept.items():
        for cell in cells:
            if cell.function == "moved":
                if not windows:
                    found.setdefault(
                        rule, _refusal("cannot store state: compare only fields", _DECLARE)
                    )
            elif cell.window not in windows:
                found.setdefault(rule, _no_window(cell.window))
    faults = {at: SubscriptionError("NOT_ON_SWITCHES", found[at]) for at in sorted(found)}
    names = ids_of(rules)
    return [Rejection(names[at], fault.code, 1, 1, fault.message) for at, fault in faults.items()]


def ids_of(rules: Sequence[CheckedRule]) -> Sequence[str]:
    """Returns the ids of rules; those that are no objects yet stay so, as to make one parses it."""
    return rules.ids if isinstance(rules, CheckedRules) else [rule.id for rule in rules]


def rules_without(
    rules: Sequence[CheckedRule], refused: set[str], specification: Specification
) -> Sequence[CheckedRule]:
    """Returns all but the rules with these ids; those that are no objects yet stay so."""
    if not refused:
        return rules
    if not isinstance(rules, CheckedRules):
        return [rule for rule in rules if rule.id not in refused]
    places = [at for at, name in enumerate(rules.ids) if name not in refused]
    numbers = [rules.numbers[at] for at in places]
    return CheckedRules(
        [rules.ids[at] for at in places],
        [rules.receivers[at] for at in places],
        numbers,
        rules.texts,
        rules.table,
        {number: rules.trees[number] for number in numbers if number in rules.trees},
        specification,
    )


def _wide(spans: Intervals) -> bool:
    return any(high - low >= MAX_EXPANDED for low, high in spans)


def _why(field: str, known: bool) -> str:
    return _refusal(
        (
            f"matches only single values of {field}, but this rule compares it with a range: use "
            "single values"
        )
        if known
        else f"does not read {field}: compare other fields",
        "annotate the field with @query_field",
    )


def _no_window(microseconds: int) -> str:
    return _refusal(
        f"has no registers for a window of {microseconds} microseconds: use another window",
        _DECLARE,
    )


def _refusal(what: str, remedy: str) -> str:
    return (
        f"the P4 program of the switches {what}, {remedy} and generate the program again, or "
        "let the stream match (spark.stackcast.match=spark)"
    )
