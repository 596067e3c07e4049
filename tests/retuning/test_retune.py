"""Trees are chosen by what the tables have on record, and change on real switches step by step."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from paths import P4, ROOT
from pyspark.sql import SparkSession
from relabelled import relabelled
from stacked_frames import stacked
from stopping_job import StoppingJob
from waiting import until

from jobs import refresh_switches, retune_trees
from jobs.adapters.app import application
from jobs.adapters.app.lifecycle import Lifecycle
from jobs.adapters.app.settings import Settings
from jobs.adapters.retune import report, trials
from jobs.adapters.retune.options import RetuneOptions
from jobs.adapters.retune.planning import Planner, RetunePlan
from jobs.adapters.retune.record import read_record
from jobs.adapters.retune.writing import TreeWriter
from jobs.adapters.switches.lead import Refresher
from jobs.adapters.tables.network_versions import NetworkVersions
from jobs.adapters.tables.tables import Tables
from jobs.adapters.tables.writers import Fence
from jobs.adapters.wire import SinkOptions, open_sink
from lab.proof.receipts import datagrams_of
from lab.up.process import Child
from udfs.errors import NetworkError, SettingsError, TableError
from udfs.network.labels import TREE, LabelFormat
from udfs.network.rows import network_to_rows, tree_from_row, tree_to_row
from udfs.network.source_routes import SOURCE_ROUTES
from udfs.network.stored_routes import HYBRID, TREES
from udfs.network.topology import fabric
from udfs.network.virtual_tree import VirtualTree
from udfs.retuning.comparison import Record
from udfs.retuning.steps import rules
from udfs.stop_request import StopRequest
from udfs.trees.broadcast import broadcast_trees
from udfs.trees.encoders import encoder_of
from udfs.trees.publications import Clients, Publication, Statistics
from udfs.trees.steiner import steiner_tree
from udfs.trees.strategies.strategy import Situation, uniform

pytestmark = pytest.mark.integration

NETWORK = fabric(pods=2, racks=2, hosts=2, planes=1, spines=1)
(FEED,) = NETWORK.publishers()
HOSTS = sorted(NETWORK.subscribers())
NEAR, FAR = HOSTS[:4], HOSTS[4:]
NOON = dt.datetime(2026, 1, 2, 12, tzinfo=dt.UTC)
#: Few, as each is a task of its own.
FEW = ["--strategies", "hops,relation"]


class Deployment:
    def __init__(
        self, spark: SparkSession, tables: Tables, folder: Path, encoding: str = "virtual_trees"
    ) -> None:
        self.spark, self.tables, self.folder = spark, tables, folder
        self.settings = Settings(
            tables=tables.location, wait_seconds=5, p4_folder=str(P4), encoding=encoding
        )

    def publish(self, batch: int, receivers: Sequence[str], number: int) -> None:
        when = NOON + dt.timedelta(hours=batch)
        of_batch = {"batch_id": batch, "publisher": FEED, "recorded_at": when, "messages": number}
        counts = {"notifications": number, "bytes": 100 * number}
        self.tables.append(
            "delivery_statistics",
            [of_batch | counts | {"subscriber": name} for name in receivers],
        )
        row = {"receivers": sorted(receivers), "notifications": number}
        row |= {"datagram_bytes": 80 * number}
        self.tables.append("publication_statistics", [of_batch | row])

    def run(self, *arguments: str) -> int:
        report = ["--report", str(self.folder / "report")]
        asked = retune_trees.parser().parse_args([*FEW, *report, *arguments])
        return retune_trees.work(asked, self.settings, Lifecycle())

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
        """Trees of the fullest switch."""
        return max(
            Counter(
                name
                for edges, state in self.trees().values()
                if state != "retired"
                for name in {end for pair in edges for end in pair} & NETWORK.switches.keys()
            ).values(),
            default=0,
        )

    @contextmanager
    def refreshed(self) -> Iterator[None]:
        """A refresher keeps the switches in step meanwhile."""
        lifecycle = Lifecycle()
        with Refresher(self.tables, self.settings) as refresher:
            thread = threading.Thread(
                target=refresh_switches.follow, args=(self.tables, refresher, lifecycle)
            )
            thread.start()
            try:
                yield
            finally:
                lifecycle.stopping.set()
                thread.join(60)


class Fabric(NamedTuple):
    """The switches, empty at first, and their hosts."""

    folder: Path
    p4runtime: str
    ingress: str

    def reached(self, stacks: Sequence[Sequence[int]], form: LabelFormat) -> list[Counter[str]]:
        """How often each host gets a frame with each stack."""
        payloads = [f"{form.describe(stack[0])}, {uuid.uuid4()}".encode() for stack in stacks]
        options = SinkOptions("udp", endpoint=self.ingress, window=1)
        with closing(open_sink(options)) as sink:
            for stack, payload in zip(stacks, payloads, strict=True):
                frame = np.frombuffer(stacked(stack, payload, form), np.uint8)
                sink.send(frame, np.array([0, frame.size], np.int64))
            # What the network has acknowledged is in the files.
            sink.flush()
        found = [Counter[str]() for _ in stacks]
        for host in HOSTS:
            got = Counter(datagrams_of(self.folder / "receipts" / f"{host}.mold"))
            for reached, payload in zip(found, payloads, strict=True):
                reached[host] += got[payload]
        return [+each for each in found]


@pytest.fixture(scope="module")
def switches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    folder = tmp_path_factory.mktemp("switches")
    rows = network_to_rows(NETWORK, dict.fromkeys(NETWORK.switches, ""))
    (folder / "network.json").write_text(json.dumps(rows))
    line = [sys.executable, "-m", "lab.fabric.network", "--description", folder / "network.json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with Child("network", [*line, "--out", folder], folder / "log", environment) as child:
        where = json.loads(child.start(60))
        yield Fabric(folder, where["p4runtime"], where["ingress"][FEED])


@pytest.fixture(scope="module")
def networked(
    spark: SparkSession,
    empty_tables: Path,
    switches: Fabric,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Tables of the network alone."""
    folder = tmp_path_factory.mktemp("networked") / "tables"
    shutil.copytree(empty_tables, folder)
    rows = network_to_rows(NETWORK, dict.fromkeys(NETWORK.switches, switches.p4runtime))
    for name, content in rows.items():
        Tables(spark, str(folder)).append(name, content)
    return folder


