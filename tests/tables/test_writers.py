"""Of those who would write for one role one does, and whoever lost the place writes no more."""

from __future__ import annotations

import datetime as dt
import os
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from jobs.adapters.tables import local
from jobs.adapters.tables.log import SparkLog
from jobs.adapters.tables.tables import Tables
from jobs.adapters.tables.writers import TABLE, Fence
from udfs.errors import TableError

pytestmark = pytest.mark.integration

ROLE = "stream of itch.raw"
SEALED = "network_versions"


@pytest.fixture
def held(spark: SparkSession, tmp_path: Path) -> Tables:
    made = Tables(spark, str(tmp_path / "tables"))
    made.create(TABLE, SEALED)
    return made


@pytest.fixture(params=["{}", "file://{}"])
def anywhere(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Tables:
    """In a folder, and behind a URL, which only Spark follows."""
    made = Tables(spark, request.param.format(tmp_path / "tables"))
    made.create(TABLE, SEALED)
    return made


def fence(tables: Tables) -> Fence:
    return Fence(tables, ROLE, (SEALED,))


def row() -> pa.Table:
    versions = pa.array([[("hosts", 1)]], pa.map_(pa.string(), pa.int64()))
    return pa.table({"versions": versions, "ready_at": [dt.datetime.now(dt.UTC)]})


def test_a_second_owner_is_refused_and_told_who_has_the_place(held):
    first, second = fence(held), fence(held)
    first.claim("one", "local-17", "/var/one")
    who = f"process {os.getpid()} on {socket.gethostname()}, application local-17 of checkpoint "
    with pytest.raises(
        TableError, match=f"PLACE_TAKEN: {ROLE} .*{re.escape(who)}/var/one, since 20"
    ):
        second.claim("two", "local-18")
    second.release()
    first.check()
    assert first.append(SEALED, row(), ("one", 1)) is None
    assert len(held.rows(SEALED)) == 1


def test_who_ends_in_order_leaves_the_place_to_anybody(held):
    first, second = fence(held), fence(held)
    first.claim("one", "local-17")
    first.release()
    second.claim("two", "local-18")
    second.check()


def test_a_restart_takes_its_own_place_again_and_what_was_left_of_it_writes_no_more(held):
    left, again = fence(held), fence(held)
    left.claim("one", "local-17", "/var/one")
    again.claim("one", "local-18", "/var/one")
    again.check()
    for refused in (left.check, left.check_owner):
        with pytest.raises(TableError, match=r"FENCED: .*local-18 of checkpoint /var/one"):
            refused()


def test_whoever_is_taken_over_from_sends_no_more_and_commits_nothing_afterwards(anywhere):
    first, second = fence(anywhere), fence(anywhere)
    first.claim("one", "local-17")
    first.append(SEALED, row(), ("one", 1))
    second.claim("two", "local-18", take_over=True)
    with pytest.raises(TableError, match=r"FENCED: .*application local-18"):
        first.check()
    # It may record what it did, in a checkpoint that is its own.
    first.check_owner()
    with pytest.raises(TableError, match=r"FENCED: .*application local-18"):
        first.append(SEALED, row(), ("one", 2))
    assert len(anywhere.rows(SEALED)) == 1
    second.append(SEALED, row(), ("two", 0))
    second.append(SEALED, row(), ("two", 0))
    assert len(anywhere.rows(SEALED)) == 2


def test_a_commit_that_was_under_way_when_the_place_was_taken_does_not_count(anywhere, monkeypatch):
    first, second = fence(anywhere), fence(anywhere)
    first.claim("one", "local-17")
    step = (local, "_shaped") if anywhere.local else (SparkLog, "_numbered")
    following = getattr(*step)

    def late(*given: Any) -> Any:
        # Between the look at the table and the commit.
        monkeypatch.undo()
        second.claim("two", "local-18", take_over=True)
        return following(*given)

    monkeypatch.setattr(*step, late)
    with pytest.raises(TableError, match="FENCED"):
        first.append(SEALED, row(), ("one", 1))
    assert not anywhere.rows(SEALED)


def test_a_take_over_waits_until_the_holder_has_ended(held):
    first, second = fence(held), fence(held)
    first.claim("one", "local-17")
    with ThreadPoolExecutor(1) as beside:
        taking = beside.submit(second.claim, "two", "local-18", take_over=True, patience=600.0)
        while not first.lost():
            pass
        # As a batch in progress that is recorded yet.
        first.append(SEALED, row(), ("one", 1))
        assert not taking.done()
        first.release()
        taking.result(600)
    second.check()


def test_of_several_that_claim_at_once_one_has_the_place(anywhere):
    fences = [fence(anywhere) for _ in range(4)]

    def claim(number: int) -> bool:
        try:
            fences[number].claim(f"owner-{number}", f"local-{number}")
        except TableError as error:
            assert error.code == "TABLE.PLACE_TAKEN"
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(claim, range(4))) == 1


@pytest.mark.parametrize("look", ["rows", "last_transaction"])
def test_a_claim_beside_anothers_looks_at_the_table_leaves_one_of_them(held, monkeypatch, look):
    first, second = fence(held), fence(held)
    plain = getattr(held, look)

    def late(*given: Any, **named: Any) -> Any:
        found = plain(*given, **named)
        monkeypatch.undo()
        first.claim("one", "local-17")
        return found

    monkeypatch.setattr(held, look, late)
    with pytest.raises(TableError, match="PLACE_TAKEN"):
        second.claim("two", "local-18")
    first.check()


def test_a_look_that_finds_nothing_new_reads_no_table(held, monkeypatch):
    first, other = fence(held), Fence(held, "stream of another topic")
    first.claim("one", "local-17")
    first.check()
    reads: list[object] = []
    monkeypatch.setattr(held, "rows", lambda *given, **named: reads.append(given) or [])
    for _ in range(1000):
        first.check()
    assert not reads
    monkeypatch.undo()
    other.claim("one", "local-17")
    first.check()
