"""A log that Kafka has truncated, and the error that reports it.

If a broker becomes leader without all records (unclean leader election), a partition ends before
the offset up to which a stream has read, and Kafka gives the offsets to new records. The stream
ends. It continues from the point of divergence under a new generation of the topic, so that no
receiver takes a new record for an old one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from stackcast.jobs.adapters.checkpoint.identity import Identity
from stackcast.jobs.adapters.checkpoint.progress import Position
from stackcast.jobs.adapters.kafka.ranges import NO_EPOCH
from stackcast.jobs.adapters.kafka.topic_log import TopicLog
from stackcast.udfs.errors import StreamError

#: Option of the jobs that lets a stream continue.
OPTION = "--accept-truncation"


@dataclass(frozen=True)
class Truncation:
    """Partitions of a topic that Kafka has truncated.

    Attributes:
        topic: name of the topic.
        read: by partition, the offset up to which the stream had read.
        ends: by truncated partition, the offset from which on its log has other records.
        certain: False if it is unknown whether the stream had read that far, because a slice was
            interrupted, and the partition has had another leader since.
    """

    topic: str
    read: Mapping[int, int]
    ends: Mapping[int, int]
    certain: bool = True

    def begins(self, offsets: Mapping[int, int]) -> dict[int, int]:
        """Return by partition the offset at which a new generation begins.

        Args:
            offsets: by partition, the offset at which the stream would begin otherwise.
        """
        return dict(offsets) | {p: min(offsets.get(p, end), end) for p, end in self.ends.items()}

    def error(self) -> StreamError:
        """Return the error with which a stream ends."""
        ranges = "; ".join(
            f"partition {p}: offsets {end} to {self.read[p] - 1}"
            for p, end in sorted(self.ends.items())
        )
        problem = "has lost records that the stream has read"
        if not self.certain:
            problem = "may have lost records that an interrupted slice had read"
        return StreamError(
            "LOG_TRUNCATED",
            f"topic {self.topic} {problem}: {ranges}. A broker without these records became leader "
            "(unclean leader election), and Kafka assigns their offsets to other records. To "
            f"continue from there, start the job once with {OPTION}: hosts then get the new "
            "records in new sessions. To prevent this, set unclean.leader.election.enable=false "
            "and min.insync.replicas=2",
        )


class Beginning(NamedTuple):
    """Where a stream begins.

    Attributes:
        identity: identity of its checkpoint.
        position: position of its checkpoint; None for a new one, unless the log was truncated.
        truncation: partitions that Kafka has truncated, or may have truncated, below the offsets
            that were read; None if there are none.
    """

    identity: Identity
    position: Position | None
    truncation: Truncation | None


class Leaders:
    """The leaders of a topic, by which a stream notices that Kafka has truncated its log.

    Args:
        topics: topics of the stream.
        topic: name of the topic.
        recorded: returns by partition the epoch of the last leader from which batches of earlier
            runs have read, if it is recorded.
        given_up: returns True if a broker must no longer be awaited.
    """

    def __init__(
        self,
        topics: TopicLog,
        topic: str,
        recorded: Callable[[], dict[int, int]] = dict,
        given_up: Callable[[], bool] = lambda: False,
    ) -> None:
        self._topics = topics
        self._topic = topic
        self._recorded = recorded
        self._given_up = given_up
        self._epochs: dict[int, int] = {}

    @property
    def epochs(self) -> dict[int, int]:
        """By partition, the epoch of the last leader that had all records read by the stream."""
        return self._epochs

    def restore(self) -> None:
        """Set the leaders from which earlier runs have read."""
        self._epochs = self._recorded()

    def current_epochs(self) -> dict[int, int]:
        """Return the epoch of the current leader by partition.

        Raises:
            KafkaError: see `TopicLog.ask`.
        """
        return self._topics.ask(self._topics.leader_epochs, self._given_up)

    def look_up(self, read: Mapping[int, int]) -> None:
        """Look up the leaders, and check that they have all records of the stream.

        Args:
            read: by partition, the offset up to which the stream has read.

        Raises:
            StreamError: LOG_TRUNCATED.
            KafkaError: see `TopicLog.ask`.
        """
        leaders = self.current_epochs()
        self.check(read, self._epochs, leaders)
        self.note_epochs(leaders)

    def check(
        self, read: Mapping[int, int], epochs: Mapping[int, int], leaders: Mapping[int, int]
    ) -> None:
        """Check that the log of a batch has stayed the same from its plan to its end.

        A task that ran again may have sent other records with the same sequence numbers.

        Args:
            read: by partition, the offset up to which the batch has read.
            epochs: by partition, the epoch of the leader when it was planned, if that is known.
            leaders: by partition, the epoch of the leader from which its tasks have read; empty if
                they do not know it.

        Raises:
            StreamError: LOG_TRUNCATED.
            KafkaError: see `TopicLog.ask`.
        """
        if read and not leaders:
            leaders = self.current_epochs()
        truncation = self.find(read, epochs, leaders)
        if truncation is not None:
            raise truncation.error()

    def find(
        self, read: Mapping[int, int], epochs: Mapping[int, int], leaders: Mapping[int, int]
    ) -> Truncation | None:
        """Find partitions that Kafka has truncated since they were read.

        Only a partition with another leader than before can have been truncated.

        Args:
            read: by partition, the offset up to which it was read.
            epochs: by partition, the epoch of a leader that had all of it, if that is known.
            leaders: by partition, the epoch of its leader now.

        Raises:
            KafkaError: see `TopicLog.ask`.
        """
        changed = {
            p: (offset, epoch)
            for p, offset in read.items()
            if (epoch := epochs.get(p, NO_EPOCH)) not in (NO_EPOCH, leaders.get(p, NO_EPOCH))
        }
        ends = self._topics.ask(partial(self._topics.truncated, changed), self._given_up)
        return Truncation(self._topic, read, ends) if ends else None

    def note_epochs(self, epochs: Mapping[int, int]) -> None:
        """Note by partition the epoch of the leader from which tasks have read."""
        self._epochs = self._epochs | {p: e for p, e in epochs.items() if e != NO_EPOCH}