@pytest.fixture
def deployment(spark: SparkSession, networked: Path, tmp_path: Path) -> Deployment:
    shutil.copytree(networked, tmp_path / "tables")
    return Deployment(spark, Tables(spark, str(tmp_path / "tables")), tmp_path)


def relabelled_deployment(
    spark: SparkSession, networked: Path, folder: Path, form: LabelFormat
) -> Deployment:
    """The deployment, in another encoding."""
    shutil.copytree(networked, folder / "tables")
    tables = Tables(spark, str(folder / "tables"))
    rows = tables.rows("switches")
    tables.overwrite("switches", [row | {"pipeline": form.program} for row in rows])
    return Deployment(spark, tables, folder, form.encoding)


def test_a_tree_that_lost_a_link_goes_although_nothing_is_on_record(
    deployment: Deployment,
) -> None:
    lost = {"tree_id": 9, "edges": [{"u": "pod1-rack1", "v": "pod2-rack1"}]}
    deployment.tables.append("virtual_trees", [lost | {"strategy": "old", "state": "active"}])
    assert deployment.run("--dry-run") == retune_trees.WOULD_CHANGE
    assert deployment.run() == retune_trees.NO_RECORD
    assert deployment.states() == {"retired": 1}
    assert deployment.run() == retune_trees.NO_RECORD


