"""Edits of rules by people.

A draft is checked as a stream checks rows. After it is written, its result is read from the tables
that the stream writes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from stackcast.jobs.adapters.app.settings import FORMATS
from stackcast.jobs.adapters.tables.conflicts import retried
from stackcast.jobs.adapters.tables.edits import replace_changed
from stackcast.jobs.adapters.tables.tables import LIVE, REJECTED, SUBSCRIPTIONS, Tables
from stackcast.udfs.errors import SubscriptionError
from stackcast.udfs.filters.grants import Grants
from stackcast.udfs.filters.rule_warnings import warnings_of
from stackcast.udfs.filters.subscriptions import (
    Rejection,
    Subscription,
    check,
    live_rows,
    rejection,
)
from stackcast.udfs.filters.variable_warnings import VariableWarnings
from stackcast.udfs.messages.specification import Specification

Row = dict[str, Any]

WARNINGS = "subscription_warnings"
#: Columns of a row that an editor shows and writes.
EDITED = ("id", "subscriber", "format", "filter", "enabled")


class RuleContext(NamedTuple):
    """Everything that the rules of a format are checked against.

    Attributes:
        specification: specification of the format.
        hosts: names of the hosts that may receive.
        publisher: the only publisher, which may not receive; empty if there are several.
        grants: None if everything is granted.
    """

    specification: Specification
    hosts: set[str]
    publisher: str
    grants: Grants | None


@dataclass(frozen=True)
class DraftCheck:
    """Result of a check: the rejection that the draft would get, or the warnings."""

    rejection: Rejection | None
    warnings: Sequence[SubscriptionError] = ()


def check_draft(
    draft: Subscription,
    rows: Iterable[Mapping[str, Any]],
    context: RuleContext,
    live: Callable[[], Iterable[Subscription]],
) -> DraftCheck:
    """Check a draft as a stream checks the row of a rule.

    Args:
        draft: the draft.
        rows: all rows of `subscriptions`.
        context: everything that rules are checked against.
        live: returns the rules that are live. It is called only if the draft names a variable.
    """
    rejections = _check([draft], context) or _duplicates(draft, rows)
    if rejections:
        return DraftCheck(rejections[0])
    warnings = [error for _, error in warnings_of([draft.filter], context.specification)]
    variables = VariableWarnings(context.specification)
    if variables.may_name(draft.filter):
        subscribed = [row for row in live() if row.subscriber == draft.subscriber]
        rules = [draft, *(row for row in subscribed if row.id != draft.id)]
        valid = live_rows(rules, _check(rules, context))
        texts = [(row.subscriber, row.filter) for row in valid]
        warnings += [error for number, error in variables.of(texts) if valid[number] is draft]
    return DraftCheck(None, warnings)


def _check(rows: Sequence[Subscription], context: RuleContext) -> list[Rejection]:
    return check(rows, *context)[1]


def _duplicates(draft: Subscription, rows: Iterable[Mapping[str, Any]]) -> list[Rejection]:
    """Return the rejection of a draft whose id belongs to another subscriber."""
    for row in rows:
        if row["id"] == draft.id and row["subscriber"] != draft.subscriber:
            error = SubscriptionError(
                "DUPLICATE_ID",
                f"id {draft.id!r} belongs to a subscription of {row['subscriber']!r}: use "
                "another id for this rule, or delete that row first",
            )
            return [rejection(draft.id, error, draft.subscriber)]
    return []


def write_rule(
    tables: Tables, name: str, before: Sequence[Row], after: Sequence[Row]
) -> int | None:
    """Replace the rows of an id in one commit.

    Args:
        tables: the tables.
        name: the id.
        before: the rows of this id that the editor has shown.
        after: the new rows; none deletes the rule.

    Returns:
        A version of `subscriptions` that has the rows. None if the rows of this id are no longer
        ``before``; then nothing is written.

    Raises:
        Exception: errors of Delta and Spark.
    """

    def write() -> bool | None:
        version = tables.version(SUBSCRIPTIONS)
        rows = tables.rows(SUBSCRIPTIONS, version)
        if [row for row in rows if row["id"] == name] != list(before):
            return None
        unchanged = [row for row in rows if row["id"] != name]
        return replace_changed(tables, SUBSCRIPTIONS, [*unchanged, *after], ("id",), rows, version)

    if list(before) != list(after):
        # The write does nothing if another row was committed after the table was read.
        while (result := retried(write)) is False:
            pass
        if result is None:
            return None
    return tables.version(SUBSCRIPTIONS)


def rule_states(rows: Callable[[str], Sequence[Row]], form: str | None = None) -> list[Row]:
    """Return the rows of `subscriptions` by id, each with the state that a stream has given it.

    Args:
        rows: returns the rows of a table.
        form: the only format of interest; None for all formats.

    Returns:
        For each row its columns `EDITED`, its ``state``: live, rejected, disabled, pending or other
        format, and ``remarks``: why it is rejected, or warnings. A live row also has
        ``since_version`` and ``since``.
    """
    live = {row["id"]: row for row in rows(LIVE)}
    warnings, rejections = defaultdict(list), defaultdict(list)
    for row in rows(WARNINGS):
        warnings[row["id"]].append(_remark(row))
    for row in rows(REJECTED):
        rejections[row["id"], row["subscriber"]].append(_remark(row))
    states = []
    for row in sorted(rows(SUBSCRIPTIONS), key=lambda row: str(row["id"])):
        name = row["id"]
        remarks = rejections.get((name, row["subscriber"]), [])
        state = _state(row, live.get(name), bool(remarks), form)
        result = {column: row[column] for column in EDITED} | {"state": state, "remarks": []}
        if state == "rejected":
            result["remarks"] = remarks
        elif state == "live":
            result |= {key: live[name][key] for key in ("since_version", "since")}
            result["remarks"] = warnings.get(name, [])
        states.append(result)
    return states


def _state(row: Row, live: Row | None, rejected: bool, form: str | None) -> str:
    if not row["enabled"]:
        return "disabled"
    if form is not None and row["format"] != form and row["format"] in FORMATS:
        return "other format"
    if live is not None and all(row[key] == live[key] for key in ("subscriber", "filter")):
        return "live"
    return "rejected" if rejected else "pending"


def _remark(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in ("code", "line", "column", "message")}


@dataclass(frozen=True)
class EditResult:
    """The result of an edit in the newest plan of a stream.

    Attributes:
        since_version: version of `subscriptions` since which the rule is live; None if it is not.
        rejections: reasons why it is not live.
    """

    since_version: int | None
    rejections: Sequence[Rejection] = ()


class EditResultReader:
    """Reads the result of an edit from the tables that a stream writes.

    Args:
        tables: the tables.
        rule: the rule as it was written.
        version: a version of `subscriptions` with the edit.
        active: whether the rule should become live. Otherwise it was deleted or disabled.
    """

    def __init__(self, tables: Tables, rule: Subscription, version: int, active: bool) -> None:
        self._tables = tables
        self._rule = rule
        self._version = version
        self._active = active
        #: Versions of the tables without a result.
        self._unchanged: tuple[int, int] | None = None

    def read(self) -> EditResult | None:
        """Return the result, or None as long as the tables have no plan with the edit.

        Raises:
            TableError: MISSING.
        """
        versions = self._tables.version(LIVE), self._tables.version(REJECTED)
        if versions == self._unchanged:
            return None
        live = self._tables.rows(LIVE, versions[0])
        if not self._active:
            newest = max((row["subscriptions_version"] for row in live), default=self._version)
            if newest >= self._version and not any(map(self._is_of_rule, live)):
                return EditResult(None)
        for row in live if self._active else ():
            same = self._is_of_rule(row) and row["filter"] == self._rule.filter
            if same and row["subscriptions_version"] >= self._version:
                return EditResult(row["since_version"])
        rejections = [
            Rejection.from_row(row)
            for row in self._tables.rows(REJECTED, versions[1])
            if self._is_of_rule(row) and row["subscriptions_version"] >= self._version
        ]
        if rejections and self._active:
            return EditResult(None, rejections)
        self._unchanged = versions
        return None

    def _is_of_rule(self, row: Mapping[str, Any]) -> bool:
        return bool(row["id"] == self._rule.id and row["subscriber"] == self._rule.subscriber)
