"""A BMv2 JSON compiled into Python functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lab.bmv2.packet import Packet
from lab.bmv2.state import State


@dataclass
class Program:
    """A compiled program; see `load_program`. Tables and registers are in a `State`.

    ``slots``: index in `Packet.fields` of each field that the switch itself reads or writes
    (``standard_metadata.egress_spec``, ``intrinsic_metadata.mcast_grp``, ...; all of `INTRINSIC`
    are there, those that the program lacks at slots of their own that nobody else uses).
    ``field_lists``: slots by number of a field list. ``covered``: with ``coverage=True`` the keys of
    ``coverage_points`` that ran.
    """

    source: str = ""
    slots: Mapping[str, int] = field(default_factory=dict)
    field_lists: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    metadata_slots: tuple[int, ...] = ()
    coverage_points: dict[int, str] = field(default_factory=dict)
    covered: set[int] = field(default_factory=set)

    def packet(self, data: bytes, ingress_port: int) -> Packet:
        """A packet as it comes in: metadata 0 but ``ingress_port`` and ``packet_length``."""
        raise NotImplementedError

    def reset_metadata(self, packet: Packet) -> None:
        """Set all metadata to 0, as for a copy that begins anew."""
        raise NotImplementedError

    def keep(self, source: Packet, target: Packet, field_list: int) -> None:
        """Copy the fields of a field list from packet to packet."""
        raise NotImplementedError

    def new_state(self) -> State:
        """Empty tables (but const entries), registers and counters at 0."""
        raise NotImplementedError

    # The same as methods of State (state.parse(packet), ...), which save a call.
    def parse(self, packet: Packet, state: State) -> None:
        """Fill the fields from ``packet.data``; sets ``parser_error`` and ``checksum_error``."""
        state.parse(packet)

    def ingress(self, packet: Packet, state: State) -> None:
        """Run the ingress pipeline."""
        state.ingress(packet)

    def egress(self, packet: Packet, state: State) -> None:
        """Run the egress pipeline."""
        state.egress(packet)

    def deparse(self, packet: Packet, state: State) -> bytes:
        """Update checksums; the frame as it leaves: valid headers, then the payload."""
        return state.deparse(packet)


def load_program(config: bytes, *, coverage: bool = False) -> Program:
    """Compile a BMv2 JSON. Raises SwitchError ``WRONG_PROGRAM`` naming the part that cannot run."""
    raise NotImplementedError
