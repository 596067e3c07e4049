"""Explains why a notification was sent, to whom, and which way: computed again from what is on
record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.planning import formats
from stackcast.jobs.adapters.replay.ledger import KnownSession
from stackcast.jobs.adapters.replay.replay import Prepared, Replay, Run
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.udfs.errors import MessageError, ReplayError
from stackcast.udfs.filters.explanation.explain import evaluate_rule
from stackcast.udfs.filters.meaning.evaluate import is_stateful
from stackcast.udfs.filters.subscriptions import CheckedRule
from stackcast.udfs.messages.attributes.registry import FORMAT
from stackcast.udfs.messages.reference import read_packet
from stackcast.udfs.messages.sequence import INDEX_BITS, sequence_number, session_id, split_sequence
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.rows import tree_from_row
from stackcast.udfs.network_match.routing import ports_towards
from stackcast.udfs.replay.sent_ranges import Gap, SentRange
from stackcast.udfs.stacks.dissect import dissect
from stackcast.udfs.stacks.forwarding import path_of_stack

Json = dict[str, Any]

_PLACE = (1 << INDEX_BITS) - 1
_UDP = 8
"""Bytes of UDP's header."""


class SentExplanation:
    """Explains what one stream has sent. Start with `explain`."""

    def __init__(self, spark: SparkSession, settings: Settings, tables: Tables) -> None:
        self._settings = settings
        self._tables = tables
        self._replay = Replay(spark, settings, tables, by_ingress=True)

    def explain(self, session: str, sequence: int, host: str = "") -> Json:
        """All about one notification, as JSON has it. With ``host``, of its own rules alone those
        that match, or all where none does.

        sequence: of any message in it. Raises ReplayError NO_SESSION, NOT_SENT (no batch read that
        record, or it has no such message), NOT_RECORDED (the batch is missing in the ledger),
        NO_RECEIVER (no host receives the message), UNREADABLE (it is a dead letter), and what
        `Replay` raises.
        """
        self._replay.ledger.refresh()
        known = self._session(session)
        partition = known.partition
        offset, index = split_sequence(sequence)
        if known.until is not None and offset >= known.until:
            raise ReplayError(
                "SESSION_ENDED",
                f"session {session} ended at offset {known.until} of partition {partition}, "
                "because the topic was created again or Kafka truncated its log: the record at "
                f"offset {offset} no longer exists",
            )
        if offset < known.begin:
            raise ReplayError(
                "NOT_SENT",
                f"session {session} began at offset {known.begin} of partition {partition}: "
                "earlier notifications have another session",
            )
        found = self._range(partition, offset)
        run = self._replay.prepare(partition, offset)
        only = (offset, offset + 1)
        pruned = _pruned(run.prepared)
        if pruned:
            # Whatever switches leave of a packet has its number.
            sequence = sequence_number(offset, 0)
        sent = self._replay.run(run, None, only, whole=True)
        places = [
            at
            for at, (first, count) in enumerate(
                zip(sent.sequence.tolist(), sent.messages.tolist(), strict=True)
            )
            if first <= sequence < first + count
        ]
        if not places:
            value = self._value(run, partition, offset)
            raise self._why_not(run.prepared, value, offset, index, sent.sequence.tolist())
        frames = [
            (sent.receivers[int(sent.group[at])], content)
            for at, content in zip(places, sent.content.take(places).to_pylist(), strict=True)
        ]
        if pruned:
            messages = list(dissect(frames[0][1]).messages)
            if not _attributes(run.prepared):
                # All of the packet: one of them is asked for, whoever got it.
                messages = read_packet(self._value(run, partition, offset) or b"")[2]
            shown = [self._packet(run.prepared, names, frame) for names, frame in frames]
            number = sequence_number(offset, 0)
        else:
            parts = dissect(frames[0][1])
            messages, number = list(parts.messages), parts.sequence
            shown = [self._frame(run.prepared, names, frame) for names, frame in frames]
        return {"session": session, "sequence": number} | self._told(
            run.prepared, found, partition, offset, index, messages, shown, host
        )

    def session_of(self, partition: int) -> str:
        """Returns the newest session of a partition. Raises ReplayError NO_SESSION."""
        ledger = self._replay.ledger
        ledger.refresh()
        session = b"" if ledger.topic is None else session_id(ledger.topic, partition)
        if session not in ledger.sessions:
            raise ReplayError(
                "NO_SESSION",
                f"no batch in the ledger has read partition {partition} of topic "
                f"{self._settings.topic}: use the properties file of the stream that delivers it",
            )
        return session.decode()

    def _session(self, session: str) -> KnownSession:
        sessions = self._replay.ledger.sessions
        found = sessions.get(session.encode())
        if found is None:
            known = ", ".join(sorted(s.decode() for s in sessions)[:8]) or "no sessions"
            raise ReplayError(
                "NO_SESSION",
                f"session {session!r} is not a recorded session of topic {self._settings.topic}, "
                f"which has {known}: use the properties file of the stream that sent it",
            )
        return found

    def _range(self, partition: int, offset: int) -> SentRange:
        found = self._replay.ledger.ranges.at(partition, offset)
        if isinstance(found, SentRange):
            return found
        where = f"offset {offset} of partition {partition}"
        raise _gap(where, found)

    def _value(self, run: Run, partition: int, offset: int) -> bytes | None:
        records = self._replay.records(run.prepared, partition, offset, offset + 1)
        rows = records.select("value").collect()
        return None if not rows else bytes(rows[0]["value"] or b"")

    def _why_not(
        self, prepared: Prepared, value: bytes | None, offset: int, index: int, sent: Sequence[int]
    ) -> ReplayError:
        """Says why no notification has a message of this record."""
        where = f"message {index} of the record at offset {offset}"
        others = ", ".join(map(str, sent[:8])) or "none"
        if value is None:
            return ReplayError("NOT_SENT", f"the topic has no record at offset {offset}")
        try:
            messages = [value] if _attributes(prepared) else read_packet(value)[2]
            if index >= len(messages):
                return ReplayError(
                    "NOT_SENT",
                    f"{where} does not exist, because the record contains only {len(messages)} "
                    f"messages; sequence numbers of its notifications: {others}",
                )
            event = {} if _attributes(prepared) else self._event(prepared, messages[index])[0]
        except MessageError as error:
            return ReplayError("UNREADABLE", f"{where} is a dead letter: {error}")
        shown = ", ".join(f"{name} = {text}" for name, text in event.items())
        return ReplayError(
            "NO_RECEIVER",
            f"no notification begins with {where}: no subscription matched it, or it was sent "
            "together with an earlier message of its record (notifications of the record: "
            f"{others}). {shown}",
        )

    def _event(self, prepared: Prepared, message: bytes) -> tuple[dict[str, str], dict[str, int]]:
        """Fields as texts, and raw, by qualified name."""
        form = formats.format_of(
            prepared.settings, self._tables, prepared.planned.compilation.versions
        )
        return formats.event_of(form, message)

    def _told(
        self,
        prepared: Prepared,
        found: SentRange,
        partition: int,
        offset: int,
        index: int,
        messages: Sequence[bytes],
        frames: Sequence[Json],
        host: str,
    ) -> Json:
        compilation = prepared.planned.compilation
        receivers = sorted({name for frame in frames for name in frame["receivers"]})
        events = [self._event(prepared, message) for message in messages]
        texts = {row.id: row for row in prepared.planned.subscriptions}
        rules = []
        for rule in compilation.rules:
            if not (host in rule.receivers if host else set(rule.receivers) <= set(receivers)):
                continue
            told = self._rule(prepared, rule, [raw for _, raw in events])
            if told["matches"] or (host and host not in receivers):
                row = texts.get(rule.id)
                told |= {"subscriber": row.subscriber, "filter": row.filter} if row else {}
                rules.append(told)
        return {
            "topic": self._settings.topic,
            "partition": partition,
            "offset": offset,
            "message_index": index,
            "batch": found.batch,
            "started_us": found.started,
            "versions": dict(compilation.versions),
            "settings": self._replay.ledger.origins[found.origin].settings,
            "events": [shown for shown, _ in events],
            "receivers": receivers,
            **({"host": host, "received": host in receivers} if host else {}),
            "rules": rules,
            "frames": list(frames),
        }

    def _rule(
        self, prepared: Prepared, rule: CheckedRule, events: Sequence[Mapping[str, int]]
    ) -> Json:
        """Explains what a rule says of the messages, which are those that went together."""
        stateful = is_stateful(rule.condition)
        verdicts: list[Json] = []
        for number, raw in enumerate(events):
            specification = prepared.planned.compilation.plan.specification
            if stateful:
                # What it compared with is in the state, which only the whole batch knows.
                verdicts.append({"message": number, "truth": "by state", "predicates": []})
                continue
            said = evaluate_rule(rule, raw, specification)  # type: ignore[arg-type]
            predicates = [
                {"text": p.text, "truth": p.truth, "decided": p.decided} for p in said.predicates
            ]
            verdicts.append({"message": number, "truth": said.truth, "predicates": predicates})
        return {
            "id": rule.id,
            "receivers": list(rule.receivers),
            "stateful": stateful,
            "matches": any(each["truth"] in ("true", "by state") for each in verdicts),
            "verdicts": verdicts,
        }

    def _sender(
        self, prepared: Prepared, receivers: Sequence[str], frame: bytes
    ) -> tuple[str, str]:
        """Returns the publisher of a frame, and the one by whose link it entered."""
        compilation, settings = prepared.planned.compilation, prepared.settings
        publishers = compilation.plan.publishers
        if publishers is None:
            return settings.publisher, settings.publisher
        hosts = prepared.planned.network.hosts.values()
        source = dissect(frame).ipv4.source
        sender = next(host.name for host in hosts if host.ipv4 == source)
        own = "".join(publishers.ingresses) or sender
        if list(receivers) != [own]:
            return sender, own
        number = publishers.links.index(own)
        entry = compilation.header_stacks.of((own,), number).parts[0].entry
        return sender, publishers.links[number if entry is None else entry]

    def _packet(self, prepared: Prepared, receivers: Sequence[str], frame: bytes) -> Json:
        """Tells of what switches that match leave a host of a packet, and the way by which.

        frame: as the stream would send it.
        """
        publisher, _ = self._sender(prepared, receivers, frame)
        packet = frame[-(dissect(frame).udp.length - _UDP) :]
        network, settings = prepared.planned.network, prepared.settings
        ports = ports_towards(network, settings.publisher)
        paths = {host: _way(network, ports, publisher, host) for host in receivers}
        return {
            "publisher": publisher,
            "entry": publisher,
            "receivers": list(receivers),
            "labels": [],
            "leave_at": [],
            "paths": paths,
            "links": sorted({link for path in paths.values() for link in pairwise(path)}),
            "bytes": len(packet),
            "hex": packet.hex(),
        }

    def _frame(self, prepared: Prepared, receivers: Sequence[str], frame: bytes) -> Json:
        parts = dissect(frame)
        versions = prepared.planned.compilation.versions
        trees = map(tree_from_row, self._tables.rows("virtual_trees", versions["virtual_trees"]))
        network = prepared.planned.network
        publisher, entry = self._sender(prepared, receivers, frame)
        way = path_of_stack(network, trees, entry, parts.labels)
        return {
            "publisher": publisher,
            "entry": entry,
            "receivers": list(receivers),
            "labels": list(way.labels),
            "leave_at": list(way.leave_at),
            "paths": {name: list(way.paths.get(name, ())) for name in receivers},
            "links": [list(link) for link in way.links],
            "bytes": len(frame),
            "hex": frame.hex(),
        }


