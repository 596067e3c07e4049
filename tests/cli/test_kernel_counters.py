"""The texts in which Linux reports counters and memberships."""

from __future__ import annotations

import sys

import pytest

from stackcast.cli.receive.kernel_counters import parse_counters, parse_memberships

pytestmark = pytest.mark.unit

SNMP = """\
Ip: Forwarding DefaultTTL InReceives InHdrErrors
Ip: 1 64 1386 0
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors
Udp: 22 1 16359 23 16359 0 4
UdpLite: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors
UdpLite: 0 0 0 0 0 0 0
"""
NETSTAT = """\
TcpExt: SyncookiesSent IPReversePathFilter TCPTimeouts
TcpExt: 0 5 -1
IpExt: InNoRoutes InTruncatedPkts
IpExt: 7 0
"""
IGMP = """\
Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter
1\tlo        :     1      V3
\t\t\t\t010000E0     1 0:00000000\t\t0
12\tinterface123456:     2      V2
\t\t\t\t010C36E9     2 1:00000E8F\t\t1
\t\t\t\t010000E0     1 0:00000000\t\t0
"""


@pytest.mark.parametrize(
    ("text", "counter", "value"),
    [
        (SNMP, "Udp.RcvbufErrors", 16359),
        (SNMP, "Udp.InCsumErrors", 4),
        (SNMP, "UdpLite.RcvbufErrors", 0),
        (NETSTAT, "TcpExt.IPReversePathFilter", 5),
        (NETSTAT, "TcpExt.TCPTimeouts", -1),
        (NETSTAT, "IpExt.InNoRoutes", 7),
    ],
)
def test_each_counter_belongs_to_its_protocol(text, counter, value):
    assert parse_counters(text)[counter] == value


def test_counters_of_a_kernel_without_them_are_missing():
    assert "TcpExt.IPReversePathFilter" not in parse_counters("")


def test_groups_belong_to_the_interface_above_them():
    text = IGMP
    if sys.byteorder == "big":
        text = text.replace("010C36E9", "E9360C01").replace("010000E0", "E0000001")
    assert parse_memberships(text) == {
        "lo": {"224.0.0.1"},
        "interface123456": {"233.54.12.1", "224.0.0.1"},
    }
