"""Counters and group memberships that Linux reports in /proc/net."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

_PROC = Path("/proc/net")


def parse_counters(text: str) -> dict[str, int]:
    """Parse /proc/net/snmp or /proc/net/netstat.

    The files consist of pairs of lines, ``Udp: InDatagrams NoPorts`` and ``Udp: 5 0``.

    Returns:
        Counters by protocol and name, such as ``Udp.InDatagrams``.
    """
    lines = [line.split() for line in text.splitlines()]
    return {
        f"{names[0].removesuffix(':')}.{name}": int(value)
        for names, values in zip(lines[::2], lines[1::2], strict=False)
        for name, value in zip(names[1:], values[1:], strict=False)
    }


def parse_memberships(text: str) -> dict[str, set[str]]:
    """Parse /proc/net/igmp.

    Each interface has a line, followed by an indented line for each group that is joined on it.

    Returns:
        IPv4 addresses of groups by name of interface.
    """
    memberships: dict[str, set[str]] = {}
    name = ""
    for line in text.splitlines()[1:]:
        if not line[:1].isspace():
            name = line.split("\t")[1].partition(":")[0].strip()
            memberships[name] = set()
        else:
            # The kernel prints the address as a number in the byte order of the machine.
            address = int(line.split()[0], 16).to_bytes(4, sys.byteorder)
            memberships[name].add(socket.inet_ntoa(address))
    return memberships


def read_counters() -> dict[str, int]:
    """Return the counters of this network namespace, by protocol and name."""
    return parse_counters(_read("snmp")) | parse_counters(_read("netstat"))


def read_memberships() -> dict[str, set[str]]:
    """Return the groups that are joined in this network namespace, by name of interface."""
    return parse_memberships(_read("igmp"))


def _read(name: str) -> str:
    return (_PROC / name).read_text()
