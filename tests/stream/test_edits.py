"""Edits of a running stream's tables."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from pcap_deployment import Deployment, records

from jobs.adapters.tables.tables import Tables

pytestmark = pytest.mark.integration


def until(told: Callable[[], object], expected: object) -> None:
    deadline = time.monotonic() + 120
    while (seen := told()) != expected:
        assert time.monotonic() < deadline, seen
        time.sleep(0.1)


def edit(deployment: Deployment, text: str) -> None:
    deployment.sql(f"UPDATE {{}} SET filter = '{text}' WHERE id = 'high'", "subscriptions")


@pytest.fixture(params=["here", "elsewhere"])
def place(request: pytest.FixtureRequest, deployment: Deployment) -> str:
    """Tables in a folder of this machine, or behind a URL that only Spark can follow."""
    if request.param == "elsewhere":
        configuration = deployment.spark._jsc.hadoopConfiguration()
        configuration.set("fs.viewfs.mounttable.far.link./tables", "file:" + str(deployment.folder))
        deployment.set(tables="viewfs://far/tables/tables")
        deployment.tables = Tables(deployment.spark, deployment.settings.tables)
        assert not deployment.tables.local
    return request.param


def test_edits_answer_while_nothing_flows(deployment: Deployment, place: str, itch) -> None:
    def rejected() -> dict[str, str]:
        rows = deployment.tables.rows("rejected_subscriptions")
        return {row["id"]: row["code"] for row in rows}

    def in_quiet() -> None:
        edit(deployment, "prise > 200")
        until(rejected, {"high": "SUBSCRIPTION.UNKNOWN_FIELD"})
        edit(deployment, "price > 100")
        until(rejected, {})

    deployment.publish(records()[:10])
    deployment.run(in_quiet, lambda: deployment.publish(records()[10:40]))
    # No batch ran for it, and the next one goes by the last edit.
    first, *_, last = deployment.ledger
    versions = [dict(row["versions"])["subscriptions"] for row in (first, last)]
    assert versions[1] - versions[0] == 2
    outcome = deployment.outcome(itch)
    assert (outcome.missing, outcome.extra, outcome.duplicates) == (0, 0, 0)
    assert outcome.received > 0


def test_a_rule_that_is_most_likely_not_meant_is_live_with_a_warning(
    deployment: Deployment,
) -> None:
    def warned() -> set[tuple[str, str]]:
        rows = deployment.tables.rows("subscription_warnings")
        return {(row["id"], row["code"]) for row in rows}

    def in_quiet() -> None:
        edit(deployment, "price > 200 and price < 100")
        until(warned, {("high", "SUBSCRIPTION.NEVER_TRUE")})
        edit(deployment, "price > 100")
        until(warned, set())

    deployment.publish(records()[:10])
    deployment.run(in_quiet, lambda: deployment.publish(records()[10:40]))
    assert not deployment.tables.rows("rejected_subscriptions")
