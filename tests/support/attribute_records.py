"""Records of attributes, in JSON and as id pairs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

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


def chain(pairs: Sequence[tuple[int, int]], payload: bytes = b"") -> bytes:
    """Id pairs with any ids in any order, ended by id 0."""
    following = [number for number, _ in pairs[1:]] + [0]
    links = (v.to_bytes(4) + bytes([n]) for (_, v), n in zip(pairs, following, strict=True))
    return bytes([pairs[0][0]]) + b"".join(links) + payload
