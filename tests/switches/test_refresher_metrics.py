"""Metrics and health of a refresher that follows its tables."""

from __future__ import annotations

import pytest
from paths import COMPILED_P4
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from rollout_world import FakeSession, InOrder, World, in_order, refresher
from virtual_time import VirtualTime
from waiting import until

from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK
from stackcast.jobs.adapters.switches import drops
from stackcast.jobs.adapters.switches.program import Programs
from stackcast.udfs.network.rows import network_to_rows, tree_to_row
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.switches.derivation import DERIVATIONS

pytestmark = pytest.mark.unit

NETWORK = fabric(pods=1, racks=2, hosts=1, planes=1, spines=1)
RACK = NETWORK.hosts["h1"].switch


class Session(FakeSession):
    """Whether this refresher leads is what the test says."""

    others: set[str]

    @property
    def rival(self) -> str:
        return "another"

    def leads(self, connect: bool = True) -> bool:
        return not self.others and super().leads(connect)


class Site:
    """Tables and switches of a network, and a job that follows them."""

    def __init__(self) -> None:
        self.world = world = World()
        self.tables = world.tables
        self.others: set[str] = set()
        self.network()
        self.trees("active")

        def opened(target):
            session = Session(world, "a", target, lambda: None)
            session.others = self.others
            return session

        self.clock = VirtualTime(SYSTEM_CLOCK.wall_time())
        self.refresher = refresher(world, open_session=opened, threads=InOrder(self.clock))

    def network(self) -> None:
        rows = network_to_rows(NETWORK, dict.fromkeys(NETWORK.switches, ""))
        for name in ("switches", "hosts", "links"):
            self.tables.overwrite(name, rows[name])

    def trees(self, *states: str) -> None:
        rows = [
            tree_to_row(VirtualTree(number, frozenset([("h1", RACK)]), "test", state))
            for number, state in enumerate(states, 5)
        ]
        self.tables.overwrite("virtual_trees", rows)

    def polls(self) -> None:
        for _ in range(4):
            # A switch that could not be written is due again.
            self.clock.sleep(10)
            self.refresher.wake.set()
            self.refresher.poll()

    def read(self) -> dict[tuple[str, ...], float]:
        self.refresher.metrics.health()
        text = generate_latest(self.refresher.metrics.registry).decode()
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    in_order(monkeypatch)
    return Site()


def test_all_switches_in_step_are_told_with_the_trees_and_who_leads(site: Site):
    assert site.refresher.metrics.health().status == "unhealthy"
    site.polls()
    metrics = site.read()
    in_sync = {k[1]: v for k, v in metrics.items() if k[0] == "stackcast_switch_in_sync"}
    assert in_sync == dict.fromkeys(NETWORK.switches, 1)
    assert all(metrics["stackcast_switch_entries", name] > 0 for name in NETWORK.switches)
    assert metrics["stackcast_refresher_primary",] == 1
    assert metrics["stackcast_virtual_trees", "active"] == 1
    health = site.refresher.metrics.health()
    assert health.status == "ok"
    assert health.facts["switch_entries"] == site.tables.version("switch_entries")
    assert health.facts["switches"] == len(NETWORK.switches)
    # An edit is derived and all hold it.
    ready = metrics["stackcast_ready_seconds_count",]
    site.trees("active", "installing")
    site.polls()
    again = site.read()
    assert again["stackcast_derive_seconds_count",] > metrics["stackcast_derive_seconds_count",]
    assert again["stackcast_ready_seconds_count",] > ready
    assert again["stackcast_virtual_trees", "active"] == 2
    assert (
        again["stackcast_switch_refresh_seconds_count", RACK]
        > (metrics["stackcast_switch_refresh_seconds_count", RACK])
    )


def test_tables_that_cannot_be_used_are_a_remark_until_they_can(site: Site, caplog):
    site.polls()
    before = site.read()["stackcast_derive_failures_total",]
    links = site.tables.rows("links")
    site.tables.overwrite("links", links[1:])
    site.polls()
    health = site.refresher.metrics.health()
    metrics = site.read()
    assert health.status == "degraded" and "NETWORK." in health.remarks[0]
    assert metrics["stackcast_versions_rejected",] == 1
    assert metrics["stackcast_derive_failures_total",] == before + 1
    # The log says which versions: of all sources, as they are now.
    (line,) = [r.getMessage() for r in caplog.records if "cannot be used" in r.getMessage()]
    assert f"links@{site.tables.version('links')}" in line
    site.tables.overwrite("links", links)
    site.polls()
    assert site.read()["stackcast_versions_rejected",] == 0
    assert site.refresher.metrics.health().status == "ok"


def test_one_that_waits_for_another_is_well_and_calls_no_switch_wrong(site: Site):
    site.others.add("another refresher")
    site.polls()
    metrics = site.read()
    assert metrics["stackcast_refresher_primary",] == 0
    assert site.refresher.metrics.health().status == "ok"
    assert not any(
        value == 0 for key, value in metrics.items() if key[0] == "stackcast_switch_in_sync"
    )


def test_what_switches_drop_is_counted_and_written_by_reason(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(drops, "LOOK_SECONDS", 0.0)

    def counters(number: int) -> dict[str, float]:
        """Returns the counters of the rack's switch when this number of rows is written."""

        def written() -> bool:
            site.polls()
            return len(site.tables.rows("switch_drops")) >= number

        until(lambda: len(site.tables.rows("switch_drops")) >= number or written())
        name = "stackcast_switch_drops_total"
        return {k[1]: v for k, v in site.read().items() if k[0] == name and k[2] == RACK}

    site.world.drops[RACK] = {6: 10, 99: 1}
    # Without the program's source the number of a reason replaces its name.
    assert counters(2) == {"6": 10, "99": 1}
    site.polls()
    assert len(site.tables.rows("switch_drops")) == 2, "nothing is written while nothing changes"
    site.world.drops[RACK] = {6: 15, 99: 1}
    assert counters(3) == {"6": 15, "99": 1}
    # A switch counts from 0 after its program was loaded again.
    site.world.drops[RACK] = {6: 4, 99: 1}
    assert counters(4) == {"6": 19, "99": 1}
    assert [row["packets"] for row in site.tables.rows("switch_drops")] == [10, 1, 15, 4]
    # A switch that is gone takes its counters along.
    site.tables.overwrite(
        "switches", [row for row in site.tables.rows("switches") if row["switch"] != RACK]
    )
    site.refresher.metrics.behind((), NETWORK.switches.keys() - {RACK})
    assert counters(4) == {}


def test_reasons_have_the_names_of_the_programs_source():
    programs = Programs(str(COMPILED_P4))
    for name in DERIVATIONS:
        reasons = programs.reasons(name)
        assert reasons[0] == "NOT_DROPPED" and "UNKNOWN_PORT" in reasons.values(), name
        assert len(reasons) == len(set(reasons.values())) > 10
    assert programs.reasons("virtual_trees_32")[6] == "UNKNOWN_LABELS"
    assert Programs("/nowhere").reasons("virtual_trees") == {}
