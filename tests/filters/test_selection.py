"""Rows of the table of subscriptions that compete: for an id, or for a share of a quota."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast import schemas
from stackcast.udfs.filters.selection import select
from stackcast.udfs.filters.subscriptions import Rejection, Subscription, live_rows
from stackcast.udfs.messages.specification import parse_specification

pytestmark = pytest.mark.unit

ITCH = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
#: Rules, and for how many hosts each counts.
RULES = {
    "price > 1": 1,
    "stock in {A, B, C} and price > 1 : fwd(h2)": 1,
    "price > 1 : fwd(h1, h2, h3)": 3,
    "price > 1 : { fwd(h1); fwd(h1, h2) }": 2,
    "price > 1 : 1, 2": 2,
    "prise > 1 : fwd(h1, h2)": 1,
}
FORMATS = ("itch", "attributes")
Row = dict[str, Any]
Pair = tuple[str, str]


def rows_of(*rules: tuple[str, str, str]) -> list[Row]:
    return [
        {"id": i, "subscriber": s, "filter": f, "format": "itch", "enabled": True}
        for i, s, f in rules
    ]


def selected(
    rows: Iterable[Row], since: dict[Pair, int], quota: int = 0
) -> tuple[list[Subscription], list[Rejection]]:
    known = [{"id": i, "subscriber": s, "since_version": v} for (i, s), v in since.items()]
    return select(rows, "itch", FORMATS, ITCH, lambda: known, quota)


def test_rows_of_no_known_format_are_rejected_and_rows_of_another_job_left_to_it() -> None:
    rows = [
        {"id": i, "subscriber": "h1", "filter": "price > 1", "format": f, "enabled": e}
        for i, f, e in (
            ("b", "itch", True),
            ("a", "ITCH", True),
            ("c", "attributes", True),
            ("d", "x", False),
        )
    ]
    chosen, rejected = selected(rows, {})
    assert [s.id for s in chosen] == ["b"]
    assert [(r.id, r.code) for r in rejected] == [("a", "SUBSCRIPTION.UNKNOWN_FORMAT")]


def test_a_rule_counts_once_for_each_host_and_the_oldest_that_fit_stay() -> None:
    rows = rows_of(
        ("a", "h1", "price > 1"),
        ("b", "h1", "price > 1 : fwd(h1, h2, h3)"),
        ("c", "h1", "price > 1 : fwd(h2, h3)"),
        ("d", "h2", "price > 1 : fwd(h1, h2, h3)"),
    )
    since = {("c", "h1"): 4, ("b", "h1"): 7, ("a", "h1"): 9, ("d", "h2"): 1}
    chosen, (rejection,) = selected(rows, since, 3)
    assert [row.id for row in chosen] == ["a", "c", "d"]
    assert (rejection.id, rejection.subscriber) == ("b", "h1")
    assert rejection.code == "SUBSCRIPTION.QUOTA"
    assert "name 3 receivers in total" in rejection.message and "remaining 1" in rejection.message
    assert len(selected(rows, since)[0]) == 4


def test_an_id_belongs_to_its_oldest_pair_and_a_rejected_duplicate_leaves_its_row_live() -> None:
    rows = rows_of(("r", "h2", "price > 2"), ("r", "h1", "price > 1"), ("s", "h1", "price > 9"))
    chosen, rejections = selected(rows, {("r", "h1"): 3, ("r", "h2"): 2})
    assert chosen == [Subscription("r", "h2", "price > 2"), Subscription("s", "h1", "price > 9")]
    assert live_rows(chosen, rejections) == chosen
    (rejection,) = rejections
    assert rejection.code == "SUBSCRIPTION.DUPLICATE_ID"
    assert (rejection.id, rejection.subscriber) == ("r", "h1")
    assert "an older row of subscriber 'h2'" in rejection.message
    # A pair without a version is younger than any other.
    assert selected(rows, {("r", "h1"): 3})[0][0].subscriber == "h1"


def test_a_grant_of_the_same_id_rejects_no_rule() -> None:
    rows = [Subscription("r", "h1", "price > 1"), Subscription("s", "h1", "price > 1")]
    grant = Rejection("r", "SUBSCRIPTION.SYNTAX", 1, 1, "")
    rule = Rejection("s", "SUBSCRIPTION.SYNTAX", 1, 1, "", "h1")
    assert live_rows(rows, [grant, rule]) == rows[:1]


def test_seniority_is_read_only_if_rows_compete() -> None:
    def unread() -> list[Row]:
        raise AssertionError("nothing competes")

    rows = rows_of(("a", "h1", "price > 1"), ("b", "h1", "price > 1 : fwd(h2)"))
    assert len(select(rows, "itch", FORMATS, ITCH, unread, 3)[0]) == 2


def test_rows_without_an_id_or_a_subscriber_displace_no_others() -> None:
    good = rows_of(("a", "h1", "price > 1"), ("b", "h2", "price > 2"))
    bad: list[Row] = [
        row | change
        for row in good
        for change in ({"id": None}, {"subscriber": None}, {"id": None, "subscriber": None})
    ]
    since = {("a", "h1"): 1, ("b", "h2"): 2}
    chosen, rejections = selected([*bad, *good], since, 1)
    assert {Subscription(r["id"], r["subscriber"], r["filter"]) for r in good} <= set(chosen)
    assert [r.id for r in rejections if r.subscriber is None and r.id] == ["a", "b"]


class World:
    """A table that editors write, and the order in which its pairs came."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.since: dict[Pair, int] = {}
        self.version = 0

    def commit(self, subscriber: str, edits: Iterable[tuple[str, Row | None]]) -> None:
        """An editor removes all rows of its own with some ids, and may write others for them."""
        for name, row in edits:
            self.rows = [
                r for r in self.rows if (r["id"], r["subscriber"]) != (name, subscriber) or row
            ]
            if row is not None:
                self.rows.append(row | {"id": name, "subscriber": subscriber})
        self.version += 1
        pairs = {(row["id"], row["subscriber"]) for row in self.rows}
        self.since = {pair: self.since.get(pair, self.version) for pair in sorted(pairs)}

    def expected(self, quota: int) -> set[Subscription]:
        """The live rows, one subscriber and one row after the other."""
        by_age = sorted(
            self.rows,
            key=lambda r: (
                self.since[r["id"], r["subscriber"]],
                *(r["id"], r["subscriber"], not r["enabled"], r["format"], r["filter"]),
            ),
        )
        taken: set[str] = set()
        used: dict[str, int] = {}
        live = set()
        for row in by_age:
            if row["id"] in taken:
                continue
            taken.add(row["id"])
            if not row["enabled"] or row["format"] != "itch":
                continue
            left = quota - used.get(row["subscriber"], 0)
            hosts = RULES[row["filter"]]
            if not quota or hosts <= left:
                used[row["subscriber"]] = quota - left + hosts
                live.add(Subscription(row["id"], row["subscriber"], row["filter"]))
        return live


