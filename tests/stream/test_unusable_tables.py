"""Edits that make tables unusable: the last usable version stays live, also after a restart."""

from __future__ import annotations

import pytest
from pcap_deployment import Deployment, records
from pyspark.sql import functions

from stackcast.udfs.errors import TableError
from stackcast.udfs.messages.specification import Specification

pytestmark = pytest.mark.integration

UNUSABLE = {
    "hosts": ({"host": "h1"}, {"switch": "nowhere"}),
    "virtual_trees": ({"tree_id": 1}, {"edges": [{"u": "nowhere", "v": "pod1-rack1"}]}),
}


@pytest.mark.parametrize("latency", ["microbatch", "realtime"])
def test_the_last_usable_network_and_trees_stay_live(
    deployment: Deployment, itch: Specification, latency: str
) -> None:
    deployment.set(latency=latency, realtime_slice="300 milliseconds")
    good = {name: deployment.tables.version(name) for name in UNUSABLE}
    packets = iter(records())

    def publish() -> None:
        deployment.publish([next(packets) for _ in range(20)])

    publish()
    steps = []
    for name, (where, columns) in UNUSABLE.items():
        steps.append(lambda n=name, w=where, c=columns: deployment.change(n, w, **c))
        steps.append(publish)
    deployment.run(*steps)
    publish()
    deployment.run()
    assert all(deployment.tables.version(name) > version for name, version in good.items())
    ledger = [dict(row["versions"]) for row in deployment.ledger]
    assert len(ledger) >= 3
    assert all({name: row[name] for name in UNUSABLE} == good for row in ledger)
    outcome = deployment.outcome(itch)
    assert (outcome.missing, outcome.extra, outcome.duplicates) == (0, 0, 0)
    assert outcome.received > 0


#: How an edit rewrites the columns of subscriptions, and the words of the error.
REWRITTEN = {
    "enabled as text": (
        lambda rows: rows.withColumn("enabled", rows.enabled.cast("string")),
        "column enabled has type string instead of boolean",
    ),
    "whole numbers as ids": (
        lambda rows: rows.withColumn("id", functions.length("id")),
        "column id has type integer instead of string",
    ),
    "a renamed column": (
        lambda rows: rows.withColumnRenamed("filter", "rule"),
        "column filter of type string is missing",
    ),
}


@pytest.mark.parametrize(
    "edit",
    [
        "enabled as text",
        *(pytest.param(e, marks=pytest.mark.long) for e in REWRITTEN if e != "enabled as text"),
    ],
)
def test_a_table_with_other_columns_is_reported_and_the_last_usable_version_stays_live(
    deployment: Deployment, itch: Specification, edit: str, caplog: pytest.LogCaptureFixture
) -> None:
    rewritten, words = REWRITTEN[edit]
    good = deployment.tables.version("subscriptions")
    rows = deployment.tables.read("subscriptions")

    def rewrite() -> None:
        writer = rewritten(rows).write.format("delta").mode("overwrite")
        writer.option("overwriteSchema", "true").save(f"{deployment.tables.location}/subscriptions")
        deployment.publish(records()[20:40])

    deployment.publish(records()[:20])
    deployment.run(rewrite)
    assert deployment.tables.version("subscriptions") > good
    assert {dict(row["versions"])["subscriptions"] for row in deployment.ledger} == {good}
    errors = [record.getMessage() for record in caplog.records if "WRONG_COLUMNS" in record.message]
    assert errors and all("subscriptions" in text and words in text for text in errors)
    outcome = deployment.outcome(itch)
    assert (outcome.missing, outcome.extra, outcome.duplicates) == (0, 0, 0)
    # A stream that has no usable version yet does not start.
    deployment.set(checkpoint=f"{deployment.settings.checkpoint}-new")
    with pytest.raises(TableError, match=f"WRONG_COLUMNS: table subscriptions .*{words}"):
        deployment.run()


def test_two_grants_with_one_id_are_reported_and_the_last_usable_version_stays_live(
    deployment: Deployment, itch: Specification, caplog: pytest.LogCaptureFixture
) -> None:
    good = deployment.tables.version("grants")
    grant = {"id": "one", "subscriber": "*", "format": "itch", "updated_by": None}
    rows = [grant | {"filter": text, "updated_at": None} for text in ("price > 1", "price > 9")]

    def write_twice() -> None:
        deployment.tables.append("grants", rows)
        deployment.publish(records()[20:40])

    deployment.publish(records()[:20])
    deployment.run(write_twice)
    assert deployment.tables.version("grants") > good
    assert {dict(row["versions"])["grants"] for row in deployment.ledger} == {good}
    messages = [r.getMessage() for r in caplog.records if "DUPLICATE_KEY" in r.getMessage()]
    assert messages and all("table grants" in text for text in messages)
    assert all("2 rows have id 'one'" in text for text in messages)
    outcome = deployment.outcome(itch)
    assert (outcome.missing, outcome.extra, outcome.duplicates) == (0, 0, 0)
