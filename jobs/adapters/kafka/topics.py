"""Kafka as the jobs use it: the source of raw packets and the topic of dead letters.

One set of options (``spark.stackcast.kafka.*``) serves Spark's connector and the administrative
client, which is the JVM's own, so TLS and SASL are configured once.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.pandas.types import from_arrow_schema

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.kafka.client import NO_EPOCH, Range, client_of
from stackcast.jobs.adapters.kafka.options import FetchOptions, fetch_of, reader_options
from stackcast.udfs.errors import KafkaError
from stackcast.udfs.replay.offset_runs import SCHEMA, offset_runs

log = logging.getLogger(__name__)

RETRY_SECONDS = 5
#: What a broker says that answers, and that waiting does not mend.
REFUSALS = ("TLS_REFUSED", "LOGIN_REFUSED", "NOT_ALLOWED")

Answer = TypeVar("Answer")


def _never() -> bool:
    return False


#: Without a topic, or without enough replicas of it, a producer would wait for minutes: nothing
#: that is written beside the frames is worth that.
MAX_BLOCK_MS = 5000
REQUEST_TIMEOUT_MS = 4000
DELIVERY_TIMEOUT_MS = 6000

#: Milliseconds since 1970 that do not fit 64 bits as microseconds.
_UNREADABLE_MS = (1 << 63) // 1000 + 1
#: Time for a leader to answer how long its log is.
_POSITION_MS = 10_000
#: More than a UDP packet has, bytes.
PACKET = 1 << 16


def impatient(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the options of a producer that gives up within seconds, where ``options`` set nothing
    else.

    Kafka refuses a delivery that may take less long than a request and the linger before it.
    """
    request = int(options.get("request.timeout.ms", REQUEST_TIMEOUT_MS))
    least = request + int(options.get("linger.ms", 0))
    return {
        "max.block.ms": str(MAX_BLOCK_MS),
        "request.timeout.ms": str(request),
        "delivery.timeout.ms": str(max(DELIVERY_TIMEOUT_MS, least)),
        **options,
    }


