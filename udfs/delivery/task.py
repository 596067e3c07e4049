"""The work of one task of a micro-batch: records in, frames and a report of them out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from udfs.delivery.frame_headers import StacksHandle
from udfs.delivery.partition_states import PartitionStates, needs_arrival
from udfs.delivery.plan import Plan
from udfs.delivery.receiver_summaries import ReceiverSummaries
from udfs.errors import StreamError
from udfs.messages.moldudp64 import END_OF_SESSION, HEARTBEAT
from udfs.messages.readers import OUTSIDE, REASONS, Read
from udfs.messages.sequence import MAX_OFFSET, session_id
from udfs.stacks.frame import DATAGRAM, Frames, build_frames

SAMPLE_BYTES = 256


class Task:
    """Turns batches of records into frames, and counts both.

    Batches are of columns partition (int32), offset (int64), value (binary), and timestamp where
    `udfs.delivery.partition_states.needs_arrival` says so. Parameters as of `udfs.columns.deliver`.
    """

    def __init__(
        self,
        plan: Plan,
        header_stacks: StacksHandle,
        topic: str,
        samples: int,
        carried: Mapping[int, bytes],
        since: Mapping[int, int] | None = None,
    ) -> None:
        self._plan = plan
        self._header_stacks = header_stacks
        self._topic = topic
        self._samples = samples
        self._counts = np.zeros((3, 0), dtype=np.int64)  # frames, messages, bytes by template
        self._partitions: dict[int, dict[str, Any]] = {}
        self._reasons: Counter[str] = Counter()
        self._dead_letters: list[dict[str, Any]] = []
        self._sessions: dict[int, NDArray[np.uint8]] = {}
        self._since = since or {}
        self._summaries: ReceiverSummaries | None = None
        if plan.summaries is not None:
            self._summaries = ReceiverSummaries(plan.summaries, plan.headers, header_stacks)
        self._states: PartitionStates | None = None
        if plan.state is not None:
            self._states = PartitionStates(
                plan.state, plan.state_columns, plan.specification, carried
            )

    def add(self, batch: pa.RecordBatch) -> Frames:
        """Decodes, matches, frames and counts one batch of records."""
        partition = batch.column("partition").to_numpy()
        offset = batch.column("offset").to_numpy()
        if offset.size and int(offset.max()) > MAX_OFFSET:
            raise StreamError(
                "OFFSETS_USED_UP",
                f"topic {self._topic} has offset {int(offset.max())}, and sequence numbers hold "
                f"offsets up to {MAX_OFFSET}: publish to a topic of another name",
                offset=int(offset.max()),
            )
        plan = self._plan
        read = plan.reader.read(batch)
        messages = read.messages
        outside = plan.outside(messages)
        if outside is not None:
            messages.message_reason[outside & (messages.message_reason == 0)] = OUTSIDE
        found = None
        if self._states is not None:
            arrived = _arrived(batch) if needs_arrival(plan.specification) else None
            found = self._states.match(partition, messages, arrived)
        delivery = plan.deliveries(messages, found)
        frames = build_frames(
            plan.headers.templates_for(delivery, self._header_stacks),
            delivery,
            messages,
            read.content,
            sequence_base=offset,
            sessions=self._session_of(partition),
            mtu=plan.mtu,
        )
        self._count(partition, offset, read, delivery, frames)
        self._dead_letter(partition, offset, read)
        return frames

    def summaries(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]] | None:
        """Returns the frames of the summaries for hosts as bytes and borders; None without
        summaries.

        A range begins at the end of the one of ``since``, so that there is no gap between them
        where offsets have one.
        """
        if self._summaries is None or not self._partitions:
            return None
        offsets = {
            p: (self._since.get(p, counts["from_offset"]), counts["until_offset"])
            for p, counts in self._partitions.items()
        }
        return self._summaries.frames(offsets, self._sessions)

    def rows(self) -> list[dict[str, Any]]:
        """Returns the report, as rows of :data:`udfs.columns.REPORT`: `totals` and `templates`."""
        templates = self.templates()
        names = list(templates)
        columns = (templates[name].to_pylist() for name in names)
        return self.totals() + [
            {"kind": "template"} | dict(zip(names, row, strict=True))
            for row in zip(*columns, strict=True)
        ]

    def totals(self) -> list[dict[str, Any]]:
        """Returns the rows of the report but those of kind ``template``."""
        rows = [{"kind": "partition", "partition": p, **c} for p, c in self._partitions.items()]
        rows += [{"kind": "reason", "reason": r, "count": n} for r, n in self._reasons.items()]
        if self._states is not None:
            rows += self._states.rows()
        return rows + self._dead_letters

    def templates(self) -> dict[str, pa.Array]:
        """Returns the rows of kind ``template`` as columns: a Python step for each row would cost
        as much as sending, where there are thousands of receiver sets."""
        headers = self._plan.headers
        templates = headers.templates
        used = np.flatnonzero(self._counts[0])
        frames, messages, size = self._counts[:, used]
        delivery = templates.leaf[used]
        header = np.diff(templates.start)[used] - DATAGRAM
        receivers = [None] * int(np.searchsorted(used, headers.shipped)) + [
            headers.receivers(template) for template in used[used >= headers.shipped].tolist()
        ]
        met = [None] * int(np.searchsorted(used, headers.shipped)) + [
            headers.met(template) for template in used[used >= headers.shipped].tolist()
        ]
        return {
            "delivery": pa.array(delivery.astype(np.int32)),
            "part": pa.array((used - templates.first[delivery]).astype(np.int32)),
            "receivers": pa.array(receivers, pa.list_(pa.string())),
            "receiver_set": pa.array(met, pa.list_(pa.string())),
            "frames": pa.array(frames),
            "messages": pa.array(messages),
            "bytes": pa.array(size),
            "datagram_bytes": pa.array(size - frames * header),
        }

    def _session_of(self, partition: NDArray[np.int32]) -> NDArray[np.uint8]:
        """Returns the session of every record, uint8[n, 10]."""
        known, inverse = np.unique(partition, return_inverse=True)
        for p in known.tolist():
            if p not in self._sessions:
                session = session_id(self._topic, p)
                self._sessions[p] = np.frombuffer(session, dtype=np.uint8)
        table = np.array([self._sessions[p] for p in known.tolist()], dtype=np.uint8)
        return table.reshape(-1, 10)[inverse]

    def _count(
        self,
        partition: NDArray[np.int32],
        offset: NDArray[np.int64],
        read: Read,
        delivery: NDArray[np.int32],
        frames: Frames,
    ) -> None:
        messages, size = read.messages, np.diff(frames.offsets)
        new = self._plan.headers.templates.templates - self._counts.shape[1]
        if new:
            self._counts = np.pad(self._counts, ((0, 0), (0, new)))
        for row, values in enumerate((None, frames.messages, size)):
            self._counts[row] += np.bincount(
                frames.template, weights=values, minlength=self._counts.shape[1]
            ).astype(np.int64)
        present = np.unique(partition).tolist()
        message_partition = frame_partition = partition
        if len(present) > 1:
            message_partition = partition[messages.packet]
            frame_partition = partition[frames.packet]
        for p in present:
            # A task has one partition nearly always: nothing is to be chosen then.
            alone = len(present) == 1
            mine = offset if alone else offset[partition == p]
            of_frames = slice(None) if alone else frame_partition == p
            of_messages = slice(None) if alone else message_partition == p
            total = self._partitions.setdefault(
                p,
                {
                    "from_offset": int(mine.min()),
                    "until_offset": 0,
                    "first_sequence": None,
                    "last_sequence": None,
                    "packets": 0,
                    "read_bytes": 0,
                    "messages": 0,
                    "matched": 0,
                    "frames": 0,
                    "bytes": 0,
                },
            )
            total["from_offset"] = min(total["from_offset"], int(mine.min()))
            total["until_offset"] = max(total["until_offset"], int(mine.max()) + 1)
            total["packets"] += len(mine)
            records = np.diff(read.offsets)
            total["read_bytes"] += int((records if alone else records[partition == p]).sum())
            total["messages"] += len(delivery[of_messages])
            total["matched"] += int(np.count_nonzero(delivery[of_messages]))
            total["bytes"] += int(size[of_frames].sum())
            sequences = frames.sequence[of_frames]
            total["frames"] += len(sequences)
            if len(sequences):
                if total["first_sequence"] is None:
                    total["first_sequence"] = int(sequences[0])
                total["last_sequence"] = int(sequences[-1])
            if self._summaries is not None:
                self._summaries.add(p, frames, None if alone else frame_partition == p)

    def _dead_letter(
        self,
        partition: NDArray[np.int32],
        offset: NDArray[np.int64],
        read: Read,
    ) -> None:
        """Counts records and messages that could not be read, and keeps samples of them."""
        messages, starts = read.messages, read.offsets
        reason = messages.packet_reason
        counts = np.bincount(reason, minlength=256)
        counts += np.bincount(messages.message_reason, minlength=256)
        for code, name in REASONS.items():
            if counts[code]:
                self._reasons[name] += int(counts[code])
        # A topic of nothing but noise must not cost a Python step a record.
        bad = (reason != 0) & (reason != HEARTBEAT) & (reason != END_OF_SESSION)
        for record in np.flatnonzero(bad)[: self._samples_left()].tolist():
            self._keep(
                REASONS[int(reason[record])],
                int(partition[record]),
                int(offset[record]),
                None,
                read.data[int(starts[record]) : int(starts[record + 1])],
            )
        for message in np.flatnonzero(messages.message_reason)[: self._samples_left()].tolist():
            record = int(messages.packet[message])
            start = int(messages.start[message])
            self._keep(
                REASONS[int(messages.message_reason[message])],
                int(partition[record]),
                int(offset[record]),
                int(messages.index[message]),
                read.content[start : start + int(messages.length[message])],
            )

    def _samples_left(self) -> int:
        """Returns how many more dead letters may be kept."""
        return max(0, self._samples - len(self._dead_letters))

    def _keep(
        self,
        reason: str,
        partition: int,
        offset: int,
        index: int | None,
        content: NDArray[np.uint8],
    ) -> None:
        self._dead_letters.append(
            {
                "kind": "sample",
                "partition": partition,
                "from_offset": offset,
                "message_index": index,
                "reason": reason,
                "length": len(content),
                "sample": content[:SAMPLE_BYTES].tobytes(),
            }
        )


def _arrived(batch: pa.RecordBatch) -> NDArray[np.int64]:
    """Returns the time of each record, microseconds since 1970."""
    times = batch.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    return np.asarray(times.fill_null(0))
