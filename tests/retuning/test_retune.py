"""Retuning chooses trees by the record of publications, and changes real switches step by step."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from following import following
from networks import relabelled
from paths import COMPILED_P4, ROOT
from ports import free_port
from pyspark.sql import SparkSession
from retuning_service import check_place_is_free, get, record_of_rows, retuning_service
from stopping_job import StoppingJob
from virtual_trees_cases import stacked
from waiting import until

from stackcast.jobs import retune_trees
from stackcast.jobs.adapters.app import application
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.retune import planning, report, trials
from stackcast.jobs.adapters.retune.options import RetuneOptions
from stackcast.jobs.adapters.retune.planning import Planner, RetunePlan
from stackcast.jobs.adapters.retune.record import RecordedPublications, read_record
from stackcast.jobs.adapters.retune.writing import TreeWriter
from stackcast.jobs.adapters.runtime.spark_engine import SparkEngine
from stackcast.jobs.adapters.switches.lead import Refresher
from stackcast.jobs.adapters.tables.edits import change_tree_states
from stackcast.jobs.adapters.tables.folder_tables import FolderTables
from stackcast.jobs.adapters.tables.network_versions import NetworkVersions
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.tables import DELIVERIES, PUBLICATIONS, Tables
from stackcast.jobs.adapters.tables.writers import Fence
from stackcast.jobs.adapters.wire import SinkOptions, open_sink
from stackcast.lab.proof.receipts import datagrams_of
from stackcast.lab.up.process import Child
from stackcast.udfs.errors import NetworkError, SettingsError, TableError
from stackcast.udfs.network.labels import TREE, LabelFormat
from stackcast.udfs.network.rows import network_to_rows, tree_from_row, tree_to_row
from stackcast.udfs.network.source_routes import SOURCE_ROUTES
from stackcast.udfs.network.stored_routes import HYBRID, TREES
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.retuning.comparison import Record
from stackcast.udfs.retuning.steps import rules
from stackcast.udfs.stop_request import StopRequest
from stackcast.udfs.trees.broadcast import broadcast_trees
from stackcast.udfs.trees.encoders import encoder_of
from stackcast.udfs.trees.publications import Clients, Publication, Statistics
from stackcast.udfs.trees.steiner import steiner_tree
from stackcast.udfs.trees.strategies.strategy import Situation, uniform

pytestmark = pytest.mark.integration

NETWORK = fabric(pods=2, racks=2, hosts=2, planes=1, spines=1)
(FEED,) = NETWORK.publishers()
HOSTS = sorted(NETWORK.subscribers())
NEAR, FAR = HOSTS[:4], HOSTS[4:]
NOON = dt.datetime(2026, 1, 2, 12, tzinfo=dt.UTC)
#: Few, because each strategy is a task of Spark.
FEW = ["--strategies", "hops,relation"]


class Deployment:
    """Tables of a deployment, and its retuning.

    Attributes:
        reads_by_spark: False has runs read the record by `record_of_rows`.
    """

    def __init__(
        self, spark: SparkSession, tables: Tables, folder: Path, encoding: str = "virtual_trees"
    ) -> None:
        self.spark, self.tables, self.folder = spark, tables, folder
        self.settings = Settings(
            tables=tables.location, wait_seconds=60, p4_folder=str(COMPILED_P4), encoding=encoding
        )
        self.reads_by_spark = False

    def publish(self, batch: int, receivers: Sequence[str], number: int) -> None:
        when = NOON + dt.timedelta(hours=batch)
        common = {"batch_id": batch, "publisher": FEED, "recorded_at": when, "messages": number}
        counts = {"notifications": number, "bytes": 100 * number}
        self.tables.append(
            DELIVERIES, [common | counts | {"subscriber": name} for name in receivers]
        )
        row = {"receivers": sorted(receivers), "notifications": number}
        row |= {"datagram_bytes": 80 * number}
        self.tables.append(PUBLICATIONS, [common | row])

    def arguments(self, *arguments: str) -> list[str]:
        return [*FEW, "--report", str(self.folder / "report"), *arguments]

    def run(self, *arguments: str) -> int:
        options = retune_trees.parser().parse_args(self.arguments(*arguments))
        with pytest.MonkeyPatch.context() as patch:
            if not self.reads_by_spark:
                patch.setattr(planning, "read_record", record_of_rows)
            return retune_trees.work(options, self.settings, Lifecycle())

    def report(self) -> dict[str, Any]:
        return json.loads((self.folder / "report" / "retune.json").read_text())

    def trees(self) -> dict[int, tuple[frozenset, str]]:
        return {
            row["tree_id"]: (frozenset((e["u"], e["v"]) for e in row["edges"]), row["state"])
            for row in self.tables.rows("virtual_trees")
        }

    def states(self) -> Counter[str]:
        return Counter(state for _, state in self.trees().values())

    def load(self) -> int:
        """The number of trees in the switch that has most."""
        return max(
            Counter(
                name
                for edges, state in self.trees().values()
                if state != "retired"
                for name in {end for pair in edges for end in pair} & NETWORK.switches.keys()
            ).values(),
            default=0,
        )

    def refreshed(self) -> AbstractContextManager[Refresher]:
        """A refresher keeps the switches in step during the block."""
        return following(self.tables, self.settings)


class Fabric(NamedTuple):
    """The switches, which are empty at first, and their hosts."""

    folder: Path
    p4runtime: str
    ingress: str

    def reached(self, stacks: Sequence[Sequence[int]], form: LabelFormat) -> list[Counter[str]]:
        """Returns how often each host receives a frame with each stack."""
        payloads = [f"{form.describe(stack[0])}, {uuid.uuid4()}".encode() for stack in stacks]
        options = SinkOptions("udp", endpoint=self.ingress, window=1)
        with closing(open_sink(options)) as sink:
            for stack, payload in zip(stacks, payloads, strict=True):
                frame = np.frombuffer(stacked(stack, payload, form), np.uint8)
                sink.send(frame, np.array([0, frame.size], np.int64))
            # The network acknowledges a frame after it wrote the files.
            sink.flush()
        copies = [Counter[str]() for _ in stacks]
        for host in HOSTS:
            received = Counter(datagrams_of(self.folder / "receipts" / f"{host}.mold"))
            for hosts, payload in zip(copies, payloads, strict=True):
                hosts[host] += received[payload]
        return [+hosts for hosts in copies]


@pytest.fixture(scope="module")
def switches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    folder = tmp_path_factory.mktemp("switches")
    rows = network_to_rows(NETWORK, dict.fromkeys(NETWORK.switches, ""))
    (folder / "network.json").write_text(json.dumps(rows))
    line = [
        sys.executable,
        "-m",
        "stackcast.lab.fabric.network",
        "--description",
        folder / "network.json",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with Child("network", [*line, "--out", folder], folder / "log", environment) as child:
        where = json.loads(child.start(600))
        yield Fabric(folder, where["p4runtime"], where["ingress"][FEED])


@pytest.fixture(scope="module")
def networked(
    spark: SparkSession,
    empty_tables: Path,
    switches: Fabric,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Tables that contain the network only."""
    folder = tmp_path_factory.mktemp("networked") / "tables"
    shutil.copytree(empty_tables, folder)
    rows = network_to_rows(NETWORK, dict.fromkeys(NETWORK.switches, switches.p4runtime))
    for name, content in rows.items():
        open_tables(spark, str(folder)).append(name, content)
    return folder


