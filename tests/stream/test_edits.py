"""Edits of a running stream's tables."""

from __future__ import annotations

import pytest
from following import polled
from pcap_deployment import Deployment, records
from waiting import until

from stackcast.jobs.adapters.tables.open_tables import open_tables

pytestmark = pytest.mark.integration


def edit(deployment: Deployment, text: str) -> None:
    deployment.change("subscriptions", {"id": "high"}, filter=text)


@pytest.fixture(params=["local", pytest.param("remote", marks=pytest.mark.long)])
def place(request: pytest.FixtureRequest, deployment: Deployment) -> str:
    """Puts the tables in a local folder, or behind a URL that only Spark can read."""
    if request.param == "remote":
        configuration = deployment.spark._jsc.hadoopConfiguration()
        configuration.set("fs.viewfs.mounttable.far.link./tables", "file:" + str(deployment.folder))
        # The test itself reads and edits the folder, as each look through Spark takes a second.
        deployment.set(tables="viewfs://far/tables/tables")
        assert not open_tables(deployment.spark, deployment.settings.tables).local
    return request.param


def test_edits_are_compiled_while_no_records_come(deployment: Deployment, place: str, itch) -> None:
    def rejected() -> dict[str, str]:
        rows = polled(deployment.tables, "rejected_subscriptions")
        return {row["id"]: row["code"] for row in rows}

    def edit_twice() -> None:
        edit(deployment, "prise > 200")
        until(lambda: rejected() == {"high": "SUBSCRIPTION.UNKNOWN_FIELD"})
        edit(deployment, "price > 100")
        until(lambda: rejected() == {})

    deployment.publish(records()[:10])
    deployment.run(edit_twice, lambda: deployment.publish(records()[10:40]))
    # The edits caused no batch, and the next batch uses the last edit.
    first, *_, last = deployment.ledger
    versions = [dict(row["versions"])["subscriptions"] for row in (first, last)]
    assert versions[1] - versions[0] == 2
    outcome = deployment.outcome(itch)
    assert (outcome.missing, outcome.extra, outcome.duplicates) == (0, 0, 0)
    assert outcome.received > 0


def test_a_rule_that_is_probably_a_mistake_is_live_with_a_warning(
    deployment: Deployment,
) -> None:
    def warnings() -> set[tuple[str, str]]:
        rows = polled(deployment.tables, "subscription_warnings")
        return {(row["id"], row["code"]) for row in rows}

    def edit_twice() -> None:
        edit(deployment, "price > 200 and price < 100")
        until(lambda: warnings() == {("high", "SUBSCRIPTION.NEVER_TRUE")})
        edit(deployment, "price > 100")
        until(lambda: warnings() == set())

    deployment.publish(records()[:10])
    deployment.run(edit_twice, lambda: deployment.publish(records()[10:40]))
    assert not deployment.tables.rows("rejected_subscriptions")
