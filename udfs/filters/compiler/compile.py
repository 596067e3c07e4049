"""Compilation of checked rules to rows, the one form that the matcher and the switches share.

Source: CAMUS 3.2 (rules to diagram, Algorithm 1: diagram to one table a field).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.errors import FilterError
from stackcast.udfs.filters.compiler.levels import Levels, make_levels
from stackcast.udfs.filters.compiler.order import choose_order
from stackcast.udfs.filters.compiler.outcomes import Outcomes, receiver_order, token_order
from stackcast.udfs.filters.compiler.slices import height_of, slice_diagram, states_of
from stackcast.udfs.filters.compiler.table_kernels import export_sets
from stackcast.udfs.filters.compiler.tables import ENTRY, KINDS, CompiledFilter
from stackcast.udfs.filters.compiler.term_table import TermTable
from stackcast.udfs.filters.diagrams.diagrams import Diagrams
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.language.shapes import RuleTable, read_table
from stackcast.udfs.filters.meaning.state import Cell, add_updates, resolve_variables
from stackcast.udfs.filters.meaning.terms import TermBlock
from stackcast.udfs.filters.nodes import Action, Call, Forward, Function, Update
from stackcast.udfs.filters.subscriptions import (
    CheckedRule,
    CheckedRules,
    Rejection,
    Subscription,
    check,
)
from stackcast.udfs.messages.specification import Specification

__all__ = [
    "ENTRY",
    "KINDS",
    "MAX_ENTRIES",
    "CheckedRule",
    "CompiledFilter",
    "Rejection",
    "Subscription",
    "check",
    "compile_rules",
    "compile_table",
    "compile_texts",
]

MAX_ENTRIES = 1_000_000
"""Rows that a filter may have, unless told otherwise."""

ROWS_PER_ENTRY = 24
"""Rows of diagrams on the way to one of the result: terms unite two by two, level by level."""

Order = str | Sequence[str]


def compile_rules(
    rules: Sequence[CheckedRule],
    specification: Specification,
    max_entries: int = MAX_ENTRIES,
    *,
    order: Order = "specification",
    optional: bool | None = None,
) -> CompiledFilter:
    """Compiles all rules into one filter; an event's leaf has the outcomes of all that match.

    order: tables stand in the order message type, then the ``specification``'s, or fields as
        named here first. ``auto`` chooses an order that needs few rows.
    optional: True if events may lack fields of headers that they have; None: as the
        specification says.

    Errors: ``FilterError`` TOO_LARGE beyond ``max_entries`` rows, before memory is eaten, and
    TOO_MANY_FIELDS.
    """
    table = table_of_rules(rules, specification, optional)
    return compile_table(table, specification, max_entries, order=order, optional=optional)


def compile_texts(
    texts: Sequence[str],
    specification: Specification,
    max_entries: int = MAX_ENTRIES,
    *,
    order: Order = "specification",
    optional: bool | None = None,
) -> CompiledFilter:
    """Compiles rules as they are written; receivers are those that they name, unchecked.

    The same as ``compile_rules`` of each text's rule. Errors: ``SubscriptionError`` for the first
    text that is wrong, and as ``compile_rules``.
    """
    read = read_table(texts, specification)
    if read.errors:
        raise read.errors[0][1]
    table = table_of_texts(texts, read, specification, optional)
    return compile_table(table, specification, max_entries, order=order, optional=optional)


def table_of_rules(
    rules: Sequence[CheckedRule], specification: Specification, optional: bool | None = None
) -> TermTable:
    """Returns the terms of rules, numbered as they stand. Errors: ``SubscriptionError`` as of
    ``check``."""
    if isinstance(rules, CheckedRules):
        return _table_of_many(rules, specification, optional)
    table = TermTable()
    functions = resolve_variables(rule.updates for rule in rules)
    for number, rule in enumerate(rules):
        table.add(
            number,
            rule.condition,
            rule.receivers,
            rule.calls,
            rule.updates,
            specification,
            functions,
            optional,
        )
    return table


def _table_of_many(
    rules: CheckedRules, specification: Specification, optional: bool | None
) -> TermTable:
    """Returns the same for rules that are no objects yet."""
    table = TermTable()
    number = np.full(len(rules.texts), -1, np.int32)
    number[list(rules.numbers)] = np.arange(len(rules), dtype=np.int32)
    known = {
        receivers: table.outcome_number(receivers) for receivers in dict.fromkeys(rules.receivers)
    }
    table.outcome = np.array([known[receivers] for receivers in rules.receivers], np.int32)
    plain = number.copy()
    plain[list(rules.trees)] = -1
    blocks = [_part(block, plain[block.rule] >= 0) for block in rules.table.blocks]
    table.blocks = [replace(block, rule=number[block.rule]) for block in blocks]
    trees = [number[at] for at in rules.trees if number[at] >= 0]
    functions = resolve_variables(rules[at].updates for at in trees)
    for at in trees:
        rule = rules[at]
        actions = (rule.receivers, rule.calls, rule.updates)
        table.add(int(at), rule.condition, *actions, specification, functions, optional)
    return table


def table_of_texts(
    texts: Sequence[str],
    read: RuleTable,
    specification: Specification,
    optional: bool | None = None,
) -> TermTable:
    """Returns the terms of texts that ``read`` is of, numbered as they stand, but for faulty
    ones."""
    parts = [actions_of(actions) for actions in read.outcomes]
    table = TermTable()
    numbers = [table.outcome_number((*r, *calls)) for r, calls, _ in parts]
    table.outcome = np.array([*numbers, 0], np.int32)[read.outcome]
    # An update may demand a field more than the condition does, so these are no plain terms.
    updating = np.array([*(bool(updates) for _, _, updates in parts), False])[read.outcome]
    blocks, rules = [], list(read.rules)
    for block in read.blocks:
        apart = updating[block.rule]
        rules += [(i, parse_rule(texts[i], specification)) for i in block.rule[apart].tolist()]
        blocks.append(_part(block, ~apart) if apart.any() else block)
    table.blocks = blocks
    functions: dict[str, Function] = {}
    for number in np.flatnonzero(updating).tolist():
        add_updates(functions, parts[int(read.outcome[number])][2])
    for number, rule in sorted(rules, key=lambda pair: pair[0]):
        actions = parts[int(read.outcome[number])]
        table.add(number, rule.condition, *actions, specification, functions, optional)
    return table


def actions_of(
    actions: Sequence[Action],
) -> tuple[tuple[str, ...], tuple[Call, ...], tuple[Update, ...]]:
    """Returns the receivers, sorted, the calls and the updates among a rule's actions, each
    once."""
    receivers = {t for action in actions if isinstance(action, Forward) for t in action.targets}
    return (
        tuple(sorted(receivers, key=receiver_order)),
        tuple(sorted({action for action in actions if isinstance(action, Call)})),
        tuple(dict.fromkeys(action for action in actions if isinstance(action, Update))),
    )


def compile_table(
    table: TermTable,
    specification: Specification,
    max_entries: int = MAX_ENTRIES,
    *,
    order: Order = "specification",
    optional: bool | None = None,
) -> CompiledFilter:
    """Compiles terms as ``compile_rules`` does."""
    if order == "auto":
        order = choose_order(
            table, specification, counter(table, specification, max_entries, optional)
        )
    levels = make_levels(
        specification, named_order(order), table.cells.values(), table.used(), optional
    )
    tokens = sorted({t for outcome in table.outcomes for t in outcome}, key=token_order)
    bit = {token: number for number, token in enumerate(tokens)}
    max_rows = ROWS_PER_ENTRY * max_entries
    diagrams = Diagrams(levels.maxima, levels.may_lack, len(tokens), max_rows, capacity=1 << 16)
    leaves = [diagrams.leaf(map(bit.__getitem__, outcome)) for outcome in table.outcomes]
    try:
        roots, like = table.roots(diagrams, levels, np.array(leaves, np.int32))
        root = diagrams.union_all(roots[like])
    except FilterError as error:
        raise too_large(max_entries) from error
    slices = slice_diagram(diagrams, root, levels)
    if int(slices.rows.sum()) > max_entries:
        raise too_large(max_entries)
    count = len(slices.nodes)
    node_state, set_state = states_of(
        diagrams,
        slices,
        np.arange(count, dtype=np.int32),
        np.arange(count, count + len(slices.leaves), dtype=np.int32),
    )
    entries = slices.entries(diagrams, levels, np.arange(count), node_state, set_state)
    keys, sets = export_sets(diagrams.pool, slices.leaves)
    states = set_state[-1 - slices.leaves]
    state = int(node_state[root] if root >= 0 else set_state[-1 - root])
    outcomes = Outcomes(states, sets, keys, height_of(diagrams), tokens)
    return assemble(levels, entries, outcomes, state)


def counter(
    table: TermTable, specification: Specification, max_entries: int, optional: bool | None
) -> Callable[[tuple[str, ...], int | None], int | None]:
    """Returns a function that counts the rows of a table's terms in some order of the fields."""

    def rows(order: tuple[str, ...], limit: int | None) -> int | None:
        most = max_entries if limit is None else limit
        try:
            filter_ = compile_table(table, specification, most, order=order, optional=optional)
        except FilterError:
            return None
        return len(filter_.entries)

    return rows