@pytest.fixture
def deployment(spark: SparkSession, networked: Path, tmp_path: Path) -> Deployment:
    shutil.copytree(networked, tmp_path / "tables")
    return Deployment(spark, open_tables(spark, str(tmp_path / "tables")), tmp_path)


def relabelled_deployment(
    spark: SparkSession, networked: Path, folder: Path, form: LabelFormat
) -> Deployment:
    """The deployment, in another encoding."""
    shutil.copytree(networked, folder / "tables")
    tables = open_tables(spark, str(folder / "tables"))
    rows = tables.rows("switches")
    tables.overwrite("switches", [row | {"pipeline": form.program} for row in rows])
    return Deployment(spark, tables, folder, form.encoding)


def with_broken_tree(deployment: Deployment) -> None:
    """Store a tree over a link that does not exist."""
    tree = {"tree_id": 9, "edges": [{"u": "pod1-rack1", "v": "pod2-rack1"}]}
    deployment.tables.append("virtual_trees", [tree | {"strategy": "old", "state": "active"}])


def test_a_tree_without_its_link_is_retired_even_if_there_is_no_record(
    deployment: Deployment,
) -> None:
    with_broken_tree(deployment)
    assert deployment.run("--dry-run") == retune_trees.WOULD_CHANGE
    assert deployment.run() == retune_trees.NO_RECORD
    assert deployment.states() == {"retired": 1}
    assert deployment.run() == retune_trees.NO_RECORD


