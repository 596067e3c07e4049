"""When a receiver that hears nothing joins again and reports why, without sockets or a clock."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest

from stackcast.cli.receive import host_watch
from stackcast.cli.receive.host_watch import HostWatch

pytestmark = pytest.mark.unit


@dataclass
class Member:
    """A membership with a fault."""

    cause: str = ""
    error: str = ""
    renewals: int = 0

    def renew(self) -> str:
        self.renewals += 1
        return self.error

    def fault(self) -> str:
        return self.cause


@dataclass
class Sockets:
    """The sockets of a receiver, without a network."""

    heard: int = 0
    dropped: int = 0
    membership: Member | None = None

    def drops(self) -> int:
        return self.dropped


@dataclass
class Host:
    """A receiver whose clock and kernel the test controls."""

    sockets: Sockets
    counters: dict[str, int]
    now: float = 100.0

    def __post_init__(self) -> None:
        self.watch = HostWatch(self.sockets, "233.54.12.1:26400", self.now)  # type: ignore[arg-type]

    def wait(self, seconds: float, datagrams: int = 0) -> None:
        """Let seconds pass, with this number of datagrams in each."""
        for _ in range(int(seconds)):
            self.now += 1
            self.sockets.heard += datagrams
            self.watch.check(self.now)


@pytest.fixture
def member() -> Member:
    return Member()


@pytest.fixture
def host(member, monkeypatch) -> Host:
    counters = {"TcpExt.IPReversePathFilter": 40, "Udp.RcvbufErrors": 7, "Udp.InCsumErrors": 0}
    monkeypatch.setattr(host_watch, "read_counters", counters.copy)
    return Host(Sockets(membership=member), counters)


def test_a_stream_without_pauses_is_left_alone(host, member, capsys):
    host.wait(600, datagrams=1)
    assert member.renewals == 0
    assert capsys.readouterr().err == ""


def test_it_joins_again_after_five_seconds_and_then_less_often_but_once_a_minute(host, member):
    host.wait(4)
    assert member.renewals == 0
    renewed_at = []
    for second in range(5, 400):
        before = member.renewals
        host.wait(1)
        if member.renewals > before:
            renewed_at.append(second)
    assert renewed_at[:4] == [5, 10, 20, 40]
    pauses = {later - earlier for earlier, later in pairwise(renewed_at[4:])}
    assert pauses == {60}


def test_a_night_of_silence_takes_few_lines(host, capsys):
    host.wait(12 * 3600)
    assert capsys.readouterr().err.count("nothing received for") < 20


@pytest.mark.parametrize(
    ("counter", "words"),
    [
        ("TcpExt.IPReversePathFilter", "IPReversePathFilter in /proc/net/netstat rose by 5"),
        ("Udp.RcvbufErrors", "RcvbufErrors in /proc/net/snmp rose by 5"),
        ("Udp.InCsumErrors", "InCsumErrors in /proc/net/snmp rose by 5"),
    ],
)
def test_only_counters_that_rose_in_the_silence_are_causes(host, counter, words, capsys):
    host.counters[counter] += 1
    host.wait(3, datagrams=1)
    host.counters[counter] += 5
    host.wait(5)
    lines = capsys.readouterr().err.splitlines()
    assert "nothing received for 5 s, joined again" in lines[0]
    assert len(lines) == 2 and words in lines[1]


def test_without_a_cause_it_points_to_the_network(host, capsys):
    host.wait(5)
    assert "querier" in capsys.readouterr().err
    assert not host.watch.end(host.now)


def test_a_new_cause_is_reported_at_the_next_renewal(host, member, capsys):
    host.wait(100)
    capsys.readouterr()
    member.cause = member.error = "this machine has no such interface"
    host.wait(60)
    err = capsys.readouterr().err
    assert err.count("this machine has no such interface") == 1
    assert "joined again" not in err


def test_an_interface_that_returns_is_joined_within_a_second(host, member, capsys):
    host.wait(1000)
    member.cause = member.error = "this machine has no such interface"
    host.wait(60)
    capsys.readouterr()
    renewals = member.renewals
    member.cause, member.error = "interface eth1 was created after the group was joined", ""
    host.wait(1)
    assert member.renewals == renewals + 1
    assert "nothing received for 1061 s, joined again" in capsys.readouterr().err
    member.cause = ""
    host.wait(30)
    assert member.renewals == renewals + 2


def test_the_end_of_a_silence_is_reported_once(host, capsys):
    host.wait(7)
    capsys.readouterr()
    host.wait(10, datagrams=1)
    assert capsys.readouterr().err.splitlines() == ["233.54.12.1:26400: datagrams arrive again"]


def test_a_receiver_that_ends_before_the_first_report_reports_the_cause(host, member, capsys):
    member.cause = "interface eth1 is down"
    host.wait(2)
    assert host.watch.end(host.now)
    assert "interface eth1 is down" in capsys.readouterr().err
    host.wait(1, datagrams=1)
    assert not host.watch.end(host.now)


def test_drops_are_reported_while_it_runs_but_not_every_second(host, capsys):
    for _ in range(60):
        host.sockets.dropped += 100
        host.wait(1, datagrams=1)
    lines = capsys.readouterr().err.splitlines()
    assert 2 <= len(lines) <= 3
    assert "100 datagrams dropped by this host's kernel" in lines[0]
