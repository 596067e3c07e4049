"""Editors at once, Delta's maintenance, full disks and wrong clocks: nothing lost, and told."""

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

from jobs.adapters.app.error_texts import SQL_ERRORS, one_line
from jobs.adapters.planning.versions import BatchVersions
from jobs.adapters.stream import delivery
from jobs.adapters.tables import network_versions
from jobs.adapters.tables.network_versions import NetworkVersions
from lab.proof import verification
from udfs.errors import StreamError
from udfs.messages.sequence import split_sequence

pytestmark = pytest.mark.integration

#: Of each editor to each of two rows.
EDITS = 2
PATIENCE = 600
#: A small disk for checkpoint, tables or frames: more than one of them takes, and soon full.
DISK_BYTES = 24 << 20
WRITTEN_BY_THE_STREAM = ("egress_ledger", "header_stacks")
#: Nobody writes these meanwhile: VACUUM without any retention would take files of commits that are
#: under way.
READ_BY_THE_STREAM = ("links",)


@pytest.fixture
def no_retention(spark: SparkSession) -> Iterator[None]:
    """Let VACUUM remove all but the current versions."""
    key = "spark.databricks.delta.retentionDurationCheck.enabled"
    spark.conf.set(key, "false")
    yield
    spark.conf.unset(key)


def messages(got: list[verification.Receipt]) -> set[tuple[bytes, int, bytes]]:
    """What a host got, by session, Kafka offset and message."""
    return {(r.session, split_sequence(r.sequence)[0], m) for r in got for m in r.messages}


def vacuum(deployment: Deployment, table: str) -> None:
    deployment.sql("VACUUM {} RETAIN 0 HOURS", table)


def test_editors_at_once_and_maintenance_lose_no_edit_and_no_notification(
    deployment, itch, no_retention
):
    done: dict[str, str] = {}
    refused: list[str] = []

    def edit(who: int) -> None:
        for number in range(EDITS):
            # Both edit the row "side", and one row each for itself.
            for name in ("side", ("high", "both")[who]):
                text = f"price > {100 * who + 10 * number + 1} and shares > {who}"
                try:
                    deployment.sql(
                        f"UPDATE {{}} SET filter = '{text}' WHERE id = '{name}'", "subscriptions"
                    )
                    done[text + name] = name
                except SQL_ERRORS as error:
                    refused.append(one_line(error))

    def maintain() -> None:
        for table in (*WRITTEN_BY_THE_STREAM, *READ_BY_THE_STREAM):
            try:
                deployment.sql("OPTIMIZE {}", table)
                if table in READ_BY_THE_STREAM:
                    vacuum(deployment, table)
                else:
                    deployment.sql("VACUUM {}", table)
            except SQL_ERRORS as error:
                refused.append(one_line(error))
        deployment.sql("OPTIMIZE {}", "subscriptions")

    workers = [threading.Thread(target=edit, args=(who,)) for who in (0, 1)]
    workers.append(threading.Thread(target=maintain))
    parts = iter([records()[n : n + 25] for n in range(0, 175, 25)])

    def more() -> None:
        deployment.publish(next(parts))

    def begin() -> None:
        for worker in workers:
            worker.start()
        more()

    def end() -> None:
        for worker in workers:
            worker.join()
        more()

    more()
    deployment.set(max_offsets_per_trigger=40)
    deployment.run(begin, more, more, more, end)
    # One of two who write the same row at once may be refused, and knows it.
    assert len(done) >= 2 * EDITS
    assert all("CONCURRENT" in text for text in refused), refused
    # Each edit that was confirmed is a version of its own: no other one has undone it.
    versions = range(1, deployment.tables.version("subscriptions") + 1)
    held = {
        (row["filter"] + row["id"]): row["id"]
        for version in versions
        for row in deployment.tables.rows("subscriptions", version)
    }
    assert done.items() <= held.items()
    batches = [row["batch_id"] for row in deployment.ledger]
    assert batches == list(range(len(batches)))
    assert len({dict(r["versions"])["subscriptions"] for r in deployment.ledger}) > 1
    outcome = deployment.outcome(itch)
    assert (outcome.missing, outcome.extra, outcome.duplicates) == (0, 0, 0)
    # How much it is, is for the moments of the edits to say.
    assert outcome.received > 0


def test_a_batch_whose_versions_are_gone_says_which_file_to_remove(deployment, itch, no_retention):
    deployment.publish(records()[:40])
    deployment.run()
    before = deployment.frames()
    # As after a crash behind the last frame; then an outage in which versions are removed.
    for path in (deployment.folder / "checkpoint" / "commits").iterdir():
        path.unlink()
    deployment.sql("UPDATE {} SET filter = 'price > 1' WHERE id = 'high'", "subscriptions")
    vacuum(deployment, "subscriptions")
    deployment.publish(records()[40:60])
    pin = deployment.folder / "checkpoint" / "stackcast-pins" / "0.json"
    with pytest.raises(StreamError, match=rf"PIN_GONE: batch 0 .*subscriptions.*remove \S*{pin}"):
        deployment.run()
    assert deployment.frames() == before
    pin.unlink()
    deployment.run()
    assert [row["batch_id"] for row in deployment.ledger] == [0, 1]
    # All is sent by the tables of now: what was sent before, and what only the new rule wants.
    sent = receipts(deployment.frames()[len(before) :])
    first = receipts(before)
    for host, got in first.items():
        assert messages(got) <= messages(sent[host])
    assert messages(sent["h1"]) - messages(first["h1"])


