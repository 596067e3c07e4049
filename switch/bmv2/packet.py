"""One frame on its way through a program: its bytes, its fields, and what it asks of the switch."""

from __future__ import annotations


class Packet:
    """A frame and the header and metadata fields that a program has for it.

    Made by `Program.packet`. Bytes:

    ``data``: the frame as it came in; ``payload``: where the parsed headers end in it (0 before
    the parser ran); ``read``: the bytes from the start of the frame that the parser looked at;
    ``ingress_length``: bytes of the frame, what counters count; ``length``: bytes that the frame
    has now, as headers are added and removed.

    ``fields``: one integer a slot (`Program.slots`, `Program.field_slot`).

    What actions ask of the traffic manager, None or 0 if nothing: ``clone``: ``(session, field
    list)``; ``resubmit``, ``recirculate``: number of a field list; ``digest``: number of a list to
    learn; ``truncate``: most bytes to send, or None.

    What a memo of results must know: ``impure``: result or effects depended on more than parsed
    bytes, ingress port and metadata given; ``read_length``: they depended on the frame's length;
    ``counted``: counter cells ``[packets, bytes]`` that were raised, each by one packet and
    ``ingress_length`` bytes.
    """

    __slots__ = (
        "clone",
        "counted",
        "data",
        "digest",
        "fields",
        "impure",
        "ingress_length",
        "ingress_port",
        "length",
        "payload",
        "read",
        "read_length",
        "recirculate",
        "resubmit",
        "truncate",
    )

    def __init__(self, data: bytes, ingress_port: int, fields: list[int]) -> None:
        self.data = data
        self.ingress_port = ingress_port
        self.fields = fields
        self.payload = self.read = 0
        self.ingress_length = self.length = len(data)
        self.clone: tuple[int, int] | None = None
        self.resubmit = self.recirculate = self.digest = 0
        self.truncate: int | None = None
        self.impure = self.read_length = False
        self.counted: list[list[int]] = []

    def copy(self) -> Packet:
        """Another packet with the same bytes and fields that asks nothing of the switch."""
        copy = Packet.__new__(Packet)
        copy.data = self.data
        copy.ingress_port = self.ingress_port
        copy.fields = self.fields[:]
        copy.payload = self.payload
        copy.read = self.read
        copy.ingress_length = self.ingress_length
        copy.length = self.length
        copy.clone = copy.truncate = None
        copy.resubmit = copy.recirculate = copy.digest = 0
        copy.impure = copy.read_length = False
        copy.counted = []
        return copy
