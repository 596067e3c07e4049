"""The embedded default where the switches match: one trading session through the network, proved.

Sends the records' packets whole into the publisher's switch, or those of several publishers their
shares, and compares what the hosts received with what they were owed. One publisher's packets are
in a topic, too: the stream beside reads them there, and tells the hosts by summaries what they
should have. Events of attributes, and several publishers, have neither.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import FORMATS, Settings
from stackcast.jobs.adapters.planning.specifications import specification_of
from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK
from stackcast.jobs.adapters.runtime.threads import SYSTEM_THREADS, parallel_map
from stackcast.jobs.adapters.tables.tables import GRANTS, INGRESSES, REJECTED, SENIORITY, Tables
from stackcast.jobs.adapters.wire import Opener, sink_options
from stackcast.jobs.embedded.feed import Fed, Share
from stackcast.jobs.embedded.kinds import RunKind
from stackcast.jobs.embedded.lab import RunningLab, bring_up
from stackcast.jobs.embedded.progress import Parts, Progress
from stackcast.jobs.embedded.proof import RunProof, shown_subscriptions
from stackcast.jobs.embedded.stream import drain
from stackcast.lab.proof import verification
from stackcast.lab.proof.receipts import receipts
from stackcast.lab.proof.summaries import SummaryTally, check_recorded_summaries
from stackcast.lab.report.showcase import FilteredShowcase, without_receiver
from stackcast.lab.traffic.packets import session_of
from stackcast.lab.traffic.topic_log import TopicLog
from stackcast.udfs.filters.grants import Grants
from stackcast.udfs.filters.selection import select
from stackcast.udfs.filters.subscriptions import CheckedRule, Rejection, check, live_rows
from stackcast.udfs.messages.attributes.registry import Registry
from stackcast.udfs.messages.sequence import Topic, session_id, split_sequence
from stackcast.udfs.messages.specification import Specification
from stackcast.udfs.network.ingresses import Ingresses
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.publishers import receiving, sending, several
from stackcast.udfs.stop_request import StopRequest

log = logging.getLogger("stackcast.lab")

#: Publishers that send side by side.
_AT_ONCE = 8


def run(
    settings: Settings,
    lifecycle: Lifecycle,
    kind: RunKind,
    progress: Progress,
    keep_spark: bool = False,
) -> int:
    """Delivers the records of ``kind`` once, on the embedded lab, by switches that match.

    keep_spark: leave its session to a run that comes after this one. Returns the exit code: 0 only
    if every delivery was exact.
    """
    progress.parts = Parts()
    beside = kind.in_topic
    with bring_up(settings, lifecycle, kind, progress, broker=beside, keep_spark=keep_spark) as up:
        texts = f"sending {kind.noun} into the network", f"sent {kind.noun} into the network"
        if beside:
            fed = _feed_beside(up, lifecycle, kind, progress, texts)
        else:
            progress.parts.begin("publishing and delivery")
            with progress.stage(*texts) as stage:
                fed = _feed(
                    *(up, lifecycle.stopping, kind),
                    lambda done, _: progress.count(stage, done, done),
                )
        progress.parts.begin("verification")
        with progress.stage(
            "comparing received with expected deliveries",
            "compared received with expected deliveries",
        ):
            network, folder, status = up.lab.network, up.lab.folder, up.lab.settle()
            proof = NetworkProof(up.settings, kind, up.tables, network, fed, folder, status)
        proof.write(progress.parts)
    return 0 if proof.exact else 1


def _feed_beside(
    up: RunningLab, lifecycle: Lifecycle, kind: RunKind, progress: Progress, texts: tuple[str, str]
) -> Fed:
    """Sends the records as `_feed` does, each packet once it is in the stream's topic."""
    servers, topic = up.settings.kafka["bootstrap.servers"], up.settings.topic

    def feed(stop: StopRequest, told: Callable[[int], None]) -> Fed:
        publishers = _publishers(up.lab.network, up.settings)
        with TopicLog(servers, topic, partitions=len(publishers)) as log:
            return _feed(up, stop, kind, lambda _, packets: told(packets), log)

    return drain(up, lifecycle, kind, progress, texts, feed)[0]


def _feed(
    up: RunningLab,
    stop: StopRequest,
    kind: RunKind,
    progress: Callable[[int, int], None],
    topic: TopicLog | None = None,
) -> Fed:
    """Sends the records into the publishers' switches; returns when all are in the network."""
    settings, network = up.settings, up.lab.network
    opener = Opener(sink_options(settings))
    ingresses = Ingresses.from_rows(up.tables.rows(INGRESSES))
    names = _publishers(network, settings)
    done: dict[int, tuple[int, int]] = {}

    def send(number: int) -> Fed:
        def told(messages: int, packets: int) -> None:
            done[number] = messages, packets
            progress(*(sum(counts) for counts in zip(*list(done.values()), strict=True)))

        host = network.host(names[number])
        with closing(opener(opener.way(ingresses, host.name, host.switch))) as sink:
            return kind.feed(
                *(settings, up.tables, host, sink, up.source, stop, told),
                *(Share(number, len(names)), topic),
            )

    began = SYSTEM_CLOCK.monotonic()
    each = parallel_map(SYSTEM_THREADS, "publish", send, range(len(names)), _AT_ONCE)
    fed = Fed(
        [packet for one in each for packet in one.packets],
        sum(one.messages for one in each),
        SYSTEM_CLOCK.monotonic() - began,
        topic and topic.topic,
    )
    log.info(
        "sent %d frames with %d %s in %.1f s",
        len(fed.packets),
        fed.messages,
        kind.noun,
        fed.seconds,
    )
    return fed