def assemble(
    levels: Levels,
    entries: NDArray[np.void],
    outcomes: Outcomes,
    root: int,
    cells: Sequence[Cell] | None = None,
) -> CompiledFilter:
    """Makes a filter of the tables that have rows, and those of all cells. ``entries``: by
    level."""
    kept = np.zeros(len(levels), np.bool_)
    kept[entries["field"]] = True
    kept[0] = True
    held = levels.cells if cells is None else tuple(cells)
    names = {cell.name for cell in held}
    for level in range(len(levels) - len(levels.cells), len(levels)):
        kept[level] |= levels.names[level] in names
    number = np.cumsum(kept) - 1
    entries["field"] = number[entries["field"]]
    chosen = np.flatnonzero(kept).tolist()
    return CompiledFilter(
        fields=tuple(levels.names[level] for level in chosen),
        definitions=tuple(levels.fields[level - 1] for level in chosen[1:]),
        entries=entries,
        outcomes=outcomes,
        root=root,
        cells=tuple(cell for cell in levels.cells if cell.name in names),
    )


def named_order(order: Order) -> tuple[str, ...]:
    """Returns the fields that are to come first."""
    if order == "specification":
        return ()
    if isinstance(order, str):
        raise ValueError(
            f"unknown field order {order!r}: use 'specification', or a list of field names"
        )
    return tuple(order)


def too_large(max_entries: int) -> FilterError:
    """Makes the error of a set of rules that needs more rows than it may."""
    return FilterError(
        "TOO_LARGE",
        f"the subscriptions need more than {max_entries} table entries, because rules that "
        "compare different fields, or several fields with many constants, multiply: use fewer "
        "distinct constants, or have each rule name the stock",
        max_entries=max_entries,
    )


def _part(block: TermBlock, which: NDArray[np.bool_]) -> TermBlock:
    lows, highs = [low[which] for low in block.lows], [high[which] for high in block.highs]
    return replace(block, lows=lows, highs=highs, rule=block.rule[which])
