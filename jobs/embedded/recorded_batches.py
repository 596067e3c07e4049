"""The sources of the batches on the ledger, for proofs: rules, attributes, network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import networkx as nx

from stackcast.jobs.adapters.app.settings import FORMATS, Settings
from stackcast.jobs.adapters.checkpoint.identity import QUOTA
from stackcast.jobs.adapters.planning.plans import NETWORK, network_at, sources
from stackcast.jobs.adapters.planning.versions import LINK_STATES
from stackcast.jobs.adapters.tables.recorded_topics import topic_of_row
from stackcast.jobs.adapters.tables.tables import GRANTS, REJECTED, SENIORITY, SUBSCRIPTIONS, Tables
from stackcast.jobs.embedded.kinds import RunKind
from stackcast.lab.proof import verification
from stackcast.lab.proof.recorded import Recorded
from stackcast.udfs.filters.advertisements import check_advertisements, select_advertisements
from stackcast.udfs.filters.grants import Grants
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.nodes import Node
from stackcast.udfs.filters.selection import select
from stackcast.udfs.filters.subscriptions import CheckedRule, Rejection, check, live_rows
from stackcast.udfs.messages.attributes.registry import FORMAT as ATTRIBUTES
from stackcast.udfs.messages.attributes.registry import Registry
from stackcast.udfs.messages.sequence import Topic, session_id
from stackcast.udfs.messages.specification import Specification
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.publishers import listed, receiving, several

Row = Mapping[str, Any]


@dataclass(frozen=True)
class _Live:
    rules: Sequence[CheckedRule]
    registry: Registry | None
    cut_off: frozenset[str]
    announced: Mapping[str, Sequence[Node]]
    #: Whose a message is, where there are several.
    sender: verification.SenderReader | None


class RecordedBatches:
    """The batches of a topic, by the rows of ``egress_ledger``, in the order in which they ran: a
    new checkpoint counts them anew.

    Tables are read at the versions of each row, each version once. Raises Spark's errors where
    Delta has a version no more.
    """

    def __init__(
        self, settings: Settings, tables: Tables, kind: RunKind, specification: Specification
    ) -> None:
        self._settings = settings
        self._tables = tables
        self._kind = kind
        self._specification = specification
        self._versions: dict[tuple[tuple[int | None, ...], int], _Live] = {}
        self._interned: dict[tuple[tuple[str, int], ...], Mapping[str, int]] = {}
        self._networks: dict[tuple[int, ...], tuple[Network, frozenset[str]]] = {}
        self._reader = kind.reader(settings, specification)
        #: What a header says of each record, by partition and offset, where a header names its
        #: publisher.
        self.told: Mapping[tuple[int, int], str] = {}
        rows = [row for row in tables.rows("egress_ledger") if row["topic"] == settings.topic]
        rows.sort(key=lambda row: row["started_at"])
        topics = [topic_of_row(row) for row in rows]
        #: The topic as the newest batch read it; batches of the same topic alone are here.
        self.topic = topics[-1] if topics else Topic(settings.topic)
        self.ledger: list[dict[str, Any]] = [
            row for row, topic in zip(rows, topics, strict=True) if topic == self.topic
        ]
        #: Sessions of the topic before it was created again, or before its log was truncated.
        self.earlier = frozenset(
            session_id(topic, p["partition"])
            for row, topic in zip(rows, topics, strict=True)
            for p in row["partitions"]
            if topic != self.topic
        )
        self.recorded = [self._recorded(row) for row in self.ledger]

    @property
    def batches(self) -> list[verification.Batch]:
        return [one.batch for one in self.recorded]

    def read(self, record: bytes, batch: verification.Batch) -> Iterator[verification.FoundMessage]:
        """Reads a record as it was read in a batch: a
        `stackcast.lab.proof.verification.RecordReader`."""
        for found in self._reader(record, batch):
            silent = found.reason or not batch.announced
            if silent or any(matches(condition, found.event) for condition in batch.announced):
                yield found
            else:
                yield found._replace(reason="outside_advertisement")

    def _recorded(self, row: Row) -> Recorded:
        versions = self._same(dict(row["versions"]))
        names = (SUBSCRIPTIONS, SENIORITY, *sources(self._settings), *NETWORK, LINK_STATES)
        # A rule beyond the quota of then was not live.
        quota = int(dict(row["settings"] or {}).get(QUOTA, self._settings.rule_quota))
        key = tuple(versions.get(name) for name in names), quota
        if key not in self._versions:
            self._versions[key] = self._live_at(versions, quota)
        live = self._versions[key]
        offsets = {p["partition"]: (p["from_offset"], p["until_offset"]) for p in row["partitions"]}
        batch = verification.Batch(
            row["batch_id"],
            offsets,
            live.rules,
            live.registry,
            live.announced.get(self._settings.publisher, ()),
            live.sender,
        )
        records = {p["partition"]: p["records"] for p in row["partitions"]}
        return Recorded(batch, versions, live.cut_off, row["packets"], records)

    def _live_at(self, versions: Mapping[str, int], quota: int) -> _Live:
        registry = self._kind.registry(self._settings, self._tables, versions.get(ATTRIBUTES))
        specification = self._specification if registry is None else registry.specification()
        network, cut_off = self._network_at(versions)
        settings = self._settings
        rows, _ = select(
            self._tables.rows(SUBSCRIPTIONS, versions[SUBSCRIPTIONS]),
            settings.format,
            FORMATS,
            specification,
            partial(self._tables.rows, SENIORITY, versions[SENIORITY]),
            quota,
        )
        if settings.match == "network":
            # Switches do not hold them, so they are live nowhere.
            refused = self._tables.rows(REJECTED, versions[REJECTED])
            rows = live_rows(rows, map(Rejection.from_row, refused))
        given = self._tables.rows(GRANTS, versions[GRANTS])
        grants = Grants.of_table(given, settings.format, specification)
        hosts, only = receiving(network, settings.publisher)
        rules, _ = check(rows, specification, hosts, only, grants)
        announced = self._announced(versions["advertisements"], specification, network)
        publishers = network.publishers()
        sender = None
        if several(settings.publisher):
            # One object for all batches under these versions: the proof joins such batches.
            sender = self._sender_reader(publishers, announced)
        return _Live(list(rules), registry, cut_off, announced, sender)

    def _same(self, versions: Mapping[str, int]) -> Mapping[str, int]:
        """One object for all batches of the same versions: there are many batches."""
        return self._interned.setdefault(tuple(sorted(versions.items())), versions)

    def _announced(
        self, version: int, specification: Specification, network: Network
    ) -> dict[str, list[Node]]:
        rows = self._tables.rows("advertisements", version)
        announced = {}
        for name in network.publishers():
            chosen = select_advertisements(rows, self._settings.format, name)
            fine, refused = check_advertisements(chosen, specification, network.hosts)
            # Who announces something that cannot be read is not held to the rest of it.
            if not refused:
                announced[name] = [parse_rule(a.filter, specification).condition for a in fine]
        return announced

    def _sender_reader(
        self, publishers: Sequence[str], announced: Mapping[str, Sequence[Node]]
    ) -> verification.SenderReader:
        kind, _, name = self._settings.publisher_by.partition(":")
        names = listed(self._settings.publisher) or publishers

        def told(partition: int, offset: int, found: verification.FoundMessage) -> str | None:
            if kind == "partition":
                return names[partition % len(names)]
            if kind == "header":
                return self.told.get((partition, offset))
            for field, raw in found.event.items():
                if name in (field, field.partition(".")[2]):
                    known = self._specification.fields[field]
                    if known.kind == "string":
                        return known.render(raw).strip('"')
                    return names[raw - 1] if 0 < raw <= len(names) else str(raw)
            return None

        def read(
            partition: int, offset: int, found: verification.FoundMessage
        ) -> verification.Sender:
            sender = told(partition, offset, found)
            if sender is None:
                return verification.Sender("", "no_publisher", kind == "header")
            if sender not in names or sender not in publishers:
                return verification.Sender(sender, "unknown_publisher", kind != "field")
            conditions = announced.get(sender, ())
            if conditions and not any(matches(each, found.event) for each in conditions):
                return verification.Sender(sender, "outside_advertisement")
            return verification.Sender(sender)

        return read

    def _network_at(self, versions: Mapping[str, int]) -> tuple[Network, frozenset[str]]:
        key = tuple(versions[name] for name in (*NETWORK, LINK_STATES))
        if key not in self._networks:
            network = network_at(versions, self._tables.rows, self._settings.labels)
            edges = network.graph().edges(data="up")
            up = nx.Graph((u, v) for u, v, usable in edges if usable)
            senders = listed(self._settings.publisher) or network.publishers()
            up.add_nodes_from(senders)
            reached = set().union(*(nx.descendants(up, sender) for sender in senders))
            hosts, _ = receiving(network, self._settings.publisher)
            self._networks[key] = network, frozenset(hosts - reached)
        return self._networks[key]
