"""The order of pairs for any history of `subscriptions`, with tables in memory."""

from __future__ import annotations

from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.jobs.adapters.tables.seniority import Seniority
from stackcast.jobs.adapters.tables.tables import SENIORITY, SUBSCRIPTIONS

pytestmark = pytest.mark.unit

Pair = tuple[str, str]
PAIRS = [(name, subscriber) for name in "ab" for subscriber in ("h1", "h2", "h3")]


class Commits:
    """The versions of both tables.

    Attributes:
        pairs: those of each version of `subscriptions`.
        orders: rows of each version of `subscription_seniority`.
        after_merge: called after each commit to `subscription_seniority`.
    """

    def __init__(self) -> None:
        self.pairs: list[frozenset[Pair]] = [frozenset()]
        self.orders: list[dict[Pair, int]] = [{}]
        self.after_merge = lambda: None

    def version(self, name: str) -> int:
        return len(self.pairs if name == SUBSCRIPTIONS else self.orders) - 1

    def rows(self, name: str, version: int, columns: Any = ()) -> list[dict[str, Any]]:
        if name == SUBSCRIPTIONS:
            return [{"id": i, "subscriber": s} for i, s in self.pairs[version]]
        order = self.orders[version]
        return [{"id": i, "subscriber": s, "since_version": v} for (i, s), v in order.items()]

    def commit(self, name: str, version: int) -> list[dict[str, Any]]:
        before, after = self.pairs[version - 1], self.pairs[version]
        added = [{"add": {"path": str(version)}}] if after - before or before == after else []
        return [{"commitInfo": {}}, *added, *([] if before <= after else [{"remove": {}}])]

    def rows_of_files(self, name: str, files: list[str]) -> list[dict[str, Any]]:
        return [
            {"id": i, "subscriber": s}
            for file in files
            for i, s in self.pairs[int(file)] - self.pairs[int(file) - 1]
        ]

    def merge(self, name: str, changed: Any, gone: Any, keys: Any, onto: int) -> bool:
        if self.version(name) != onto:
            return False
        removed = {(row["id"], row["subscriber"]) for row in gone}
        order = {pair: since for pair, since in self.orders[-1].items() if pair not in removed}
        order |= {(row["id"], row["subscriber"]): row["since_version"] for row in changed}
        self.orders.append(order)
        self.after_merge()
        return True


def ranks(keys: dict[Pair, Any]) -> dict[Pair, int]:
    places = sorted(set(keys.values()))
    return {pair: places.index(key) for pair, key in keys.items()}


steps = st.one_of(
    st.frozensets(st.sampled_from(PAIRS)),
    st.sampled_from(["look", "look of another program", "copy"]),
)


@examples(1000)
@given(st.lists(steps, min_size=1, max_size=14))
def test_pairs_are_as_old_as_the_version_since_which_they_are_there_without_interruption(history):
    tables: Any = Commits()
    stream = Seniority(tables)
    # By pair: when a program first saw it, and since which version it was there then.
    expected: dict[Pair, tuple[int, int]] = {}
    for number, step in enumerate([*history, "look"]):
        if isinstance(step, frozenset):
            tables.pairs.append(step)
            continue
        if step == "copy":
            # Versions of both tables begin at 0 again.
            tables.pairs, tables.orders = tables.pairs[-1:], tables.orders[-1:]
            stream = Seniority(tables)
            continue
        (stream if step == "look" else Seniority(tables)).versions()
        present = tables.pairs[-1]
        expected = {pair: known for pair, known in expected.items() if pair in present}
        for pair in present - expected.keys():
            absent = [v for v, pairs in enumerate(tables.pairs) if pair not in pairs]
            expected[pair] = number, max(absent, default=-1)
        assert ranks(tables.orders[-1]) == ranks(expected)


def test_a_row_without_a_subscriber_has_no_place_in_the_order():
    tables: Any = Commits()
    tables.pairs.append(frozenset({("a", "h1"), ("a", None), (None, "h1")}))
    Seniority(tables).versions()
    assert tables.orders[-1].keys() == {("a", "h1")}


def test_edits_that_come_faster_than_the_order_is_written_delay_nobody():
    tables: Any = Commits()
    numbers = iter(range(10))

    def edit() -> None:
        tables.pairs.append(tables.pairs[-1] | {(f"r{next(numbers)}", "h2")})

    edit()
    tables.after_merge = edit
    stream = Seniority(tables)
    for number in range(1, 4):
        versions = stream.versions()
        assert versions == {SUBSCRIPTIONS: number, SENIORITY: number}
        assert tables.orders[number].keys() == tables.pairs[number]
