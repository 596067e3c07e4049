"""Streams of ours that a switch believes alive keep nobody out: not us, and not for hours."""

from __future__ import annotations

import pytest
from entry_tables import PIPELINE, SOME
from examples import examples
from fault_server import FaultServer
from hypothesis import given
from hypothesis import strategies as st
from waiting import until

from stackcast.jobs.adapters.switches import session as switch_session
from stackcast.jobs.adapters.switches.client import Client
from stackcast.jobs.adapters.switches.p4runtime import SwitchConnection
from stackcast.jobs.adapters.switches.results import SwitchTarget
from stackcast.jobs.adapters.switches.session import SwitchSession
from stackcast.udfs.errors import SwitchError
from stackcast.udfs.switches.election import election_id, rank

pytestmark = pytest.mark.integration

OURS = 5


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(switch_session, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(switch_session, "_STAND_IN_SECONDS", 0.2)


@pytest.fixture
def server():
    server = FaultServer(["s1"])
    yield server
    server.stop()


@pytest.fixture
def opened(server):
    """Makes sessions of that id, and closes them at the end."""
    made = []

    def make(number=OURS):
        made.append(SwitchSession(SwitchTarget("s1", server.address, 1), election_id=number))
        return made[-1]

    yield make
    for each in made:
        each.close()


def lose_connection(session, monkeypatch):
    """It notices that the switch does not answer; the switch notices nothing."""
    with monkeypatch.context() as patch:
        patch.setattr(Client, "close", lambda _: None)
        error = SwitchError("UNREACHABLE", "the network is gone")
        patch.setattr(SwitchConnection, "is_primary", property(lambda _: _raise(error)))
        assert session.leads() is None


def _raise(error):
    raise error


def test_one_whose_connection_is_lost_goes_past_its_own_stream_however_often(
    server, opened, monkeypatch
):
    session = opened()
    for _ in range(4):
        assert session.refresh(SOME, PIPELINE).in_sync
        lose_connection(session, monkeypatch)
    assert len(server.devices["s1"].clients) == 4
    assert session.leads() and session.refresh(SOME[1:], PIPELINE).in_sync
    assert server.devices["s1"].entries() == set(SOME[1:])


def test_after_a_power_loss_it_goes_past_its_own_streams_only_when_told_that_nobody_has_them(
    server, opened, monkeypatch
):
    before = opened()
    for _ in range(3):
        assert before.refresh(SOME, PIPELINE).in_sync
        lose_connection(before, monkeypatch)
    assert before.leads()
    again = opened()
    assert again.leads() is False and again.leads() is False
    for _ in range(4):
        assert rank(again.in_the_way) == OURS
        again.go_past(again.in_the_way)
        if again.leads():
            break
    assert again.refresh(SOME[1:], PIPELINE).in_sync and not again.in_the_way
    # If somebody had it all the same, that one waits, and none goes past the other again.
    until(lambda: before.leads() is False)
    for _ in range(3):
        assert before.leads() is False and rank(before.in_the_way) == OURS
        assert again.leads()


def test_one_of_a_higher_id_is_gone_past_only_when_told_and_takes_its_place_again(server, opened):
    other, ours = opened(OURS + 1), opened()
    assert other.refresh(SOME, PIPELINE).in_sync
    assert ours.leads() is False and ours.in_the_way == OURS + 1
    assert ours.leads() is False and other.leads()
    ours.go_past(ours.in_the_way)
    assert ours.refresh(SOME[1:], PIPELINE).in_sync
    # It stood still, and goes on: no word of ours is believed of what it is now.
    assert other.leads()
    until(lambda: ours.leads() is False)  # the switch's word to us is on its way
    assert rank(ours.in_the_way) == OURS + 1
    ours.forget_past()
    assert other.refresh(SOME, PIPELINE).in_sync and ours.leads() is False


IDS = st.integers(1, (1 << 64) - 1)


@examples(200)
@given(IDS, IDS, st.integers(0, 20), st.integers(0, 20))
def test_an_id_goes_past_its_own_ones_of_before_and_no_later_one(own, other, times, newer):
    highest, ids = own, [own]
    for _ in range(times + newer):
        highest = election_id(own, highest, True, past=highest)
        assert highest is not None and highest > ids[-1] and rank(highest) == own
        ids.append(highest)
    past = ids[times]
    wanted = election_id(own, highest, True, past=past)
    assert (wanted is None) == (newer > 0)
    if other > own:
        higher = election_id(other, highest, taken=False)
        assert election_id(own, higher, True) is None
        # One of a higher id that stands still is gone past, and goes past that in its turn.
        stand_in = election_id(own, higher, True, past=higher)
        assert stand_in > higher and rank(stand_in) == own
        assert election_id(other, stand_in, True) > stand_in
