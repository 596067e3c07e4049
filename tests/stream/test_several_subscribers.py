"""The stream serves each subscriber as before, regardless of the rows that others write."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

import pytest
from kafka_topics import kafka_topic
from pcap_deployment import NETWORK, PUBLISHER, RULES, Deployment, receipts, records

from stackcast.jobs.adapters.planning.plans import Plans
from stackcast.jobs.adapters.tables.tables import LIVE, REJECTED
from stackcast.lab.proof import verification
from stackcast.udfs.filters.subscriptions import Subscription, check
from stackcast.udfs.messages.specification import Specification

pytestmark = pytest.mark.integration

FORGED = dt.datetime(1990, 1, 1, tzinfo=dt.UTC)
Rules = list[tuple[str, str, str]]
FIRST: Rules = [(name, host, text) for name, (host, text) in RULES.items()]


def append(deployment: Deployment, *rules: tuple[str, str, str]) -> None:
    deployment.tables.append(
        "subscriptions",
        [
            {"id": name, "subscriber": host, "filter": text, "format": "itch", "enabled": True}
            | {"updated_by": host, "updated_at": FORGED}
            for name, host, text in rules
        ],
    )


def outcome(
    deployment: Deployment, itch: Specification, live: Mapping[int, Rules]
) -> verification.Tallies:
    """Compare the frames of hosts with the rules that are live in each version."""
    batches = []
    for row in deployment.ledger:
        rows = [Subscription(*rule) for rule in live[dict(row["versions"])["subscriptions"]]]
        rules, _ = check(rows, itch, set(NETWORK.subscribers()), PUBLISHER)
        offsets = {p["partition"]: (p["from_offset"], p["until_offset"]) for p in row["partitions"]}
        batches.append(verification.Batch(row["batch_id"], offsets, rules))
    expectation = verification.expected(
        deployment.topics.read_all(), batches, itch, kafka_topic(deployment.settings)
    )
    return verification.compare(expectation, receipts(deployment.frames()))


def test_other_subscribers_do_not_affect_live_rows_and_plans_can_be_repeated(
    deployment: Deployment, itch: Specification
) -> None:
    # For h1, rule high counts once, and rule both counts twice.
    deployment.set(rule_quota=3)
    tables = deployment.tables
    live: dict[int, Rules] = {tables.version("subscriptions"): FIRST}
    packets = iter(records())

    def publish() -> None:
        deployment.publish([next(packets) for _ in range(20)])

    def compete() -> None:
        append(deployment, ("high", "h4", "price > 0"), ("aaa", "h1", "price > 300"))
        live[tables.version("subscriptions")] = FIRST
        publish()

    def leave() -> None:
        deployment.sql("DELETE FROM {} WHERE id = 'high' AND subscriber = 'h1'", "subscriptions")
        later = [rule for rule in FIRST if rule[0] != "high"]
        later += [("high", "h4", "price > 0"), ("aaa", "h1", "price > 300")]
        live[tables.version("subscriptions")] = later
        publish()

    publish()
    deployment.run(compete)
    rejected = {(r["id"], r["subscriber"]): r["code"] for r in tables.rows(REJECTED)}
    assert rejected == {
        ("high", "h4"): "SUBSCRIPTION.DUPLICATE_ID",
        ("aaa", "h1"): "SUBSCRIPTION.QUOTA",
    }
    first, second = live
    rows = {row["id"]: row for row in tables.rows(LIVE)}
    assert {(name, row["subscriber"], row["filter"]) for name, row in rows.items()} == set(FIRST)
    # The other row with this id has not interrupted it.
    assert rows["high"]["since_version"] == first < second
    deployment.run(leave)
    assert not tables.rows(REJECTED)
    tallies = outcome(deployment, itch, live)
    assert (tallies.missing, tallies.extra, tallies.duplicates) == (0, 0, 0)
    assert tallies.received > 0
    versions = [dict(row["versions"]) for row in deployment.ledger]
    assert {each["subscriptions"] for each in versions} == set(live)
    # Replay and explanations plan a batch again by its versions in the ledger.
    plans = Plans(deployment.settings, tables)
    for pinned in versions:
        planned = plans.at(pinned).subscriptions
        assert sorted(planned) == sorted(
            Subscription(*rule) for rule in live[pinned["subscriptions"]]
        )
