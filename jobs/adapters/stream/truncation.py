"""A log that Kafka has truncated, and the error that reports it.

If a broker becomes leader without all records (unclean leader election), a partition ends before
the offset up to which a stream has read, and Kafka gives the offsets to new records. The stream
ends. It continues from the point of divergence under a new generation of the topic, so that no
receiver takes a new record for an old one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stackcast.udfs.errors import StreamError

#: Option of the jobs that lets a stream continue.
OPTION = "--accept-truncation"


@dataclass(frozen=True)
class Truncation:
    """Partitions of a topic that Kafka has truncated.

    Attributes:
        topic: name of the topic.
        read: by partition, the offset up to which the stream had read.
        ends: by truncated partition, the offset from which on its log differs from what was read.
    """

    topic: str
    read: Mapping[int, int]
    ends: Mapping[int, int]

    def error(self) -> StreamError:
        """Returns the error with which a stream ends."""
        lost = "; ".join(
            f"partition {p}: offsets {end} to {self.read[p] - 1}"
            for p, end in sorted(self.ends.items())
        )
        return StreamError(
            "LOG_TRUNCATED",
            f"topic {self.topic} has lost records that the stream has read; {lost}. A broker "
            "without them became leader (unclean leader election), and Kafka gives their offsets "
            f"to other records. To continue from there, start the job once with {OPTION}: hosts "
            "then get the new records in new sessions. To prevent it, set "
            "unclean.leader.election.enable=false and min.insync.replicas=2",
        )
