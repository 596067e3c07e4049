"""Frames with a stack, built by scapy but for the stack itself."""

from __future__ import annotations

from collections.abc import Sequence

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from udfs.network.labels import NARROW, LabelFormat


def stacked(labels: Sequence[int], payload: bytes, form: LabelFormat = NARROW) -> bytes:
    """A publisher's frame, to the multicast group and port that hosts of the lab listen to."""
    datagram = IP(src="10.9.0.1", dst="239.1.1.1") / UDP(sport=5000, dport=26400) / payload
    plain = bytes(Ether(dst="01:00:5e:01:01:01", src="02:00:00:00:00:01") / datagram)
    return plain[:12] + form.ether_type.to_bytes(2) + form.pack(labels) + plain[14:]
