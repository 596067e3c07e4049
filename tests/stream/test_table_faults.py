"""Concurrent editors, Delta's maintenance, full disks and wrong clocks lose no notification."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import full_disks
import pytest
from pcap_deployment import Deployment, receipts, records
from pyspark.sql import SparkSession
from table_edits import vacuum

from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS
from stackcast.jobs.adapters.planning.versions import BatchVersions
from stackcast.jobs.adapters.stream import delivery
from stackcast.jobs.adapters.tables import network_versions
from stackcast.jobs.adapters.tables.network_versions import NetworkVersions
from stackcast.lab.proof import verification
from stackcast.udfs.errors import StreamError
from stackcast.udfs.messages.sequence import split_sequence
from stackcast.udfs.messages.specification import Specification

pytestmark = pytest.mark.integration

#: Limits a wait, so that a test that hangs ends.
WAIT_S = 600
#: Size of each disk that the checkpoint, tables or frames of a stream fill.
DISK_BYTES = 24 << 20
#: VACUUM without retention would remove files of commits in progress, so it cleans only tables that
#: no stream writes.
READ_BY_THE_STREAM = ("links",)


@pytest.fixture
def no_retention(spark: SparkSession) -> Iterator[None]:
    """Allow VACUUM to remove all versions except the current one."""
    key = "spark.databricks.delta.retentionDurationCheck.enabled"
    spark.conf.set(key, "false")
    yield
    spark.conf.unset(key)


def messages(host_receipts: list[verification.Receipt]) -> set[tuple[bytes, int, bytes]]:
    """Return session, Kafka offset and content of each message that a host received."""
    return {
        (receipt.session, split_sequence(receipt.sequence)[0], message)
        for receipt in host_receipts
        for message in receipt.messages
    }


@pytest.mark.parametrize(
    ("edits", "written_by_the_stream", "vacuum_by_sql"),
    [
        (1, ("egress_ledger",), False),
        pytest.param(2, ("egress_ledger", "header_stacks"), True, marks=pytest.mark.long),
    ],
    ids=["few", "many"],
)
def test_editors_at_once_and_maintenance_lose_no_edit_and_no_notification(
    deployment: Deployment,
    itch: Specification,
    no_retention: None,
    edits: int,
    written_by_the_stream: tuple[str, ...],
    vacuum_by_sql: bool,
) -> None:
    """Run two editors and the maintenance of the tables while a stream delivers.

    Args:
        edits: number of edits by each editor of each of its two rows.
        written_by_the_stream: tables that the maintenance optimizes while the stream writes them.
        vacuum_by_sql: remove old files of all tables by SQL, which takes seconds for each; without
            it, only of the tables that the stream reads, by delta-rs.
    """
    confirmed: dict[str, str] = {}
    errors: list[str] = []

    def edit(editor: int) -> None:
        for number in range(edits):
            # Both editors change the row "side", and each one another row of its own.
            for name in ("side", ("high", "both")[editor]):
                text = f"price > {100 * editor + 10 * number + 1} and shares > {editor}"
                try:
                    deployment.sql(
                        f"UPDATE {{}} SET filter = '{text}' WHERE id = '{name}'", "subscriptions"
                    )
                    confirmed[text + name] = name
                except SQL_ERRORS as error:
                    errors.append(one_line(error))

    def maintain() -> None:
        for table in (*written_by_the_stream, *READ_BY_THE_STREAM):
            try:
                deployment.sql("OPTIMIZE {}", table)
                if vacuum_by_sql:
                    retain = "RETAIN 0 HOURS" if table in READ_BY_THE_STREAM else ""
                    deployment.sql(f"VACUUM {{}} {retain}", table)
                elif table in READ_BY_THE_STREAM:
                    vacuum(deployment.tables, table)
            except SQL_ERRORS as error:
                errors.append(one_line(error))
        deployment.sql("OPTIMIZE {}", "subscriptions")

    threads = [threading.Thread(target=edit, args=(editor,)) for editor in (0, 1)]
    threads.append(threading.Thread(target=maintain))
    parts = iter([records()[n : n + 25] for n in range(0, 125, 25)])

    def publish_part() -> None:
        deployment.publish(next(parts))

    def begin() -> None:
        for thread in threads:
            thread.start()
        publish_part()

    def end() -> None:
        for thread in threads:
            thread.join()
        publish_part()

    publish_part()
    deployment.set(max_offsets_per_trigger=40)
    deployment.run(begin, publish_part, publish_part, end)
    # Delta may refuse one of two concurrent edits of a row, and reports that to its editor.
    assert len(confirmed) >= 2 * edits
    assert all("CONCURRENT" in text for text in errors), errors
    # Each confirmed edit is in a version of the table, so no other edit has undone it.
    versions = range(1, deployment.tables.version("subscriptions") + 1)
    rows = {
        (row["filter"] + row["id"]): row["id"]
        for version in versions
        for row in deployment.tables.rows("subscriptions", version)
    }
    assert confirmed.items() <= rows.items()
    batches = [row["batch_id"] for row in deployment.ledger]
    assert batches == list(range(len(batches)))
    assert len({dict(r["versions"])["subscriptions"] for r in deployment.ledger}) > 1
    outcome = deployment.outcome(itch)
    assert (outcome.missing, outcome.extra, outcome.duplicates) == (0, 0, 0)
    # The number of deliveries depends on when the edits became live.
    assert outcome.received > 0


@pytest.mark.long
def test_a_batch_whose_versions_are_gone_names_the_file_to_remove(deployment):
    deployment.publish(records()[:40])
    deployment.run()
    before = deployment.frames()
    # The stream crashed after the last frame, and its versions were removed before it restarted.
    for path in (deployment.folder / "checkpoint" / "commits").iterdir():
        path.unlink()
    deployment.change("subscriptions", {"id": "high"}, filter="price > 1")
    vacuum(deployment.tables, "subscriptions")
    deployment.publish(records()[40:60])
    pin = deployment.folder / "checkpoint" / "stackcast-pins" / "0.json"
    with pytest.raises(StreamError, match=rf"PIN_GONE: batch 0 .*subscriptions.*remove \S*{pin}"):
        deployment.run()
    assert deployment.frames() == before
    pin.unlink()
    deployment.run()
    assert [row["batch_id"] for row in deployment.ledger] == [0, 1]
    # The batch runs again with the current tables: the new rule matches more messages.
    second = receipts(deployment.frames()[len(before) :])
    first = receipts(before)
    for host, host_receipts in first.items():
        assert messages(host_receipts) <= messages(second[host])
    assert messages(second["h1"]) - messages(first["h1"])


@pytest.mark.long
def test_versions_that_vanish_under_a_running_stream_leave_the_last_plan_live(deployment, caplog):
    """An editor changes and cleans a table after a batch has seen its version."""
    deployment.publish(records()[:40])
    poll = BatchVersions.poll
    stale_version: list[int] = []

    def remove_version() -> None:
        stale_version.append(deployment.tables.version("subscriptions"))
        deployment.change("subscriptions", {"id": "high"}, filter="price > 150")
        edited = deployment.tables.version("subscriptions")
        deployment.change("subscriptions", {"id": "high"}, filter="price > 100")
        vacuum(deployment.tables, "subscriptions")
        stale_version[:] = [edited]
        deployment.publish(records()[40:80])

    def use_current_version() -> None:
        stale_version.clear()
        deployment.publish(records()[80:120])

    def poll_late(self: BatchVersions) -> dict[str, int]:
        versions = poll(self)
        return versions | {"subscriptions": stale_version[0]} if stale_version else versions

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BatchVersions, "poll", poll_late)
        deployment.run(remove_version, use_current_version)
    assert "TABLE.VERSION_GONE" in caplog.text
    assert " remain live: " in caplog.text
    versions = [dict(row["versions"])["subscriptions"] for row in deployment.ledger]
    assert versions[:2] == [1, 1] and 2 not in versions
    assert versions[-1] == deployment.tables.version("subscriptions")


@pytest.mark.long
def test_a_full_disk_is_reported_in_one_line_and_loses_nothing(broker, filled, tmp_path):
    disks = tmp_path / "disks"
    mounts = [disks / place for place in full_disks.PLACES]
    for mount in mounts:
        mount.mkdir(parents=True)
    unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    mounted = " && ".join(f"mount -t tmpfs -o size={DISK_BYTES} none '{m}'" for m in mounts)
    command = [*unshare, "sh", "-c", f'{mounted} && exec "$@"', "sh", sys.executable]
    program = [full_disks.__file__, broker.bootstrap_servers, filled, tmp_path / "run", disks]
    path = os.pathsep.join([str(Path(full_disks.__file__).parent), *sys.path])
    process = subprocess.run(
        [*command, *map(str, program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert process.returncode == 0, process.stderr[-3000:]
    result = json.loads(process.stdout.splitlines()[-1])
    errors = result["errors"]
    assert errors.keys() == {"checkpoint", "pcap_path"}
    for place, name in (("checkpoint", "the checkpoint"), ("pcap_path", "the pcap sink")):
        assert "\n" not in errors[place]
        assert "DISK_FULL" in errors[place], errors
        assert f"{name} ({disks / place}" in errors[place], errors
    # The stream continues without its tables: the checkpoint has their rows, the log the reason.
    logged = result["logged"]
    assert any("could not be written" in t and "No space left" in t for t in logged), logged
    assert result["batches"] == list(range(len(result["batches"])))
    assert len(result["batches"]) >= 4
    assert (result["missing"], result["extra"], result["misnumbered"]) == (0, 0, 0), result
    # A notification that hosts received twice has one number, and counts once.
    assert result["counted"] == result["expected"] > 100, result


@pytest.mark.long
def test_a_clock_that_jumps_loses_no_notification_and_no_row(deployment, itch, monkeypatch):
    shift = dt.timedelta()

    class Clock(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:
            return dt.datetime.now(tz) + shift

    class Shifted:
        """The module ``datetime`` with another clock."""

        datetime = Clock
        timedelta = dt.timedelta
        UTC = dt.UTC

    monkeypatch.setattr(delivery, "dt", Shifted)
    monkeypatch.setattr(network_versions, "dt", Shifted)

    def jump(offset: dt.timedelta, begin: int, text: str) -> Callable[[], None]:
        def step() -> None:
            nonlocal shift
            shift = offset
            deployment.change("subscriptions", {"id": "high"}, filter=text)
            deployment.publish(records()[begin : begin + 30])

        return step

    deployment.publish(records()[:30])
    deployment.run(
        jump(dt.timedelta(hours=1), 30, "price > 150"),
        jump(dt.timedelta(days=-1), 60, "price > 100"),
        jump(dt.timedelta(days=-1, hours=1), 90, "price > 50"),
    )
    ledger = sorted(deployment.ledger, key=lambda row: row["batch_id"])
    versions = [dict(row["versions"])["subscriptions"] for row in ledger]
    # Each edit is live in the batch after it, although the clock jumps.
    assert versions == sorted(versions)
    assert len(set(versions)) == 4
    times = [row["started_at"] for row in ledger]
    assert times != sorted(times)
    assert all(0 <= row["seconds"] < 600 for row in ledger)
    outcome = deployment.outcome(itch)
    assert (outcome.missing, outcome.extra, outcome.duplicates) == (0, 0, 0)
    # The refresher can take an older batch for the last one, which is safe.
    versions_in_use = NetworkVersions(deployment.tables).topics()[deployment.settings.topic]
    last_versions = dict(ledger[-1]["versions"])
    assert all(version <= last_versions[name] for name, version in versions_in_use.items())
