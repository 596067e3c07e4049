"""Sensors' events as a publisher's feed into switches that match: frames of both encodings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle
from typing import NamedTuple

from lab.proof.attribute_reader import read_json
from lab.proof.receipts import KEY
from lab.traffic.packets import SESSION
from udfs.messages.attributes.encodings import BITMASK_GROUP, ID_PAIRS_GROUP
from udfs.messages.attributes.events import ETHERTYPE
from udfs.messages.attributes.reference import write_event
from udfs.messages.attributes.registry import Registry
from udfs.network.network import Host

GROUPS = {"id_pairs": ID_PAIRS_GROUP, "bitmask": BITMASK_GROUP}
"""Ethernet address that the frames of an encoding go to."""


class Sent(NamedTuple):
    """A frame with the sequence number that is in its key."""

    sequence: int
    frame: bytes


def event_frames(
    records: Iterable[bytes],
    publisher: Host,
    registry: Registry,
    encodings: Sequence[str] = tuple(GROUPS),
    session: bytes = SESSION,
    sequence: int = 1,
) -> Iterator[Sent]:
    """A frame of each JSON record: Ethernet, header (KUNDEL III-B), and a key as payload.

    encodings: which the frames have, in turn. session: ten bytes; the first frame has number
    ``sequence``, every other the next.

    Raises MessageError for a record that is no event.
    """
    source = publisher.mac.to_bytes(6) + ETHERTYPE.to_bytes(2)
    for number, (record, encoding) in enumerate(zip(records, cycle(encodings)), sequence):
        ethernet = GROUPS[encoding].to_bytes(6) + source
        header = write_event(read_json(record, registry), encoding)
        yield Sent(number, ethernet + header + KEY.pack(session, number))
