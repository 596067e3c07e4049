"""What hosts must get of a stream, by trying each message with each rule."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from jobs.adapters.app.settings import Settings
from jobs.adapters.stream.kafka import Topics
from jobs.adapters.tables.tables import Tables
from lab.proof import verification
from udfs.filters.subscriptions import Subscription, check
from udfs.messages.specification import Specification


def expected(
    tables: Tables,
    topics: Topics,
    settings: Settings,
    specification: Specification,
    hosts: Collection[str],
    granted: Mapping[int, Collection[str]] | None = None,
) -> verification.Expectation:
    """By the rules that each batch of the ledger says it used; all records were processed.

    granted: by version of table `grants`, the rules that may be live; None: all.
    """
    batches = []
    for row in sorted(tables.rows("egress_ledger"), key=lambda row: row["started_at"]):
        version = dict(row["versions"])["subscriptions"]
        live = None if granted is None else granted[dict(row["versions"])["grants"]]
        rows = [
            Subscription(r["id"], r["subscriber"], r["filter"])
            for r in tables.rows("subscriptions", version)
            if r["enabled"] and (live is None or r["id"] in live)
        ]
        rules, _ = check(rows, specification, set(hosts), settings.publisher)
        offsets = {p["partition"]: (p["from_offset"], p["until_offset"]) for p in row["partitions"]}
        batches.append(verification.Batch(row["batch_id"], offsets, rules))
    made = verification.expected(topics.read_all(), batches, specification, settings.topic)
    assert made.unprocessed == 0
    return made
