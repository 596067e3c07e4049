"""Twenty editors at the same time, by each documented way, lose no edit."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from deltalake.exceptions import CommitFailedError
from pcap_deployment import Deployment, records
from pyspark.sql import SparkSession
from waiting import until

from jobs.adapters.app.lifecycle import Lifecycle
from jobs.adapters.stream.micro_batches import start
from jobs.adapters.tables.conflicts import retried
from lab.up.broker import Broker

pytestmark = pytest.mark.long

#: Duration of the edits, and editors of each kind.
SECONDS = 300.0
DELTALAKE, SPARK = 12, 8


def test_the_rules_that_editors_wrote_are_those_in_the_table_and_those_that_are_live(
    spark: SparkSession, broker: Broker, filled: Path, tmp_path: Path
) -> None:
    shutil.copytree(filled, tmp_path / "tables")
    deployment = Deployment(spark, broker.bootstrap_servers, tmp_path, trigger="1 second")
    place = f"{deployment.tables.location}/subscriptions"
    before = {row["id"] for row in deployment.tables.rows("subscriptions")}
    acknowledged: set[str] = set()
    failures: list[BaseException] = []
    ends = time.monotonic() + SECONDS

    def append(name: str) -> None:
        """Add a rule as the tutorial does."""
        row = {"id": name, "subscriber": "h2", "format": "itch", "filter": "shares > 0"}
        rows = pa.Table.from_pylist([row | {"enabled": True}])
        for _ in range(30):
            try:
                write_deltalake(place, rows, mode="append", schema_mode="merge")
                return
            except CommitFailedError:
                time.sleep(random.random() / 2)
        raise AssertionError(f"{name}: thirty tries failed")

    def change(name: str) -> None:
        """Add a rule, and change it, as `jobs/run_sql.py` does."""
        values = f"'{name}', 'h1', 'itch', 'shares > 1', false"
        columns = "(id, subscriber, format, filter, enabled)"
        retried(lambda: spark.sql(f"INSERT INTO delta.`{place}` {columns} VALUES ({values})"))
        retried(lambda: spark.sql(f"UPDATE delta.`{place}` SET enabled = true WHERE id = '{name}'"))

    def edit(kind: Callable[[str], None], editor: int) -> None:
        number = 0
        try:
            while time.monotonic() < ends:
                kind(name := f"{kind.__name__}-{editor}-{number}")
                acknowledged.add(name)
                number += 1
                time.sleep(random.random())
        except BaseException as error:
            failures.append(error)

    deployment.publish(records()[:20])
    query, delivery = start(spark, deployment.settings, Lifecycle())
    kinds = [append] * DELTALAKE + [change] * SPARK
    editors = [
        threading.Thread(target=edit, args=each) for each in zip(kinds, range(20), strict=True)
    ]
    try:
        for editor in editors:
            editor.start()
        for editor in editors:
            editor.join()
        assert not failures
        rows = deployment.tables.rows("subscriptions")
        assert {row["id"] for row in rows if row["enabled"]} == before | acknowledged
        assert len(rows) == len(before | acknowledged)
        until(
            lambda: (
                {row["id"] for row in deployment.tables.rows("live_subscriptions")}
                == before | acknowledged
            )
        )
    finally:
        query.stop()
        delivery.close()
    assert len(acknowledged) > 200
