"""A client that fetches ranges of offsets of partitions, for the tasks of a stream.

kafka-python finds the leader of a partition, opens a secured connection and encodes the requests.
After that, this client owns the socket, and receives each response into one buffer, from which a
kernel reads the records.
"""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

import kafka.errors as kafka_errors
import numpy as np
from kafka.protocol.consumer import FetchRequest
from kafka.structs import TopicPartition
from numpy.typing import NDArray

from stackcast.jobs.adapters.kafka.broker_client import BrokerClient, may_pass, raise_error
from stackcast.jobs.adapters.kafka.options import FetchOptions
from stackcast.jobs.adapters.kafka.private_names import detach_socket
from stackcast.jobs.adapters.kafka.ranges import NO_EPOCH, FetchProgress, Range, unreachable
from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock
from stackcast.udfs.errors import KafkaError
from stackcast.udfs.messages.buffers import Batch
from stackcast.udfs.messages.record_batches import Aborted, Records, next_offset, read_records

log = logging.getLogger(__name__)

#: From version 13 on, requests contain the id of a topic, which only new brokers know.
_NEWEST = 12
_WAITS = (0.05, 0.1, 0.2, 0.5, 1.0)
_LARGEST = 1 << 31
_LEAST = 1 << 16
"""Minimum size of a fetch in bytes."""
_SHORTEST = 0.001
_LONGEST = 1.0
"""Limits of the seconds for which a broker waits for a record."""

_FINAL = (kafka_errors.OffsetOutOfRangeError, kafka_errors.CorruptRecordError)


@functools.lru_cache(maxsize=4)
def client_of(options: FetchOptions) -> Fetcher:
    """Return the client of this process, whose connections stay open between tasks."""
    return Fetcher(options)


class Fetcher:
    """Fetches records, for one thread. It opens connections when it needs them."""

    def __init__(self, options: FetchOptions, clock: Clock = SYSTEM_CLOCK) -> None:
        self._options = options
        self._clock = clock
        self._leaders: dict[TopicPartition, tuple[int, int]] = {}
        self._connections: dict[int, _Connection] = {}
        #: Mean bytes per offset in the last response.
        self._sizes: dict[TopicPartition, float] = {}

    def batches(
        self, wanted: Range, reached: FetchProgress | None = None, again: bool = False
    ) -> Iterator[Batch]:
        """Yield the records of a range in order.

        Args:
            wanted: the range. It yields nothing if its records belong to aborted transactions or
                were removed by compaction.
            reached: gets the offset of the next record, and the leader epoch.
            again: whether an earlier attempt may have sent records that it read from the leader of
                the range.

        Yields:
            The records.

        Raises:
            KafkaError: OFFSET_GONE, LOG_TRUNCATED, BROKER_UNREACHABLE, FETCH_REFUSED,
                RECORDS_DAMAGED, OLD_RECORD_FORMAT.
        """
        reached = reached or FetchProgress(wanted.first)
        reached.offset, reached.epoch = wanted.first, wanted.epoch
        for records in self._records(wanted, reached, again):
            yield from records.batches(wanted.partition)

    def follow(
        self, wanted: Range, seconds: float, again: bool, reached: FetchProgress
    ) -> Iterator[Batch]:
        """Yield the records of a range as they arrive, for a limited time.

        Args:
            wanted: the range.
            seconds: time to wait for records.
            again: whether to read at least the records that exist now, because an earlier attempt
                may have sent them. Only then, an unreachable broker raises an error.
            reached: progress, which begins at an offset of the range with the epoch of the leader
                that had the records before it.

        Raises:
            KafkaError: see `batches`.
        """
        ends, failures = self._clock.monotonic() + seconds, 0
        least = wanted.until if again else wanted.first
        while reached.offset < wanted.until:
            remaining = ends - self._clock.monotonic()
            if remaining < _SHORTEST and reached.offset >= least:
                return
            try:
                records, end = self._fetch(wanted, reached, max(remaining, _SHORTEST))
            except (OSError, kafka_errors.KafkaError) as error:
                if not _may_pass(error):
                    raise _refused(wanted, reached.offset, error) from error
                self._forget(wanted)
                reached.failure = repr(error)
                if remaining < -self._options.patience:
                    raise unreachable(wanted, self._options.patience, repr(error)) from error
                wait = _WAITS[min(failures, len(_WAITS) - 1)]
                self._clock.sleep(
                    wait if reached.offset < least else max(0.0, min(wait, remaining))
                )
                failures += 1
                continue
            if again and _other_leader(wanted, reached):
                reached.lost = True
                return
            reached.failure, failures, least = "", 0, min(least, end)
            if len(records.offset):
                yield from records.batches(wanted.partition)
            # A batch of Kafka may continue after the range.
            reached.offset = max(reached.offset, min(records.next, wanted.until))

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _records(self, wanted: Range, reached: FetchProgress, again: bool) -> Iterator[Records]:
        failures, deadline = 0, self._deadline()
        while (offset := reached.offset) < wanted.until:
            try:
                records, _ = self._fetch(wanted, reached)
            except (OSError, kafka_errors.KafkaError) as error:
                if not _may_pass(error):
                    raise _refused(wanted, offset, error) from error
                self._forget(wanted)
                if self._clock.monotonic() > deadline:
                    raise unreachable(wanted, self._options.patience, repr(error)) from error
                wait = _WAITS[min(failures, len(_WAITS) - 1)]
                failures += 1
                if failures > 1:
                    log.warning(
                        "partition %d of %s, offset %d: %r; retrying in %.2f s",
                        *(wanted.partition, wanted.topic, offset, error, wait),
                    )
                self._clock.sleep(wait)
                continue
            if again and _other_leader(wanted, reached):
                reached.lost = True
                return
            if records.next > offset:
                reached.offset, failures, deadline = records.next, 0, self._deadline()
            elif self._clock.monotonic() > deadline:
                raise KafkaError(
                    "BROKER_UNREACHABLE",
                    f"the batch was planned up to offset {wanted.until} of partition "
                    f"{wanted.partition} of topic {wanted.topic}, but its leader has no records "
                    f"from offset {offset} on: check that the brokers are in sync",
                )
            if len(records.offset):
                yield records

    def _deadline(self) -> float:
        return self._clock.monotonic() + self._options.patience

    def _fetch(
        self, wanted: Range, reached: FetchProgress, seconds: float | None = None
    ) -> tuple[Records, int]:
        """Fetch records, and request the next ones before these are read.

        Args:
            wanted: range of the records.
            reached: progress in the range.
            seconds: time to wait for the first record. In this case, the next records are only
                requested if they exist. None waits as the options say.

        Returns:
            The records, and the end of the partition.

        Raises:
            OSError: the connection failed.
            kafka.errors.KafkaError: the broker returned an error.
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
            # The log contains the same records, but none of this epoch.
            data, aborted, last = connection.fetch(piece(offset, wanted.until, NO_EPOCH))
        reached.epoch = epoch
        end = next_offset(data, offset, wanted.until)
        if end > offset:
            self._sizes[place] = len(data) / (end - offset)
            there = wanted.until if seconds is None else min(last, wanted.until)
            if end < there:
                connection.ask(piece(end, there, epoch))
        records = read_records(data, offset, wanted.until, aborted, self._options.header)
        if len(data) and records.next <= offset:
            # A broker sends at least one complete batch.
            raise KafkaError(
                "RECORDS_DAMAGED",
                f"partition {wanted.partition} of topic {wanted.topic} has a record batch with a "
                f"wrong length at offset {offset}: check the disk of the broker",
                offset=offset,
            )
        return records, last

    def _most(self, place: TopicPartition, offsets: int) -> int:
        """Return the bytes to request for this number of offsets."""
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
        """Forget the leader of a partition, its connection, and other partitions that use it."""
        node, _ = self._leaders.pop(TopicPartition(wanted.topic, wanted.partition), (None, 0))
        self._leaders = {p: leader for p, leader in self._leaders.items() if leader[0] != node}
        if node in self._connections:
            self._connections.pop(node).close()


class _DivergedError(Exception):
    """The log of a leader has no records of an earlier leader's epoch from ``end`` on."""

    def __init__(self, end: int) -> None:
        super().__init__(end)
        self.end = end


