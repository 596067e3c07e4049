"""The order in which rules came into `subscriptions`, whatever their rows say."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyspark.sql import SparkSession

from stackcast import schemas
from stackcast.jobs.adapters.planning.versions import BatchVersions
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.seniority import Seniority
from stackcast.jobs.adapters.tables.tables import SENIORITY, SUBSCRIPTIONS, Tables
from stackcast.udfs.filters.selection import select
from stackcast.udfs.filters.subscriptions import Subscription
from stackcast.udfs.messages.specification import parse_specification

pytestmark = pytest.mark.integration

ITCH = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
FORGED = dt.datetime(1990, 1, 1, tzinfo=dt.UTC)
LATE = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)


def rule(
    name: str, subscriber: str, text: str = "price > 1", at: dt.datetime | None = LATE
) -> dict[str, Any]:
    row = {"id": name, "subscriber": subscriber, "format": "itch", "filter": text}
    return row | {"enabled": True, "updated_by": subscriber, "updated_at": at}


def ordered(tables: Tables, version: int | None = None) -> list[tuple[str, str]]:
    """Pairs from the oldest on."""
    rows = tables.rows(SENIORITY, version)
    rows.sort(key=lambda row: (row["since_version"], row["id"], row["subscriber"]))
    return [(row["id"], row["subscriber"]) for row in rows]


def live(tables: Tables, versions: dict[str, int], quota: int = 0) -> list[Subscription]:
    return select(
        tables.rows(SUBSCRIPTIONS, versions[SUBSCRIPTIONS]),
        "itch",
        ("itch",),
        ITCH,
        lambda: tables.rows(SENIORITY, versions[SENIORITY]),
        quota,
    )[0]


def test_the_order_of_commits_counts_and_a_forged_time_does_not(tables: Tables) -> None:
    # All of these are there before anybody looks for the first time.
    tables.append(SUBSCRIPTIONS, [rule("z", "h1"), rule("y", "h1")])
    tables.append(SUBSCRIPTIONS, [rule("z", "h2", at=FORGED)])
    tables.append(SUBSCRIPTIONS, [rule("b", "h1", at=None)])
    tables.append(SUBSCRIPTIONS, [rule("a", "h1", at=FORGED)])
    stream = Seniority(tables)
    versions = stream.versions()
    assert ordered(tables) == [("y", "h1"), ("z", "h1"), ("z", "h2"), ("b", "h1"), ("a", "h1")]
    assert [(row.id, row.subscriber) for row in live(tables, versions, 3)] == [
        ("b", "h1"),
        ("y", "h1"),
        ("z", "h1"),
    ]
    # Looked at once, it is not written again.
    assert stream.versions() == Seniority(tables).versions() == versions


def test_an_edit_of_a_row_keeps_its_place_and_a_row_that_was_away_comes_last(
    tables: Tables,
) -> None:
    stream = Seniority(tables)
    tables.append(SUBSCRIPTIONS, [rule("b", "h1")])
    tables.append(SUBSCRIPTIONS, [rule("a", "h1")])
    stream.versions()
    edited = rule("b", "h1", "price > 9 : fwd(h2, h3)") | {"enabled": False}
    tables.merge(SUBSCRIPTIONS, [edited], [], ("id",))
    before = stream.versions()
    assert ordered(tables) == [("b", "h1"), ("a", "h1")]
    tables.merge(SUBSCRIPTIONS, [], [rule("b", "h1")], ("id",))
    stream.versions()
    tables.append(SUBSCRIPTIONS, [rule("b", "h1")])
    stream.versions()
    assert ordered(tables) == [("a", "h1"), ("b", "h1")]
    # A batch that is computed again goes by the order of then.
    assert ordered(tables, before[SENIORITY]) == [("b", "h1"), ("a", "h1")]


def test_streams_that_share_tables_agree(tables: Tables, spark: SparkSession) -> None:
    streams = [Seniority(open_tables(spark, tables.location)) for _ in range(3)]
    found: list[dict[str, int]] = []
    with ThreadPoolExecutor() as pool:
        for number in range(6):
            tables.append(SUBSCRIPTIONS, [rule(f"r{9 - number}", f"h{number % 3}")])
            if number % 2:
                tables.merge(SUBSCRIPTIONS, [], [rule(f"r{10 - number}", "")], ("id",))
            found += pool.map(lambda stream: stream.versions(), streams)
    for versions in found:
        pairs = {
            (r["id"], r["subscriber"])
            for r in tables.rows(
                SUBSCRIPTIONS, versions[SUBSCRIPTIONS], columns=("id", "subscriber")
            )
        }
        assert set(ordered(tables, versions[SENIORITY])) == pairs
    assert ordered(tables) == [("r8", "h1"), ("r6", "h0"), ("r4", "h2")]


def test_in_a_copy_that_counts_versions_anew_the_order_goes_on(
    tables: Tables, spark: SparkSession, tmp_path: Any
) -> None:
    for name in ("d", "c"):
        tables.append(SUBSCRIPTIONS, [rule(name, "h1")])
    for _ in range(5):
        tables.overwrite(SUBSCRIPTIONS, tables.rows(SUBSCRIPTIONS))
    tables.append(SUBSCRIPTIONS, [rule("b", "h1")])
    Seniority(tables).versions()
    copy = open_tables(spark, str(tmp_path / "copy"))
    copy.create(SUBSCRIPTIONS, SENIORITY)
    for name in (SUBSCRIPTIONS, SENIORITY):
        copy.append(name, tables.rows(name))
    copy.append(SUBSCRIPTIONS, [rule("a", "h1")])
    stream = Seniority(copy)
    stream.versions()
    copy.append(SUBSCRIPTIONS, [rule("0", "h1")])
    stream.versions()
    assert [name for name, _ in ordered(copy)] == ["d", "c", "b", "a", "0"]


def test_a_version_that_cannot_be_used_changes_no_order(tables: Tables) -> None:
    stream = Seniority(tables)
    tables.append(SUBSCRIPTIONS, [rule("b", "h1")])
    tables.append(SUBSCRIPTIONS, [rule("a", "h1")])
    stream.versions()
    frame = tables.read(SUBSCRIPTIONS).withColumnRenamed("filter", "rule")
    writer = frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    writer.save(tables.place(SUBSCRIPTIONS))
    stream.versions()
    assert ordered(tables) == [("b", "h1"), ("a", "h1")]


def test_a_stream_pins_the_order_with_the_rules(tables: Tables) -> None:
    stream = BatchVersions(tables, "t")
    tables.append(SUBSCRIPTIONS, [rule("r", "h2")])
    first = stream.current()
    tables.append(SUBSCRIPTIONS, [rule("r", "h1", at=FORGED)])
    second = stream.current()
    tables.merge(SUBSCRIPTIONS, [], [rule("r", "h2")], ("id", "subscriber"))
    third = stream.current()
    for versions, owner in ((first, "h2"), (second, "h2"), (third, "h1"), (second, "h2")):
        assert [row.subscriber for row in live(tables, versions)] == [owner]
