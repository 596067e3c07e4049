"""The batches on the ledger as the proof of a run reads them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import pytest
from delivery_cases import ITCH, NETWORK, TREES, message

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.embedded.kinds import SessionRun
from stackcast.jobs.embedded.recorded_batches import RecordedBatches
from stackcast.udfs.messages.reference import build_packet
from stackcast.udfs.network.rows import network_to_rows, tree_to_row

pytestmark = pytest.mark.unit

SETTINGS = Settings(publisher="feed1", topic="itch.raw")
START = dt.datetime(2026, 5, 4, tzinfo=dt.UTC)
#: By version: everything, then what is dear alone.
ANNOUNCED = ["", "price > 50"]


class Tables:
    """Tables of one network, and a ledger of these batches: number, advertisements' version."""

    def __init__(self, *batches: tuple[int, int]) -> None:
        self.fixed: dict[str, list[dict[str, Any]]] = {
            **network_to_rows(NETWORK, dict.fromkeys(NETWORK.switches, "127.0.0.1:1")),
            "virtual_trees": [tree_to_row(tree) for tree in TREES],
            "subscriptions": [
                {"id": "a", "subscriber": "h1", "format": "itch", "filter": "shares > 0"}
                | {"enabled": True}
            ],
            "subscription_seniority": [],
            "grants": [],
        }
        #: By version, where one has others.
        self.changed: dict[tuple[str, int], list[dict[str, Any]]] = {}
        self.ledger = [
            {
                "topic": "itch.raw",
                "topic_id": "",
                "generation": 0,
                "batch_id": number,
                "versions": {**dict.fromkeys(self.fixed, 0), "link_states": 0, "advertisements": v},
                "partitions": [
                    {"partition": 0, "from_offset": n, "until_offset": n + 1, "records": 1}
                ],
                "packets": 1,
                "settings": {},
                "started_at": START + dt.timedelta(seconds=n),
            }
            for n, (number, v) in enumerate(batches)
        ]

    def rows(self, name: str, version: int | None = None) -> list[Mapping[str, Any]]:
        if name == "egress_ledger":
            # Delta promises no order.
            return self.ledger[::-1]
        if name == "advertisements":
            text = ANNOUNCED[version or 0]
            row = {"id": "x", "publisher": "feed1", "format": "itch", "enabled": True}
            return [row | {"filter": text}] if text else []
        return self.changed.get((name, version or 0), self.fixed[name])


def test_numbers_that_a_new_checkpoint_counts_anew_are_batches_of_their_own():
    tables: Any = Tables((0, 0), (1, 0), (0, 1), (1, 1))
    batches = RecordedBatches(SETTINGS, tables, SessionRun(), ITCH)
    # In the order in which they ran, as the state of rules goes on from one to the next.
    assert [batch.offsets[0] for batch in batches.batches] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    cheap = build_packet(b"SOURCE0001", 1, [message("A", price=10_000, shares=1)])
    reasons = [[found.reason for found in batches.read(cheap, b)] for b in batches.batches]
    assert reasons == [[""], [""], ["outside_advertisement"], ["outside_advertisement"]]


def test_rules_that_were_not_granted_then_are_expected_of_nobody():
    tables: Any = Tables((0, 0), (1, 0))
    grant = {"id": "g", "subscriber": "h2", "format": "itch", "filter": "all"}
    tables.changed["grants", 1] = [grant]
    tables.ledger[1]["versions"]["grants"] = 1
    batches = RecordedBatches(SETTINGS, tables, SessionRun(), ITCH)
    assert [[rule.id for rule in batch.rules] for batch in batches.batches] == [["a"], []]


def test_rules_beyond_the_quota_of_then_are_expected_of_nobody():
    tables: Any = Tables((0, 0), (1, 0), (2, 0))
    (rule,) = tables.fixed["subscriptions"]
    tables.fixed["subscriptions"] = [rule, rule | {"id": "b"}]
    tables.fixed["subscription_seniority"] = [
        {"id": name, "subscriber": "h1", "since_version": since}
        for name, since in (("a", 2), ("b", 1))
    ]
    for row, quota in zip(tables.ledger, ["0", "1", None], strict=True):
        row["settings"] = {} if quota is None else {"filters.quota": quota}
    batches = RecordedBatches(SETTINGS, tables, SessionRun(), ITCH)
    live = [[rule.id for rule in batch.rules] for batch in batches.batches]
    assert live == [["a", "b"], ["b"], ["a", "b"]]
