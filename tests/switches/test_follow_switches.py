"""Which switches the job writes again while it follows, and when it lets go of one."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest
from pyspark.errors import PySparkException

from jobs import refresh_switches
from jobs.adapters.switches.session import Comparison
from jobs.refresh_switches import Following, once, show, wait_to_lead
from udfs.errors import NetworkError, SwitchError
from udfs.switches.entry import Difference, SwitchEntry, group_entry

pytestmark = pytest.mark.unit


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(refresh_switches, "time", clock)
    return clock


class Away:
    """A refresher whose switches answer or not, as the test says; it remembers what was asked."""

    def __init__(self, switches: dict[str, bool]) -> None:
        self.switches = switches
        self.version: int | None = None
        self.edited = True
        self.error: Exception | None = None
        self.leading = True
        self.rivals = self.terms = self.settled = 0
        self.lost: set[str] = set()
        self.in_step: set[str] = set()
        self.asked: list[set[str]] = []
        self.derived_from: dict[str, int] = {}
        self.told: list[bool] = []

    def looked(self, leads: bool) -> None:
        self.told.append(leads)

    def leads(self, connect: bool) -> bool:
        return self.leading

    def written_by_others(self) -> str:
        return "'a' at its:1"

    def begin_term(self) -> None:
        self.terms += 1
        self.rivals = 0
        self.in_step.clear()
        self.edited = True

    def superseded(self) -> bool:
        return self.rivals > 0

    def stale(self) -> bool:
        return self.edited

    def derive(self) -> int:
        self.edited = False
        self.version = (self.version or 0) + 1
        if self.error is not None:
            raise self.error
        return self.version

    def settle(self) -> None:
        self.settled += 1

    def disturbed(self) -> set[str]:
        return self.lost & self.switches.keys()

    def behind(self) -> set[str]:
        return self.switches.keys() - self.in_step

    def refresh(self, version: int, only: set[str], wait: bool) -> list[dict[str, object]]:
        assert not wait and version == self.version and self.leading
        self.asked.append(set(only))
        self.in_step -= only
        self.in_step |= {name for name in only if self.switches[name]}
        self.lost -= self.in_step
        return [{"switch": name, "in_step": self.switches[name]} for name in only]


def looks(following: Following, clock: Clock, seconds: float) -> None:
    end = clock.now + seconds
    while clock.now < end:
        assert not following.look()
        clock.now += 0.1


def test_all_are_written_first_then_only_those_that_changed_or_were_lost(clock):
    refresher = Away({"a": True, "b": True})
    following = Following(refresher)
    looks(following, clock, 3)
    assert refresher.asked == [{"a", "b"}] and refresher.settled
    refresher.lost = {"b"}
    looks(following, clock, 1)
    assert refresher.asked == [{"a", "b"}, {"b"}]
    refresher.edited, refresher.in_step = True, {"b"}
    looks(following, clock, 1)
    assert refresher.asked == [{"a", "b"}, {"b"}, {"a"}]


def test_the_feed_wakes_it_at_once(clock):
    refresher = Away({"a": True})
    following = Following(refresher)
    following.look()
    refresher.in_step.clear()
    following.look()
    assert refresher.asked == [{"a"}]
    following.wake.set()
    following.look()
    assert refresher.asked == [{"a"}, {"a"}]


def test_a_switch_that_is_away_is_tried_less_and_less_often_until_it_answers_or_is_none(clock):
    refresher = Away({"a": True, "b": False, "c": False})
    following = Following(refresher)
    looks(following, clock, 60)
    tries = refresher.asked[1:]
    assert set(map(frozenset, tries)) == {frozenset({"b", "c"})}
    # After 1, 2, 4, 8 seconds, then every 10.
    assert 7 <= len(tries) <= 9
    refresher.switches["b"] = True
    del refresher.switches["c"]
    looks(following, clock, 11)
    assert refresher.asked[-1] == {"b"}
    told = len(refresher.asked)
    looks(following, clock, 30)
    assert len(refresher.asked) == told
    # One that is lost again later is tried at once.
    refresher.lost = {"b"}
    looks(following, clock, 1)
    assert len(refresher.asked) == told + 1


def test_an_edit_has_switches_tried_at_once_that_were_away(clock):
    refresher = Away({"a": False})
    following = Following(refresher)
    looks(following, clock, 40)
    tries = len(refresher.asked)
    refresher.switches["a"] = refresher.edited = True
    looks(following, clock, 1)
    assert len(refresher.asked) == tries + 1 and refresher.in_step == {"a"}


def test_nonsense_in_the_tables_does_not_end_it_and_lost_switches_are_mended(clock, caplog):
    refresher = Away({"a": True})
    following = Following(refresher)
    looks(following, clock, 2)
    refresher.error, refresher.edited = NetworkError("DISCONNECTED", "in two parts"), True
    looks(following, clock, 2)
    assert "NETWORK.DISCONNECTED" in caplog.text
    refresher.lost = {"a"}
    looks(following, clock, 2)
    assert refresher.asked == [{"a"}, {"a"}]


def test_what_another_commit_got_into_the_way_of_is_tried_again_later(clock, caplog):
    refresher = Away({"a": True})
    refresher.error = PySparkException("a concurrent update")
    following = Following(refresher)
    looks(following, clock, 5)
    assert refresher.asked == [] and caplog.text.count("a concurrent update") == 1
    refresher.error, refresher.edited = None, True
    looks(following, clock, 7)
    assert refresher.asked == [{"a"}]


def test_one_that_does_not_lead_does_nothing_and_starts_afresh_when_it_does(clock, caplog):
    refresher = Away({"a": True, "b": True})
    refresher.leading = False
    following = Following(refresher)
    looks(following, clock, 30)
    assert refresher.asked == [] and refresher.terms == 0 and refresher.version is None
    assert set(refresher.told) == {False}
    assert caplog.text.count("'a' at its:1") == 1
    refresher.leading = True
    looks(following, clock, 2)
    assert refresher.asked == [{"a", "b"}] and refresher.terms == 1
    assert refresher.told[-1]
    refresher.leading = False
    looks(following, clock, 5)
    refresher.leading = True
    looks(following, clock, 5)
    assert refresher.asked == [{"a", "b"}] * 2 and refresher.terms == 2
    # Another led and ended between two looks.
    refresher.rivals = 1
    looks(following, clock, 5)
    assert refresher.asked == [{"a", "b"}] * 3 and refresher.terms == 3


@pytest.mark.parametrize("how", ["superseded", "not primary"])
def test_entries_that_took_long_to_work_out_are_not_written_where_another_leads_by_then(clock, how):
    refresher = Away({"a": True})
    following = Following(refresher)
    derive = refresher.derive

    def slow() -> int:
        refresher.rivals, refresher.leading = int(how == "superseded"), how == "superseded"
        return derive()

    refresher.derive = slow
    following.look()
    assert refresher.asked == []
    refresher.derive, refresher.leading = derive, True
    looks(following, clock, 3)
    assert refresher.asked == [{"a"}]


def test_who_does_not_come_to_lead_in_time_says_so(clock):
    refresher = MagicMock()
    refresher.leads.return_value = False
    lifecycle = MagicMock()
    lifecycle.stopping.is_set.return_value = False
    lifecycle.stopping.wait.side_effect = lambda _: setattr(clock, "now", clock.now + 1)
    with pytest.raises(SwitchError, match="NOT_PRIMARY"):
        wait_to_lead(refresher, 5, lifecycle)
    assert refresher.leads.call_count == 6
    refresher.leads.return_value = True
    wait_to_lead(refresher, 5, lifecycle)


def first_pass() -> MagicMock:
    refresher = MagicMock()
    refresher.behind.return_value = set()
    refresher.superseded.return_value = False
    refresher.without_room.return_value = set()
    return refresher


def test_a_first_pass_writes_no_switch_that_another_leads_since_the_entries_were_worked_out():
    refresher = first_pass()
    refresher.superseded.return_value = True
    with pytest.raises(SwitchError, match="NOT_PRIMARY"):
        once(refresher)
    assert not refresher.refresh.called
    refresher = first_pass()
    refresher.leads.return_value = False
    with pytest.raises(SwitchError, match="NOT_PRIMARY"):
        once(refresher)
    assert not refresher.refresh.called


def test_a_first_pass_goes_on_until_trees_have_moved_but_not_for_ever():
    refresher = first_pass()
    refresher.stale.side_effect = [True, True, False]
    assert once(refresher)
    assert refresher.derive.call_count == 3
    refresher = first_pass()
    assert once(refresher)
    assert refresher.derive.call_count == 1 + refresh_switches.ROUNDS
    refresher.behind.return_value = {"a"}
    assert not once(refresher)


def test_a_first_pass_is_not_done_where_a_switch_has_no_room():
    refresher = first_pass()
    refresher.stale.return_value = False
    refresher.without_room.return_value = {"a"}
    assert not once(refresher)


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