class _Piece(NamedTuple):
    """A part of a partition that a broker is asked for.

    Attributes:
        place: the partition.
        offset: first offset.
        epoch: epoch of the leader.
        last_epoch: epoch of the leader that had all records before ``offset``, or `NO_EPOCH`.
        most: maximum size in bytes, unless the first batch is larger.
        wait_ms: time for which the broker waits until it has ``least`` bytes.
        least: minimum size in bytes.
    """

    place: TopicPartition
    offset: int
    epoch: int
    last_epoch: int
    most: int
    wait_ms: int
    least: int


class _Connection:
    """A connection to a broker with one request at a time."""

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
        """Send a request. `fetch` of the same piece receives the response."""
        if self._asked is not None:
            # The caller has given up on that request.
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
        """Fetch a piece.

        Returns:
            The record batches, which are valid until the next response, the aborted transactions,
            and the end of the partition.
        """
        if self._asked is None or self._asked[0][:4] != piece[:4]:
            self.ask(piece)
        response = self._answer()
        raise_error(getattr(response, "error_code", 0))
        partition = response.responses[0].partitions[0]
        raise_error(partition.error_code)
        diverging = getattr(partition, "diverging_epoch", None)
        if diverging is not None and diverging.end_offset >= 0:
            raise _DivergedError(diverging.end_offset)
        records = np.frombuffer(partition.records or b"", np.uint8)
        aborted = [
            Aborted(transaction.producer_id, transaction.first_offset)
            for transaction in partition.aborted_transactions or []
        ]
        if self._options.committed:
            return records, aborted, partition.last_stable_offset
        return records, [], partition.high_watermark

    def _answer(self) -> Any:
        """Receive the response to the last request."""
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
            # The old buffer may contain records that are still read.
            self._buffer = bytearray(max(size, 2 * len(self._buffer)))
        content = memoryview(self._buffer)[:size]
        missing = content
        while missing:
            count = self._socket.recv_into(missing)
            if not count:
                raise ConnectionResetError("the broker closed the connection")
            missing = missing[count:]
        return content


class _Answer:
    """A buffer for the decoders of kafka-python that returns large pieces without a copy."""

    def __init__(self, content: memoryview) -> None:
        self._content = content
        self._position = 0

    def read(self, size: int | None = None) -> Any:
        end = len(self._content) if size is None else self._position + size
        part = self._content[self._position : end]
        self._position = end
        return part if len(part) > 1024 else bytes(part)

    def tell(self) -> int:
        return self._position


def _other_leader(wanted: Range, reached: FetchProgress) -> bool:
    """Return whether the partition is known to have another leader than that of the range."""
    return NO_EPOCH not in (wanted.epoch, reached.epoch) and reached.epoch != wanted.epoch


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