def test_versions_that_vanish_under_a_running_stream_leave_the_last_plan_live(
    deployment, caplog, no_retention
):
    """A table is edited and cleaned between the moment a batch looks and the moment it reads."""
    deployment.publish(records()[:40])
    poll = BatchVersions.poll
    late: list[int] = []

    def overtaken() -> None:
        late.append(deployment.tables.version("subscriptions"))
        deployment.sql("UPDATE {} SET filter = 'price > 150' WHERE id = 'high'", "subscriptions")
        edited = deployment.tables.version("subscriptions")
        deployment.sql("UPDATE {} SET filter = 'price > 100' WHERE id = 'high'", "subscriptions")
        vacuum(deployment, "subscriptions")
        late[:] = [edited]
        deployment.publish(records()[40:80])

    def in_time() -> None:
        late.clear()
        deployment.publish(records()[80:120])

    def seen(self: BatchVersions) -> dict[str, int]:
        versions = poll(self)
        return versions | {"subscriptions": late[0]} if late else versions

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BatchVersions, "poll", seen)
        deployment.run(overtaken, in_time)
    assert "TABLE.VERSION_GONE" in caplog.text
    assert "the last good ones stay live" in caplog.text
    used = [dict(row["versions"])["subscriptions"] for row in deployment.ledger]
    assert used[:2] == [1, 1] and 2 not in used
    # VACUUM makes versions, too.
    assert used[-1] == deployment.tables.version("subscriptions")


def test_a_full_disk_is_told_in_one_line_and_costs_nothing_when_there_is_room(
    broker, filled, tmp_path
):
    disk = tmp_path / "disk"
    disk.mkdir()
    unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    script = 'mount -t tmpfs -o size="$1" none "$2" && shift 2 && exec "$@"'
    command = [*unshare, "sh", "-c", script, "sh", str(DISK_BYTES), str(disk), sys.executable]
    program = [full_disks.__file__, broker.bootstrap_servers, filled, tmp_path / "run", disk]
    path = os.pathsep.join([str(Path(full_disks.__file__).parent), *sys.path])
    done = subprocess.run(
        [*command, *map(str, program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
        env=os.environ | {"PYTHONPATH": path},
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [line["place"] for line in lines] == list(full_disks.PLACES), done.stderr[-3000:]
    checkpoint, tables, frames = lines
    for line, name in ((checkpoint, "the checkpoint"), (frames, "the pcap sink")):
        assert "\n" not in line["told"]
        assert "NO_ROOM" in line["told"], line
        assert f"{name} ({disk}" in line["told"], line
    # Tables may wait: rows are safe in the checkpoint, and the log says why they are not written.
    assert tables["told"] == ""
    logged = tables["logged"]
    assert any("could not be written" in t and "No space left" in t for t in logged), logged
    for line in lines:
        assert line["batches"] == list(range(len(line["batches"]))), line
        assert (line["missing"], line["extra"], line["misnumbered"]) == (0, 0, 0), line
        # What hosts got twice they got under one number; it counts once.
        assert line["counted"] == line["expected"] > 100, line


def test_a_clock_that_jumps_costs_no_notification_and_no_row(deployment, itch, monkeypatch):
    shift = dt.timedelta()

    class Clock(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:
            return dt.datetime.now(tz) + shift

    class Shifted:
        """The module ``datetime`` with a clock of its own."""

        datetime = Clock
        timedelta = dt.timedelta
        UTC = dt.UTC

    monkeypatch.setattr(delivery, "dt", Shifted)
    monkeypatch.setattr(network_versions, "dt", Shifted)

    def jump(to: dt.timedelta, begin: int, text: str) -> Callable[[], None]:
        def step() -> None:
            nonlocal shift
            shift = to
            deployment.sql(f"UPDATE {{}} SET filter = '{text}' WHERE id = 'high'", "subscriptions")
            deployment.publish(records()[begin : begin + 30])

        return step

    deployment.publish(records()[:30])
    deployment.run(
        jump(dt.timedelta(hours=1), 30, "price > 150"),
        jump(dt.timedelta(days=-1), 60, "price > 100"),
        jump(dt.timedelta(days=-1, hours=1), 90, "price > 50"),
    )
    ledger = sorted(deployment.ledger, key=lambda row: row["batch_id"])
    used = [dict(row["versions"])["subscriptions"] for row in ledger]
    # Each edit is live in the batch after it, whatever the clock says.
    assert used == sorted(used)
    assert len(set(used)) == 4
    times = [row["started_at"] for row in ledger]
    assert times != sorted(times)
    assert all(0 <= row["seconds"] < 600 for row in ledger)
    outcome = deployment.outcome(itch)
    assert (outcome.missing, outcome.extra, outcome.duplicates) == (0, 0, 0)
    # The refresher errs to the safe side: it takes an older batch for the last.
    kept = NetworkVersions(deployment.tables).topics()[deployment.settings.topic]
    assert all(kept[name] <= dict(ledger[-1]["versions"])[name] for name in kept)
