"""Rules over the rows of a table: of each row the rules that match, and their receivers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stackcast.udfs.errors import MAX_NAME, SubscriptionError
from stackcast.udfs.filters.compiler.compile import actions_of, table_of_texts
from stackcast.udfs.filters.compiler.outcomes import receiver_order
from stackcast.udfs.filters.compiler.term_table import TermTable
from stackcast.udfs.filters.language.rule import subscription_error
from stackcast.udfs.filters.language.shapes import RuleTable, read_table
from stackcast.udfs.filters.language.syntax_errors import check_names
from stackcast.udfs.filters.predicate_index.predicate_index import PredicateIndex, distinct
from stackcast.udfs.filters.predicate_index.terms import FlatTerms
from stackcast.udfs.filters.rule_warnings import warnings_of_table
from stackcast.udfs.filters.subscriptions import Subscription
from stackcast.udfs.messages.specification import Specification
from stackcast.udfs.messages.table_columns import ColumnField, raw_values, table_specification


def read_rules(rules: Iterable[Any]) -> list[Subscription]:
    """Returns rules as subscriptions.

    Args:
        rules: subscriptions, or rows of table ``subscriptions``: mappings or rows of Spark with the
            columns id, subscriber and filter. Rows with ``enabled`` that is not true are left out.

    Raises:
        SubscriptionError: ``NOT_A_RULE`` for the first rule that is something else.
    """
    single = isinstance(rules, (str, bytes, Mapping, Subscription))
    if single or not isinstance(rules, Iterable):
        raise SubscriptionError(
            "NOT_A_RULE",
            f"rules must be a list of rules, not a {type(rules).__name__}: pass "
            '[Subscription("1", "h1", "price > 50")]',
        )
    read = (_read_rule(number, rule) for number, rule in enumerate(rules))
    return [rule for rule in read if rule is not None]


def _read_rule(number: int, rule: Any) -> Subscription | None:
    """Returns a rule as a subscription, or None for a row that is not enabled."""
    # Rows of Spark are tuples that know the names of their columns.
    columns = rule.asDict() if hasattr(rule, "asDict") else rule
    if isinstance(columns, Mapping):
        if not columns.keys() >= set(Subscription._fields):
            raise _not_a_rule(number, f"has the columns {', '.join(map(str, columns)) or 'none'}")
        if not columns.get("enabled", True):
            return None
        subscription = Subscription(*(columns[name] for name in Subscription._fields))
    elif isinstance(rule, Subscription):
        subscription = rule
    else:
        raise _not_a_rule(number, f"is a {type(rule).__name__}")
    for name, value in zip(Subscription._fields, subscription, strict=True):
        if not isinstance(value, str):
            raise _not_a_rule(number, f"has {name} of type {type(value).__name__}")
    return subscription


def _not_a_rule(number: int, fault: str) -> SubscriptionError:
    return SubscriptionError(
        "NOT_A_RULE",
        f"rules[{number}] {fault}: pass Subscription(id, subscriber, filter), or a row with the "
        "string columns id, subscriber and filter",
    )


class RowMatcher:
    """Finds the rules that each row of a table matches, at a cost that is a sum over the rules.

    schema: of the table; its columns are fields as of ``table_specification``, and a null is an
    absent field. A rule without ``fwd(...)`` is for its subscriber. Picklable. Errors:
    ``SubscriptionError`` for the first rule that is wrong, with its ``id``; ACTION_FOR_SWITCH and
    STATE_IN_TABLE for one with a named action or with state, BAD_NAME for one whose id or
    subscriber is not a name (`stackcast.udfs.names`). ``warned``: called with each warning of a
    rule; without it, warnings are not looked for.
    """

    def __init__(
        self,
        schema: pa.Schema,
        rules: Sequence[Subscription],
        warned: Callable[[SubscriptionError], object] | None = None,
    ) -> None:
        for rule in rules:
            try:
                check_names(id=rule.id, subscriber=rule.subscriber)
            except SubscriptionError as fault:
                raise _of_rule(rule, fault) from None
        texts = [rule.filter for rule in rules]
        specification, read = _read(schema, texts)
        for at, error in read.errors:
            raise _of_rule(rules[at], error)
        table = table_of_texts(texts, read, specification)
        for at in (*table.kept, *table.updates):
            why = (
                "the rule keeps state, which requires ordered events, but the rows of a table "
                "have no order"
            )
            raise _of_rule(rules[at], subscription_error("STATE_IN_TABLE", texts[at], (1, 1), why))
        if warned is not None:
            for at, warning in warnings_of_table(read, texts, specification):
                warned(_of_rule(rules[at], warning))
        self._ids = pa.array([rule.id for rule in rules], pa.string())
        told = self._receivers(rules, read)
        names = sorted({name for each in told for name in each}, key=receiver_order)
        number = {name: at for at, name in enumerate(names)}
        self._names = pa.array(names, pa.string())
        # By rule, the numbers of its receivers.
        self._begin = np.cumsum([0, *map(len, told)])
        self._told = np.array([number[name] for name in chain.from_iterable(told)], np.int64)
        self._index = index_of_rules(table, len(rules), specification)
        of_lane = {lane.qualified: f for f in specification.order() for lane in f.lanes()}
        fields = dict.fromkeys(of_lane[name] for name in self._index.fields)
        # By number, because a table may have two columns of a name that no rule contains.
        self._columns = [(schema.names.index(field.name), field) for field in fields]

    def match(self, rows: pa.RecordBatch) -> tuple[pa.ListArray, pa.ListArray]:
        """Returns of each row the ids of the rules that match, in the order of the rules, and
        their receivers, each once and sorted: two arrays of lists of strings.

        rows: columns as in the schema, in the same order; names do not matter.
        """
        count = rows.num_rows
        values = np.zeros((len(self._index.fields), count), np.uint64)
        present = np.zeros(values.shape, np.bool_)
        lane = 0
        for number, field in self._columns:
            raw, there = raw_values(rows.column(number), field)
            wanted = [each.qualified for each in field.lanes()]
            for name, row in zip(wanted, raw, strict=True):
                if name in self._index.fields:
                    values[lane], present[lane] = row, there
                    lane += 1
        row, rule = self._index.pairs(None, values, present)
        sizes = self._begin[rule + 1] - self._begin[rule]
        ends = np.cumsum(sizes)
        place = np.repeat(self._begin[rule] - (ends - sizes), sizes) + np.arange(sizes.sum())
        told = distinct(np.repeat(row, sizes) << 32 | self._told[place])
        return (
            _lists(count, row, self._ids.take(pa.array(rule))),
            _lists(count, told >> 32, self._names.take(pa.array(told & 0xFFFFFFFF))),
        )

    def _receivers(self, rules: Sequence[Subscription], read: RuleTable) -> list[tuple[str, ...]]:
        actions = [actions_of(each) for each in read.outcomes]
        found = []
        for rule, number in zip(rules, read.outcome.tolist(), strict=True):
            named, calls, _ = actions[number]
            if calls:
                why = f"action '{calls[0].name}' can only be performed by a switch; write fwd(...)"
                fault = subscription_error("ACTION_FOR_SWITCH", rule.filter, (1, 1), why)
                raise _of_rule(rule, fault)
            found.append(named or (rule.subscriber,))
        return found


def index_of_rules(table: TermTable, rules: int, specification: Specification) -> PredicateIndex:
    """Returns an index in which each rule is an outcome of its own: its ``pairs`` say which rules
    match.

    rules: how many ``table`` is of; none of them keeps state.
    """
    alone = TermTable(
        table.blocks,
        np.arange(rules, dtype=np.int32),
        [(term, rule, rule) for term, rule, _ in table.terms],
        {(str(rule),): rule for rule in range(rules)},
    )
    return PredicateIndex(FlatTerms.of(alone), specification)


def _read(schema: pa.Schema, texts: Sequence[str]) -> tuple[Specification, RuleTable]:
    """Reads rules over columns that are wide enough for all constants."""
    room: dict[str, int] = {}
    while True:
        specification = table_specification(schema, room)
        read = read_table(texts, specification)
        texts_of = [f for f in specification.order() if isinstance(f, ColumnField)]
        short = {f.name: f.longest[0] for f in texts_of if f.of == "text"}
        more = {n: size // 8 * 8 + 8 for n, size in short.items() if size >= room.get(n, 8)}
        if not more:
            return specification, read
        room |= more


def _of_rule(rule: Subscription, error: SubscriptionError) -> SubscriptionError:
    return SubscriptionError(
        error.what, f"rule {rule.id[:MAX_NAME]!r}: {error.message}", **error.fields, id=rule.id
    )


def _lists(count: int, row: NDArray[np.int64], values: pa.Array) -> pa.ListArray:
    offsets = np.searchsorted(row, np.arange(count + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)