def _pruned(prepared: Prepared) -> bool:
    """Tells whether switches matched."""
    return prepared.planned.compilation.plan.host_packets is not None


def _way(
    network: Network, ports: Mapping[str, Mapping[str, int]], publisher: str, host: str
) -> list[str]:
    """Returns the way of events to a host where switches match; empty where none leads there.

    ports: as of `ports_towards`.
    """
    neighbors = {(link.switch, link.port): link.neighbor for link in network.links}
    way = [publisher, network.hosts[publisher].switch]
    while way[-1] != host:
        port = ports.get(way[-1], {}).get(host)
        if port is None:
            return []
        way.append(neighbors[way[-1], port])
    return way


def _attributes(prepared: Prepared) -> bool:
    return prepared.settings.format == FORMAT


def _gap(where: str, gap: Gap) -> ReplayError:
    if gap.until is None:
        return ReplayError(
            "NOT_RECORDED",
            f"{where} is not in the ledger yet: the last recorded batch of its partition ends "
            "before it",
        )
    if gap.missing:
        return ReplayError(
            "NOT_RECORDED",
            f"{where} is in a gap of the ledger: batches before and after it are recorded, but "
            "its own batch is missing",
        )
    return ReplayError(
        "NOT_SENT",
        f"no batch has read {where}: the next batch begins at offset {gap.until}, and no batch "
        "before it is missing",
    )
