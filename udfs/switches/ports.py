"""Multicast groups for any set of ports: one for each set within 8 neighbours (WERNECKE 3.3.3).

Ports 1..511 are 64 subsets: 1..8, 9..16 and so on. A group sends to some ports of one subset; its
number is ``subset << 8 | mask`` of the ports within. Where ports of several subsets are wanted,
`FAN_OUT` makes a copy for each subset, which goes through the switch once more and is sent to its
own subset's ports alone. So the groups follow from a switch's ports, and neither trees nor
subscriptions ever change one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.labels import MAX_PORT
from stackcast.udfs.switches.entry import SwitchEntry, group_entry

NARROW_PORTS = 64
"""Ports of a switch whose program has masks of 64 bits: those that match or replicate state."""
SUBSET = 8
"""Ports that one group can send to."""
FAN_OUT = 0x1000
"""The group of one copy a subset; the copy of subset s is of instance s + 1. No set of ports has a
number whose last eight bits are 0."""

_WITHIN = (1 << SUBSET) - 1


def port_mask(ports: Collection[int], most: int = MAX_PORT) -> int:
    """Returns bit p - 1 for each port p. Raises NetworkError ``TOO_MANY_PORTS`` outside
    1..``most``."""
    mask = 0
    for port in ports:
        if not 0 < port <= most:
            raise NetworkError(
                "TOO_MANY_PORTS", f"port {port} is not valid: ports are 1..{most}", port=port
            )
        mask |= 1 << port - 1
    return mask


def port_groups(switch: str, ports: Collection[int]) -> list[SwitchEntry]:
    """Returns all groups that a switch with these ports needs, in ascending order of numbers.

    For each subset with n of the ports its 2**n - 1 groups; `FAN_OUT` if there are several
    subsets, with the lowest port of each. Raises NetworkError ``TOO_MANY_PORTS``.
    """
    mask = port_mask(ports)
    groups: list[SwitchEntry] = []
    lowest: list[tuple[int, int]] = []
    for subset in range(-(-mask.bit_length() // SUBSET)):
        within = mask >> SUBSET * subset & _WITHIN
        for part in _parts(within):
            group = subset << SUBSET | part
            groups.append(group_entry(switch, group, [(p, 0) for p in _ports_of(subset, part)]))
        if within:
            lowest.append((next(_ports_of(subset, within)), subset + 1))
    if len(lowest) > 1:
        groups.append(group_entry(switch, FAN_OUT, lowest))
    return groups


def groups_of(mask: int) -> Iterator[int]:
    """Yield the number of each group that sends a packet to the ports of ``mask``.

    Args:
        mask: bit p - 1 stands for port p.
    """
    subsets = 0
    for subset in range(-(-mask.bit_length() // SUBSET)):
        part = mask >> SUBSET * subset & _WITHIN
        if part:
            subsets += 1
            yield subset << SUBSET | part
    if subsets > 1:
        yield FAN_OUT


def _parts(mask: int) -> Iterator[int]:
    """Yields all sets of bits of ``mask`` but the empty one, in ascending order."""
    part = -mask & mask
    while part:
        yield part
        part = part - mask & mask


def _ports_of(subset: int, within: int) -> Iterator[int]:
    return (SUBSET * subset + bit + 1 for bit in range(SUBSET) if within >> bit & 1)
