"""A role has one writer at a time; a writer that lost its place writes nothing more."""

from __future__ import annotations

import datetime as dt
import os
import re
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from waiting import until

from stackcast.jobs.adapters.tables import folder_tables
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.spark_log import SparkLog
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.jobs.adapters.tables.writers import TABLE, Fence
from stackcast.udfs.errors import TableError

pytestmark = pytest.mark.integration

ROLE = "stream of itch.raw"
SEALED = "network_versions"


@pytest.fixture
def folder(empty_tables: Path, tmp_path: Path) -> Path:
    for name in (TABLE, SEALED):
        shutil.copytree(empty_tables / name, tmp_path / "tables" / name)
    return tmp_path / "tables"


@pytest.fixture
def local_tables(spark: SparkSession, folder: Path) -> Tables:
    return open_tables(spark, str(folder))


@pytest.fixture(params=["{}", pytest.param("file://{}", marks=pytest.mark.long)])
def anywhere(request: pytest.FixtureRequest, spark: SparkSession, folder: Path) -> Tables:
    """Tables in a folder, and behind a URL, which only Spark reads."""
    return open_tables(spark, request.param.format(folder))


def fence(tables: Tables) -> Fence:
    return Fence(tables, ROLE, (SEALED,))


def row() -> pa.Table:
    versions = pa.array([[("hosts", 1)]], pa.map_(pa.string(), pa.int64()))
    return pa.table({"versions": versions, "ready_at": [dt.datetime.now(dt.UTC)]})


def test_a_second_owner_is_refused_and_the_error_names_the_first(local_tables):
    first, second = fence(local_tables), fence(local_tables)
    first.claim("one", "local-17", "/var/one")
    who = f"process {os.getpid()} on {socket.gethostname()}, application local-17 of checkpoint "
    with pytest.raises(
        TableError, match=f"WRITER_ACTIVE: the {ROLE} .*{re.escape(who)}/var/one, since 20"
    ):
        second.claim("two", "local-18")
    second.release()
    first.check()
    assert first.append(SEALED, row(), ("one", 1)) is None
    assert len(local_tables.rows(SEALED)) == 1


def test_a_writer_that_ends_in_order_leaves_the_place_to_any_other(local_tables):
    first, second = fence(local_tables), fence(local_tables)
    first.claim("one", "local-17")
    first.release()
    second.claim("two", "local-18")
    second.check()


def test_a_restart_takes_its_own_place_again_and_its_predecessor_is_refused(local_tables):
    first, restarted = fence(local_tables), fence(local_tables)
    first.claim("one", "local-17", "/var/one")
    restarted.claim("one", "local-18", "/var/one")
    restarted.check()
    for check in (first.check, first.check_owner):
        with pytest.raises(TableError, match=r"FENCED: .*local-18 of checkpoint /var/one"):
            check()


def test_after_a_take_over_the_first_writer_sends_and_commits_nothing(anywhere):
    first, second = fence(anywhere), fence(anywhere)
    first.claim("one", "local-17")
    first.append(SEALED, row(), ("one", 1))
    second.claim("two", "local-18", take_over=True)
    with pytest.raises(TableError, match=r"FENCED: .*application local-18"):
        first.check()
    # It may still record its work in its own checkpoint.
    first.check_owner()
    with pytest.raises(TableError, match=r"FENCED: .*application local-18"):
        first.append(SEALED, row(), ("one", 2))
    assert len(anywhere.rows(SEALED)) == 1
    second.append(SEALED, row(), ("two", 0))
    second.append(SEALED, row(), ("two", 0))
    assert len(anywhere.rows(SEALED)) == 2


def test_a_commit_in_progress_does_not_count_once_the_place_is_taken(anywhere, monkeypatch):
    first, second = fence(anywhere), fence(anywhere)
    first.claim("one", "local-17")
    step = (folder_tables, "_shaped") if anywhere.local else (SparkLog, "_numbered")
    original = getattr(*step)

    def late(*arguments: Any) -> Any:
        # Between reading the table and the commit.
        monkeypatch.undo()
        second.claim("two", "local-18", take_over=True)
        return original(*arguments)

    monkeypatch.setattr(*step, late)
    with pytest.raises(TableError, match="FENCED"):
        first.append(SEALED, row(), ("one", 1))
    assert not anywhere.rows(SEALED)


def test_a_take_over_waits_until_the_holder_has_ended(local_tables):
    first, second = fence(local_tables), fence(local_tables)
    first.claim("one", "local-17")
    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(second.claim, "two", "local-18", take_over=True, patience=600.0)
        until(first.lost)
        # The batch in progress is still recorded.
        first.append(SEALED, row(), ("one", 1))
        assert not taking.done()
        first.release()
        taking.result(600)
    second.check()


def test_of_several_claims_at_once_one_gets_the_place(anywhere):
    fences = [fence(anywhere) for _ in range(4)]

    def claim(number: int) -> bool:
        try:
            fences[number].claim(f"owner-{number}", f"local-{number}")
        except TableError as error:
            assert error.code == "TABLE.WRITER_ACTIVE"
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(claim, range(4))) == 1


@pytest.mark.parametrize("look", ["rows", "last_transaction"])
def test_a_claim_while_another_reads_the_table_leaves_one_of_them(local_tables, monkeypatch, look):
    first, second = fence(local_tables), fence(local_tables)
    plain = getattr(local_tables, look)

    def late(*arguments: Any, **options: Any) -> Any:
        result = plain(*arguments, **options)
        monkeypatch.undo()
        first.claim("one", "local-17")
        return result

    monkeypatch.setattr(local_tables, look, late)
    with pytest.raises(TableError, match="WRITER_ACTIVE"):
        second.claim("two", "local-18")
    first.check()


def test_a_check_of_an_unchanged_table_reads_no_rows(local_tables, monkeypatch):
    first, foreign = fence(local_tables), Fence(local_tables, "stream of another topic")
    first.claim("one", "local-17")
    first.check()
    reads: list[object] = []
    monkeypatch.setattr(local_tables, "rows", lambda *arguments, **_: reads.append(arguments) or [])
    for _ in range(1000):
        first.check()
    assert not reads
    monkeypatch.undo()
    foreign.claim("one", "local-17")
    first.check()
