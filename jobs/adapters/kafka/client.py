"""A client that fetches ranges of offsets of partitions, for the tasks of a stream.

kafka-python finds the leader of a partition, connects, secures the connection and words the
requests; then the socket is ours, and an answer goes from it into one buffer and on into the kernel
that reads records.
"""

from __future__ import annotations

import functools
import itertools
import logging
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import kafka.errors as kafka_errors
import numpy as np
from kafka.protocol.consumer import FetchRequest
from kafka.structs import TopicPartition
from numpy.typing import NDArray
from pyspark import TaskContext

from stackcast.jobs.adapters.kafka.broker_client import BrokerClient, may_pass, raise_error
from stackcast.jobs.adapters.kafka.options import FetchOptions
from stackcast.jobs.adapters.kafka.private_names import detach_socket
from stackcast.udfs.errors import KafkaError
from stackcast.udfs.messages.buffers import Batch
from stackcast.udfs.messages.record_batches import Aborted, Records, next_offset, read_records

log = logging.getLogger(__name__)

#: From 13 on, requests name topics by an id, which only the newest brokers know.
_NEWEST = 12
_WAITS = (0.05, 0.1, 0.2, 0.5, 1.0)
_LARGEST = 1 << 31
_LEAST = 1 << 16
"""Bytes that are asked for at least."""
_SHORTEST = 0.001
_LONGEST = 1.0
"""Seconds that a broker is asked to wait for a record."""

_FINAL = (kafka_errors.OffsetOutOfRangeError, kafka_errors.CorruptRecordError)


#: Stands for an unknown leader epoch.
NO_EPOCH = -1


class Range(NamedTuple):
    """Records of a partition with offsets ``first`` up to ``until``.

    epoch: epoch of the leader that had all records before ``first``, or `NO_EPOCH`. A broker from
    Kafka 2.7 on finds with it that the log was truncated before ``first``.
    """

    topic: str
    partition: int
    first: int
    until: int
    epoch: int = NO_EPOCH


@dataclass
class Reached:
    """Progress in a partition.

    Attributes:
        offset: offset of the next record.
        failure: reason why the broker does not return it, or nothing.
        epoch: epoch of the leader from which all before ``offset`` was read, or `NO_EPOCH`.
        lost: an earlier try may have read other records from an earlier leader, so this one reads
            nothing.
    """

    offset: int
    failure: str = ""
    epoch: int = NO_EPOCH
    lost: bool = False


@functools.lru_cache(maxsize=4)
def client_of(options: FetchOptions) -> Fetcher:
    """Returns the client of this process, whose connections stay open from task to task."""
    return Fetcher(options)


