"""The multicast group that a switch's program sends a set of ports to, computed as the program
does; and switches whose ports are all open."""

from collections.abc import Collection, Iterable

from udfs.switches.entry import SwitchEntry
from udfs.switches.ports import FAN_OUT, NARROW_PORTS, SUBSET, port_groups
from udfs.switches.sources import trusted_ports

_WITHIN = (1 << SUBSET) - 1


def group_of(mask: int) -> int | None:
    """Returns the group that sends to the ports of ``mask`` (bit p - 1 is port p); None for no
    port.

    `FAN_OUT` where they are of several subsets.
    """
    if not mask:
        return None
    subset = ((mask & -mask).bit_length() - 1) // SUBSET
    within = mask >> SUBSET * subset
    return FAN_OUT if within > _WITHIN else subset << SUBSET | within


#: Ports that tests let frames come in by: all that our programs send to, and some beyond.
OPEN = (*range(NARROW_PORTS + 1), 100, 257, 300, 511)


def open_ports(
    switch: str, ports: Collection[int], entered: Iterable[int] = range(1, NARROW_PORTS + 1)
) -> list[SwitchEntry]:
    """The groups of these ports, and entries that take everything from those ``entered``."""
    return [*port_groups(switch, ports), *trusted_ports(switch, entered)]
