"""The choice among the rows of the subscriptions table: one row for each id, within the quotas.

If rows compete for an id or for a share of a quota, the senior row wins: its pair of id and
subscriber has been in the table for longest. Seniority is the order of commits, which no editor of
a row can choose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Any

from stackcast.udfs.errors import SubscriptionError
from stackcast.udfs.filters.subscriptions import (
    Rejection,
    Subscription,
    forward_count,
    rejection,
)
from stackcast.udfs.messages.specification import Specification

Row = Mapping[str, Any]
Rows = Iterable[Row]


def select(
    rows: Rows,
    form: str,
    forms: Container[str],
    specification: Specification,
    seniority: Callable[[], Rows],
    most: int = 0,
) -> tuple[list[Subscription], list[Rejection]]:
    """Selects the enabled rows of the table that are written for one format.

    No two of the selected rows have the same id. Rows of another of the formats are for
    another job, and rows of an unknown format are rejected.

    Args:
        rows: rows of `subscriptions`.
        form: format of the rows to select.
        forms: all formats, ``form`` among them.
        specification: of the format ``form``.
        seniority: returns rows of `subscription_seniority`. It is called only if rows compete.
        most: quota of each subscriber, 0 for any number. A rule counts once for each host that it
            forwards to. The quota is given to the rules of a subscriber from the oldest on; a rule
            that does not fit in the remaining quota is rejected.

    Returns:
        The selected rows and the rejections, each ordered by id.
    """
    # A table that was written again with other constraints may have rows without an id.
    ordered = sorted(rows, key=lambda row: str(row["id"]))
    order = _Seniority(seniority)
    errors: list[tuple[Row, SubscriptionError]] = []
    if owners := _owners(ordered, order):
        for number, owner in owners.items():
            row = ordered[number]
            if row["enabled"] and (row["format"] == form or row["format"] not in forms):
                errors.append((row, _duplicate(row, owner)))
        ordered = [row for number, row in enumerate(ordered) if number not in owners]
    chosen = [row for row in ordered if row["enabled"] and row["format"] == form]
    if beyond := _beyond_quota(chosen, order, specification, most) if most else {}:
        errors += [(chosen[at], _quota(chosen[at], most, left)) for at, left in beyond.items()]
        chosen = [row for number, row in enumerate(chosen) if number not in beyond]
    errors += [
        (row, _unknown_format(row, form))
        for row in ordered
        if row["format"] not in forms and row["enabled"]
    ]
    errors.sort(key=lambda pair: (str(pair[0]["id"]), str(pair[0]["subscriber"])))
    rejections = [rejection(row["id"], error, row["subscriber"]) for row, error in errors]
    return list(map(Subscription._make, map(itemgetter(*Subscription._fields), chosen))), rejections


def by_age(rows: Iterable[Subscription], seniority: Callable[[], Rows]) -> list[Subscription]:
    """Returns rows from the oldest pair of id and subscriber on.

    Args:
        rows: rows that `select` returned.
        seniority: as for `select`.
    """
    order = _Seniority(seniority)
    return sorted(rows, key=lambda row: order.rank(row.id, row.subscriber))


class _Seniority:
    """Ranks rows by the version in which their pair of id and subscriber came into the table."""

    def __init__(self, read: Callable[[], Rows]) -> None:
        self._read = read

    @cached_property
    def _since(self) -> dict[tuple[str, str], int]:
        return {(row["id"], row["subscriber"]): row["since_version"] for row in self._read()}

    def rank(self, name: str, subscriber: str) -> tuple[float, str, str]:
        """Returns a key that sorts older pairs first; those of no known version come last."""
        return self._since.get((name, subscriber), float("inf")), str(name), str(subscriber)


def _owners(rows: Sequence[Row], order: _Seniority) -> dict[int, Row]:
    """Returns, by number, the rows whose id belongs to another row, with that row.

    An id belongs to its oldest pair, enabled or not. If that pair has several rows, the id belongs
    to an enabled one, and among these to the first by format and filter.
    """
    if len({row["id"] for row in rows}) == len(rows):
        return {}
    owners = {}
    for _, group in groupby(enumerate(rows), key=lambda numbered: str(numbered[1]["id"])):
        numbered_rows = list(group)
        first, owner = min(
            numbered_rows,
            key=lambda numbered: (
                order.rank(numbered[1]["id"], numbered[1]["subscriber"]),
                not numbered[1]["enabled"],
                str(numbered[1]["format"]),
                str(numbered[1]["filter"]),
            ),
        )
        owners.update({number: owner for number, _ in numbered_rows if number != first})
    return owners


def _duplicate(row: Row, owner: Row) -> SubscriptionError:
    other = "another row of the same subscriber"
    if row["subscriber"] != owner["subscriber"]:
        other = f"an older row of subscriber {owner['subscriber']!r}"
    return SubscriptionError(
        "DUPLICATE_ID",
        f"id {row['id']!r} already belongs to {other}: give this rule another id, or delete it",
    )


def _quota(row: Row, most: int, left: int) -> SubscriptionError:
    return SubscriptionError(
        "QUOTA",
        f"the rules of {row['subscriber']!r} may name {most} receivers in total, counted from the "
        f"oldest rule, and this rule exceeds the remaining {left}: disable or merge some rules, or "
        "ask for a higher quota",
    )


def _unknown_format(row: Row, form: str) -> SubscriptionError:
    return SubscriptionError(
        "UNKNOWN_FORMAT", f"unknown message format {row['format']!r}: write {form!r}"
    )


def _beyond_quota(
    rows: Sequence[Row], order: _Seniority, specification: Specification, most: int
) -> dict[int, int]:
    """Returns, by number, the rows that do not fit in a quota, with its remainder for each."""
    # An upper bound of the hosts that a subscriber's rules name, without parsing any of them.
    bounds = Counter(map(itemgetter("subscriber"), rows))
    for row in [row for row in rows if ":" in (row["filter"] or "")]:
        bounds[row["subscriber"]] += row["filter"].count(",") + row["filter"].count(";")
    if max(bounds.values(), default=0) <= most:
        return {}
    heavy = [number for number, row in enumerate(rows) if bounds[row["subscriber"]] > most]
    heavy.sort(key=lambda number: order.rank(rows[number]["id"], rows[number]["subscriber"]))
    totals: Counter[str] = Counter()
    beyond = {}
    for number in heavy:
        subscriber, text = rows[number]["subscriber"], rows[number]["filter"] or ""
        remainder = most - totals[subscriber]
        # Each rule counts at least once, so that none is parsed once the quota is used up.
        count = forward_count(text, specification) if remainder else 1
        if count > remainder:
            beyond[number] = remainder
        else:
            totals[subscriber] += count
    return beyond
