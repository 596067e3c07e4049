"""Which switches a refresher writes again while it follows, and when it lets go of one."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import MagicMock

import pytest
from rollout_world import FakeSession, InOrder, World, in_order, refresher
from virtual_time import VirtualTime

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.app.storage_errors import StorageError
from stackcast.jobs.adapters.switches import lead, leader_watch
from stackcast.jobs.adapters.switches.lead import Refresher
from stackcast.jobs.adapters.switches.results import Comparison, RefreshResult
from stackcast.jobs.adapters.switches.wanted import WantedEntries
from stackcast.jobs.adapters.tables.network_versions import SOURCES, NetworkVersions
from stackcast.jobs.refresh_switches import show
from stackcast.udfs.errors import NetworkError, SwitchError
from stackcast.udfs.network.rows import network_to_rows, tree_to_row
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.switches.entry import Difference, SwitchEntry, group_entry

pytestmark = pytest.mark.unit

NETWORK = fabric(pods=1, racks=2, hosts=1, planes=1, spines=1)
ALL = set(NETWORK.switches)
RACK, OTHER = (NETWORK.hosts[name].switch for name in ("h1", "h2"))


class Session(FakeSession):
    """A switch that answers unless the site says that it is away."""

    rival = "'a' at its:1"

    def __init__(self, site: Site, name: str, target: object) -> None:
        super().__init__(site.world, name, target, lambda: None)
        self._site = site

    def leads(self, connect: bool = True) -> bool | None:
        self._site.asked_to_lead += 1
        self._site.waited_for |= connect
        return None if self._name in self._site.away else super().leads(connect)

    def refresh(self, desired, pipeline, patience: float = 0.0) -> RefreshResult:
        self._site.written.append(self._name)
        if self._name in self._site.away:
            return RefreshResult(None, False, ["no answer"])
        if self._name in self._site.full:
            self._read_in_term = self._world.term
            return RefreshResult(0, False, ["no space"], full=True)
        result = super().refresh(desired, pipeline, patience)
        self._site.after_refresh(self._name)
        return result


class Site:
    """Tables and switches of a network, and a refresher that follows them.

    Attributes:
        away: switches that do not answer.
        full: switches that have no space.
        asked: the switches that each poll refreshed, if it refreshed any.
        waited_for: whether a switch without a connection was asked who leads.
        after_refresh: called with each switch that was refreshed.
    """

    def __init__(self) -> None:
        self.clock = VirtualTime()
        self.world = World()
        self.tables = self.world.tables
        self.away: set[str] = set()
        self.full: set[str] = set()
        self.written: list[str] = []
        self.asked: list[set[str]] = []
        self.asked_to_lead = 0
        self.waited_for = False
        self.after_refresh: Callable[[str], object] = lambda _: None
        for name, rows in network_to_rows(NETWORK, dict.fromkeys(NETWORK.switches, "")).items():
            self.tables.overwrite(name, rows)
        self.stopping = MagicMock()
        self.stopping.is_set.return_value = False
        self.stopping.wait.side_effect = lambda _: self.clock.sleep(1)
        self.refresher = self.another("a")

    def another(self, name: str) -> Refresher:
        return refresher(
            self.world,
            open_session=lambda target: Session(self, name, target),
            settings=Settings(wait_seconds=5),
            stopping=self.stopping,
            threads=InOrder(self.clock),
        )

    def tree(self, state: str = "active") -> None:
        """An edit that concerns one switch."""
        tree = VirtualTree(5, frozenset([("h1", RACK)]), "test", state)
        self.tables.overwrite("virtual_trees", [tree_to_row(tree)])

    def without(self, switch: str) -> None:
        """Take a switch out of the network, with all that hangs on it."""
        hosts = {host.name for host in NETWORK.hosts.values() if host.switch == switch}
        for name in ("switches", "hosts", "links"):
            rows = [
                row
                for row in self.tables.rows(name)
                if row.get("switch") != switch and row.get("neighbor") not in {switch, *hosts}
            ]
            self.tables.overwrite(name, rows)

    def disturb(self, switch: str) -> None:
        self.world.disturbed.add(("a", switch))

    def poll(self) -> None:
        self.refresher.poll()
        if self.written:
            self.asked.append(set(self.written))
        self.written.clear()

    def polls(self, seconds: float) -> None:
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            self.poll()
            self.clock.sleep(0.1)

    def is_ready(self) -> bool:
        current = {name: self.tables.version(name) for name in SOURCES}
        return NetworkVersions(self.tables).newest(current) == current

    def terms(self) -> int:
        return sum(row["term"] is not None and not row["versions"] for row in self.rows())

    def rows(self) -> list[dict[str, object]]:
        return self.tables.rows("network_versions")


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    in_order(monkeypatch)
    return Site()


def meanwhile(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> list[None]:
    """Something happens whenever entries are worked out; the list grows by one each time."""
    seen: list[None] = []
    real = WantedEntries.at

    def slow(self, versions, current):
        wanted = real(self, versions, current)
        seen.append(None)
        happens()
        return wanted

    monkeypatch.setattr(WantedEntries, "at", slow)
    return seen


def test_all_are_written_first_then_only_those_that_changed_or_were_lost(site):
    site.polls(3)
    assert site.asked == [ALL] and site.is_ready()
    site.disturb(OTHER)
    site.polls(1)
    assert site.asked == [ALL, {OTHER}]
    site.tree()
    site.polls(1)
    assert site.asked == [ALL, {OTHER}, {RACK}] and site.is_ready()


def refreshes(site: Site, seconds: float) -> int:
    """Return how often the rack's switch is refreshed in a time."""
    before = len([switches for switches in site.asked if RACK in switches])
    site.polls(seconds)
    return len([switches for switches in site.asked if RACK in switches]) - before