def test_a_run_that_a_newer_one_overtook_writes_nothing(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = {"tree_id": 9, "edges": [{"u": "pod1-rack1", "v": "pod2-rack1"}]}
    deployment.tables.append("virtual_trees", [lost | {"strategy": "old", "state": "active"}])
    plan = Planner.plan

    def long(planner: Planner, *stopping: StopRequest) -> RetunePlan | None:
        # As one that stands still, while the scheduler starts the next.
        monkeypatch.undo()
        Fence(deployment.tables, "retuning").claim("newer", "local-2", take_over=True)
        return plan(planner, *stopping)

    monkeypatch.setattr(Planner, "plan", long)
    with pytest.raises(TableError, match=r"FENCED: retuning .*application local-2"):
        deployment.run()
    assert deployment.states() == {"active": 1}
    assert deployment.run() == retune_trees.NO_RECORD
    assert deployment.states() == {"retired": 1}


def test_a_run_that_stood_still_before_its_commit_ends_and_leaves_what_a_newer_one_wrote(
    deployment: Deployment,
) -> None:
    deployment.publish(1, NEAR, 500)
    conf = {"spark.stackcast.tables": deployment.tables.location}
    report = ["--report", str(deployment.folder / "stopped")]
    older = StoppingJob(
        deployment.folder,
        "jobs.adapters.tables.local:merge",
        "retune_trees.py",
        *(*FEW, *report, "--rules", "1"),
        conf=conf,
    )
    try:
        older.stop_at_step()
        older.wait_until_stopped()
        deployment.publish(30, FAR, 50_000)
        newer = deployment.run("--window", "1h", "--rules", "1")
        assert newer in (retune_trees.DONE, retune_trees.MORE)
        written, trees = deployment.tables.version("virtual_trees"), deployment.trees()
        assert trees
        older.go_on()
        assert older.program.end() == 2
    finally:
        older.program.kill()
    assert "TABLE.FENCED: retuning has another writer now" in older.program.output
    assert deployment.tables.version("virtual_trees") == written and deployment.trees() == trees


def test_trees_follow_what_is_published_and_nothing_changes_where_nothing_is_to_be_saved(
    deployment: Deployment,
) -> None:
    assert deployment.run() == retune_trees.NO_RECORD
    deployment.publish(1, NEAR, 500)
    before = deployment.tables.version("virtual_trees")
    assert deployment.run("--dry-run") == retune_trees.WOULD_CHANGE
    assert deployment.tables.version("virtual_trees") == before
    assert deployment.report()["outcome"] == report.DRY_RUN
    with deployment.refreshed():
        assert deployment.run("--rules", "1", "--wait", "60") == retune_trees.DONE
        assert deployment.load() == 1
        assert deployment.report()["outcome"] == report.DONE
        assert dt.datetime.fromisoformat(deployment.report()["at"]) <= dt.datetime.now(dt.UTC)
        first = deployment.trees()
        assert not {"retiring"} & set(deployment.states())
        assert deployment.run("--rules", "1", "--wait", "60") == retune_trees.DONE
        assert {n: edges for n, (edges, _) in deployment.trees().items()} == {
            n: edges for n, (edges, _) in first.items()
        }
        assert deployment.report()["change"]["rules"] == 0
        # A stored tree leads to just these receivers: one label, so no other encoding is shorter.
        said = deployment.report()
        assert said["encoding"] == said["encodings"][0]["name"] == "virtual_trees"
        assert {"port", "hops", "destinations"} <= {each["name"] for each in said["encodings"]}
        # Others are published to by now: no switch has room for two trees, so the old goes first.
        deployment.publish(30, FAR, 50_000)
        late = ["--window", "1h", "--rules", "1"]
        assert deployment.run(*late, "--wait", "60") == retune_trees.DONE
    trees = deployment.trees()
    assert deployment.load() == 1
    assert all(trees[number][0] == edges for number, (edges, _) in first.items())
    assert "retired" in deployment.states()
    (chosen,) = [edges for edges, state in trees.values() if state in ("active", "installing")]
    assert set(FAR) <= {name for pair in chosen for name in pair}
    assert max(trees) == max(first) + 1
    page = (deployment.folder / "report" / "retune.html").read_text()
    assert "/*{data}*/" not in page and FEED in page


def test_in_hybrid_a_tree_holds_who_is_stable_and_an_old_one_stays_until_the_new_is_in_use(
    spark: SparkSession, networked: Path, switches: Fabric, tmp_path: Path
) -> None:
    network = relabelled(NETWORK, HYBRID)
    deployment = relabelled_deployment(spark, networked, tmp_path, HYBRID)
    retune = ["--strategies", "stable", "--min-saving", "0"]

    def leads_to(state: str) -> list[set[str]]:
        """Whom the trees in a state lead to."""
        found = [edges for edges, now in deployment.trees().values() if now == state]
        return [{name for pair in edges for name in pair} & {*HOSTS} for edges in found]

    def check(*published: frozenset[str], trees: Sequence[VirtualTree]) -> None:
        """Each set gets one frame, by a stack that names one of these trees."""
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
        assert deployment.run(*retune, "--rules", "1", "--wait", "60") == retune_trees.DONE
        until(lambda: deployment.states() == {"active": 1}, seconds=60)
        assert leads_to("active") == [{*NEAR}]
        old = stored()
        check(*early, trees=old)
        # Others are stable by now. With room for two trees, one holds NEAR[0], too, who gets most.
        late = [frozenset([*FAR, other]) for other in NEAR[:2]]
        deployment.publish(30, sorted(late[0]), 50_000)
        deployment.publish(31, sorted(late[1]), 20_000)
        more = [*retune, "--rules", "2", "--window", "2h"]
        assert deployment.run(*more) == retune_trees.MORE
        until(lambda: deployment.states() == {"active": 2}, seconds=60)
        assert sorted(leads_to("active"), key=len) == [{*NEAR}, late[0]]
        # Who has not heard of the new tree goes on with the old one.
        check(*early, trees=old)
        check(late[0], trees=[tree for tree in stored() if tree not in old])
        assert deployment.run(*more, "--wait", "60") == retune_trees.DONE
        until(lambda: deployment.states() == {"active": 2, "retired": 1}, seconds=60)
        assert leads_to("retired") == [{*NEAR}]
        assert sorted(leads_to("active"), key=len) == [{*FAR}, late[0]]
        check(*late, trees=stored())


def test_in_tree_published_sets_have_trees_of_their_own_beside_one_to_each_host(
    spark: SparkSession, networked: Path, switches: Fabric, tmp_path: Path
) -> None:
    network = relabelled(NETWORK, TREES)
    deployment = relabelled_deployment(spark, networked, tmp_path, TREES)
    retune = ["--strategies", "exact", "--min-saving", "0"]

    def check(*published: Sequence[str], frames: int) -> None:
        """Each set is reached, once, by so many stacks."""
        stored = [tree_from_row(row) for row in deployment.tables.rows("virtual_trees")]
        encoder = encoder_of(network, FEED, stored)
        for receivers in published:
            stacks = [stack.labels for stack in encoder.encode(frozenset(receivers))]
            assert len(stacks) == frames
            reached = sum(switches.reached(stacks, TREES), Counter())
            assert reached == Counter(receivers)

    # A tree to each host stands whatever is on record: without, some could not be reached.
    with pytest.raises(SettingsError, match=r"BAD_VALUE: .*tree to each host alone: 8 in switch"):
        deployment.run(*retune, "--rules", "7")
    with deployment.refreshed():
        assert deployment.run(*retune, "--wait", "60") == retune_trees.NO_RECORD
        until(lambda: deployment.states() == {"active": 8}, seconds=60)
        check(NEAR, FAR, frames=4)
        deployment.publish(1, NEAR, 500)
        deployment.publish(2, FAR, 100)
        # Room for one more: the set that is published most has it.
        assert deployment.run(*retune, "--rules", "9", "--wait", "60") == retune_trees.DONE
        until(lambda: deployment.states() == {"active": 9}, seconds=60)
        check(NEAR, frames=1)
        check(FAR, frames=4)
        said = deployment.report()
        assert said["encodings"][0]["name"] == "tree" and said["change"]["added"] == 1
        # What is published now takes its place; nobody is without a tree meanwhile.
        deployment.publish(30, FAR, 50_000)
        late = [*retune, "--rules", "9", "--window", "1h", "--wait", "60"]
        assert deployment.run(*late) == retune_trees.DONE
        until(lambda: deployment.states() == {"active": 9, "retired": 1}, seconds=60)
        check(FAR, frames=1)
        check(NEAR, frames=4)


def test_where_stacks_name_no_trees_encodings_alone_are_compared_and_nothing_is_written(
    spark: SparkSession, networked: Path, tmp_path: Path
) -> None:
    deployment = relabelled_deployment(spark, networked, tmp_path, SOURCE_ROUTES["bitmask"])
    deployment.publish(1, NEAR, 500)
    before = deployment.tables.version("virtual_trees")
    assert deployment.run("--strategies", "") == retune_trees.DONE
    assert deployment.tables.version("virtual_trees") == before
    said = deployment.report()
    assert said["encodings"][0]["name"] == "bitmask" and said["encoding"] != "bitmask"
    assert "bitmask name no stored trees" in said["objective"]["reason"]
    assert said["change"]["rules"] == 0 and said["now"]["bytes"] == said["change"]["bytes_after"]


def test_when_ids_have_run_out_those_of_trees_retired_long_ago_come_back(
    deployment: Deployment,
) -> None:
    edges = [{"u": u, "v": v} for u, v in sorted(broadcast_trees(NETWORK)[0].edges)]
    row = {"edges": edges, "strategy": "old", "state": "retired"}
    last = NETWORK.labels.max_id
    deployment.tables.append("virtual_trees", [row | {"tree_id": n} for n in (7, last)])
    deployment.publish(1, NEAR, 500)
    # No switch holds anything yet, and nobody knows that.
    with pytest.raises(NetworkError, match="NO_TREE_ID"):
        deployment.run("--rules", "1", "--quarantine", "1s")
    with deployment.refreshed():
        ready = NetworkVersions(deployment.tables)
        end = time.monotonic() + 60
        while not ready.ready() and time.monotonic() < end:
            time.sleep(0.2)
        with pytest.raises(NetworkError, match="NO_TREE_ID"):
            deployment.run("--rules", "1", "--quarantine", "1h")
        assert deployment.run("--rules", "1", "--quarantine", "1s", "--wait", "60") == 0
        while deployment.trees()[7][1] != "active" and time.monotonic() < end:
            time.sleep(0.2)
    found, state = deployment.trees()[7]
    assert state == "active" and found != broadcast_trees(NETWORK)[0].edges
    assert set(deployment.trees()) == {7, last}


def test_the_report_says_which_cost_was_saved_and_why_so_many_trees_come(
    deployment: Deployment,
) -> None:
    # Much payload: bytes on links hardly fall with the labels.
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
        told = reports[objective]["objective"]
        assert told["name"] == objective and told["unit"] in told["reason"]
    changes = {objective: report["change"] for objective, report in reports.items()}
    assert changes["bytes"]["added"] == 0 and "The other" in reports["bytes"]["objective"]["reason"]
    assert changes["labels"]["added"] and changes["labels"]["saving"] > 0.1
    assert changes["labels"]["labels_after"] < changes["bytes"]["labels_after"]
    # No stored tree makes a way shorter than the shortest.
    assert changes["latency"]["added"] == 0
    assert len({report["now"]["bytes"] for report in reports.values()}) == 1


def test_a_run_that_does_not_wait_is_gone_on_with_by_the_next(deployment: Deployment) -> None:
    old = broadcast_trees(NETWORK)
    deployment.tables.append("virtual_trees", [tree_to_row(tree) for tree in old])
    deployment.publish(1, NEAR, 500)
    assert deployment.run("--rules", "1", "--min-saving", "0") == retune_trees.MORE
    assert deployment.states() == {"retiring": 1}
    assert deployment.run("--rules", "1", "--min-saving", "0") == retune_trees.MORE
    assert deployment.states() == {"retiring": 1}
    deployment.tables.move("virtual_trees", "tree_id", "state", {1: ("retiring", "retired")})
    assert deployment.run("--rules", "1", "--min-saving", "0") == retune_trees.DONE
    assert deployment.states() == {"retired": 1, "installing": 1}


def test_the_cap_on_rules_holds_and_lost_links_retire_their_trees(deployment: Deployment) -> None:
    deployment.publish(1, NEAR, 500)
    assert deployment.run("--max-changed-rules", "0") == retune_trees.DONE
    assert not deployment.trees()
    gone = steiner_tree(NETWORK, HOSTS) - {("h1", NETWORK.hosts["h1"].switch)}
    lost = VirtualTree(7, frozenset({("h1", "nowhere"), ("h1", NETWORK.hosts["h1"].switch)}), "x")
    deployment.tables.append(
        "virtual_trees", [tree_to_row(lost), tree_to_row(VirtualTree(8, gone, "x"))]
    )
    assert deployment.run("--max-changed-rules", "0") == retune_trees.DONE
    assert {n: state for n, (_, state) in deployment.trees().items()} == {7: "retired", 8: "active"}


def test_what_an_earlier_run_has_under_way_counts_against_the_cap(deployment: Deployment) -> None:
    other = VirtualTree(1, steiner_tree(NETWORK, FAR), "x", "installing")
    deployment.tables.append("virtual_trees", [tree_to_row(other)])
    deployment.publish(1, NEAR, 500)
    wanted = steiner_tree(NETWORK, NEAR)
    both = rules(NETWORK, other.edges) + rules(NETWORK, wanted)
    late = ["--dry-run", "--max-changed-rules"]
    assert deployment.run(*late, str(rules(NETWORK, wanted))) == retune_trees.DONE
    assert deployment.run(*late, str(both)) == retune_trees.WOULD_CHANGE


def test_a_strategy_that_takes_too_long_is_left_out(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A class of this function is sent along to the workers, which cannot import this module.
    class Slow:
        name = "slow"

        def candidates(self, situation: Situation, budget: dict[str, int]) -> Iterator[Any]:
            import time  # noqa: PLC0415

            time.sleep(300)
            yield from ()

    monkeypatch.setattr(trials, "strategies_for", lambda _: {"slow": Slow()})
    record = Record(NETWORK, [Publication(FEED, frozenset(NEAR), 1, 100)])
    situation = Situation(NETWORK, Clients({}), Statistics(record.publications))
    began = time.monotonic()
    budget = uniform(NETWORK, 1)
    (outcome,) = trials.compare(spark, ["slow"], situation, budget, record, 1, StopRequest())
    assert "longer than 1 s" in outcome.error
    # Nor is it waited for where the retuning is asked to stop.
    stopping = StopRequest()
    threading.Timer(1, stopping.set).start()
    (outcome,) = trials.compare(spark, ["slow"], situation, budget, record, 300, stopping)
    assert "asked to stop" in outcome.error
    assert time.monotonic() - began < 60


def test_the_record_is_what_was_asked_for(deployment: Deployment) -> None:
    deployment.publish(1, NEAR, 10)
    version = deployment.tables.version("delivery_statistics")
    deployment.publish(2, FAR, 1_000)
    both = [*NEAR[:2], *FAR]
    deployment.publish(3, both, 40)
    tables = deployment.tables
    every = read_record(tables, 100)
    assert every.batches == 3 and every.covered == 1
    # The heaviest first, by the bytes that all receivers got.
    assert [(p.receivers, p.notifications, p.datagram_bytes) for p in every.publications] == [
        (frozenset(FAR), 1_000, 80_000),
        (frozenset(both), 40, 3_200),
        (frozenset(NEAR), 10, 800),
    ]
    assert read_record(tables, 100) == every
    (only,) = read_record(tables, 100, as_of=version).publications
    assert only.receivers == frozenset(NEAR)
    assert read_record(tables, 100, dt.timedelta(minutes=90)).batches == 2
    assert 0.9 < read_record(tables, 1).covered < 1


def test_two_runs_at_once_take_different_ids(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {steiner_tree(NETWORK, NEAR): "relation"}
    other = VirtualTree(1, steiner_tree(NETWORK, FAR), "other", "installing")
    writer = TreeWriter(deployment.tables, deployment.settings, RetuneOptions())
    write = deployment.tables.move_and_add

    def late(*arguments: Any) -> bool:
        monkeypatch.undo()
        deployment.tables.append("virtual_trees", [tree_to_row(other)])
        return write(*arguments)

    monkeypatch.setattr(deployment.tables, "move_and_add", late)
    step = writer.step(wanted)
    assert [tree.id for tree in step.installed] == [2]
    trees = deployment.trees()
    assert trees[1][0] == other.edges and trees[2][0] == step.installed[0].edges


def test_what_cannot_be_asked_is_told() -> None:
    with pytest.raises(SettingsError, match="there are hops"):
        RetuneOptions(strategies=("best",)).names()
    for arguments in (["--rules", "-1"], ["--min-saving", "1"], ["--publications", "0"]):
        with pytest.raises(SystemExit):
            retune_trees.parser().parse_args(arguments)
    for other in (["--dry-run"], ["--exit-code"], ["--as-of", "3"]):
        with pytest.raises(SystemExit):
            retune_trees.main(["--every", "1m", *other])


@pytest.mark.parametrize("outcome", [0, 1, 3, 4, 2, 130, 143])
def test_a_scheduler_sees_a_failure_only_where_something_failed(
    outcome: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "run", lambda work: outcome)
    assert retune_trees.main([]) == (0 if outcome in (0, 1, 3, 4) else outcome)
    assert retune_trees.main(["--exit-code"]) == outcome
