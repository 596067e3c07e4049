"""The multicast group that a switch's program sends a set of ports to, computed as the program
does."""

from udfs.switches.ports import FAN_OUT, SUBSET

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
