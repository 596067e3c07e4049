"""The journal on real Delta tables: groups of batches, kills in between, tables of before."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from memory_files import MemoryFolder
from pyspark.sql import SparkSession

from stackcast.jobs.adapters.checkpoint.journal import Journal
from stackcast.jobs.adapters.checkpoint.reports import TABLES, Report, Reports, Rows
from stackcast.jobs.adapters.planning import versions
from stackcast.jobs.adapters.planning.versions import BatchVersions
from stackcast.jobs.adapters.tables.network_versions import SOURCES
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.tables import DELIVERIES, LEDGER, PUBLICATIONS, Tables

pytestmark = pytest.mark.integration

WRITER = "stackcast-one"
LINK = {
    "link_id": 1,
    "switch": "a",
    "port": 1,
    "neighbor": "b",
    "neighbor_port": 1,
    "weight": 1.0,
    "up": True,
}
NOW = dt.datetime(2026, 1, 2, 3, 4, 5, 678901, dt.UTC)
SETTINGS = {"publisher": "feed1", "mtu": "1500"}
PARTITION = {
    "partition": 0,
    "from_offset": 3,
    "until_offset": 9,
    "records": 6,
    "first_sequence": None,
    "last_sequence": None,
    "leader_epoch": 4,
    "ingress": None,
}


def report(batch_id: int) -> Report:
    sent = {"batch_id": batch_id, "publisher": "feed1", "recorded_at": NOW}
    counts = {"notifications": [5, 6], "messages": [7, 8]}
    ledger = {
        "batch_id": batch_id,
        "topic": "t",
        "topic_id": "",
        "generation": 0,
        "versions": {"links": 4},
        **dict.fromkeys(("packets", "messages", "matched", "frames", "bytes"), 1 << 40),
        "dead_letters": 0,
        "started_at": NOW,
        "seconds": 0.25,
        "settings": SETTINGS,
    }
    return Report(
        WRITER,
        batch_id,
        {
            DELIVERIES: Rows(2, sent, counts | {"subscriber": ["h1", "h2"], "bytes": [1, 2]}),
            PUBLICATIONS: Rows(
                2, sent, counts | {"receivers": [["h1"], ["h1", "h2"]], "datagram_bytes": [1, 2]}
            ),
            LEDGER: Rows(1, ledger, {"partitions": [[PARTITION]]}),
        },
    )


def journal(tables: Any, reports: Reports) -> Journal:
    return Journal(reports, tables, 0.0, retry=0.01)


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Tables:
    """Only those that are needed here."""
    made = open_tables(spark, str(tmp_path / "tables"))
    made.create(*TABLES)
    return made


class Killed(BaseException):
    """The process ends here."""


class UntilTable:
    """Tables of a process that is killed when it has written to one."""

    def __init__(self, tables: Tables, name: str) -> None:
        self._tables, self._name = tables, name
        self.last_transaction = tables.last_transaction

    def append(self, name: str, rows: Any, transaction: tuple[str, int]) -> None:
        self._tables.append(name, rows, transaction)
        if name == self._name:
            raise Killed


def batches(tables: Tables, name: str) -> list[int]:
    return sorted(row["batch_id"] for row in tables.rows(name))


def test_each_batch_counts_once_though_killed_at_every_table(tables: Tables) -> None:
    # The version before wrote batch by batch; it was killed with statistics of batch 0 alone.
    tables.append(DELIVERIES, report(0).tables[DELIVERIES].arrow(), (WRITER, 0))
    files = Reports(MemoryFolder())
    number = 0
    for name in TABLES:
        files.put(report(number))
        files.put(report(number + 1))
        with pytest.raises(Killed):
            journal(UntilTable(tables, name), files).recover()
        # Spark had not committed the second: it runs again.
        number += 1
    files.put(report(number))
    journal(tables, files).recover()
    every = list(range(number + 1))
    assert batches(tables, LEDGER) == every
    assert batches(tables, DELIVERIES) == batches(tables, PUBLICATIONS) == sorted(every * 2)
    assert files.pending() == []
    assert tables.last_transaction(LEDGER, WRITER) == number
    assert tables.last_transaction(LEDGER, "somebody else") is None

    row = next(row for row in tables.rows(LEDGER) if row["batch_id"] == number)
    assert row["settings"] == SETTINGS and row["versions"] == {"links": 4}
    assert row["partitions"] == [PARTITION]
    assert (row["started_at"], row["seconds"], row["frames"]) == (NOW, 0.25, 1 << 40)
    sent = [row for row in tables.rows(PUBLICATIONS) if row["batch_id"] == number]
    assert [(r["receivers"], r["notifications"]) for r in sent] == [(["h1"], 5), (["h1", "h2"], 6)]


@pytest.mark.long
def test_versions_of_far_away_tables_are_looked_up_a_batch_ahead(
    spark: SparkSession, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.create(*SOURCES, "subscriptions", "subscription_seniority", "network_versions")
    far = open_tables(spark, f"file://{tables.location}")
    assert tables.local and not far.local
    stream, plain = BatchVersions(far, "t"), BatchVersions(tables, "t")

    def edit() -> None:
        tables.append("links", [LINK])

    monkeypatch.setattr(versions, "FRESH", 3600.0)
    assert stream.current() == plain.current()
    stream._ahead.result()
    before = plain.current()
    edit()
    # Looked up while the batch before ran: young enough here, and then the newer one.
    assert stream.current() == before
    assert stream.current() == plain.current() != before
    monkeypatch.setattr(versions, "FRESH", 0.0)
    edit()
    assert stream.current() == plain.current()
    stream.close()
