"""The way of one frame through ingress, the traffic manager and egress, as often as it asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stackcast.switch.bmv2.flow_cache import CachedRun
from stackcast.switch.bmv2.packet import Packet
from stackcast.switch.bmv2.program import Program
from stackcast.switch.bmv2.state import Replication, SwitchState

DROP_PORT = 511
"""The egress port that means: drop."""

PASS_LIMIT = 1024
"""Runs of ingress, and clones, that one frame may cause. Wrong tables can make it go round for
ever, and BMv2 would let it."""

# Values of instance_type.
_NORMAL, _INGRESS_CLONE, _EGRESS_CLONE, _, _RECIRCULATED, _REPLICATED, _RESUBMITTED = range(7)

# A packet on its way, and its origin: how many bytes at its front were made by earlier passes, and
# where in the frame the rest begins.
_Traveller = tuple[Packet, int, int]


class Walk:
    """One frame's way through the passes, and what it depended on.

    ``span``: on so many bytes from its start; ``by_length``: on its length too; ``impure``: on
    anything else, or with an effect beyond copies and counters.
    """

    __slots__ = ("by_length", "impure", "run", "size", "span", "steps", "waiting")

    def __init__(self, size: int) -> None:
        self.run = CachedRun()
        self.size = size
        self.span = self.steps = 0
        self.by_length = self.impure = False
        self.waiting: list[_Traveller] = []

    def ended(self, packet: Packet) -> None:
        """Take over what is known of a packet with which nothing more happens."""
        if packet.counted:
            grown = packet.ingress_length - self.size
            self.run.counted += [(cell, grown) for cell in packet.counted]
        if packet.impure:
            self.impure = True
        if packet.read_length:
            self.by_length = True


class Passes:
    """Takes frames through a program.

    Parameters
    ----------
    clock: microseconds since the switch was started.
    learn: called with the number of a learn list and the packet that asks for a digest.
    """

    def __init__(
        self,
        program: Program,
        state: SwitchState,
        replication: Replication,
        clock: Callable[[], int],
        learn: Callable[[int, Packet], None],
    ) -> None:
        self._program = program
        self._state = state
        self._replication = replication
        self._clock = clock
        self._learn = learn
        slots = program.slots
        self._packet_length = slots["standard_metadata.packet_length"]
        self._instance_type = slots["standard_metadata.instance_type"]
        self._egress_spec = slots["standard_metadata.egress_spec"]
        self._egress_port = slots["standard_metadata.egress_port"]
        self._ingress_time = slots["intrinsic_metadata.ingress_global_timestamp"]
        self._egress_time = slots["intrinsic_metadata.egress_global_timestamp"]
        self._group = slots["intrinsic_metadata.mcast_grp"]
        self._instance = slots["intrinsic_metadata.egress_rid"]
        self._drop_counters = [
            (name, cells)
            for name, cells in state.counters.items()
            if "drop" in name.rpartition(".")[2]
        ]

    def walk(self, ingress_port: int, frame: bytes) -> Walk:
        """Take one frame to all its ends."""
        walk = Walk(len(frame))
        run = walk.run
        packet = self._program.packet(frame, ingress_port)
        packet.fields[self._ingress_time] = self._clock()
        walk.waiting.append((packet, 0, 0))
        for packet, made, kept in walk.waiting:  # grows meanwhile
            if walk.steps >= PASS_LIMIT:
                run.dropped = "pass_limit"
                break
            walk.steps += 1
            run.passes += 1
            self._ingress(walk, packet, made, kept)
        if not run.copies and not run.dropped:
            run.dropped = self._reason(run)
        return walk

    def _ingress(self, walk: Walk, packet: Packet, made: int, kept: int) -> None:
        state, fields = self._state, packet.fields
        state.parse(packet)
        if packet.read > made:
            walk.span = max(walk.span, kept + packet.read - made)
        state.ingress(packet)
        sent: list[tuple[Packet, int]] = []
        if packet.clone is not None:
            self._clone_ingress(packet, sent)
        if packet.digest:
            self._learn(packet.digest, packet)
        if packet.resubmit:
            again = self._anew(packet, packet.data, packet.resubmit, _RESUBMITTED)
            again.ingress_length = packet.ingress_length
            walk.waiting.append((again, made, kept))
            walk.ended(packet)
        elif group := fields[self._group]:
            fields[self._instance_type] = _REPLICATED
            if copies := self._replication.groups.get(group):
                self._replicate(packet, copies, sent)
            else:
                walk.ended(packet)
        elif fields[self._egress_spec] == DROP_PORT:
            walk.ended(packet)
        else:
            fields[self._instance_type] = _NORMAL
            sent.append((packet, fields[self._egress_spec]))
        for copy, port in sent:  # grows meanwhile
            self._egress(walk, copy, port, made, kept, sent)

    def _egress(
        self,
        walk: Walk,
        packet: Packet,
        port: int,
        made: int,
        kept: int,
        sent: list[tuple[Packet, int]],
    ) -> None:
        state, fields = self._state, packet.fields
        fields[self._egress_port] = port
        fields[self._egress_spec] = 0
        fields[self._packet_length] = packet.length
        fields[self._egress_time] = self._clock()
        state.egress(packet)
        if packet.clone is not None:
            self._clone_egress(walk, packet, sent)
        if fields[self._egress_spec] == DROP_PORT:
            walk.ended(packet)
            return
        data = state.deparse(packet)
        walk.ended(packet)
        # What the parser left of the packet stays as it is, and with it what remains of the frame.
        headers = len(data) - len(packet.data) + packet.payload
        if packet.payload < made:
            made += headers - packet.payload
        else:
            kept += packet.payload - made
            made = headers
        if packet.recirculate:
            again = self._anew(packet, data, packet.recirculate, _RECIRCULATED)
            walk.waiting.append((again, made, kept))
        else:
            walk.run.copies.append((port, data[:made], kept, packet.truncate))

    def _anew(self, packet: Packet, data: bytes, field_list: int, instance_type: int) -> Packet:
        """The packet to begin ingress again with; of metadata only a field list is kept."""
        again = self._program.packet(data, packet.ingress_port)
        self._program.reset_metadata(again)
        self._program.keep(packet, again, field_list)
        again.fields[self._instance_type] = instance_type
        again.fields[self._packet_length] = len(data)
        return again

    def _clone_ingress(self, packet: Packet, sent: list[tuple[Packet, int]]) -> None:
        assert packet.clone is not None
        number, field_list = packet.clone
        packet.clone = None
        session = self._replication.sessions.get(number)
        if session is None or not session.replicas:
            return
        # The packet as ingress got it: parsed again, as its headers have been changed.
        clone = self._program.packet(packet.data, packet.ingress_port)
        clone.ingress_length = packet.ingress_length
        clone.fields[self._packet_length] = 0
        self._state.parse(clone)
        self._become_clone(clone, packet, field_list, _INGRESS_CLONE)
        self._replicate(clone, session.replicas, sent, session.length)

    def _clone_egress(self, walk: Walk, packet: Packet, sent: list[tuple[Packet, int]]) -> None:
        assert packet.clone is not None
        number, field_list = packet.clone
        packet.clone = None
        session = self._replication.sessions.get(number)
        if session is None or not session.replicas:
            return
        walk.steps += 1
        if walk.steps > PASS_LIMIT:
            walk.run.dropped = "pass_limit"
            return
        clone = packet.copy()
        self._become_clone(clone, packet, field_list, _EGRESS_CLONE)
        self._replicate(clone, session.replicas, sent, session.length)

    def _become_clone(self, clone: Packet, packet: Packet, field_list: int, kind: int) -> None:
        self._program.reset_metadata(clone)
        self._program.keep(packet, clone, field_list)
        clone.fields[self._instance_type] = kind

    def _replicate(
        self,
        packet: Packet,
        copies: Iterable[tuple[int, int]],
        sent: list[tuple[Packet, int]],
        length: int | None = None,
    ) -> None:
        """Send a copy to each ``(egress port, instance)``; the packet itself is the last one."""
        *others, (last_port, last_instance) = copies
        for port, instance in others:
            copy = packet.copy()
            copy.fields[self._instance] = instance
            copy.truncate = length
            sent.append((copy, port))
        packet.fields[self._instance] = last_instance
        packet.resubmit = packet.recirculate = packet.digest = 0
        packet.truncate = length
        sent.append((packet, last_port))

    def _reason(self, run: CachedRun) -> str:
        for counted, _ in reversed(run.counted):
            for name, cells in self._drop_counters:
                for index, cell in cells.items():
                    if cell is counted:
                        return f"{name}[{index}]"
        return "dropped_by_program"