def _publishers(network: Network, settings: Settings) -> tuple[str, ...]:
    only = settings.publisher
    return sending(network, only) if several(only) else (only,)


class NetworkProof(RunProof):
    """The proof of a run of switches that match, by what was fed and the hosts' receipts; if the
    packets are in a topic, also of the summaries of the stream that reads it."""

    def __init__(
        self,
        settings: Settings,
        kind: RunKind,
        tables: Tables,
        network: Network,
        fed: Fed,
        folder: Path,
        status: Mapping[str, Any],
    ) -> None:
        self._fed = fed
        self._specification = specification_of(settings, tables)
        self._rejected = [Rejection.from_row(row) for row in tables.rows(REJECTED)]
        self._read = kind.frame_reader()
        self._registry = kind.registry(settings, tables)
        rows, _ = select(
            tables.rows("subscriptions"),
            settings.format,
            FORMATS,
            self._specification,
            partial(tables.rows, SENIORITY),
            settings.rule_quota,
        )
        hosts, only = receiving(network, settings.publisher)
        grants = Grants.of_table(tables.rows(GRANTS), settings.format, self._specification)
        self._live = live_rows(rows, self._rejected)
        self._rules, _ = check(self._live, self._specification, hosts, only, grants)
        self._publishers = _publishers(network, settings)
        owed = expected(
            *(fed.packets, self._rules, self._specification, self._read, self._registry),
            *(self._publishers, fed.topic),
        )
        self._summaries: SummaryTally | None = None
        if fed.topic is not None:
            told = {host for rule in self._rules for host in rule.receivers}
            self._summaries = check_recorded_summaries(folder, told, _ends(fed, fed.topic))
        compared = verification.compare(owed, receipts(folder, kind.receipt), pruned=True)
        super().__init__(
            settings, kind.options, network, folder, status, owed, compared, kind.framing
        )

    @property
    def exact(self) -> bool:
        told = self._summaries
        # Each summary is one host's.
        sent = len(self._fed.packets) + (told.summaries if told else 0)
        carried = self._status["frames_in"] == sent
        right = told is None or told.exact
        return self._compared.exact and carried and right and bool(self._fed.packets)

    def _figures(self) -> dict[str, Any]:
        return {
            "messages_in": self._fed.messages,
            "messages_matched": self._expected.messages_matched,
            "frames_sent": len(self._fed.packets),
            "rejected_subscriptions": len(self._rejected),
            "dead_letters": self._expected.dead_letters.total(),
            "feed_seconds": round(self._fed.seconds, 1),
            **({} if self._summaries is None else {"summaries": self._summaries.summaries}),
        }

    def _samples(self) -> dict[str, Any]:
        showcase = FilteredShowcase(
            self._network,
            self._specification,
            self._settings.publisher,
            self._read,
            self._registry,
            lambda place: self._publishers[place.partition],
        )
        live = ({**row._asdict(), "enabled": True} for row in self._live)
        return {
            "subscriptions": shown_subscriptions(live, self._expected),
            "notifications": showcase.notifications(self._fed.packets, self._rules, self._expected),
        }


def _sent_by(publisher: str) -> verification.SenderReader:
    return lambda *_: verification.Sender(publisher)


def expected(
    packets: Iterable[tuple[int, int, bytes]],
    rules: Sequence[CheckedRule],
    specification: Specification,
    read: verification.RecordReader | None = None,
    registry: Registry | None = None,
    publishers: Sequence[str] = ("",),
    topic: Topic | None = None,
) -> verification.Expectation:
    """Returns what hosts are owed of packets as `Fed` has them, all under the same rules.

    publishers: by number; each is owed what others send, since no switch sends out of the port that
    a packet came in by. topic: where the packets are, if they are in one.
    """
    batches = [
        verification.Batch(
            number,
            {number: (0, 1 << 62)},
            without_receiver(rules, name),
            registry,
            sender=_sent_by(name) if name else None,
        )
        for number, name in enumerate(publishers)
    ]
    sessions = partial(session_id, topic) if topic else session_of
    return verification.expected(
        packets, batches, specification, topic or Topic(""), sessions, read
    )


def _ends(fed: Fed, topic: Topic) -> dict[bytes, int]:
    """Returns by session the offset behind its last packet."""
    return {
        session_id(topic, partition): split_sequence(number)[0] + 1
        for partition, number, _ in fed.packets
    }