class Topics:
    """The topics of one deployment."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._spark = spark
        self._settings = settings
        #: Client for `leader_epochs`, once it has been used.
        self._kept: Any = None
        #: What the header says of each record, by partition and offset, as of `read_timed`.
        self.publishers: dict[tuple[int, int], str] = {}

    def stream(self, timestamps: bool = False, most: int | None = None) -> DataFrame:
        """Raw packets as a stream: partition (int), offset (long), value (binary).

        With ``timestamps`` also timestamp, the record's, and, where a header names publishers,
        publisher (binary). A partition is the work of one task. A batch has so many records at
        ``most``.
        """
        settings = self._settings
        reader = (
            self._spark.readStream.format("kafka")
            .option("subscribe", settings.topic)
            .option("startingOffsets", settings.starting_offsets)
            .option("failOnDataLoss", "true")
        )
        if most is not None:
            reader = reader.option("maxOffsetsPerTrigger", most)
        return reader.options(**self._options()).load().select(*self._columns(timestamps))

    def _options(self) -> dict[str, str]:
        options = reader_options(self._settings.kafka)
        if self._settings.publisher_header:
            options["includeHeaders"] = "true"
        return options

    def _columns(self, timestamps: bool) -> list[Any]:
        columns: list[Any] = ["partition", "offset", "value"]
        if timestamps:
            columns.append("timestamp")
        if name := self._settings.publisher_header:
            named = functions.filter("headers", lambda header: header["key"] == functions.lit(name))
            # As others read headers, the last of a name counts.
            last = functions.try_element_at(named, functions.lit(-1))["value"]
            columns.append(last.alias("publisher"))
        return columns

    def read_offsets(
        self, partition: int, from_: int, until: int, timestamps: bool = False
    ) -> DataFrame:
        """The records of a partition from one offset up to another, as `read_spans`."""
        return self.read_spans({partition: (from_, until)}, timestamps)

    def read_spans(
        self, spans: Mapping[int, tuple[int, int]], timestamps: bool = False
    ) -> DataFrame:
        """The records of partitions from one offset up to another, with columns as of `stream`.

        They are read as the stream reads them: by tasks that fetch, or by Spark's connector.
        Records that are gone are left out: look whether all are there. A partition is the work of
        one task. Raises as `spans`, which tasks that fetch need once per call. Batches and slices
        of the stream do not need it: they read what was planned, and end if it is gone.
        """
        options = fetch_of(self._settings)
        if not isinstance(options, str):
            return self._fetched(options, spans, timestamps)
        topic = self._settings.topic
        columns = self._columns(timestamps)
        if not spans:
            kinds = (
                "partition int, offset bigint, value binary, timestamp timestamp, "
                "headers array<struct<key: string, value: binary>>"
            )
            return self._spark.createDataFrame([], kinds).select(*columns)
        starts, ends = ({str(p): span[end] for p, span in spans.items()} for end in (0, 1))
        reader = (
            self._spark.read.format("kafka")
            .option("assign", json.dumps({topic: sorted(spans)}))
            .option("startingOffsets", json.dumps({topic: starts}))
            .option("endingOffsets", json.dumps({topic: ends}))
            .option("failOnDataLoss", "false")
        )
        return reader.options(**self._options()).load().select(*columns)

    def _fetched(
        self, options: FetchOptions, spans: Mapping[int, tuple[int, int]], timestamps: bool
    ) -> DataFrame:
        """Returns the records of `read_spans`, which tasks fetch."""
        topic, there = self._settings.topic, self.spans() if spans else {}
        ranges = [
            Range(topic, partition, max(begin, first), min(until, end))
            for partition, (begin, until) in spans.items()
            for first, end in [there.get(partition, (until, until))]
            if max(begin, first) < min(until, end)
        ]
        fields = [
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("value", pa.binary()),
            *([("timestamp", pa.timestamp("us", "UTC"))] if timestamps else []),
            *([("publisher", pa.binary())] if options.header else []),
        ]
        names = [name for name, _ in fields]

        def fetch(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in numbers:
                for number in batch.column("id").to_pylist():
                    for read in client_of(options).batches(ranges[number]):
                        yield read.to_arrow().select(names)

        numbers = self._spark.range(0, len(ranges), 1, max(1, len(ranges)))
        return numbers.mapInArrow(fetch, from_arrow_schema(pa.schema(fields)))

    def read_all(self) -> list[tuple[int, int, bytes]]:
        """Every record of the raw topic, (partition, offset, value), brought to the driver."""
        return self.read_timed()[0]

    def read_timed(self) -> tuple[list[tuple[int, int, bytes]], list[int]]:
        """As `read_all`, and the records' timestamps, microseconds since 1970."""
        reader = self._spark.read.format("kafka").option("subscribe", self._settings.topic)
        rows = (
            reader.options(**self._options())
            .load()
            .select(*self._columns(timestamps=True))
            .toArrow()
        )
        return self._records(rows), rows.column("timestamp").cast("int64").to_pylist()

    def read_records(self, partition: int, from_: int, until: int) -> list[tuple[int, int, bytes]]:
        """As `read_all`, the records from one offset of a partition up to another; `publishers`
        are those of these alone."""
        if from_ >= until:
            return []
        return self._records(self.read_offsets(partition, from_, until).toArrow())

    def _records(self, rows: pa.Table) -> list[tuple[int, int, bytes]]:
        names = ("partition", "offset", "value")
        partitions, offsets, values = (rows.column(name).to_pylist() for name in names)
        records = [(p, o, v or b"") for p, o, v in zip(partitions, offsets, values, strict=True)]
        if self._settings.publisher_header:
            told = rows.column("publisher").to_pylist()
            self.publishers = {
                (p, o): name.decode("latin-1")
                for p, o, name in zip(partitions, offsets, told, strict=True)
                if name is not None
            }
        return records

    def runs(self, spans: Mapping[int, tuple[int, int]]) -> dict[int, list[tuple[int, int]]]:
        """By partition, the offsets from one up to another that have a record: runs (from, until),
        ascending."""
        found: dict[int, list[tuple[int, int]]] = {}
        records = self.read_spans(spans).select("partition", "offset")
        rows = records.mapInArrow(offset_runs, from_arrow_schema(SCHEMA)).toArrow()
        for partition, start, until in sorted(zip(*rows.to_pydict().values(), strict=True)):
            mine = found.setdefault(partition, [])
            goes_on = mine and mine[-1][1] == start
            mine.append((mine.pop()[0] if goes_on else start, until))
        return found

    def wait(self, given_up: Callable[[], bool] = _never) -> None:
        """Return when the broker answers and the topic is there: `ask` for its end."""
        self.ask(self.end_offsets, given_up)

    def ask(self, question: Callable[[], Answer], given_up: Callable[[], bool] = _never) -> Answer:
        """The answer of one of the methods here, asked again until the broker gives one.

        Logs a line per try. Raises KafkaError BROKER_UNREACHABLE or NO_TOPIC after ``waitSeconds``,
        and at once what does not mend by itself: TLS_REFUSED, LOGIN_REFUSED, NOT_ALLOWED.
        """
        settings = self._settings
        broker = settings.kafka["bootstrap.servers"]
        deadline = time.monotonic() + settings.wait_seconds
        while True:
            try:
                return question()
            except KafkaError as error:
                if error.what in REFUSALS or time.monotonic() >= deadline or given_up():
                    raise
                log.warning("%s; retrying for %.0f s", error, deadline - time.monotonic())
                time.sleep(RETRY_SECONDS)
            except Exception as error:
                raise KafkaError(
                    "BAD_OPTION",
                    f"the Kafka client rejected its options for {broker}: {_reason(error)}; "
                    "check the spark.stackcast.kafka.* settings",
                ) from error

    def end_offsets(self) -> dict[int, int]:
        """Offset after the last record, by partition, of the raw topic."""
        (ends,) = self._offsets("latest")
        return ends

    def spans(self) -> dict[int, tuple[int, int]]:
        """By partition of the raw topic, the first offset that is still there, and the end.

        Raises as `end_offsets`: KafkaError BROKER_UNREACHABLE, NO_TOPIC.
        """
        firsts, ends = self._offsets("earliest", "latest")
        return {p: (firsts[p], end) for p, end in ends.items() if p in firsts}

    def held_back(self) -> dict[int, tuple[int, int]]:
        """Returns partitions that an open transaction holds back, if only committed records are
        read: by partition, the offset of its first record, and the end. Raises as `end_offsets`.
        """
        level = self._settings.kafka.get("isolation.level", "read_uncommitted")
        if level != "read_committed":
            return {}
        ends = self.end_offsets()
        (found,) = self._listed("latest", committed=True)
        stable = {p: int(info.offset()) for p, info in found.items()}
        return {p: (stable[p], end) for p, end in ends.items() if stable.get(p, end) < end}

    def leader_epochs(self) -> dict[int, int]:
        """Returns by partition the newest leader epoch of the log, or `NO_EPOCH`.

        No record that is in the log now has a later one. Raises as `end_offsets`.
        """
        # Every micro-batch asks.
        if self._kept is None:
            self._kept = self._admin(self._properties())
        try:
            (found,) = self._listed("latest", admin=self._kept)
        except (Py4JError, KafkaError):
            # Its certificate may have expired.
            self.close()
            raise
        return {p: int(info.leaderEpoch().orElse(NO_EPOCH)) for p, info in found.items()}

    def close(self) -> None:
        """Ends the connections that are kept for the next `leader_epochs`."""
        kept, self._kept = self._kept, None
        if kept is not None:
            with suppress(Py4JError, OSError):  # a JVM that has ended
                kept.close()

    def truncated(self, read: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        """Finds partitions whose log Kafka has truncated since it was read.

        That happens if a broker becomes leader that does not have all records (unclean leader
        election). New records may have taken the offsets since, so the end of the log does
        not show it. Kafka's own consumer compares the epochs (KIP-320).

        Args:
            read: by partition, the offset after the last record that was read, and the leader epoch
                of that record or a later one; `NO_EPOCH` leaves the partition out.

        Returns:
            By partition that was truncated below the offset, the offset at which the log now
            differs from what was read.

        Raises:
            KafkaError: BROKER_UNREACHABLE, and the refusals of `ask`.
        """
        left = {p: place for p, place in read.items() if place[1] != NO_EPOCH}
        found: dict[int, int] = {}
        if not left:
            return found
        jvm: Any = self._spark._jvm
        kafka, java = jvm.org.apache.kafka, jvm.java
        places = {p: kafka.common.TopicPartition(self._settings.topic, p) for p in left}
        consumer = self._consumer()
        try:
            wait = java.time.Duration.ofMillis(_POSITION_MS)
            assigned = java.util.ArrayList(places.values())
            consumer.assign(assigned)
            # A consumer compares epochs only if it knows the leaders when it seeks.
            self._asked(lambda: consumer.endOffsets(assigned, wait))
            for partition, (offset, epoch) in left.items():
                known = java.util.Optional.of(epoch)
                seen = kafka.clients.consumer.OffsetAndMetadata(offset, known, "")
                consumer.seek(places[partition], seen)
            while left:
                partition = next(iter(left))
                ends = self._asked(partial(_divergence, consumer, places[partition], wait))
                found |= ends
                # A truncated partition fails on every call, whichever is asked for.
                left = {p: place for p, place in left.items() if p not in {partition, *ends}}
                consumer.assign(java.util.ArrayList([places[p] for p in left]))
        finally:
            consumer.close()
        return found

    def _asked(self, question: Callable[[], Answer]) -> Answer:
        """Returns the answer of a client of the JVM, or raises our error if there is one for it."""
        try:
            return question()
        except Py4JError as error:
            if answer := _answer_error(error, self._settings):
                raise answer from error
            raise

    def _consumer(self) -> Any:
        """Returns a consumer of the JVM that reads nothing and resets no offset."""
        jvm: Any = self._spark._jvm
        properties = self._properties()
        nothing = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
        for key, value in {
            "key.deserializer": nothing,
            "value.deserializer": nothing,
            "auto.offset.reset": "none",
            "enable.auto.commit": "false",
            "allow.auto.create.topics": "false",
        }.items():
            properties.setProperty(key, value)
        return jvm.org.apache.kafka.clients.consumer.KafkaConsumer(properties)

    def unreadable_times(self) -> dict[int, int]:
        """Returns by partition the first record whose time Spark's connector cannot read.

        The connector fails on a time that does not fit 64 bits as microseconds. Raises as
        `end_offsets`.
        """
        (found,) = self._offsets(_UNREADABLE_MS)
        return {p: offset for p, offset in found.items() if offset >= 0}

    def offsets_at(self, time: dt.datetime) -> dict[int, int]:
        """By partition, the offset of the first record of that time or later; its end where there
        is none. Raises as `end_offsets`."""
        found, ends = self._offsets(round(time.timestamp() * 1000), "latest")
        return {p: at if at >= 0 else ends[p] for p, at in found.items()}

    def _offsets(self, *which: str | int) -> list[dict[int, int]]:
        """Returns offsets by partition: the ``earliest``, the ``latest``, or those of a time in
        milliseconds, -1 where there is none."""
        listed = self._listed(*which)
        return [{p: int(info.offset()) for p, info in found.items()} for found in listed]

    def _listed(
        self, *which: str | int, committed: bool = False, admin: Any = None
    ) -> list[dict[int, Any]]:
        """Returns by partition what Kafka says of an offset; see `_offsets`.

        committed: whether records after the first open transaction are ignored. admin: client to
        ask; None for one of its own.
        """
        settings = self._settings
        jvm: Any = self._spark._jvm
        kafka = jvm.org.apache.kafka
        given, admin = admin, admin or self._admin(self._properties())
        try:
            names = jvm.java.util.Collections.singletonList(settings.topic)
            described = _await(admin.describeTopics(names).allTopicNames(), settings)
            partitions = [
                int(p.partition()) for p in _each(described.get(settings.topic).partitions())
            ]
            found = []
            for name in which:
                wanted = jvm.java.util.HashMap()
                specs = kafka.clients.admin.OffsetSpec
                spec = getattr(specs, name)() if isinstance(name, str) else specs.forTimestamp(name)
                for partition in partitions:
                    wanted.put(kafka.common.TopicPartition(settings.topic, partition), spec)
                asked = [wanted]
                if committed:
                    level = kafka.common.IsolationLevel.READ_COMMITTED
                    asked.append(kafka.clients.admin.ListOffsetsOptions(level))
                offsets = _await(admin.listOffsets(*asked).all(), settings)
                found.append({int(k.partition()): offsets.get(k) for k in _each(offsets.keySet())})
            return found
        finally:
            if given is None:
                admin.close()

    def identity(self) -> tuple[str, str]:
        """Ids of the Kafka cluster and of the raw topic: one that is made anew has another.

        Empty where the broker is too old to have them. Raises as `end_offsets`.
        """
        settings = self._settings
        jvm: Any = self._spark._jvm
        admin = self._admin(self._properties())
        try:
            names = jvm.java.util.Collections.singletonList(settings.topic)
            cluster = _await(admin.describeCluster().clusterId(), settings)
            described = _await(admin.describeTopics(names).allTopicNames(), settings)
            topic = described.get(settings.topic).topicId()
            zero = jvm.org.apache.kafka.common.Uuid.ZERO_UUID
            return str(cluster or ""), "" if topic.equals(zero) else str(topic.toString())
        finally:
            admin.close()

    def usual_record(self) -> int:
        """Returns how many bytes to reckon with for a record of the raw topic, before one is seen:
        as many as the topic takes where it has a limit of its own, else more than a packet has."""
        jvm: Any = self._spark._jvm
        config = jvm.org.apache.kafka.common.config
        kind = getattr(config, "ConfigResource$Type").TOPIC
        topic = config.ConfigResource(kind, self._settings.topic)
        admin = self._admin(self._properties())
        try:
            asked = admin.describeConfigs(jvm.java.util.Collections.singletonList(topic))
            found = _await(asked.all(), self._settings).get(topic).get("max.message.bytes")
            own = found.source().name() == "DYNAMIC_TOPIC_CONFIG"
            return int(found.value()) if own else PACKET
        except (Py4JError, KafkaError) as error:
            log.info("the broker did not report the maximum size of records: %s", _reason(error))
            return PACKET
        finally:
            admin.close()

    def ensure_dead_letters(self) -> None:
        """Make the dead-letter topic if it is missing; a log line says so where that is refused."""
        self.ensure(self._settings.dead_letter_topic, "dead letters")

    def ensure(self, topic: str, use: str) -> None:
        """Make a topic if it is missing; a log line says so where that is refused."""
        jvm: Any = self._spark._jvm
        none = jvm.java.util.Optional.empty()
        admin = self._admin(self._properties())
        try:
            if not admin.listTopics().names().get().contains(topic):
                new = jvm.org.apache.kafka.clients.admin.NewTopic(topic, none, none)
                admin.createTopics(jvm.java.util.Collections.singletonList(new)).all().get()
                log.info("created topic %s for %s", topic, use)
        except Py4JError as error:
            log.warning("cannot create topic %s for %s: %s", topic, use, _reason(error))
        finally:
            admin.close()

    def _properties(self) -> Any:
        jvm: Any = self._spark._jvm
        properties = jvm.java.util.Properties()
        for key, value in self._settings.kafka.items():
            properties.setProperty(key, value)
        properties.setProperty("default.api.timeout.ms", "5000")
        properties.setProperty("request.timeout.ms", "4000")
        return properties

    def _admin(self, properties: Any) -> Any:
        jvm: Any = self._spark._jvm
        try:
            return jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
        except Py4JError as error:
            if "resolvable" in _reason(error):
                raise _unreachable(self._settings) from error
            raise

    def write_dead_letters(self, letters: Sequence[dict[str, Any]]) -> None:
        """Send dead letters: one JSON object a record.

        Keys: topic, partition, offset, index (of the message; null for a whole packet), reason,
        length (bytes), sample (hexadecimal, the first bytes); field, if an attribute or a type of
        message is at fault; text, if the sample is text; publisher, as the record names it, where
        there are several.
        """
        settings = self._settings
        texts = [(json.dumps({"topic": settings.topic, **letter}),) for letter in letters]
        writer = self._spark.createDataFrame(texts, "value string").write.format("kafka")
        for key, value in impatient(settings.kafka).items():
            writer = writer.option(f"kafka.{key}", value)
        writer.option("topic", settings.dead_letter_topic).save()


def _await(future: Any, settings: Settings) -> Any:
    try:
        return future.get()
    except Exception as error:
        if answer := _answer_error(error, settings):
            raise answer from error
        raise


def _answer_error(error: Exception, settings: Settings) -> KafkaError | None:
    """Returns our error for an error of Kafka's clients; None if there is none for it."""
    text = _reason(error)
    if refused := _refused(text, settings):
        return refused
    if "UnknownTopicOrPartition" in text:
        return KafkaError(
            "NO_TOPIC",
            f"the broker at {settings.kafka['bootstrap.servers']} has no topic "
            f"{settings.topic!r}: create it, or set spark.stackcast.topic",
        )
    if "Timeout" in text or "Disconnect" in text:
        return _unreachable(settings)
    return None


def _divergence(consumer: Any, place: Any, wait: Any) -> dict[int, int]:
    """Returns by partition where a log differs from what was read, of some that do.

    If the broker does not know where, the log counts as different from its start on.
    """
    try:
        consumer.position(place, wait)
        return {}
    except Py4JError as error:
        java = getattr(error, "java_exception", None)
        if java is None or java.getClass().getSimpleName() != "LogTruncationException":
            raise
    ends = java.divergentOffsets()
    return {
        int(each.partition()): int(ends.get(each).offset()) if ends.containsKey(each) else 0
        for each in _each(java.offsetOutOfRangePartitions().keySet())
    }


def _refused(reason: str, settings: Settings) -> KafkaError | None:
    """Returns the error of a broker that answers, and refuses; None where it is another one."""
    broker = settings.kafka["bootstrap.servers"]
    name = reason.split(":", 1)[0]
    if name.startswith("Ssl"):
        return KafkaError(
            "TLS_REFUSED",
            f"the TLS connection to the broker at {broker} failed: {reason}; one side rejects "
            "the certificate of the other: check spark.stackcast.kafka.ssl.truststore.* and "
            "ssl.keystore.*, and whether a certificate has expired (openssl x509 -enddate)",
        )
    if "Sasl" in name or name == "AuthenticationException":
        return KafkaError(
            "LOGIN_REFUSED",
            f"the broker at {broker} rejected the login: {reason}; check the user, the password "
            "and spark.stackcast.kafka.sasl.mechanism",
        )
    if name.endswith("AuthorizationException"):
        return KafkaError(
            "NOT_ALLOWED",
            f"the broker at {broker} denied an operation on topic {settings.topic!r}: {reason}; "
            "grant its user the permissions that docs/explanation/security.md lists",
        )
    return None


def _unreachable(settings: Settings) -> KafkaError:
    return KafkaError(
        "BROKER_UNREACHABLE",
        f"no Kafka broker answers at {settings.kafka['bootstrap.servers']}: check "
        "spark.stackcast.kafka.bootstrap.servers and whether the broker is running",
    )


def _each(collection: Any) -> list[Any]:
    """Returns what a Java collection holds. The end of an iterator is an exception of Java's, for
    which PySpark asks in all jars."""
    return list(collection.toArray())


def _reason(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    if java is None:
        return str(error)
    cause = java.getCause() or java
    return f"{cause.getClass().getSimpleName()}: {cause.getMessage()}"
