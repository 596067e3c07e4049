"""Records of attributes in JSON, and scapy layers of attribute headers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scapy.fields import (
    ByteField,
    FieldListField,
    IntField,
    PacketListField,
    XIntField,
)
from scapy.layers.l2 import Ether
from scapy.packet import Packet, bind_bottom_up, bind_layers

from stackcast.udfs.messages.attributes.events import LONGEST_JSON, Events
from stackcast.udfs.messages.attributes.json_events import JsonReader
from stackcast.udfs.messages.attributes.registry import Registry


def columns_of(records: Iterable[bytes]) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Records as readers take them: offsets and bytes."""
    held = list(records)
    return np.cumsum([0, *map(len, held)]), np.frombuffer(b"".join(held), np.uint8)


def read_records(
    records: Iterable[bytes], registry: Registry, longest: int = LONGEST_JSON
) -> Events:
    return JsonReader(registry, longest).read(*columns_of(records))


def arrow_of(records: Iterable[bytes]) -> pa.RecordBatch:
    """Records as Spark hands them to a task, of partition 0 and from offset 0 on."""
    value = pa.array(records, pa.binary())
    partition, offset = np.zeros(len(value), np.int32), np.arange(len(value))
    return pa.record_batch({"partition": partition, "offset": offset, "value": value})


ETHERTYPE = 0x9001
ID_PAIRS_GROUP = "03:53:43:00:00:01"
BITMASK_GROUP = "03:53:43:00:00:02"


class Value(Packet):
    """A value, and the id of the attribute after it."""

    fields_desc: ClassVar = [IntField("value", 0), ByteField("next_id", 0)]

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes]:
        return b"", s


def _more(_packet: Packet, _values: list[Packet], last: Packet | None, _rest: bytes):
    return Value if last is None or last.next_id else None


class IdPairs(Packet):
    """Fig. 3: the first id, then values until one of them is followed by id 0."""

    fields_desc: ClassVar = [
        ByteField("first_id", 0),
        PacketListField("values", [], next_cls_cb=_more),
    ]

    @property
    def by_id(self) -> dict[int, int]:
        ids = [self.first_id, *(one.next_id for one in self.values)]
        return {number: one.value for number, one in zip(ids, self.values, strict=False)}


class Bitmask(Packet):
    """Fig. 4: a bit for each attribute, then the values of those whose bit is set."""

    fields_desc: ClassVar = [
        XIntField("mask", 0),
        FieldListField(
            "values", [], IntField("", 0), count_from=lambda packet: packet.mask.bit_count()
        ),
    ]

    @property
    def by_id(self) -> dict[int, int]:
        ids = [number for number in range(32) if self.mask >> number & 1]
        return dict(zip(ids, self.values, strict=True))


# scapy takes the first that fits.
bind_layers(Ether, Bitmask, type=ETHERTYPE, dst=BITMASK_GROUP)
bind_layers(Ether, IdPairs, type=ETHERTYPE, dst=ID_PAIRS_GROUP)
bind_bottom_up(Ether, IdPairs, type=ETHERTYPE)

LAYERS = {"id_pairs": IdPairs, "bitmask": Bitmask}


def layer(values: Mapping[int, int], encoding: str) -> Packet:
    """The layer of an event, by raw values by id."""
    ids = sorted(values)
    if encoding == "bitmask":
        return Bitmask(mask=sum(1 << i for i in ids), values=[values[i] for i in ids])
    following = [*ids[1:], 0]
    links = [Value(value=values[i], next_id=n) for i, n in zip(ids, following, strict=True)]
    return IdPairs(first_id=ids[0], values=links)


def chain(pairs: Sequence[tuple[int, int]], payload: bytes = b"") -> bytes:
    """Id pairs with any ids in any order, ended by id 0."""
    following = [number for number, _ in pairs[1:]] + [0]
    links = (v.to_bytes(4) + bytes([n]) for (_, v), n in zip(pairs, following, strict=True))
    return bytes([pairs[0][0]]) + b"".join(links) + payload
