"""Plans of a real-time stream: rules with state are rejected one by one, the others live."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from delivery_cases import NETWORK, TREES

from jobs.adapters.app.settings import Settings
from jobs.adapters.checkpoint.positions import starting_offsets
from jobs.adapters.realtime.ledger import ledger_rows
from jobs.adapters.realtime.plans import Reported, StatelessPlans
from jobs.adapters.realtime.stream import RealTimeStream
from udfs.delivery.realtime import TaskReport
from udfs.network.rows import network_to_rows, tree_to_row

pytestmark = pytest.mark.unit

SETTINGS = Settings(publisher="feed1")
CODE = "SUBSCRIPTION.STATE_IN_REALTIME"


class Tables:
    """Versions of subscriptions over one network."""

    def __init__(self, *versions: Mapping[str, str]) -> None:
        self.versions = versions
        self.fixed: dict[str, list[dict[str, Any]]] = {
            **network_to_rows(NETWORK, dict.fromkeys(NETWORK.switches, "127.0.0.1:1")),
            "virtual_trees": [tree_to_row(tree) for tree in TREES],
            "advertisements": [],
        }

    def rows(self, name: str, version: int) -> list[dict[str, Any]]:
        if name != "subscriptions":
            return self.fixed[name]
        return [
            {"id": key, "subscriber": "h1", "format": "itch", "filter": text, "enabled": True}
            for key, text in self.versions[version].items()
        ]

    def at(self, version: int) -> dict[str, int]:
        return {**dict.fromkeys(self.fixed, 0), "subscriptions": version, "link_states": 0}


def test_rules_with_state_are_rejected_and_come_to_life_when_they_lose_it():
    plain = {"one": "price > 3", "two": "shares > 5"}
    tables = Tables(
        {**plain, "sum": "avg(price) > 50", "typo": "prise > 3"},
        {**plain, "sum": "avg(price) > 50 and shares > 3", "more": "count() > 2"},
        {**plain, "sum": "shares == 7"},
        {**plain, "sum": "avg(price) > 50", "typo": "prise > 3"},
    )
    plans = StatelessPlans(SETTINGS, tables)
    wanted = [
        (set(plain), {"sum": CODE, "typo": "SUBSCRIPTION.UNKNOWN_FIELD"}),
        (set(plain), {"sum": CODE, "more": CODE}),
        ({*plain, "sum"}, {}),
        (set(plain), {"sum": CODE, "typo": "SUBSCRIPTION.UNKNOWN_FIELD"}),
    ]
    for version, (live, rejected) in enumerate(wanted):
        compilation = plans.at(tables.at(version)).compilation
        assert compilation.plan.state is None
        assert {rule.id for rule in compilation.rules} == live
        assert {r.id: r.code for r in compilation.rejections} == rejected
        assert compilation.versions["subscriptions"] == version


def test_a_row_of_the_ledger_is_of_one_partition_and_dead_letters_are_told_once():
    counts = {name: 1 for name in ("packets", "messages", "matched", "frames", "bytes")}
    rows = [
        {
            "kind": "partition",
            "partition": p,
            "from_offset": 3,
            "until_offset": 4,
            "first_sequence": None,
            "last_sequence": None,
            **counts,
        }
        for p in (0, 5)
    ] + [{"kind": "reason", "reason": "empty_record", "count": 2}]
    made = ledger_rows("itch.raw", TaskReport(1, 0.5, 0.25, rows), {"hosts": 2})
    assert [row["partition"] for row in made] == [0, 5]
    assert [row["dead_letters"] for row in made] == [{"empty_record": 2}, {}]
    assert made[0]["started_at"] == "1970-01-01T00:00:00.500000+00:00"
    assert made[0]["versions"] == {"hosts": 2}


def test_versions_in_use_are_those_of_the_oldest_plan_that_a_worker_may_send_by():
    plans = {number: Reported({"links": number}, ()) for number in (3, 4, 5)}
    said: list[int] = []
    stream: Any = SimpleNamespace(
        _noted=0,
        _channel=SimpleNamespace(oldest_plan=None),
        _plans=SimpleNamespace(reported=plans.get),
        _in_use=SimpleNamespace(put=lambda _, versions: said.append(versions["links"])),
        _positions=SimpleNamespace(number=9),
    )
    # None runs; one has not said it yet; one is back whose plan was given up; one is long gone.
    for oldest in (None, -1, 3, 4, 3, 2, 5):
        stream._channel.oldest_plan = oldest
        RealTimeStream._note_versions(stream)
    assert said == [3, 4, 5]


def test_positions_are_written_as_spark_takes_them():
    assert starting_offsets("itch.raw", {1: 7, 0: 3}) == '{"itch.raw": {"0": 3, "1": 7}}'
