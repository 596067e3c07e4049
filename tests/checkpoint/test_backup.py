"""A backup has tables, checkpoint and positions of one moment: a stream goes on from it exactly."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pcap_deployment import Deployment, records

from stackcast.jobs import backup as job
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.checkpoint import backup
from stackcast.jobs.adapters.checkpoint.files import Folder
from stackcast.jobs.adapters.checkpoint.hadoop_files import open_folder
from stackcast.jobs.adapters.stream.spark_stream import start
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.jobs.adapters.tables.writers import Fence
from stackcast.udfs.errors import TableError

pytestmark = pytest.mark.integration


def ask(deployment: Deployment, *arguments: str) -> None:
    """Runs the command."""
    asked = job.parser().parse_args(arguments)
    assert job.work(asked, deployment.settings, Lifecycle()) == 0


def parts(deployment: Deployment) -> tuple[Settings, Tables, Folder]:
    """Return settings, tables and checkpoint as the job passes them."""
    checkpoint = open_folder(deployment.spark, deployment.settings.checkpoint)
    return (
        deployment.settings,
        open_tables(deployment.spark, deployment.settings.tables),
        checkpoint,
    )


@pytest.mark.long
def test_a_stream_goes_on_from_a_backup_on_fresh_folders(deployment, itch, tmp_path):
    spark, copy = deployment.spark, tmp_path / "backups" / "monday"
    copy.parent.mkdir()
    deployment.publish(records()[:40])
    deployment.run()
    ask(deployment, str(copy))
    made = json.loads((copy / "backup.json").read_text())
    assert made["offsets"] == {"0": 20, "1": 20} and made["topic"] == deployment.settings.topic
    # What came later is lost with the disk, and is sent again.
    deployment.publish(records()[40:60])
    deployment.run()
    before = deployment.frames()
    for name in ("tables", "checkpoint", "frames"):
        shutil.rmtree(tmp_path / name)
    fresh = tmp_path / "fresh"
    deployment.set(tables=str(fresh / "tables"), checkpoint=str(fresh / "checkpoint"))
    fresh.mkdir()
    ask(deployment, "--restore", str(copy))
    deployment.tables = open_tables(spark, deployment.settings.tables)
    deployment.publish(records()[60:80])
    deployment.run()
    batches = [row["batch_id"] for row in deployment.ledger]
    assert batches == list(range(len(batches)))
    spans = [p for row in deployment.ledger for p in row["partitions"]]
    for partition in (0, 1):
        mine = [p for p in spans if p["partition"] == partition]
        assert mine[0]["from_offset"] == 0 and mine[-1]["until_offset"] == 40
        assert [p["until_offset"] for p in mine[:-1]] == [p["from_offset"] for p in mine[1:]]
    # The same bytes, whoever sent them.
    again = deployment.frames()
    kept = [frame for frame in before if frame not in again]
    outcome = deployment.outcome(itch, kept + again)
    assert (outcome.missing, outcome.extra, outcome.duplicates) == (0, 0, 0)
    # Nothing is written over.
    for act in (backup.create, backup.restore):
        with pytest.raises(TableError, match="NOT_EMPTY"):
            act(*parts(deployment), copy, "backup")


def test_no_backup_is_taken_while_a_stream_runs_and_no_stream_starts_meanwhile(
    deployment, tmp_path
):
    deployment.set(wait_seconds=0)
    fence = Fence(deployment.tables, f"stream of {deployment.settings.topic}")
    fence.claim("a stream", "local-1", deployment.settings.checkpoint)
    with pytest.raises(TableError, match="WRITER_ACTIVE"):
        backup.create(*parts(deployment), tmp_path / "copy", "backup")
    # As of one that died.
    ask(deployment, "--take-over", str(tmp_path / "other"))
    fence.release()
    meanwhile: list[str] = []
    copied = backup._copy_table

    def copying(*given: object) -> None:
        if not meanwhile:
            with pytest.raises(TableError, match="WRITER_ACTIVE"):
                start(deployment.spark, deployment.settings, Lifecycle())
            meanwhile.append("tried")
        copied(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backup, "_copy_table", copying)
        backup.create(*parts(deployment), tmp_path / "copy", "backup")
    assert meanwhile


@pytest.mark.parametrize("content", [None, "", '{"layout": 1', '{"layout": 99}', "[]"])
def test_what_is_no_whole_backup_or_a_newer_one_is_refused(
    deployment: Deployment, tmp_path: Path, content: str | None
):
    copy = tmp_path / "copy"
    copy.mkdir()
    if content is not None:
        (copy / "backup.json").write_text(content)
    code = "NEWER_LAYOUT" if content and "99" in content else "NO_BACKUP"
    with pytest.raises(TableError, match=f"{code}: .*{copy}"):
        backup.restore(*parts(deployment), copy, "backup")
