"""Ranges of offsets that tasks read, and their progress in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from stackcast.udfs.errors import KafkaError

#: Stands for an unknown leader epoch.
NO_EPOCH = -1


class Range(NamedTuple):
    """Records of a partition with offsets ``first`` up to ``until``.

    Attributes:
        topic: name of the topic.
        partition: number of the partition.
        first: first offset.
        until: offset after the last one.
        epoch: epoch of the leader that had all records before ``first``, or `NO_EPOCH`. With it, a
            broker of Kafka 2.7 or later finds out that the log was truncated before ``first``.
    """

    topic: str
    partition: int
    first: int
    until: int
    epoch: int = NO_EPOCH


@dataclass
class FetchProgress:
    """Progress of a task in a range.

    Attributes:
        offset: offset of the next record.
        failure: reason why the broker does not return it, or nothing.
        epoch: epoch of the leader from which all before ``offset`` was read, or `NO_EPOCH`.
        lost: an earlier attempt may have read other records from an earlier leader, so this one
            reads nothing.
    """

    offset: int
    failure: str = ""
    epoch: int = NO_EPOCH
    lost: bool = False


def unreachable(requested: Range, seconds: float, reason: str) -> KafkaError:
    """Return the error for a range whose leader has not returned a record for this time."""
    return KafkaError(
        "BROKER_UNREACHABLE",
        f"no leader of partition {requested.partition} of topic {requested.topic} returned a "
        f"record from offset {requested.first} on within {seconds:.0f} s: {reason}; check that "
        "the brokers are running and can be reached from Spark's executors",
    )
