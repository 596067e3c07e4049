"""State of rules by Kafka partition: each is a source of its own, in the order of its offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.filters.matching.carried import pack, unpack
from stackcast.udfs.filters.matching.cells import Carried, Stateful
from stackcast.udfs.filters.meaning.state import clock_of
from stackcast.udfs.messages.moldudp64 import Messages
from stackcast.udfs.messages.specification import Field, Specification


def clocks(specification: Specification) -> tuple[Field, ...]:
    """Returns the clock fields of messages, one of each message type that has one."""
    found = (
        specification.clock(h.name) for h in specification.headers if h.message_type is not None
    )
    return tuple(field for field in found if field is not None)


def needs_arrival(specification: Specification) -> bool:
    """Returns True if there are messages without a clock: their time is then that of their
    record."""
    typed = [header for header in specification.headers if header.message_type is not None]
    # Without types all messages are alike, and none of their fields is a clock.
    return len(clocks(specification)) < max(1, len(typed))


class PartitionStates:
    """Matches the partitions that one task takes, and keeps the state of each.

    columns: rows of the messages' values that ``state`` takes. carried: by partition, the state
    (``stackcast.udfs.filters.matching.carried.pack``) before its first record.
    """

    def __init__(
        self,
        state: Stateful,
        columns: Sequence[int],
        specification: Specification,
        carried: Mapping[int, bytes],
    ) -> None:
        self._state = state
        self._columns = list(columns)
        self._before = carried
        self._held: dict[int, Carried | None] = {}
        clock = clock_of(specification)
        self._units = clock.units
        self._timed = needs_arrival(specification)
        self._clocked = bool(clocks(specification))
        self._scale = np.zeros(256, np.uint64)
        for field in clocks(specification):
            header = next(h for h in specification.headers if h.name == field.header)
            self._scale[header.message_type] = clock.units // field.clock

    def match(
        self,
        partition: NDArray[np.int32],
        messages: Messages,
        arrived: NDArray[np.int64] | None = None,
    ) -> NDArray[Any]:
        """Returns what each of m messages comes to, as ``Stateful.match`` does: m rows.

        ``partition``: int32[n], of each record, whose offsets rise within a partition; records of
        earlier calls come before. ``messages``: of the records, with columns for the fields of
        the state and, if messages have clocks, one more for these. ``arrived``: int64[n],
        microseconds, where there are messages without a clock.
        """
        kinds, unread = messages.message_type, messages.message_reason != 0
        values, present = messages.values[self._columns], messages.present
        if present is not None:
            present = present[self._columns]
        time = self._time(messages, arrived)
        found = np.unique(partition).tolist()
        if not found:
            return self._state.match(kinds, values, present, unread, time, None)[0]
        if len(found) == 1:
            return self._run(found[0], kinds, values, present, unread, time)
        source = partition[messages.packet]
        parts = [np.flatnonzero(source == p) for p in found]
        results = [
            self._run(
                p,
                kinds[mine],
                values[:, mine],
                None if present is None else present[:, mine],
                unread[mine],
                time[mine],
            )
            for p, mine in zip(found, parts, strict=True)
        ]
        joined = np.concatenate(results)
        joined[np.concatenate(parts)] = joined.copy()
        return joined

    def rows(self) -> list[dict[str, Any]]:
        """Returns by partition the state after its last record, as rows of
        `stackcast.udfs.delivery.deliver.REPORT`."""
        return [
            {"kind": "state", "partition": partition, "cells": pack(carried)}
            for partition, carried in self._held.items()
            if carried is not None
        ]

    def _run(
        self,
        partition: int,
        message_type: NDArray[np.uint8],
        values: NDArray[np.uint64],
        present: NDArray[np.bool_] | None,
        unread: NDArray[np.bool_],
        time: NDArray[np.int64],
    ) -> NDArray[Any]:
        if partition not in self._held:
            before = self._before.get(partition)
            self._held[partition] = None if before is None else unpack(before)
        found, self._held[partition] = self._state.match(
            message_type, values, present, unread, time, self._held[partition]
        )
        return found

    def _time(self, messages: Messages, arrived: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """Returns the time of each message, in units of the clock: int64[m]."""
        scale = self._scale[messages.message_type]
        time = np.zeros(len(scale), np.int64)
        if self._clocked:
            # A specification has no clock that needs more than 63 bits in the common unit.
            time = (messages.values[-1] * scale).view(np.int64)
        if self._timed:
            if arrived is None:
                raise ValueError("some messages have no clock field, so arrived is required")
            time = np.where(scale > 0, time, arrived[messages.packet] * self._units)
        return time
