"""The work of one task of a micro-batch: records in, frames and a report of them out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stackcast.udfs.delivery.counts import Counts
from stackcast.udfs.delivery.frame_headers import StacksHandle
from stackcast.udfs.delivery.partition_states import PartitionStates
from stackcast.udfs.delivery.plan import Plan
from stackcast.udfs.delivery.receiver_summaries import ReceiverSummaries
from stackcast.udfs.delivery.summary_progress import SummaryAssignment, SummaryChannel
from stackcast.udfs.messages.attributes.events import LONGEST_JSON
from stackcast.udfs.messages.buffers import Batch
from stackcast.udfs.messages.moldudp64 import END_OF_SESSION, HEARTBEAT, Messages
from stackcast.udfs.messages.readers import REASONS
from stackcast.udfs.messages.sequence import Topic
from stackcast.udfs.stacks.frame import DATAGRAM, Frames, MessagePositions, build_frames
from stackcast.udfs.trees.header_stacks import Receivers

SAMPLE_BYTES = 256


class Task:
    """Turns batches of records into frames, and counts both.

    Batches have times where `stackcast.udfs.delivery.partition_states.needs_arrival` says so.

    Args:
        plan, header_stacks, topic, samples: see `stackcast.udfs.delivery.deliver.deliver`.
        carried: state of rules before the task, by partition.
        channel: connection to the source of the records; by default, all hosts get summaries.
        ingress: host of the plan's ingresses by whose link all frames enter the network; by default
            each frame enters by the link of its publisher.
    """

    def __init__(
        self,
        plan: Plan,
        header_stacks: StacksHandle,
        topic: Topic,
        samples: int,
        carried: Mapping[int, bytes],
        channel: SummaryChannel | None = None,
        ingress: str = "",
    ) -> None:
        self._plan = plan
        self._ingress = ingress
        publishers = plan.publishers
        self._first_sender = 0 if publishers is None else publishers.first_sender(ingress)
        self._header_stacks = header_stacks
        self._samples = samples
        self._counts = Counts(topic, digests=plan.summaries is not None)
        self._reasons: Counter[str] = Counter()
        self._dead_letters: list[dict[str, Any]] = []
        # Records that are dead as a whole, and of these how many begin with each byte.
        self._dead_records = 0
        self._first_bytes = np.zeros(256, np.int64)
        self._summaries: ReceiverSummaries | None = None
        if plan.summaries is not None:
            self._summaries = ReceiverSummaries(
                *(plan, plan.summaries, header_stacks, self._counts),
                *(channel or SummaryChannel(SummaryAssignment({})), self._first_sender),
            )
        self._states: PartitionStates | None = None
        if plan.state is not None:
            self._states = PartitionStates(
                plan.state, plan.state_columns, plan.specification, carried
            )

    def add(self, batch: Batch | pa.RecordBatch) -> Frames:
        """Decodes, matches, frames and counts one batch of records; Arrow's as of `Batch.of_arrow`.

        Where switches match, a frame is what one host should have of a packet.

        Raises StreamError OFFSETS_EXHAUSTED.
        """
        if isinstance(batch, pa.RecordBatch):
            batch = Batch.of_arrow(batch)
        rows = self._counts.rows(batch.partition)
        plan = self._plan
        content = batch.content
        if (matched := plan.matched(batch)) is not None:
            messages, route = matched
            if plan.publishers is not None:
                route = plan.routes.numbers(np.full_like(route, self._first_sender), route)
        else:
            messages, content, route = self._read(batch)
        framed = route
        positions: MessagePositions = messages
        if plan.host_packets is not None:
            framed, positions = plan.host_packets.split(route, messages)
        sessions = self._counts.sessions
        frames = build_frames(
            plan.headers.templates_for(framed, self._header_stacks),
            framed,
            positions,
            content,
            sequence_base=batch.offset,
            sessions=sessions if len(sessions) == 1 else sessions[rows],
            mtu=plan.mtu,
        )
        templates = plan.headers.templates.templates
        self._counts.add(rows, batch, messages, route, frames, templates)
        if np.count_nonzero(messages.packet_reason) or np.count_nonzero(messages.message_reason):
            self._dead_letter(batch, messages, content)
        return frames

    def _read(self, batch: Batch) -> tuple[Messages, NDArray[np.uint8], NDArray[np.int32]]:
        """Returns all messages of a batch, the bytes that they are in, and the route of each."""
        plan = self._plan
        messages, content = plan.reader.read(batch)
        messages, senders = plan.senders.of(batch, messages)
        found = None
        if self._states is not None:
            found = self._states.match(batch.partition, messages, batch.time)
        route = plan.deliveries(messages, found)
        if senders is not None:
            senders = np.where(senders < 0, senders, senders + self._first_sender)
            route = plan.routes.numbers(senders, route)
        return messages, content, route

    def summaries(
        self,
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int32]] | None:
        """Returns the frames of the summaries for hosts as bytes, borders and templates; None
        without summaries."""
        return None if self._summaries is None else self._summaries.frames()

    def rows(self) -> list[dict[str, Any]]:
        """Return the report as rows of `stackcast.udfs.delivery.deliver.REPORT`."""
        templates = self.templates()
        names = list(templates)
        columns = (templates[name].to_pylist() for name in names)
        return self.totals() + [
            {"kind": "template"} | dict(zip(names, row, strict=True))
            for row in zip(*columns, strict=True)
        ]

    def totals(self) -> list[dict[str, Any]]:
        """Returns the rows of the report but those of kind ``template``."""
        told = {"sender": self._ingress} if self._ingress else {}
        rows = [
            {"kind": "partition", "partition": p, **c, **told} for p, c in self._counts.totals()
        ]
        rows += [{"kind": "reason", "reason": r, "count": n} for r, n in self._reasons.items()]
        if self._dead_records:
            first = int(self._first_bytes.argmax())
            most = {"length": int(self._first_bytes[first]), "sample": bytes([first])}
            rows.append({"kind": "dead", "count": self._dead_records, **most})
        if self._states is not None:
            rows += self._states.rows()
        if self._summaries is not None:
            rows += [
                {
                    "kind": "summaries",
                    "partition": partition,
                    "progress": json.dumps(progress.packed()),
                }
                for partition, progress in self._summaries.progress.items()
            ]
        return rows + self._dead_letters

    def templates(self) -> dict[str, pa.Array]:
        """Returns the rows of kind ``template`` as columns: a Python step for each row would cost
        as much as sending, where there are thousands of receiver sets."""
        headers = self._plan.headers
        templates = headers.templates
        counts = self._counts.by_template.sum(axis=0)
        used = np.flatnonzero(counts[:, 0])
        frames, messages, size = counts[used].T
        route = templates.leaf[used]
        header = np.diff(templates.start)[used] - DATAGRAM
        publisher, delivery = self._plan.routes.pairs(route)
        shipped = [None] * int(np.searchsorted(used, headers.shipped))
        later = used[used >= headers.shipped].tolist()
        receivers: list[Receivers | None]
        if self._plan.publishers is None:
            sender = pa.nulls(len(used), pa.int32())
            receivers = [headers.receivers(template) for template in later]
            met = [headers.met(template) for template in later]
        else:
            # Who plans knows the set by its delivery, unless it was met here.
            sender = pa.array(publisher)
            receivers = [headers.part(template) for template in later]
            planned = delivery < self._plan.routes.planned
            met = [
                None if known else headers.met(template)
                for template, known in zip(later, planned.tolist(), strict=True)
            ]
        return {
            "publisher": sender,
            "delivery": pa.array(delivery),
            "part": pa.array((used - templates.first[route]).astype(np.int32)),
            "receivers": pa.array([*shipped, *receivers], pa.list_(pa.string())),
            "receiver_set": pa.array([*shipped, *met], pa.list_(pa.string())),
            "frames": pa.array(frames),
            "messages": pa.array(messages),
            "bytes": pa.array(size),
            "datagram_bytes": pa.array(size - frames * header),
        }

    def _dead_letter(self, batch: Batch, messages: Messages, content: NDArray[np.uint8]) -> None:
        """Counts records and messages that could not be read, and keeps samples of them."""
        reason = messages.packet_reason
        counts = np.bincount(reason, minlength=256)
        counts += np.bincount(messages.message_reason, minlength=256)
        for code, name in REASONS.items():
            if counts[code]:
                self._reasons[name] += int(counts[code])
        # A topic of nothing but noise must not cost a Python step a record.
        bad = (reason != 0) & (reason != HEARTBEAT) & (reason != END_OF_SESSION)
        self._count_dead_records(batch, messages, bad)
        for record in np.flatnonzero(bad)[: self._samples_left()].tolist():
            begin, end = batch.borders[record : record + 2].tolist()
            self._keep(REASONS[int(reason[record])], batch, record, None, batch.content[begin:end])
        for message in np.flatnonzero(messages.message_reason)[: self._samples_left()].tolist():
            start = int(messages.start[message])
            self._keep(
                REASONS[int(messages.message_reason[message])],
                batch,
                int(messages.packet[message]),
                int(messages.index[message]),
                content[start : start + int(messages.length[message])],
            )

    def _count_dead_records(self, batch: Batch, messages: Messages, bad: NDArray[np.bool_]) -> None:
        """Counts records of which no message can be read, and the bytes that they begin with.

        Args:
            batch: the records.
            messages: messages in them.
            bad: of each record, whether it cannot be read at all: bool[n].
        """
        faulty = np.bincount(messages.packet[messages.message_reason != 0], minlength=len(batch))
        has_messages = (messages.packet_reason == 0) & (messages.count > 0)
        dead = bad | (has_messages & (faulty == messages.count))
        self._dead_records += int(np.count_nonzero(dead))
        starts = batch.borders[:-1][dead & (np.diff(batch.borders) > 0)]
        self._first_bytes += np.bincount(batch.content[starts], minlength=256)

    def _told(self, batch: Batch, record: int) -> str | None:
        publishers = self._plan.publishers
        return None if publishers is None else publishers.named(batch, record)

    def _samples_left(self) -> int:
        """Returns how many more dead letters may be kept."""
        return max(0, self._samples - len(self._dead_letters))

    def _keep(
        self,
        reason: str,
        batch: Batch,
        record: int,
        index: int | None,
        content: NDArray[np.uint8],
    ) -> None:
        self._dead_letters.append(
            {
                "kind": "sample",
                "partition": int(batch.partition[record]),
                "from_offset": int(batch.offset[record]),
                "message_index": index,
                "reason": reason,
                "field": self._plan.reader.fault(content[:LONGEST_JSON].tobytes(), reason) or None,
                "sender": self._told(batch, record),
                "length": len(content),
                "sample": content[:SAMPLE_BYTES].tobytes(),
            }
        )
