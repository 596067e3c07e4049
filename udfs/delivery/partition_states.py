"""State of rules by Kafka partition: each is a source of its own, in the order of its offsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from udfs.filters.matching.carried import pack, unpack
from udfs.filters.matching.cells import Carried, StatefulMatcher
from udfs.filters.meaning.state import clock_of
from udfs.messages.moldudp64 import Messages
from udfs.messages.specification import Field, Specification


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

    ``carried``: by partition, the state (``udfs.filters.matching.carried.pack``) before its first
    record.
    """

    def __init__(
        self, state: StatefulMatcher, specification: Specification, carried: Mapping[int, bytes]
    ) -> None:
        self._state = state
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

    def leaves(
        self,
        partition: NDArray[np.int32],
        messages: Messages,
        arrived: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int32]:
        """Returns the leaf of each of m messages: int32[m].

        ``partition``: int32[n], of each record, whose offsets rise within a partition; records of
        earlier calls come before. ``messages``: of the records, with columns for the fields of
        the matcher and, if messages have clocks, one more for these. ``arrived``: int64[n],
        microseconds, where there are messages without a clock.
        """
        matcher = self._state.matcher
        values = messages.values[: len(matcher.fields)]
        present = None if messages.present is None else messages.present[: len(matcher.fields)]
        codes = matcher.walk(messages.message_type, values, present)
        # What cannot be read is nobody's, and updates nothing.
        codes[messages.message_reason != 0] = -1
        time = self._time(messages, arrived)
        found = np.unique(partition).tolist()
        if len(found) == 1:
            return self._run(found[0], codes, values, time)
        leaf = np.zeros(len(codes), np.int32)
        source = partition[messages.packet]
        for p in found:
            mine = np.flatnonzero(source == p)
            leaf[mine] = self._run(p, codes[mine], values[:, mine], time[mine])
        return leaf

    def rows(self) -> list[dict[str, Any]]:
        """Returns by partition the state after its last record, as rows of
        `udfs.columns.REPORT`."""
        return [
            {"kind": "state", "partition": partition, "cells": pack(carried)}
            for partition, carried in self._held.items()
            if carried is not None
        ]

    def _run(
        self,
        partition: int,
        codes: NDArray[np.int32],
        values: NDArray[np.uint64],
        time: NDArray[np.int64],
    ) -> NDArray[np.int32]:
        if partition not in self._held:
            before = self._before.get(partition)
            self._held[partition] = None if before is None else unpack(before)
        leaf, self._held[partition] = self._state.run(codes, values, time, self._held[partition])
        return leaf

    def _time(self, messages: Messages, arrived: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """Returns the time of each message, in units of the clock: int64[m]."""
        scale = self._scale[messages.message_type]
        time = np.zeros(len(scale), np.int64)
        if self._clocked:
            # A specification has no clock that needs more than 63 bits in the common unit.
            time = (messages.values[-1] * scale).view(np.int64)
        if self._timed:
            if arrived is None:
                raise ValueError("there are messages without a clock: arrived is missing")
            time = np.where(scale > 0, time, arrived[messages.packet] * self._units)
        return time
