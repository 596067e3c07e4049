"""A damaged file of the checkpoint is mended, or one error that names it and says what to do."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pcap_deployment import Deployment, records
from pyspark.sql import SparkSession

from stackcast.jobs.adapters.checkpoint.local_files import LocalFolder
from stackcast.jobs.adapters.checkpoint.reports import Report, Reports
from stackcast.jobs.adapters.checkpoint.summary_progress import SummaryProgressStore
from stackcast.lab.up.broker import Broker
from stackcast.udfs.delivery.summary_progress import SummaryProgress
from stackcast.udfs.errors import StackcastError

pytestmark = pytest.mark.integration

#: Every kind of file that a checkpoint has, and the code of its error; the newest one is damaged.
REFUSED = {
    "metadata": "CHECKPOINT_UNREADABLE",
    "stackcast-identity.json": "CHECKPOINT_UNREADABLE",
    "offsets/[0-9]*": "CHECKPOINT_UNREADABLE",
    "offsets/.[0-9]*.crc": "CHECKPOINT_UNREADABLE",
    "stackcast-pins/*.json": "PIN_UNREADABLE",
    "stackcast-state/*.bin": "STATE_UNREADABLE",
    "stackcast-summary-progress/*.json": "SUMMARIES_UNREADABLE",
    "stackcast-reports/*.json": "REPORT_UNREADABLE",
}
#: Those that nothing is lost with.
MENDED = ("commits/[0-9]*", "commits/.[0-9]*.crc", "sources/0/0", "sources/0/.0.crc")

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut": lambda content: content[: len(content) // 2],
    "garbage": lambda content: random.Random(len(content)).randbytes(len(content)),
}
cut_and_others = pytest.mark.parametrize(
    "damage", ["cut", *(pytest.param(d, marks=pytest.mark.long) for d in DAMAGES if d != "cut")]
)


@pytest.fixture(scope="module")
def ran(
    spark: SparkSession, broker: Broker, filled: Path, tmp_path_factory: pytest.TempPathFactory
) -> Deployment:
    """A deployment that has run, with rules that keep state, and records that wait; nobody changes
    it."""
    folder = tmp_path_factory.mktemp("damaged")
    shutil.copytree(filled, folder / "tables")
    deployment = Deployment(spark, broker.bootstrap_servers, folder)
    first = deployment.tables.rows("subscriptions")[0]
    rule = {"id": "state", "subscriber": "h4", "filter": "count(10000000) > 5 and price > 0"}
    deployment.tables.append("subscriptions", [first | rule])
    deployment.publish(records()[:20])
    deployment.run(lambda: deployment.publish(records()[20:40]))
    deployment.publish(records()[40:60])
    return deployment


@pytest.fixture
def same(ran: Deployment, tmp_path: Path) -> Deployment:
    """The same with a checkpoint and tables that may be changed."""
    for name in ("tables", "checkpoint", "frames"):
        shutil.copytree(ran.folder / name, tmp_path / name)
    values = {"topic": ran.settings.topic, "dead_letter_topic": ran.settings.dead_letter_topic}
    made = Deployment(ran.spark, ran.servers, tmp_path, **values)
    # As a crash leaves one.
    checkpoint = LocalFolder(Path(made.settings.checkpoint))
    left = Report(f"stackcast-{'0' * 8}", 0, {})
    Reports(checkpoint).put(left)
    told = {0: SummaryProgress(7, 0, {}, {}), 1: SummaryProgress(7, 0, {}, {})}
    SummaryProgressStore(checkpoint).put(made.committed(), told)
    return made


def newest(deployment: Deployment, kind: str) -> Path:
    def number(path: Path) -> tuple[int, str]:
        digits = re.search(r"\d+", path.name)
        return int(digits[0]) if digits else 0, path.name

    return max(Path(deployment.settings.checkpoint).glob(kind), key=number)


def test_every_kind_of_file_is_among_those_that_are_damaged_here(same):
    checkpoint = Path(same.settings.checkpoint)
    known = {path for kind in (*REFUSED, *MENDED) for path in checkpoint.glob(kind)}
    files = {path for path in checkpoint.rglob("*") if path.is_file()}
    assert not files - known


@cut_and_others
@pytest.mark.parametrize("kind", REFUSED)
def test_a_damaged_file_is_one_error_that_names_it_and_a_way_out(same, kind, damage):
    file = newest(same, kind)
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    with pytest.raises(StackcastError, match=rf"STREAM\.{REFUSED[kind]}: ") as refused:
        same.run()
    told = str(refused.value)
    assert str(file) in told and re.search(r"restore|Restore", told), told


@cut_and_others
def test_what_nothing_is_lost_with_is_mended(same, itch, damage):
    for kind in MENDED:
        file = newest(same, kind)
        file.write_bytes(DAMAGES[damage](file.read_bytes()))
    same.run()
    outcome = same.outcome(itch)
    assert (outcome.missing, outcome.extra, outcome.duplicates) == (0, 0, 0)
    assert same.committed() > 1


def test_the_way_out_that_is_told_leads_on(same):
    ours = "stackcast-reports/*", "stackcast-state/*.bin", "stackcast-summary-progress/*"
    for kind in ("stackcast-identity.json", *ours):
        file = newest(same, kind)
        file.write_bytes(b"")
        file.unlink()
    before = len(same.frames())
    same.run()
    assert len(same.frames()) > before
