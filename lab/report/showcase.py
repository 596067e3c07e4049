"""Samples for the report's map: notifications with the reason, the tree and the stack of each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from stackcast.lab.proof.rule_matches import Place, event_columns
from stackcast.lab.proof.timeline import keeps_state
from stackcast.lab.proof.verification import (
    Batch,
    Expectation,
    FoundMessage,
    RecordReader,
    packet_reader,
)
from stackcast.udfs.errors import MessageError
from stackcast.udfs.filters.meaning.evaluate import matches_columns
from stackcast.udfs.filters.subscriptions import CheckedRule
from stackcast.udfs.messages.attributes.registry import Registry
from stackcast.udfs.messages.specification import Specification
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.network_match.routing import ports_towards
from stackcast.udfs.trees.encoders import encoder_of

#: So many, and more only where each rule that matched has no other.
SAMPLES = 300
#: Of one subscription only so many, so that many subscriptions have one.
OF_ONE_SUBSCRIPTION = 3


class Showcase:
    """Draws on network and trees of a run; everything it returns is JSON.

    specification: of the messages. read: what records are, as for ``verification.expected``; by
    default packets of messages of ``specification``. registry: for a reader of attribute/value
    events. sender: whose a message is, where there are several publishers.
    """

    def __init__(
        self,
        network: Network,
        trees: Sequence[VirtualTree],
        specification: Specification,
        publisher: str,
        max_labels: int,
        read: RecordReader | None = None,
        registry: Registry | None = None,
        sender: Callable[[Place], str] | None = None,
    ) -> None:
        self._network = network
        self._specification = specification
        self._read = read or packet_reader(specification)
        self._registry = registry
        # Of several publishers the network's first has the encoder that those of others share.
        only = publisher if publisher in network.hosts else network.publishers()[0]
        self._encoder = encoder_of(network, only, trees, max_labels)
        self._sender = sender or (lambda _: publisher)

    def notifications(
        self,
        records: Iterable[tuple[int, int, bytes]],
        rules: Sequence[CheckedRule],
        expectation: Expectation,
    ) -> list[dict[str, Any]]:
        """Returns messages from all of the topic, at least one for each rule that matched.

        records: (partition, offset, payload). rules: those that say who matched, and why.
        expectation: of these records; it knows where rules matched.
        """
        batch = Batch(0, {}, rules, self._registry)
        found = self._found(records, batch, expectation)
        matching = self._matching(found, rules, expectation)
        chosen = sorted(_spread(matching, expectation))
        by_id = {rule.id: rule for rule in rules}
        samples = []
        for number, place in enumerate(chosen):
            matched = [by_id[name] for name in matching[place]]
            samples.append({"id": number} | self._sample(place, found[place], matched))
        return samples

    def _found(
        self,
        records: Iterable[tuple[int, int, bytes]],
        batch: Batch,
        expectation: Expectation,
    ) -> dict[Place, FoundMessage]:
        """The messages that may become samples."""
        places: dict[tuple[int, int], set[Place]] = defaultdict(set)
        for matches in expectation.matches.values():
            for place in matches.places:
                places[place.partition, place.offset].add(place)
        found = {}
        for partition, offset, payload in records:
            if (partition, offset) in places:
                messages = self._messages(payload, batch)
                for place in places[partition, offset]:
                    found[place] = messages[place.message]
        return {place: message for place, message in found.items() if not message.reason}

    @staticmethod
    def _matching(
        found: Mapping[Place, FoundMessage],
        rules: Sequence[CheckedRule],
        expectation: Expectation,
    ) -> dict[Place, list[str]]:
        """The rules that match each message."""
        stateless = [rule for rule in rules if not keeps_state(rule)]
        stateful = {rule.id for rule in rules if keeps_state(rule)}
        events = [message.event for message in found.values()]
        columns, present = event_columns(events, [rule.condition for rule in stateless])
        places = list(found)
        matching: dict[Place, list[str]] = {
            place: [name for name in expectation.fired.get(place, ()) if name in stateful]
            for place in places
        }
        for rule in stateless:
            mask = matches_columns(rule.condition, columns, present)
            for number in np.flatnonzero(mask).tolist():
                matching[places[number]].append(rule.id)
        return matching

    def _sample(
        self, place: Place, found: FoundMessage, matched: Sequence[CheckedRule]
    ) -> dict[str, Any]:
        receivers = frozenset(host for rule in matched for host in rule.receivers)
        sender = self._sender(place)
        labels, edges = self._way(sender, receivers)
        return {
            "publisher": sender,
            "partition": place.partition,
            "offset": place.offset,
            "message": place.message,
            "event": {
                name: self._specification.field(name).render(raw)
                for name, raw in found.event.items()
            },
            "subscriptions": [rule.id for rule in matched],
            "receivers": sorted(receivers),
            "labels": [self._label(label) for label in labels],
            "edges": [list(edge) for edge in edges],
        }

    def _messages(self, payload: bytes, batch: Batch) -> list[FoundMessage]:
        try:
            return list(self._read(payload, batch))
        except MessageError:
            return []

    def _way(
        self, sender: str, receivers: frozenset[str]
    ) -> tuple[list[int], list[tuple[str, str]]]:
        """Labels and links of the notification."""
        encodings = self._encoder.of(sender).encode(receivers - {sender})
        return (
            [label for e in encodings for label in e.labels],
            [edge for e in encodings for edge in e.edges],
        )

    def _label(self, label: int) -> dict[str, Any]:
        link = self._network.link_of(label)
        text = self._network.describe(label)
        kind = text.split()[0]
        return {
            "text": text,
            "kind": kind,
            "wire": f"0x{label:0{2 * self._network.labels.size}x}",
            "link": [link.switch, link.neighbor] if link else [],
        }


class FilteredShowcase(Showcase):
    """The same where the switches match: no stacks, and one tree for all."""

    def __init__(
        self,
        network: Network,
        specification: Specification,
        publisher: str,
        read: RecordReader | None = None,
        registry: Registry | None = None,
        sender: Callable[[Place], str] | None = None,
    ) -> None:
        super().__init__(network, (), specification, publisher, 1, read, registry, sender)
        self._ports = ports_towards(network, publisher)
        self._ends = {(link.switch, link.port): link.neighbor for link in network.links}

    def _way(
        self, sender: str, receivers: frozenset[str]
    ) -> tuple[list[int], list[tuple[str, str]]]:
        edges = [(sender, self._network.host(sender).switch)]
        for before, switch in edges:
            ports = self._ports.get(switch, {})
            taken = {ports[name] for name in receivers if name in ports}
            ends = (self._ends[switch, port] for port in sorted(taken))
            edges += ((switch, end) for end in ends if end != before)
        return [], edges

    def _sample(
        self, place: Place, found: FoundMessage, matched: Sequence[CheckedRule]
    ) -> dict[str, Any]:
        others = without_receiver(matched, self._sender(place))
        return super()._sample(place, found, others)


def without_receiver(rules: Iterable[CheckedRule], host: str) -> list[CheckedRule]:
    """Returns rules whose receivers are all others; a rule for the host alone is left out."""
    kept = ((rule, tuple(name for name in rule.receivers if name != host)) for rule in rules)
    return [replace(rule, receivers=names) for rule, names in kept if names or not rule.receivers]


def _spread(matching: Mapping[Place, Sequence[str]], expectation: Expectation) -> set[Place]:
    """Some of the messages: one for each rule, the rarest first, then up to `SAMPLES` more."""
    rules = sorted(expectation.matches, key=lambda name: expectation.matches[name].count)
    chosen: set[Place] = set()
    shown: Counter[str] = Counter()
    for wanted in range(1, OF_ONE_SUBSCRIPTION + 1):
        for number, name in enumerate(rules):
            places = [p for p in expectation.matches[name].places if name in matching.get(p, ())]
            # Each rule begins elsewhere, or all samples were of the first or the last records.
            start = (number * len(places)) // max(1, len(rules)) if wanted == 1 else 0
            for place in (*places[start:], *places[:start]):
                if shown[name] >= wanted or (wanted > 1 and len(chosen) >= SAMPLES):
                    break
                if place not in chosen:
                    chosen.add(place)
                    shown.update(matching[place])
    return chosen