class Fetcher:
    """Fetches records; connections are made where they are needed. For one thread."""

    def __init__(self, options: FetchOptions) -> None:
        self._options = options
        self._leaders: dict[TopicPartition, tuple[int, int]] = {}
        self._connections: dict[int, _Connection] = {}
        #: Bytes that an offset took in the last piece.
        self._sizes: dict[TopicPartition, float] = {}

    def batches(
        self, wanted: Range, reached: Reached | None = None, again: bool = False
    ) -> Iterator[Batch]:
        """Yields the records in order.

        Args:
            wanted: records to fetch. A range without records, because they belong to aborted
                transactions or were compacted away, yields nothing.
            reached: gets the offset up to which was read, and the leader epoch.
            again: an earlier try may have sent records that it read from the leader of the range.

        Yields:
            The records.

        Raises:
            KafkaError: OFFSET_GONE, LOG_TRUNCATED, BROKER_UNREACHABLE, FETCH_REFUSED,
                RECORDS_DAMAGED, OLD_RECORD_FORMAT.
        """
        reached = reached or Reached(wanted.first)
        reached.offset, reached.epoch = wanted.first, wanted.epoch
        for records in self._records(wanted, reached, again):
            yield from records.batches(wanted.partition)

    def follow(
        self, wanted: Range, seconds: float, again: bool, reached: Reached
    ) -> Iterator[Batch]:
        """Yields records as they come, for so many seconds.

        They are those of the range at most, and ``reached`` says how far they have come. It begins
        at an offset of the range, with the epoch of the leader that had the records before it.
        again: reads at least the records that are there now, since an earlier try may have sent
        them; a broker that cannot be reached raises an error only then. Raises KafkaError as
        `batches`.
        """
        ends, failures = time.monotonic() + seconds, 0
        least = wanted.until if again else wanted.first
        while reached.offset < wanted.until:
            left = ends - time.monotonic()
            if left < _SHORTEST and reached.offset >= least:
                return
            try:
                found, end = self._fetch(wanted, reached, max(left, _SHORTEST))
            except (OSError, kafka_errors.KafkaError) as error:
                if not _may_pass(error):
                    raise _refused(wanted, reached.offset, error) from error
                self._forget(wanted)
                reached.failure = repr(error)
                if left < -self._options.patience:
                    raise unreachable(wanted, self._options.patience, repr(error)) from error
                wait = _WAITS[min(failures, len(_WAITS) - 1)]
                time.sleep(wait if reached.offset < least else max(0.0, min(wait, left)))
                failures += 1
                continue
            if again and _other_leader(wanted, reached):
                reached.lost = True
                return
            reached.failure, failures, least = "", 0, min(least, end)
            if len(found.offset):
                yield from found.batches(wanted.partition)
            # A batch of Kafka's may go on beyond the range.
            reached.offset = max(reached.offset, min(found.next, wanted.until))

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _records(self, wanted: Range, reached: Reached, again: bool) -> Iterator[Records]:
        failures, deadline = 0, self._deadline()
        while (offset := reached.offset) < wanted.until:
            try:
                found, _ = self._fetch(wanted, reached)
            except (OSError, kafka_errors.KafkaError) as error:
                if not _may_pass(error):
                    raise _refused(wanted, offset, error) from error
                self._forget(wanted)
                if time.monotonic() > deadline:
                    raise unreachable(wanted, self._options.patience, repr(error)) from error
                wait = _WAITS[min(failures, len(_WAITS) - 1)]
                failures += 1
                if failures > 1:
                    log.warning(
                        "partition %d of %s, offset %d: %r; retrying in %.2f s",
                        *(wanted.partition, wanted.topic, offset, error, wait),
                    )
                time.sleep(wait)
                continue
            if again and _other_leader(wanted, reached):
                reached.lost = True
                return
            if found.next > offset:
                reached.offset, failures, deadline = found.next, 0, self._deadline()
            elif time.monotonic() > deadline:
                raise KafkaError(
                    "BROKER_UNREACHABLE",
                    f"the batch was planned up to offset {wanted.until} of partition "
                    f"{wanted.partition} of topic {wanted.topic}, but its leader has no records "
                    f"from offset {offset} on: check that the brokers are in sync",
                )
            if len(found.offset):
                yield found

    def _deadline(self) -> float:
        return time.monotonic() + self._options.patience

    def _fetch(
        self, wanted: Range, reached: Reached, seconds: float | None = None
    ) -> tuple[Records, int]:
        """Takes one piece, and asks for the next before it is read: the broker works meanwhile.

        seconds: how long the first record of it may be waited for; then the next is asked for where
        it is there already. Returns the end of the partition, too. Raises OSError or an error of
        kafka-python.
        """
        offset = reached.offset
        place = TopicPartition(wanted.topic, wanted.partition)
        if place not in self._leaders:
            self._leaders[place] = self._find(place)
        node, epoch = self._leaders[place]
        connection = self._connections[node]

        def piece(first: int, until: int, last_epoch: int) -> _Piece:
            options = self._options
            wait, least = options.wait_ms, options.least
            if seconds is not None:
                wait, least = round(1000 * min(seconds, _LONGEST)), 1
            most = self._most(place, until - first)
            return _Piece(place, first, epoch, last_epoch, most, wait, least)

        try:
            data, aborted, last = connection.fetch(piece(offset, wanted.until, reached.epoch))
        except _DivergedError as diverged:
            if diverged.end < offset:
                raise _truncated(wanted, diverged.end, offset) from diverged
            # The log has no record of that epoch, and the same records.
            data, aborted, last = connection.fetch(piece(offset, wanted.until, NO_EPOCH))
        reached.epoch = epoch
        end = next_offset(data, offset, wanted.until)
        if end > offset:
            self._sizes[place] = len(data) / (end - offset)
            there = wanted.until if seconds is None else min(last, wanted.until)
            if end < there:
                connection.ask(piece(end, there, epoch))
        found = read_records(data, offset, wanted.until, aborted, self._options.header)
        if len(data) and found.next <= offset:
            # A broker sends one whole batch at least.
            raise KafkaError(
                "RECORDS_DAMAGED",
                f"partition {wanted.partition} of topic {wanted.topic} has a record batch with a "
                f"wrong length at offset {offset}: check the disk of the broker",
                offset=offset,
            )
        return found, last

    def _most(self, place: TopicPartition, offsets: int) -> int:
        """Returns how many bytes to ask for: what so many offsets will likely take."""
        if place not in self._sizes:
            return self._options.most
        likely = _LEAST + int(1.25 * self._sizes[place] * offsets)
        return min(self._options.most, likely)

    def _find(self, place: TopicPartition) -> tuple[int, int]:
        """Return node and epoch of the leader of a partition, and connect to it."""
        with closing(BrokerClient(self._options.client)) as brokers:
            metadata = brokers.metadata(place.topic)
            raise_error(metadata.error)
            if place.partition not in metadata.leaders:
                raise kafka_errors.LeaderNotAvailableError(str(place))
            node, epoch = metadata.leaders[place.partition]
            if node < 0:
                raise kafka_errors.LeaderNotAvailableError(str(place))
            if node not in self._connections:
                self._connections[node] = _Connection(self._options, brokers.connect(node))
            return node, epoch

    def _forget(self, wanted: Range) -> None:
        """Drops the leader of a partition, its connection, and all who would use that."""
        node, _ = self._leaders.pop(TopicPartition(wanted.topic, wanted.partition), (None, 0))
        self._leaders = {place: held for place, held in self._leaders.items() if held[0] != node}
        if node in self._connections:
            self._connections.pop(node).close()