def test_a_full_switch_is_refreshed_again_less_often_than_one_that_does_not_answer(site):
    site.full = {RACK}
    site.polls(600)
    assert refreshes(site, 900) <= 3
    site.full, site.away = set(), {RACK}
    site.tree()
    site.polls(60)
    assert refreshes(site, 100) >= 9


def test_a_full_switch_that_restarts_is_refreshed_within_seconds(site):
    site.full = {RACK}
    site.polls(600)
    site.full = set()
    site.disturb(RACK)
    assert refreshes(site, 15) > 0
    assert site.is_ready()


def test_versions_are_not_ready_while_a_switch_may_hold_something_else_again(site):
    # The one restarts while the next is written.
    site.after_refresh = lambda name: name == OTHER and site.disturb(RACK)
    site.poll()
    assert site.asked == [ALL] and not site.is_ready()
    site.polls(2)
    assert site.asked == [ALL, {RACK}] and site.is_ready()


def test_what_others_write_into_the_table_of_entries_is_taken_back(site):
    site.polls(2)
    rows = site.tables.rows("switch_entries")
    site.tables.overwrite("switch_entries", rows[1:])
    site.polls(1)
    again = site.tables.rows("switch_entries")
    assert all(row in again for row in rows) and len(again) == len(rows)
    assert site.asked == [ALL]


def test_one_that_leads_waits_for_no_switch_to_say_so(site):
    site.away = {RACK}
    site.poll()
    assert site.waited_for
    site.waited_for = False
    site.polls(20)
    assert not site.waited_for


def test_nothing_is_told_of_switches_that_another_came_to_lead_while_they_were_written(site):
    site.after_refresh = lambda _: setattr(site.world, "leader", "b")
    site.poll()
    assert site.asked == [ALL] and not site.is_ready()
    assert site.tables.rows("switch_status") == []


def test_the_feed_wakes_it_at_once(site):
    site.poll()
    site.disturb(RACK)
    site.poll()
    assert site.asked == [ALL]
    site.refresher.wake.set()
    site.poll()
    assert site.asked == [ALL, {RACK}]


def test_a_switch_that_is_away_is_tried_less_and_less_often_until_it_answers_or_is_none(site):
    site.away = {RACK, OTHER}
    site.polls(60)
    tries = site.asked[1:]
    assert set(map(frozenset, tries)) == {frozenset(site.away)}
    # After 1, 2, 4, 8 seconds, then every 10.
    assert 7 <= len(tries) <= 9
    assert not site.is_ready()
    site.away = {OTHER}
    site.polls(11)
    assert RACK in site.asked[-1] or RACK in site.asked[-2]
    site.without(OTHER)
    before = len(site.asked)
    site.polls(11)
    assert all(OTHER not in names for names in site.asked[before:]) and site.is_ready()
    told = len(site.asked)
    site.polls(30)
    assert len(site.asked) == told
    # One that is lost again later is tried at once.
    site.disturb(RACK)
    site.polls(1)
    assert site.asked[told:] == [{RACK}]


