"""The sink that tasks hand their frames to; `stackcast.jobs.adapters.wire` has those that there
are."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stackcast.udfs.delivery.plan import Plan
from stackcast.udfs.network.ingresses import Ingresses


class Sink(Protocol):
    """Takes frames out of the process. Used by one thread; all sinks put out the same bytes.

    Any method raises SinkError. After an error some frames may be out; sending them again is
    harmless, since their sequence numbers are the same.
    """

    def send(self, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> int:
        """Send frames ``data[offsets[f]:offsets[f+1]]`` in order; returns how many (all)."""
        ...

    def flush(self) -> None:
        """Return when all frames sent so far are out, as far as the sink can tell."""
        ...

    def close(self) -> None:
        """Release the socket or file; does not flush; may be called again."""
        ...


class Opener(Protocol):
    """Opens sinks. Picklable."""

    def place(self) -> str:
        """Return the place of this process, which table ``ingresses`` refers to."""
        ...

    def way(self, ingresses: Ingresses, publisher: str, switch: str) -> Hashable:
        """Return the way to the link of a publisher, which is attached to ``switch``.

        Equal ways need one sink.

        Raises:
            SinkError: NO_TRANSPORT.
        """
        ...

    def __call__(self, way: Any = None) -> Sink:
        """Returns a sink for a way, by default for that of the only publisher."""
        ...


class EntrySinks:
    """Sends the frames of a plan, each on the way to the link through which it enters the network.

    The sink of a single publisher is open from the start. The sinks of several publishers are
    opened when a frame first needs them. Frames on the same way keep their order.

    Args:
        plan: the plan.
        open_sink: an `Opener`; or any function that returns a sink, if there is a single publisher
            and the plan has no ingresses.
    """

    def __init__(self, plan: Plan, open_sink: Any) -> None:
        self._headers, self._publishers = plan.headers, plan.publishers
        self._ingresses, self._links = plan.ingresses, plan.links
        self._open = open_sink
        self._sinks: dict[Hashable, Sink] = {}
        # By link, the number of its sink in the order of opening; -1 where it is not open.
        self._numbers = np.zeros(0, np.int32)
        if self._publishers is not None:
            self._numbers = np.full(len(self._links), -1, np.int32)
        elif self._ingresses.transports:
            self._sinks[None] = open_sink(self._way(0))
        else:
            self._sinks[None] = open_sink()

    def send(
        self, data: NDArray[np.uint8], offsets: NDArray[np.int64], template: NDArray[np.int32]
    ) -> None:
        """Sends frames; template: int32[f], of each."""
        if self._publishers is None:
            self._sinks[None].send(data, offsets)
            return
        if not template.size:
            return
        entry = self._headers.entry[template]
        number = self._numbers[entry]
        if number.min() < 0:
            for link in np.unique(entry[number < 0]).tolist():
                self._numbers[link] = self._number(link)
            number = self._numbers[entry]
        sinks = list(self._sinks.values())
        if (number == number[0]).all():
            sinks[int(number[0])].send(data, offsets)
            return
        order = np.argsort(number, kind="stable")
        frames = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(number), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        ).take(pa.array(order))
        _, borders, content = frames.buffers()
        sorted_offsets = np.frombuffer(borders, np.int64)[: len(number) + 1]
        sorted_data = np.frombuffer(content, np.uint8)
        begins = np.flatnonzero(np.diff(number[order], prepend=-1))
        for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(number)], strict=True):
            sinks[int(number[order[begin]])].send(sorted_data, sorted_offsets[begin : end + 1])

    def flush(self) -> None:
        """Flushes all sinks."""
        for sink in self._sinks.values():
            sink.flush()

    def close(self) -> None:
        """Closes all sinks."""
        for sink in self._sinks.values():
            sink.close()

    def _number(self, link: int) -> int:
        way = self._way(link)
        if way not in self._sinks:
            self._sinks[way] = self._open(way)
        return list(self._sinks).index(way)

    def _way(self, link: int) -> Any:
        return self._open.way(self._ingresses, *self._links[link])
