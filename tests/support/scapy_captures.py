"""Captures that scapy writes: of any link type, with nanoseconds, and of several interfaces."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from scapy.packet import Packet
from scapy.utils import PcapWriter, wrpcapng


def write_pcap(
    path: Path, frames: Iterable[bytes], link_type: int = 1, begin_ns: int = 10**18 + 123_456_789
) -> list[int]:
    """Writes a classic pcap file of nanoseconds; returns the time of each frame."""
    times = []
    with PcapWriter(str(path), linktype=link_type, nano=True) as writer:
        writer.write_header(None)
        for number, frame in enumerate(frames):
            times.append(begin_ns + number * 1_000_000_007)
            writer.write_packet(frame, *divmod(times[-1], 10**9))
    return times


def write_pcapng(path: Path, packets: Iterable[tuple[str, Packet]]) -> None:
    """Writes a pcapng file of packets with the names of the interfaces they were captured on.

    The link type of an interface is that of the class of its first packet.
    """
    captured = []
    for interface, packet in packets:
        packet.sniffed_on = interface
        captured.append(packet)
    wrpcapng(str(path), captured)