def test_an_edit_has_switches_tried_at_once_that_were_away(site):
    site.away = {RACK}
    site.polls(40)
    tries = len(site.asked)
    site.away = set()
    site.tree()
    site.polls(1)
    assert site.asked[tries:] == [{RACK}] and site.is_ready()


def test_nonsense_in_the_tables_does_not_end_it_and_lost_switches_are_mended(site, caplog):
    site.polls(2)
    links = site.tables.rows("links")
    site.tables.overwrite("links", links[1:])
    site.polls(2)
    assert "NETWORK." in caplog.text
    site.disturb(RACK)
    site.polls(2)
    assert site.asked == [ALL, {RACK}]


def test_what_another_commit_got_into_the_way_of_is_tried_again_later(site, monkeypatch, caplog):
    error = StorageError("a concurrent update", conflict=True)
    with monkeypatch.context() as patch:
        patch.setattr(site.refresher._tables, "merge", MagicMock(side_effect=error))
        site.polls(5)
    assert site.asked == [] and caplog.text.count("a concurrent update") == 1
    site.polls(7)
    assert site.asked == [ALL]


def test_one_that_does_not_lead_does_nothing_and_starts_afresh_when_it_does(site, caplog):
    site.world.leader = "b"
    site.polls(30)
    assert site.asked == [] and site.rows() == [] and not site.tables.rows("switch_entries")
    assert site.refresher.metrics.leads is False
    assert caplog.text.count("waiting until it ends: 'a' at its:1") == 1
    site.world.leader = "a"
    site.polls(2)
    assert site.asked == [ALL] and site.terms() == 1
    assert site.refresher.metrics.leads
    site.world.leader = "b"
    site.polls(5)
    site.world.leader = "a"
    site.polls(5)
    assert site.asked == [ALL] * 2 and site.terms() == 2
    # Another led and ended between two polls.
    NetworkVersions(site.tables).begin_term()
    site.polls(5)
    assert site.asked == [ALL] * 3 and site.terms() == 3 + 1


def with_a_standby(site: Site) -> Callable[[float], None]:
    """Returns a function that runs two refreshers in parallel for a number of seconds."""
    standby = site.another("b")

    def run(seconds: float) -> None:
        end = site.clock.monotonic() + seconds
        while site.clock.monotonic() < end:
            site.poll()
            standby.poll()
            site.clock.sleep(0.1)

    return run


def test_one_that_reaches_no_switch_never_leads_and_disturbs_no_one(site, caplog):
    """As with a wrong certificate, or without a route."""
    site.world.set_cut(*(("b", name) for name in ALL))
    run = with_a_standby(site)
    run(20)
    site.tree("installing")
    run(20)
    assert site.is_ready() and site.terms() == 1
    assert site.tables.rows("virtual_trees")[0]["state"] == "active"
    assert caplog.text.count("none of 4 switches answers") == 1


def test_two_that_reach_other_switches_each_do_not_take_the_lead_from_each_other_for_ever(site):
    mine, theirs = sorted(ALL)[:2], sorted(ALL)[2:]
    site.world.set_cut(*(("a", name) for name in theirs), *(("b", name) for name in mine))
    run = with_a_standby(site)
    run(600)
    assert site.terms() == 1 and site.refresher.metrics.leads
    # The one that led is gone, with half of the switches out of reach: the other takes over.
    site.refresher = site.another("b")
    site.polls(2 * leader_watch.QUIET_SECONDS)
    assert site.refresher.metrics.leads and site.terms() == 2


