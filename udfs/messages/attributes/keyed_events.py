"""Events as hosts get them where switches match: a header, then the key of its place in a topic."""

from __future__ import annotations

import struct

from stackcast.udfs.errors import MessageError
from stackcast.udfs.messages.attributes.events import WIDTHS, Widths
from stackcast.udfs.messages.attributes.reference import read_event
from stackcast.udfs.messages.reference import build_packet

KEY = struct.Struct(">10sQ")
"""Session and sequence number, as in MoldUDP64."""


def packet_of_event(content: bytes, encoding: str, widths: Widths = WIDTHS) -> bytes:
    """Returns an event as the MoldUDP64 packet that the stream would send of it.

    content: what follows Ethernet's header, whose frames may be filled up. The packet has one
    message, the event's header, under the session and number of the key behind it.

    Raises MessageError as `read_event`, and TRUNCATED_EVENT where the key is cut off.
    """
    _, rest = read_event(content, encoding, (1 << widths.bitmask) - 1, len(content), widths)
    header = content[: len(content) - len(rest)]
    if len(rest) < KEY.size:
        what = (
            f"the values are followed by {len(rest)} bytes, but session and sequence number need "
            f"{KEY.size}"
        )
        raise MessageError("TRUNCATED_EVENT", what, offset=len(header))
    session, sequence = KEY.unpack_from(rest)
    return build_packet(session, sequence, [header])
