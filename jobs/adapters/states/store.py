"""A replica controller's facts and backlog in two Kafka topics, compacted: of each key the last
record counts, and one without a value takes its key out."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Mapping
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError as ClientError
from kafka.errors import TopicAlreadyExistsError

from udfs.errors import KafkaError
from udfs.states.outputs import Keep, Record

#: state, vnf, update, segment: the key of a segment in the backlog.
_SEGMENT = struct.Struct(">IHIH")
_PATIENCE_S = 30.0


class KafkaStore:
    """Records in topic ``control`` as JSON, segments in topic ``backlog`` as datagrams.

    Makes the topics if they are missing, with one partition. client: keyword arguments of
    kafka-python. Raises KafkaError BROKER_UNREACHABLE, NO_TOPIC.
    """

    def __init__(
        self, bootstrap_servers: str, control: str, backlog: str, client: Mapping[str, Any]
    ) -> None:
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
                f"no Kafka broker answers at {bootstrap_servers} ({error}): check the address and "
                "that the broker runs; 'stackcast lab up' starts one here",
                bootstrap_servers=bootstrap_servers,
            ) from error
        try:
            for topic in (control, backlog):
                self._make(admin, topic)
        finally:
            admin.close()
        self._producer: Any = KafkaProducer(**self._options, acks="all")

    def read(self) -> tuple[list[Record], list[tuple[int, bytes]]]:
        """Returns the last record of each key, and the segments of the backlog with states."""
        records = {
            key.decode(): Record(key.decode(), json.loads(value))
            for key, value in self._last(self._control).items()
        }
        segments = [
            (int(_SEGMENT.unpack(key)[0]), value)
            for key, value in self._last(self._backlog).items()
        ]
        return list(records.values()), segments

    def put(self, outputs: list[Record | Keep]) -> None:
        """Writes, and returns when the brokers have all. Raises KafkaError NOT_PUBLISHED."""
        sent = []
        try:
            for output in outputs:
                if isinstance(output, Record):
                    topic, key = self._control, output.key.encode()
                    value: bytes | None = json.dumps(output.value).encode()
                else:
                    topic, value = self._backlog, output.datagram
                    key = _SEGMENT.pack(output.state, output.vnf, output.update, output.segment)
                sent.append(self._producer.send(topic, value, key=key, partition=0))
            self._producer.flush(_PATIENCE_S)
            for one in sent:
                one.get(_PATIENCE_S)
        except ClientError as error:
            raise KafkaError(
                "NOT_PUBLISHED", f"the replica controller's facts could not be written: {error}"
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

    def _last(self, topic: str) -> dict[bytes, bytes]:
        consumer: Any = KafkaConsumer(**self._options, enable_auto_commit=False)
        place = TopicPartition(topic, 0)
        last: dict[bytes, bytes] = {}
        try:
            consumer.assign([place])
            consumer.seek_to_beginning(place)
            end = consumer.end_offsets([place])[place]
            patience = time.monotonic() + _PATIENCE_S
            while consumer.position(place) < end:
                found = consumer.poll(500, max_records=10_000).get(place, ())
                for record in found:
                    if record.value is None:
                        last.pop(record.key, None)
                    else:
                        last[record.key] = record.value
                if found:
                    patience = time.monotonic() + _PATIENCE_S
                elif time.monotonic() > patience:
                    raise KafkaError("NO_TOPIC", f"topic {topic} cannot be read to its end")
        except ClientError as error:
            raise KafkaError("NO_TOPIC", f"topic {topic}: {error}", topic=topic) from error
        finally:
            consumer.close()
        return last