def test_the_one_with_most_switches_takes_the_lead_from_one_with_few_once(site):
    few = sorted(ALL)[:1]
    site.world.leader = "b"
    site.world.set_cut(*(("a", name) for name in few), *(("b", name) for name in ALL - {*few}))
    run = with_a_standby(site)
    site.refresher, first = site.another("b"), site.refresher
    site.polls(20)
    assert site.terms() == 1 and site.refresher.metrics.leads
    site.refresher = first
    run(300)
    assert site.terms() == 2 and first.metrics.leads


class InTheWay(Session):
    """The leader has an election id: the one of the settings, unless a test passes another."""

    rank = 1

    @property
    def in_the_way(self) -> int:
        return self.rank if self._world.leader != self._owner else 0

    def go_past(self, number: int) -> None:
        assert number == self.rank
        self._world.leader = self._owner


class BelowAnother(InTheWay):
    rank = 7


def behind(site: Site, name: str, opened: type[InTheWay] = InTheWay) -> Refresher:
    return refresher(
        site.world,
        open_session=lambda target: opened(site, name, target),
        threads=InOrder(site.clock),
    )


def test_after_a_power_loss_it_is_not_kept_out_by_what_switches_believe_of_its_past(site, caplog):
    site.polls(5)
    # The machine loses its power: no program ends the streams, and the switches keep them.
    site.refresher = behind(site, "a again")
    site.polls(2 * leader_watch.QUIET_SECONDS)
    assert site.refresher.metrics.leads and site.is_ready()
    assert "primary with election id 1 does not answer" in caplog.text


def alternately(
    site: Site, one: Refresher, other: Refresher, seconds: float, step: float = 0.1
) -> None:
    end = site.clock.monotonic() + seconds
    while site.clock.monotonic() < end:
        site.refresher = one
        site.poll()
        other.poll()
        site.clock.sleep(step)


def test_the_second_of_the_same_election_id_waits_as_long_as_the_first_leads(site):
    site.polls(5)
    first, second = site.refresher, behind(site, "b")
    alternately(site, first, second, 300)
    assert site.world.leader == "a" and first.metrics.leads and not second.metrics.leads
    # It asked once, and was answered.
    assert site.terms() == 3
    site.tree()
    site.polls(1)
    assert site.is_ready()


@pytest.mark.parametrize("opened", [InTheWay, BelowAnother])
def test_when_the_one_that_leads_stands_still_another_does_the_edits_that_wait(site, opened):
    site.polls(5)
    first, second = site.refresher, behind(site, "b", opened)
    alternately(site, first, second, 300)
    before = site.terms()
    site.refresher = second
    # Nothing waits for the suspended one: no switch is asked, or led by another.
    site.polls(300)
    assert site.terms() == before and site.world.leader == "a"
    site.tree()
    site.polls(3 * leader_watch.QUIET_SECONDS)
    assert second.metrics.leads and site.is_ready()


@pytest.mark.integration
def test_one_that_leads_and_refuses_an_edit_is_asked_less_and_less_often(site):
    site.polls(5)
    first, second = site.refresher, behind(site, "b", BelowAnother)
    broken = VirtualTree(9, frozenset([("h1", "h2")]), "test", "active")
    site.tables.overwrite("virtual_trees", [tree_to_row(broken)])
    alternately(site, first, second, 3600, 0.5)
    assert first.metrics.leads and not second.metrics.leads and site.world.leader == "a"
    # After 30 s, and then after 60, 120, 240, 480, 960: each a question and its answer.
    assert 9 <= site.terms() <= 13


def test_nobody_leads_where_there_are_no_switches(site):
    for name in ("switches", "links", "hosts"):
        site.tables.overwrite(name, [])
    run = with_a_standby(site)
    run(60)
    assert site.terms() == 0
    with pytest.raises(SwitchError, match=r"NO_SWITCHES.*table switches"):
        site.refresher.once()


def test_a_first_pass_says_so_where_no_switch_answers(site):
    site.away = set(ALL)
    with pytest.raises(SwitchError, match=r"UNREACHABLE.*none of 4 switches answers"):
        site.refresher.once()
    assert site.terms() == 0 and not site.written


def another_leads(site: Site, how: str) -> Callable[[], object]:
    if how == "superseded":
        return NetworkVersions(site.tables).begin_term
    return lambda: setattr(site.world, "leader", "b")