class _DivergedError(Exception):
    """The log of a leader has no records of an earlier leader's epoch from ``end`` on."""

    def __init__(self, end: int) -> None:
        super().__init__(end)
        self.end = end


class _Piece(NamedTuple):
    """A piece of a partition to ask a broker for: from an offset on, so many bytes at most unless
    the first batch has more. It answers when it has the least, or has waited.

    epoch: of the leader. last_epoch: of the leader that had all before the offset, or `NO_EPOCH`.
    """

    place: TopicPartition
    offset: int
    epoch: int
    last_epoch: int
    most: int
    wait_ms: int
    least: int


class _Connection:
    """One connection to a broker, which has one request at a time."""

    def __init__(self, options: FetchOptions, connection: Any) -> None:
        self._options = options
        self._numbers = itertools.count()
        self._buffer = bytearray(1 << 16)
        self._asked: tuple[_Piece, FetchRequest] | None = None

        versions = connection.broker_version_data
        self._version = versions.api_version(FetchRequest, max_version=_NEWEST)
        # kafka-python reads pieces of 4 KB, which would cost more than everything that follows.
        self._socket = detach_socket(connection)
        limit = dict(options.client).get("request_timeout_ms", 30_000) / 1000
        self._socket.settimeout(limit + max(options.wait_ms / 1000, _LONGEST))

    def close(self) -> None:
        self._socket.close()

    def ask(self, piece: _Piece) -> None:
        """Sends a request, whose answer `fetch` of the same piece takes."""
        if self._asked is not None:
            # Whoever asked for that has given up.
            self._answer()
        version = self._version
        part = FetchRequest.FetchTopic.FetchPartition(
            partition=piece.place.partition,
            current_leader_epoch=piece.epoch,
            fetch_offset=piece.offset,
            last_fetched_epoch=piece.last_epoch,
            log_start_offset=-1,
            partition_max_bytes=piece.most,
            version=version,
        )
        topic = FetchRequest.FetchTopic(topic=piece.place.topic, partitions=[part], version=version)
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=piece.wait_ms,
            min_bytes=piece.least,
            max_bytes=piece.most,
            isolation_level=int(self._options.committed),
            session_id=0,
            session_epoch=-1,
            topics=[topic],
            forgotten_topics_data=[],
            rack_id="",
            version=version,
        )
        number = next(self._numbers) & 0x7FFFFFFF
        request.with_header(correlation_id=number, client_id="stackcast")
        self._socket.sendall(request.encode(framed=True, header=True))
        self._asked = piece, request

    def fetch(self, piece: _Piece) -> tuple[NDArray[np.uint8], list[Aborted], int]:
        """Returns what the broker has from an offset on, good until the next answer; transactions
        to leave out; and the end of the partition."""
        if self._asked is None or self._asked[0][:4] != piece[:4]:
            self.ask(piece)
        response = self._answer()
        if error := getattr(response, "error_code", 0):
            raise kafka_errors.for_code(error)()
        found = response.responses[0].partitions[0]
        if found.error_code:
            raise kafka_errors.for_code(found.error_code)()
        diverging = getattr(found, "diverging_epoch", None)
        if diverging is not None and diverging.end_offset >= 0:
            raise _DivergedError(diverging.end_offset)
        records = np.frombuffer(found.records or b"", np.uint8)
        aborted = [
            Aborted(each.producer_id, each.first_offset)
            for each in found.aborted_transactions or []
        ]
        if self._options.committed:
            return records, aborted, found.last_stable_offset
        return records, [], found.high_watermark

    def _answer(self) -> Any:
        """Receives the answer to what was asked."""
        assert self._asked is not None
        (_, request), self._asked = self._asked, None
        size = int.from_bytes(self._receive(4))
        if not 0 < size < _LARGEST:
            raise kafka_errors.InvalidReceiveError(f"received a response of {size} bytes")
        answer = _Answer(self._receive(size))
        kind = request.header.get_response_class()
        if kind.parse_header(answer).correlation_id != request.header.correlation_id:
            raise kafka_errors.CorrelationIdError("received a response to another request")
        return kind.decode(answer)

    def _receive(self, size: int) -> memoryview:
        if len(self._buffer) < size:
            # A new one, since records of the old one may still be read.
            self._buffer = bytearray(max(size, 2 * len(self._buffer)))
        whole = memoryview(self._buffer)[:size]
        left = whole
        while left:
            count = self._socket.recv_into(left)
            if not count:
                raise ConnectionResetError("the broker closed the connection")
            left = left[count:]
        return whole


