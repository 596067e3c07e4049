"""A publisher's feed enters the network as any publisher on Ethernet would send it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from stackcast.lab.fabric.hosts import udp_payload
from stackcast.lab.traffic.feed import feed_frames
from stackcast.udfs.errors import LabError
from stackcast.udfs.network.topology import fabric

pytestmark = pytest.mark.unit

PUBLISHER = fabric(1, 1, 1, 1, 1).hosts["feed1"]
GROUP = int.from_bytes(bytes([233, 54, 12, 1]))


@given(st.binary(max_size=1472), st.integers(0xE0000000, 0xEFFFFFFF), st.integers(1, 65535))
def test_a_frame_is_plain_multicast_with_checksums_as_another_implementation_makes_them(
    packet, group, port
):
    (frame,) = feed_frames([packet], PUBLISHER, group, port)
    assert udp_payload(frame) == packet
    parsed = Ether(frame)
    assert int(parsed.src.replace(":", ""), 16) == PUBLISHER.mac
    assert parsed.dst.startswith("01:00:5e")
    ipv4, udp = parsed[IP], parsed[UDP]
    assert int.from_bytes(bytes(map(int, ipv4.src.split(".")))) == PUBLISHER.ipv4
    assert int.from_bytes(bytes(map(int, ipv4.dst.split(".")))) == group
    assert (udp.sport, udp.dport) == (port, port)
    said = (ipv4.chksum, udp.chksum)
    del ipv4.chksum, udp.chksum
    again = Ether(bytes(parsed))
    assert (again[IP].chksum, again[UDP].chksum) == said


@given(st.binary(min_size=2, max_size=2))
def test_a_checksum_that_comes_to_0_is_sent_as_all_ones(end):
    """0 would tell receivers that there is none."""
    (first,) = feed_frames([b"\0\0" + end], PUBLISHER, GROUP, 26400)
    rest = int.from_bytes(first[40:42])  # what the datagram lacks to a sum of 0
    (frame,) = feed_frames([rest.to_bytes(2) + end], PUBLISHER, GROUP, 26400)
    assert frame[40:42] == b"\xff\xff"
    assert udp_payload(frame) == rest.to_bytes(2) + end


def test_a_packet_that_no_frame_holds_is_refused_with_the_setting_that_says_so():
    with pytest.raises(LabError) as refused:
        list(feed_frames([bytes(1473)], PUBLISHER, GROUP, 26400))
    assert refused.value.code == "LAB.PACKET_TOO_LARGE"
    assert "spark.stackcast.mtu" in refused.value.message
    assert list(feed_frames([bytes(1473)], PUBLISHER, GROUP, 26400, mtu=1501))