def test_a_run_that_a_newer_one_overtook_writes_nothing(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_broken_tree(deployment)
    plan = Planner.plan

    def slow_plan(planner: Planner, *stopping: StopRequest) -> RetunePlan | None:
        # The scheduler starts the next run while this one is suspended.
        monkeypatch.undo()
        Fence(deployment.tables, "retuning").claim("newer", "local-2", take_over=True)
        return plan(planner, *stopping)

    monkeypatch.setattr(Planner, "plan", slow_plan)
    with pytest.raises(TableError, match=r"FENCED: .* retuning .*application local-2"):
        deployment.run()
    assert deployment.states() == {"active": 1}
    assert deployment.run() == retune_trees.NO_RECORD
    assert deployment.states() == {"retired": 1}


def test_a_run_that_is_late_with_its_commit_ends_and_leaves_the_trees_of_a_newer_run(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment.publish(1, NEAR, 500)
    merge = FolderTables.merge
    written = []

    def late_merge(*arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        deployment.publish(30, FAR, 50_000)
        newer = deployment.run("--window", "1h", "--max-rules", "1")
        assert newer in (retune_trees.DONE, retune_trees.MORE)
        written.extend([deployment.tables.version("virtual_trees"), deployment.trees()])
        return merge(*arguments, **options)

    monkeypatch.setattr(FolderTables, "merge", late_merge)
    with pytest.raises(TableError, match="FENCED: another writer took over the retuning"):
        deployment.run("--max-rules", "1")
    version, trees = written
    assert trees
    assert deployment.tables.version("virtual_trees") == version and deployment.trees() == trees


@pytest.mark.long
def test_a_process_that_was_suspended_before_its_commit_ends_and_leaves_the_trees_of_a_newer_run(
    deployment: Deployment,
) -> None:
    deployment.publish(1, NEAR, 500)
    conf = {"spark.stackcast.tables": deployment.tables.location}
    report = ["--report", str(deployment.folder / "stopped")]
    older = StoppingJob(
        deployment.folder,
        "stackcast.jobs.adapters.tables.folder_tables:FolderTables.merge",
        "retune_trees.py",
        *(*FEW, *report, "--max-rules", "1"),
        conf=conf,
    )
    try:
        older.stop_at_step()
        older.wait_until_stopped()
        deployment.publish(30, FAR, 50_000)
        newer = deployment.run("--window", "1h", "--max-rules", "1")
        assert newer in (retune_trees.DONE, retune_trees.MORE)
        version, trees = deployment.tables.version("virtual_trees"), deployment.trees()
        assert trees
        older.go_on()
        assert older.program.end() == 2
    finally:
        older.program.kill()
    assert "TABLE.FENCED: another writer took over the retuning" in older.program.output
    assert deployment.tables.version("virtual_trees") == version and deployment.trees() == trees


def test_trees_follow_the_publications_and_a_change_that_saves_nothing_is_not_made(
    deployment: Deployment,
) -> None:
    assert deployment.run() == retune_trees.NO_RECORD
    deployment.publish(1, NEAR, 500)
    before = deployment.tables.version("virtual_trees")
    deployment.reads_by_spark = True
    assert deployment.run("--dry-run") == retune_trees.WOULD_CHANGE
    deployment.reads_by_spark = False
    assert deployment.tables.version("virtual_trees") == before
    assert deployment.report()["outcome"] == report.DRY_RUN
    with deployment.refreshed():
        assert deployment.run("--max-rules", "1", "--wait", "600") == retune_trees.DONE
        assert deployment.load() == 1
        assert deployment.report()["outcome"] == report.DONE
        assert dt.datetime.fromisoformat(deployment.report()["at"]) <= dt.datetime.now(dt.UTC)
        first = deployment.trees()
        assert not {"retiring"} & set(deployment.states())
        assert deployment.run("--max-rules", "1", "--wait", "600") == retune_trees.DONE
        assert {n: edges for n, (edges, _) in deployment.trees().items()} == {
            n: edges for n, (edges, _) in first.items()
        }
        assert deployment.report()["change"]["rules"] == 0
        # A stored tree leads to exactly these receivers: one label, so no encoding is shorter.
        content = deployment.report()
        encodings = [encoding["name"] for encoding in content["encodings"]]
        assert content["encoding"] == encodings[0] == "virtual_trees"
        assert {"port", "hops", "destinations"} <= {*encodings}
        # The receivers change. No switch has room for two trees, so the old tree goes first.
        deployment.publish(30, FAR, 50_000)
        late = ["--window", "1h", "--max-rules", "1"]
        assert deployment.run(*late, "--wait", "600") == retune_trees.DONE
    trees = deployment.trees()
    assert deployment.load() == 1
    assert all(trees[number][0] == edges for number, (edges, _) in first.items())
    assert "retired" in deployment.states()
    (chosen,) = [edges for edges, state in trees.values() if state in ("active", "installing")]
    assert set(FAR) <= {name for pair in chosen for name in pair}
    assert max(trees) == max(first) + 1
    page = (deployment.folder / "report" / "retune.html").read_text()
    assert "/*{data}*/" not in page and FEED in page


@pytest.mark.long
def test_the_service_retunes_when_more_is_on_record_and_gives_its_place_back(
    deployment: Deployment,
) -> None:
    port = free_port()
    arguments = deployment.arguments("--every", "1s", "--wait", "600", "--max-rules", "1")
    arguments += ["--window", "1h"]
    with (
        deployment.refreshed(),
        retuning_service(deployment.settings, arguments, port, record_of_rows) as runs,
    ):
        until(lambda: runs() and '"last_round": "no_record"' in get(port, "health"))
        deployment.publish(1, NEAR, 500)
        until(lambda: runs() and deployment.states() == {"active": 1})
        until(lambda: runs() and '"last_round": "done"' in get(port, "health"))
        assert json.loads(get(port, "health"))["status"] == "ok"
        deployment.publish(30, FAR, 50_000)
        until(lambda: runs() and deployment.states() == {"active": 1, "retired": 1})
        assert 'stackcast_retune_trees_total{state="installing"}' in get(port, "metrics")
    check_place_is_free(deployment.tables)


@pytest.mark.long
def test_in_hybrid_a_tree_leads_to_stable_hosts_and_an_old_one_stays_until_the_new_one_is_used(
    spark: SparkSession, networked: Path, switches: Fabric, tmp_path: Path
) -> None:
    network = relabelled(NETWORK, HYBRID)
    deployment = relabelled_deployment(spark, networked, tmp_path, HYBRID)
    retune = ["--strategies", "stable", "--min-saving", "0"]

    def leads_to(state: str) -> list[set[str]]:
        """Returns the hosts of each tree in a state."""
        return [
            {name for pair in edges for name in pair} & {*HOSTS}
            for edges, tree_state in deployment.trees().values()
            if tree_state == state
        ]

    def check(*published: frozenset[str], trees: Sequence[VirtualTree]) -> None:
        """Check that one frame reaches each set, by a stack that names one of these trees."""
        encoder = encoder_of(network, FEED, trees)
        stacks = []
        for receivers in published:
            (stack,) = encoder.encode(receivers)
            assert HYBRID.split(stack.labels[0])[0] == TREE
            stacks.append(stack.labels)
        reached = switches.reached(stacks, HYBRID)
        assert reached == [Counter(receivers) for receivers in published]

    def stored() -> list[VirtualTree]:
        return [tree_from_row(row) for row in deployment.tables.rows("virtual_trees")]

    early = [frozenset([*NEAR, other]) for other in FAR]
    for batch, receivers in enumerate(early):
        deployment.publish(batch, sorted(receivers), 500)
    with deployment.refreshed():
        assert deployment.run(*retune, "--max-rules", "1", "--wait", "600") == retune_trees.DONE
        until(lambda: deployment.states() == {"active": 1})
        assert leads_to("active") == [{*NEAR}]
        old = stored()
        check(*early, trees=old)
        # The stable hosts change. With room for two trees, one tree also leads to NEAR[0], which
        # receives most.
        late = [frozenset([*FAR, other]) for other in NEAR[:2]]
        deployment.publish(30, sorted(late[0]), 50_000)
        deployment.publish(31, sorted(late[1]), 20_000)
        more = [*retune, "--max-rules", "2", "--window", "2h"]
        assert deployment.run(*more) == retune_trees.MORE
        until(lambda: deployment.states() == {"active": 2})
        assert sorted(leads_to("active"), key=len) == [{*NEAR}, late[0]]
        # A stream that does not know the new tree continues with the old one.
        check(*early, trees=old)
        check(late[0], trees=[tree for tree in stored() if tree not in old])
        assert deployment.run(*more, "--wait", "600") == retune_trees.DONE
        until(lambda: deployment.states() == {"active": 2, "retired": 1})
        assert leads_to("retired") == [{*NEAR}]
        assert sorted(leads_to("active"), key=len) == [{*FAR}, late[0]]
        check(*late, trees=stored())


@pytest.mark.long
def test_in_tree_published_sets_have_trees_in_addition_to_one_per_host(
    spark: SparkSession, networked: Path, switches: Fabric, tmp_path: Path
) -> None:
    network = relabelled(NETWORK, TREES)
    deployment = relabelled_deployment(spark, networked, tmp_path, TREES)
    retune = ["--strategies", "exact", "--min-saving", "0"]

    def check(*published: Sequence[str], frames: int) -> None:
        """Check that each set is reached, once, by this number of stacks."""
        stored = [tree_from_row(row) for row in deployment.tables.rows("virtual_trees")]
        encoder = encoder_of(network, FEED, stored)
        for receivers in published:
            stacks = [stack.labels for stack in encoder.encode(frozenset(receivers))]
            assert len(stacks) == frames
            reached = sum(switches.reached(stacks, TREES), Counter())
            assert reached == Counter(receivers)

    # There is a tree to each host whatever the record says; otherwise some hosts are unreachable.
    with pytest.raises(
        SettingsError, match=r"BAD_VALUE: .*tree for each single host, which takes 8 trees"
    ):
        deployment.run(*retune, "--max-rules", "7")
    with deployment.refreshed():
        assert deployment.run(*retune, "--wait", "600") == retune_trees.NO_RECORD
        until(lambda: deployment.states() == {"active": 8})
        check(NEAR, FAR, frames=4)
        deployment.publish(1, NEAR, 500)
        deployment.publish(2, FAR, 100)
        # There is room for one more tree, which the most published set gets.
        assert deployment.run(*retune, "--max-rules", "9", "--wait", "600") == retune_trees.DONE
        until(lambda: deployment.states() == {"active": 9})
        check(NEAR, frames=1)
        check(FAR, frames=4)
        content = deployment.report()
        assert content["encodings"][0]["name"] == "tree" and content["change"]["added"] == 1
        # The set that is published now replaces it; every host has a tree throughout.
        deployment.publish(30, FAR, 50_000)
        late = [*retune, "--max-rules", "9", "--window", "1h", "--wait", "600"]
        assert deployment.run(*late) == retune_trees.DONE
        until(lambda: deployment.states() == {"active": 9, "retired": 1})
        check(FAR, frames=1)
        check(NEAR, frames=4)


def test_an_encoding_without_trees_is_compared_with_others_and_nothing_is_written(
    spark: SparkSession, networked: Path, tmp_path: Path
) -> None:
    deployment = relabelled_deployment(spark, networked, tmp_path, SOURCE_ROUTES["bitmask"])
    deployment.publish(1, NEAR, 500)
    before = deployment.tables.version("virtual_trees")
    assert deployment.run("--strategies", "") == retune_trees.DONE
    assert deployment.tables.version("virtual_trees") == before
    content = deployment.report()
    assert content["encodings"][0]["name"] == "bitmask" and content["encoding"] != "bitmask"
    assert "bitmask contain no tree ids" in content["objective"]["reason"]
    change = content["change"]
    assert change["rules"] == 0 and content["now"]["bytes"] == change["bytes_after"]


@pytest.mark.long
def test_when_no_id_is_free_the_ids_of_trees_retired_long_ago_are_used_again(
    deployment: Deployment,
) -> None:
    edges = [{"u": u, "v": v} for u, v in sorted(broadcast_trees(NETWORK)[0].edges)]
    row = {"edges": edges, "strategy": "old", "state": "retired"}
    last = NETWORK.labels.max_id
    deployment.tables.append("virtual_trees", [row | {"tree_id": n} for n in (7, last)])
    deployment.publish(1, NEAR, 500)
    # The switches are empty, but no version of the tables says so yet.
    with pytest.raises(NetworkError, match="TREE_IDS_EXHAUSTED"):
        deployment.run("--max-rules", "1", "--quarantine", "1s")
    with deployment.refreshed():
        versions = NetworkVersions(deployment.tables)
        until(versions.ready)
        with pytest.raises(NetworkError, match="TREE_IDS_EXHAUSTED"):
            deployment.run("--max-rules", "1", "--quarantine", "1h")
        assert deployment.run("--max-rules", "1", "--quarantine", "1s", "--wait", "600") == 0
        until(lambda: deployment.trees()[7][1] == "active")
    assert deployment.trees()[7][0] != broadcast_trees(NETWORK)[0].edges
    assert set(deployment.trees()) == {7, last}


def test_the_report_names_the_cost_that_is_saved_and_the_reason_for_the_number_of_trees(
    deployment: Deployment,
) -> None:
    # With much payload, fewer labels hardly reduce the bytes on links.
    for batch, receivers in enumerate((NEAR, FAR, HOSTS[2:6])):
        deployment.publish(batch + 1, receivers, 500)
    heavy = [
        row | {"datagram_bytes": 1_000 * row["notifications"]}
        for row in deployment.tables.rows("publication_statistics")
    ]
    deployment.tables.overwrite("publication_statistics", heavy)
    reports = {}
    for objective in ("bytes", "labels", "latency"):
        deployment.run("--dry-run", "--objective", objective, "--min-saving", "0.1")
        reports[objective] = deployment.report()
        content = reports[objective]["objective"]
        assert content["name"] == objective and content["unit"] in content["reason"]
    changes = {objective: report["change"] for objective, report in reports.items()}
    assert changes["bytes"]["added"] == 0 and "The other" in reports["bytes"]["objective"]["reason"]
    assert changes["labels"]["added"] and changes["labels"]["saving"] > 0.1
    assert changes["labels"]["labels_after"] < changes["bytes"]["labels_after"]
    # No stored tree makes a path shorter than the shortest one.
    assert changes["latency"]["added"] == 0
    assert len({report["now"]["bytes"] for report in reports.values()}) == 1


def test_the_next_run_continues_one_that_did_not_wait(deployment: Deployment) -> None:
    old = broadcast_trees(NETWORK)
    deployment.tables.append("virtual_trees", [tree_to_row(tree) for tree in old])
    deployment.publish(1, NEAR, 500)
    assert deployment.run("--max-rules", "1", "--min-saving", "0") == retune_trees.MORE
    assert deployment.states() == {"retiring": 1}
    assert deployment.run("--max-rules", "1", "--min-saving", "0") == retune_trees.MORE
    assert deployment.states() == {"retiring": 1}
    change_tree_states(deployment.tables, {1: ("retiring", "retired")})
    assert deployment.run("--max-rules", "1", "--min-saving", "0") == retune_trees.DONE
    assert deployment.states() == {"retired": 1, "installing": 1}


def test_the_cap_on_rules_holds_and_lost_links_retire_their_trees(deployment: Deployment) -> None:
    deployment.publish(1, NEAR, 500)
    assert deployment.run("--max-changed-rules", "0") == retune_trees.DONE
    assert not deployment.trees()
    home = NETWORK.hosts["h1"].switch
    broken = VirtualTree(7, frozenset({("h1", "nowhere"), ("h1", home)}), "x")
    intact = VirtualTree(8, steiner_tree(NETWORK, HOSTS) - {("h1", home)}, "x")
    deployment.tables.append("virtual_trees", [tree_to_row(tree) for tree in (broken, intact)])
    assert deployment.run("--max-changed-rules", "0") == retune_trees.DONE
    assert {n: state for n, (_, state) in deployment.trees().items()} == {7: "retired", 8: "active"}


def test_unfinished_changes_of_an_earlier_run_count_against_the_cap(deployment: Deployment) -> None:
    unfinished = VirtualTree(1, steiner_tree(NETWORK, FAR), "x", "installing")
    deployment.tables.append("virtual_trees", [tree_to_row(unfinished)])
    deployment.publish(1, NEAR, 500)
    edges = steiner_tree(NETWORK, NEAR)
    total = rules(NETWORK, unfinished.edges) + rules(NETWORK, edges)
    capped = ["--dry-run", "--max-changed-rules"]
    assert deployment.run(*capped, str(rules(NETWORK, edges))) == retune_trees.DONE
    assert deployment.run(*capped, str(total)) == retune_trees.WOULD_CHANGE


def test_a_strategy_that_takes_too_long_is_left_out(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Spark sends a class of this function to the workers, which cannot import this module.
    class Slow:
        name = "slow"

        def candidates(self, situation: Situation, budget: dict[str, int]) -> Iterator[Any]:
            import time  # noqa: PLC0415

            time.sleep(3600)
            yield from ()

    monkeypatch.setattr(trials, "strategies_for", lambda _: {"slow": Slow()})
    record = Record(NETWORK, [Publication(FEED, frozenset(NEAR), 1, 100)])
    situation = Situation(NETWORK, Clients({}), Statistics(record.publications))
    budget, engine = uniform(NETWORK, 1), SparkEngine(spark)
    (outcome,) = trials.compare(
        spark, engine, ["slow"], situation, budget, record, 1, StopRequest()
    )
    assert "longer than 1 s" in outcome.error
    # A request to stop ends it at once.
    stopping = StopRequest()

    def stop() -> None:
        until(spark.sparkContext.statusTracker().getActiveJobsIds)
        stopping.set()

    thread = threading.Thread(target=stop)
    thread.start()
    (outcome,) = trials.compare(spark, engine, ["slow"], situation, budget, record, 3600, stopping)
    thread.join()
    assert "stop of the retuning was requested" in outcome.error


@pytest.mark.long
def test_the_record_has_the_heaviest_publications_of_a_window_and_a_version(
    deployment: Deployment,
) -> None:
    deployment.publish(1, NEAR, 10)
    version = deployment.tables.version("delivery_statistics")
    deployment.publish(2, FAR, 1_000)
    mixed = [*NEAR[:2], *FAR]
    deployment.publish(3, mixed, 40)
    tables = deployment.tables

    def read(
        most: int, window: dt.timedelta | None = None, as_of: int | None = None
    ) -> RecordedPublications:
        record = read_record(tables, most, window, as_of)
        assert record == record_of_rows(tables, most, window, as_of)
        return record

    everything = read(100)
    assert everything.batches == 3 and everything.covered == 1
    # The heaviest come first, by the bytes that all receivers get.
    assert [(p.receivers, p.notifications, p.datagram_bytes) for p in everything.publications] == [
        (frozenset(FAR), 1_000, 80_000),
        (frozenset(mixed), 40, 3_200),
        (frozenset(NEAR), 10, 800),
    ]
    (first,) = read(100, as_of=version).publications
    assert first.receivers == frozenset(NEAR)
    assert read(100, dt.timedelta(minutes=90)).batches == 2
    assert 0.9 < read(1).covered < 1


def test_two_runs_at_once_take_different_ids(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = {steiner_tree(NETWORK, NEAR): "relation"}
    foreign = VirtualTree(1, steiner_tree(NETWORK, FAR), "foreign", "installing")
    writer = TreeWriter(deployment.tables, deployment.settings, RetuneOptions())
    write = deployment.tables.merge

    def late(*arguments: Any) -> bool:
        monkeypatch.undo()
        deployment.tables.append("virtual_trees", [tree_to_row(foreign)])
        return write(*arguments)

    monkeypatch.setattr(deployment.tables, "merge", late)
    step = writer.step(target)
    assert [tree.id for tree in step.installed] == [2]
    trees = deployment.trees()
    assert trees[1][0] == foreign.edges and trees[2][0] == step.installed[0].edges


def test_wrong_options_are_refused() -> None:
    with pytest.raises(SettingsError, match="available: hops"):
        RetuneOptions(strategies=("best",)).names()
    for arguments in (["--max-rules", "-1"], ["--min-saving", "1"], ["--publications", "0"]):
        with pytest.raises(SystemExit):
            retune_trees.parser().parse_args(arguments)
    for arguments in (["--dry-run"], ["--exit-code"], ["--as-of", "3"]):
        with pytest.raises(SystemExit):
            retune_trees.main(["--every", "1m", *arguments])


@pytest.mark.parametrize("outcome", [0, 1, 3, 4, 2, 130, 143])
def test_the_exit_code_is_that_of_a_failure_only_after_an_error(
    outcome: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "run", lambda work: outcome)
    assert retune_trees.main([]) == (0 if outcome in (0, 1, 3, 4) else outcome)
    assert retune_trees.main(["--exit-code"]) == outcome
