"""Twenty editors at the same time, by each documented way, lose no edit."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from console_server import TOKEN, console, serving
from deltalake import write_deltalake
from deltalake.exceptions import CommitFailedError
from pcap_deployment import Deployment, records
from pyspark.sql import SparkSession
from waiting import until

from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.storage_errors import StorageError
from stackcast.jobs.adapters.stream.spark_stream import start
from stackcast.jobs.adapters.tables.conflicts import retried
from stackcast.jobs.adapters.tables.spark_errors import storage_errors
from stackcast.lab.up.broker import Broker

pytestmark = pytest.mark.long

#: Duration of the edits, and the longest pause between two edits of an editor, in seconds.
SECONDS = 300.0
PAUSE_SECONDS = 20.0
#: Editors by deltalake, by Spark SQL and in the console.
DELTALAKE, SPARK, CONSOLE = 8, 6, 6


def test_the_rules_that_editors_wrote_are_those_in_the_table_and_those_that_are_live(
    spark: SparkSession, broker: Broker, filled: Path, tmp_path: Path
) -> None:
    shutil.copytree(filled, tmp_path / "tables")
    deployment = Deployment(spark, broker.bootstrap_servers, tmp_path, trigger="1 second")
    place = f"{deployment.tables.location}/subscriptions"
    before = {row["id"] for row in deployment.tables.rows("subscriptions")}
    acknowledged: set[str] = set()
    refused: set[str] = set()
    failures: list[BaseException] = []
    ends = time.monotonic() + SECONDS

    def write(edit: Callable[[], object]) -> None:
        """Write as other programs do, again after a conflict."""

        def attempt() -> None:
            try:
                with storage_errors():
                    edit()
            except CommitFailedError as error:
                raise StorageError(str(error), conflict=True) from error

        retried(attempt)

    def append(name: str) -> None:
        """Add a rule by deltalake, as the tutorial does."""
        row = {"id": name, "subscriber": "h2", "format": "itch", "filter": "shares > 0"}
        rows = pa.Table.from_pylist([row | {"enabled": True}])
        write(lambda: write_deltalake(place, rows, mode="append", schema_mode="merge"))

    def change(name: str) -> None:
        """Add a rule, and change it, as `jobs/run_sql.py` does."""
        values = f"'{name}', 'h1', 'itch', 'shares > 1', false"
        columns = "(id, subscriber, format, filter, enabled)"
        write(lambda: spark.sql(f"INSERT INTO delta.`{place}` {columns} VALUES ({values})"))
        write(lambda: spark.sql(f"UPDATE delta.`{place}` SET enabled = true WHERE id = '{name}'"))

    def save(name: str) -> None:
        """Add a rule in the console."""
        rule = {"id": name, "subscriber": "h1", "filter": "shares > 2"}
        headers = {"Authorization": f"Bearer {TOKEN}"}
        answer = httpx.post(f"{address}/api/save", json=rule, headers=headers, timeout=600)
        assert answer.status_code == 200, answer.text

    def edit(kind: Callable[[str], None], editor: int) -> None:
        number = 0
        try:
            while time.monotonic() < ends:
                name = f"{kind.__name__}-{editor}-{number}"
                try:
                    kind(name)
                    acknowledged.add(name)
                except StorageError as error:
                    if not error.conflict:
                        raise
                    # After two minutes the editor gets the error.
                    refused.add(name)
                number += 1
                time.sleep(random.uniform(0, PAUSE_SECONDS))
        except BaseException as error:
            failures.append(error)

    deployment.publish(records()[:20])
    query, delivery = start(spark, deployment.settings, Lifecycle())
    kinds = [append] * DELTALAKE + [change] * SPARK + [save] * CONSOLE
    editors = [
        threading.Thread(target=edit, args=each) for each in zip(kinds, range(20), strict=True)
    ]
    try:
        with serving(console(deployment.tables, format="itch")) as address:
            for editor in editors:
                editor.start()
            for editor in editors:
                editor.join()
        assert not failures
        rows = deployment.tables.rows("subscriptions")
        assert {row["id"] for row in rows if row["enabled"]} == before | acknowledged
        names = [row["id"] for row in rows]
        assert len(names) == len(set(names)) and set(names) <= before | acknowledged | refused
        until(
            lambda: (
                {row["id"] for row in deployment.tables.rows("live_subscriptions")}
                == before | acknowledged
            )
        )
    finally:
        query.stop()
        delivery.close()
    print(f"{len(acknowledged)} edits, {len(refused)} refused")
    # How many are refused depends on how long an UPDATE takes.
    assert len(acknowledged) > 100
    assert {name.partition("-")[0] for name in acknowledged} == {"append", "change", "save"}