row_texts = st.fixed_dictionaries(
    {
        "filter": st.sampled_from(list(RULES)),
        "format": st.sampled_from(["itch", "itch", "itch", "attributes", "unknown"]),
        "enabled": st.sampled_from([True, True, False]),
        "updated_at": st.none() | st.datetimes(),
    }
)
commits = st.tuples(
    st.sampled_from(["h1", "h2", "h3"]),
    st.lists(st.tuples(st.sampled_from("abcdef"), st.none() | row_texts), max_size=4),
)


@examples(300)
@given(st.lists(commits, min_size=1, max_size=8), st.integers(0, 5), st.randoms())
def test_what_others_write_displaces_no_row_of_a_subscriber(edits, quota: int, chance) -> None:
    world = World()
    before: set[Subscription] = set()
    for subscriber, edit in edits:
        world.commit(subscriber, edit)
        rows = list(world.rows)
        chance.shuffle(rows)
        chosen, rejections = selected(rows, world.since, quota)
        assert set(chosen) == world.expected(quota) and len(chosen) == len({r.id for r in chosen})
        others = {row for row in before if row.subscriber != subscriber}
        assert others <= set(chosen)
        # Each row that is meant for this job is live or rejected.
        assert live_rows(chosen, rejections) == chosen
        asked = [r for r in rows if r["enabled"] and r["format"] in ("itch", "unknown")]
        assert len(chosen) + len(rejections) == len(asked)
        before = set(chosen)
