"""A replica controller's facts and backlog in two Kafka topics, compacted: of each key the last
record counts, and one without a value takes its key out.

One controller writes them at a time. Whoever begins writes a claim first, and reads then. As nobody
else writes, a controller's records have offsets without gaps: in the first gap the one before finds
the claim, and ends before it has told anybody what it could not keep.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError as ClientError
from kafka.errors import TopicAlreadyExistsError

from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock
from stackcast.udfs.errors import KafkaError, StateError
from stackcast.udfs.states.outputs import Keep, Record

#: state, vnf, update, segment: the key of a segment in the backlog.
_SEGMENT = struct.Struct(">IHIH")
_PATIENCE_S = 30.0
_CLAIM = b"controller"


def topics_of(prefix: str) -> tuple[str, str]:
    """Returns the names of the topics of facts and of the backlog."""
    return f"{prefix}-control", f"{prefix}-backlog"


class KafkaStore:
    """Records in topic ``control`` as JSON, segments in topic ``backlog`` as datagrams.

    Makes the topics if they are missing, with one partition. client: keyword arguments of
    kafka-python. Raises KafkaError BROKER_UNREACHABLE, NO_TOPIC.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        control: str,
        backlog: str,
        client: Mapping[str, Any],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._control, self._backlog = control, backlog
        self._options = {
            "bootstrap_servers": bootstrap_servers.split(","),
            "bootstrap_timeout_ms": 5_000,
            **client,
        }
        try:
            admin: Any = KafkaAdminClient(**self._options)
        except (ClientError, OSError, ValueError) as error:
            raise KafkaError(
                "BROKER_UNREACHABLE",
                f"no Kafka broker answers at {bootstrap_servers} ({error}): check the address "
                "and whether the broker is running",
                bootstrap_servers=bootstrap_servers,
            ) from error
        try:
            for topic in (control, backlog):
                self._make(admin, topic)
        finally:
            admin.close()
        self._next: dict[str, int] = {}
        # Topics are created above, and compacted; Kafka would create them with other settings.
        self._options["allow_auto_create_topics"] = False
        self._producer: Any = KafkaProducer(**self._options, acks="all")

    def read(self) -> tuple[list[Record], list[tuple[int, bytes]]]:
        """Takes the place of who wrote before; returns the last record of each key, and the
        segments of the backlog with states."""
        claim = json.dumps({"host": socket.gethostname(), "pid": os.getpid()}).encode()
        self._next.clear()
        self._send([(topic, _CLAIM, claim) for topic in (self._control, self._backlog)])
        records = {
            key.decode(): Record(key.decode(), json.loads(value))
            for key, value in self._last(self._control).items()
            if key != _CLAIM
        }
        segments = [
            (int(_SEGMENT.unpack(key)[0]), value)
            for key, value in self._last(self._backlog).items()
            if key != _CLAIM
        ]
        return list(records.values()), segments

    def put(self, outputs: list[Record | Keep]) -> None:
        """Writes, and returns when the brokers have all.

        Raises KafkaError NOT_PUBLISHED, StateError FENCED.
        """
        records: list[tuple[str, bytes, bytes | None]] = []
        for output in outputs:
            if isinstance(output, Record):
                value = None if output.value is None else json.dumps(output.value).encode()
                records.append((self._control, output.key.encode(), value))
            else:
                key = _SEGMENT.pack(output.state, output.vnf, output.update, output.segment)
                records.append((self._backlog, key, output.datagram))
        self._send(records)

    def _send(self, records: list[tuple[str, bytes, bytes | None]]) -> None:
        try:
            sent = [
                self._producer.send(topic, value, key=key, partition=0)
                for topic, key, value in records
            ]
            self._producer.flush(_PATIENCE_S)
            for (topic, *_), one in zip(records, sent, strict=True):
                offset = one.get(_PATIENCE_S).offset
                expected = self._next.setdefault(topic, offset)
                if offset != expected and self._is_claimed(topic, expected, offset):
                    raise StateError(
                        "FENCED",
                        f"another replica controller writes to topic {topic}, so this one stops",
                    )
                self._next[topic] = offset + 1
        except ClientError as error:
            raise KafkaError(
                "NOT_PUBLISHED",
                f"the facts of the replica controller could not be written: {error}",
            ) from error

    def close(self) -> None:
        """Ends the connections."""
        self._producer.close(timeout=10)

    def _make(self, admin: Any, topic: str) -> None:
        try:
            if topic not in admin.list_topics():
                admin.create_topics(
                    {
                        topic: {
                            "num_partitions": 1,
                            "replication_factor": -1,
                            "configs": {"cleanup.policy": "compact"},
                        }
                    },
                    wait_for_metadata=True,
                )
        except TopicAlreadyExistsError:
            pass
        except ClientError as error:
            raise KafkaError("NO_TOPIC", f"topic {topic}: {error}", topic=topic) from error

    def _is_claimed(self, topic: str, start: int, end: int) -> bool:
        """Whether there is a claim from one offset up to another. Without one, what is there is of
        a controller before this one, which finds this one's claim and ends."""
        return any(record.key == _CLAIM for record in self._records(topic, start, end))

    def _last(self, topic: str) -> dict[bytes, bytes]:
        last: dict[bytes, bytes] = {}
        for record in self._records(topic):
            if record.value is None:
                last.pop(record.key, None)
            else:
                last[record.key] = record.value
        return last

    def _records(self, topic: str, start: int = 0, end: int | None = None) -> Iterator[Any]:
        """Yields the records from one offset up to another, or to the end that there is."""
        consumer: Any = KafkaConsumer(**self._options, enable_auto_commit=False)
        place = TopicPartition(topic, 0)
        try:
            consumer.assign([place])
            consumer.seek(place, start)
            if end is None:
                consumer.seek_to_beginning(place)
                end = int(consumer.end_offsets([place])[place])
            patience = self._clock.monotonic() + _PATIENCE_S
            while consumer.position(place) < end:
                found = consumer.poll(500, max_records=10_000).get(place, ())
                yield from (record for record in found if record.offset < end)
                if found:
                    patience = self._clock.monotonic() + _PATIENCE_S
                elif self._clock.monotonic() > patience:
                    raise KafkaError("NO_TOPIC", f"topic {topic} cannot be read to its end")
        except ClientError as error:
            raise KafkaError("NO_TOPIC", f"topic {topic}: {error}", topic=topic) from error
        finally:
            consumer.close()