@pytest.mark.parametrize("how", ["superseded", "not primary"])
def test_entries_that_took_long_to_work_out_are_not_written_where_another_leads_by_then(
    site, monkeypatch, how
):
    with monkeypatch.context() as patch:
        meanwhile(patch, another_leads(site, how))
        site.poll()
    assert site.asked == []
    site.world.leader = "a"
    site.polls(3)
    assert site.asked == [ALL]
    # Nor are those that it derived before, on a switch that lost them.
    entries = site.tables.version("switch_entries")
    site.tree()
    site.disturb(OTHER)
    site.refresher.wake.set()
    with monkeypatch.context() as patch:
        derived = meanwhile(patch, another_leads(site, how))
        site.poll()
    assert derived and site.asked == [ALL]
    if how == "superseded":
        assert site.tables.version("switch_entries") == entries


def test_who_does_not_come_to_lead_in_time_says_so(site):
    site.world.leader = "b"
    with pytest.raises(SwitchError, match="NOT_PRIMARY"):
        site.refresher.once()
    assert site.asked_to_lead == 6 * len(ALL) and not site.written and not site.rows()
    site.world.leader = "a"
    assert site.refresher.once() == {}
    assert site.is_ready()


@pytest.mark.parametrize("how", ["superseded", "not primary"])
def test_a_first_pass_writes_no_switch_that_another_leads_since_the_entries_were_worked_out(
    site, monkeypatch, how
):
    meanwhile(monkeypatch, another_leads(site, how))
    with pytest.raises(SwitchError, match="NOT_PRIMARY"):
        site.refresher.once()
    assert not site.written


def test_a_first_pass_goes_on_until_trees_have_moved_but_not_for_ever(site, monkeypatch):
    site.tree("installing")
    assert site.refresher.once() == {}
    assert site.tables.rows("virtual_trees")[0]["state"] == "active" and site.is_ready()
    # Somebody edits without end.
    derived = meanwhile(monkeypatch, site.tree)
    assert site.refresher.once() == {}
    assert len(derived) == 1 + lead.ROUNDS
    derived.clear()
    site.away = {RACK}
    assert site.refresher.once() == {RACK: "no answer"}
    assert len(derived) == 1


def test_a_first_pass_that_cannot_use_the_tables_writes_no_switch_and_says_why(site):
    site.tables.overwrite("links", site.tables.rows("links")[1:])
    with pytest.raises(NetworkError):
        site.refresher.once()
    assert not site.written


def test_a_first_pass_is_not_done_where_a_switch_is_over_its_capacity(site):
    rows = site.tables.rows("switches")
    site.tables.overwrite(
        "switches", [row | {"max_rules": 1} if row["switch"] == RACK else row for row in rows]
    )
    wrong = site.refresher.once()
    assert wrong.keys() == {RACK} and "SWITCH.LIMIT" in wrong[RACK]


ENTRY = SwitchEntry("a", "t", (("k", "exact", b"\x01"),), "go", (("port", b"\x02"),))


def test_a_dry_run_prints_a_line_an_entry_and_tells_by_its_exit_code(capsys, caplog):
    refresher = MagicMock()
    other = SwitchEntry("a", "s", (("k", "exact", b"\x01"),), "go", ())
    change = Difference((ENTRY, group_entry("a", 3, [(1, 0), (2, 0)])), (other,), (other,))
    refresher.compare.return_value = {"a": change, "b": Difference((), (), ())}
    assert show(refresher) == 1
    assert capsys.readouterr().out.splitlines() == [
        "+ a multicast_group|group=03 -> replicate(port=01, port=02)",
        "- a s|k=01 -> go()",
        "~ a s|k=01 -> go()",
        "+ a t|k=01 -> go(port=02)",
    ]
    refresher.compare.return_value = {"b": Difference((), (), ())}
    assert show(refresher) == 0
    program = Comparison((), (), (), "reconciled: another build")
    refresher.compare.return_value = {"b": program, "c": Comparison((), (), ())}
    assert show(refresher) == 1
    assert capsys.readouterr().out == "~ b program -> reconciled: another build\n"
    refresher.compare.return_value = {"b": SwitchError("UNREACHABLE", "b is away")}
    assert show(refresher) == 2
    assert "b is away" in caplog.text and not capsys.readouterr().out
