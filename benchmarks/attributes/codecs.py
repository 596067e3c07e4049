"""Frames a second of both codecs, both ways, against ``struct`` in plain Python and scapy."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from attribute_records import columns_of, read_records
from numpy.typing import NDArray
from scapy.layers.l2 import Ether
from scapy_layers import EVENT_LAYERS

from benchmarks.support.measuring import Reporter
from stackcast.lab.traffic.sensors import events as sensor_events
from stackcast.lab.traffic.sensors import registry
from stackcast.udfs.messages.attributes.encodings import ENCODINGS
from stackcast.udfs.messages.attributes.events import Events
from stackcast.udfs.messages.attributes.frames import events_of_frames, frames
from stackcast.udfs.messages.attributes.json_events import JsonReader
from stackcast.udfs.messages.attributes.reference import read_event, write_event

EVENTS = 16_384
FOR_SCAPY = 256
LONGEST = 1 << 16
SOURCE = 0x020000000001
ETHERNET = 14


@dataclass(frozen=True)
class EncodedEvents:
    """Events of the lab's sensors: as JSON, as columns, and each as raw values by id."""

    lines: list[bytes]
    events: Events
    values: list[dict[int, int]]

    @classmethod
    def make(cls, count: int = EVENTS) -> EncodedEvents:
        lines = list(sensor_events(count, seed=1))
        read = read_records(lines, registry())
        assert not read.reason.any()
        columns, masks = read.values.T.tolist(), read.mask.tolist()
        values = [
            {number: raw for number, raw in enumerate(row) if mask >> number & 1}
            for row, mask in zip(columns, masks, strict=True)
        ]
        return cls(lines, read, values)


def codecs() -> None:
    """Prints each codec's speed both ways, and that of reading JSON."""
    batch = EncodedEvents.make()
    count = len(batch.lines)
    mean = sum(map(len, batch.values)) / count
    say = Reporter(events=count, attributes_an_event=round(mean, 2))
    for encoding in ENCODINGS:
        _encode(say, batch, encoding)
        _decode(say, batch, encoding)
    reader, columns = JsonReader(registry()), columns_of(batch.lines)
    loop = "read JSON, json.loads"
    say(loop, lambda: [json.loads(line) for line in batch.lines], count)
    say("read JSON", lambda: reader.read(*columns), count, loop)


def _encode(say: Reporter, batch: EncodedEvents, encoding: str) -> None:
    head = ENCODINGS[encoding].group.to_bytes(6) + SOURCE.to_bytes(6) + b"\x90\x01"
    nothing = np.zeros(0, np.uint8)

    def ours() -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        return frames(*ENCODINGS[encoding].encode(batch.events, nothing), encoding, SOURCE)

    def plain() -> list[bytes]:
        return [head + write_event(values, encoding) for values in batch.values]

    def scapy() -> list[bytes]:
        return [
            bytes(Ether(dst=head[:6], src=head[6:12]) / EVENT_LAYERS[encoding].of(values))
            for values in batch.values[:FOR_SCAPY]
        ]

    made = b"".join(plain())
    assert ours()[1].tobytes() == made
    assert made.startswith(b"".join(scapy()))
    _say(say, f"encode {encoding}", ours, plain, scapy, len(batch.lines))


def _decode(say: Reporter, batch: EncodedEvents, encoding: str) -> None:
    offsets, data = frames(
        *ENCODINGS[encoding].encode(batch.events, np.zeros(0, np.uint8)), encoding, SOURCE
    )
    content, borders = data.tobytes(), offsets.tolist()
    packets = [content[a:b] for a, b in pairwise(borders)]
    known = registry().known

    def ours() -> Events:
        return events_of_frames(offsets, data, known, LONGEST)[1]

    def plain() -> list[dict[int, int]]:
        return [read_event(one[ETHERNET:], encoding, known, LONGEST)[0] for one in packets]

    def scapy() -> list[dict[int, int]]:
        return [Ether(one)[EVENT_LAYERS[encoding]].by_id for one in packets[:FOR_SCAPY]]

    assert np.array_equal(ours().values, batch.events.values)
    assert plain() == batch.values
    assert scapy() == batch.values[:FOR_SCAPY]
    _say(say, f"decode {encoding}", ours, plain, scapy, len(packets))


def _say(say: Reporter, name: str, ours: Any, plain: Any, scapy: Any, count: int) -> None:
    say(name, ours, count)
    say(f"{name}, struct", plain, count, name, runs=5)
    say(f"{name}, scapy", scapy, FOR_SCAPY, name, runs=5)