class _Answer:
    """A buffer as kafka-python's decoders read it, which hands on large pieces uncopied."""

    def __init__(self, content: memoryview) -> None:
        self._content = content
        self._at = 0

    def read(self, size: int | None = None) -> Any:
        end = len(self._content) if size is None else self._at + size
        part = self._content[self._at : end]
        self._at = end
        return part if len(part) > 1024 else bytes(part)

    def tell(self) -> int:
        return self._at


def runs_again() -> bool:
    """Returns whether Spark has run this task before, so that its records may have been sent."""
    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0


def _other_leader(wanted: Range, reached: Reached) -> bool:
    """Returns whether another broker than that of the range has become leader, as far as known."""
    return NO_EPOCH not in (wanted.epoch, reached.epoch) and reached.epoch != wanted.epoch


def unreachable(wanted: Range, seconds: float, why: str) -> KafkaError:
    return KafkaError(
        "BROKER_UNREACHABLE",
        f"no leader of partition {wanted.partition} of topic {wanted.topic} returned a record "
        f"from offset {wanted.first} on within {seconds:.0f} s: {why}; check that the brokers "
        "are running and can be reached from Spark's executors",
    )


def _truncated(wanted: Range, end: int, offset: int) -> KafkaError:
    return KafkaError(
        "LOG_TRUNCATED",
        f"Kafka truncated partition {wanted.partition} of topic {wanted.topic} to offset {end}, "
        f"but records up to offset {offset - 1} were read: a broker without these records became "
        "leader",
        partition=wanted.partition,
        end=end,
    )


def _may_pass(error: Exception) -> bool:
    """Return whether another attempt or another broker may return the records."""
    return may_pass(error) and not isinstance(error, _FINAL)


def _refused(wanted: Range, offset: int, error: Exception) -> KafkaError:
    where = f"partition {wanted.partition} of topic {wanted.topic}"
    if isinstance(error, kafka_errors.OffsetOutOfRangeError):
        return KafkaError(
            "OFFSET_GONE",
            f"offset {offset} of {where} was deleted after the batch was planned: keep records "
            "longer with retention.ms and retention.bytes",
        )
    return KafkaError(
        "FETCH_REFUSED",
        f"the broker refused to return records of {where} at offset {offset}: {error!r}; check "
        "the spark.stackcast.kafka.* settings and the read permissions of the user",
    )
