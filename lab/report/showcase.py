"""Samples for the report's map: notifications with the reason, the tree and the stack of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from lab.proof.timeline import keeps_state
from lab.proof.verification import Batch, FoundMessage, RecordReader, packet_reader
from udfs.errors import MessageError
from udfs.filters.meaning.evaluate import matches
from udfs.filters.subscriptions import CheckedRule
from udfs.messages.attributes.registry import Registry
from udfs.messages.specification import Specification
from udfs.network.labels import KINDS
from udfs.network.network import Network
from udfs.network.virtual_tree import VirtualTree
from udfs.network_match.routing import ports_towards
from udfs.trees.encode import Encoder

SAMPLES = 300
#: Of one subscription only so many, so that many subscriptions have one.
OF_ONE_SUBSCRIPTION = 3


class Showcase:
    """Draws on network and trees of a run; everything it returns is JSON.

    specification: of the messages. read: what records are, as for ``verification.expected``; by
    default packets of messages of ``specification``. registry: for a reader of attribute/value
    events.
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
    ) -> None:
        self._network = network
        self._specification = specification
        self._read = read or packet_reader(specification)
        self._registry = registry
        self._encoder = Encoder(network, publisher, trees, max_labels)

    def notifications(
        self, records: Iterable[tuple[int, int, bytes]], rules: Sequence[CheckedRule]
    ) -> list[dict[str, Any]]:
        """Returns the first messages that show something new, by brute force over the rules."""
        samples: list[dict[str, Any]] = []
        shown: Counter[str] = Counter()
        batch = Batch(0, {}, rules, self._registry)
        for partition, offset, payload in records:
            if len(samples) >= SAMPLES:
                break
            for index, found in enumerate(self._messages(payload, batch)):
                sample = self._sample(partition, offset, index, found, rules, shown)
                if sample is not None:
                    samples.append(sample | {"id": len(samples)})
        return samples

    def _sample(
        self,
        partition: int,
        offset: int,
        index: int,
        found: FoundMessage,
        rules: Sequence[CheckedRule],
        shown: Counter[str],
    ) -> dict[str, Any] | None:
        if found.reason:
            return None
        event = found.event
        # Whether rules with state match depends on all events before: none serves as a sample.
        stateless = (rule for rule in rules if not keeps_state(rule))
        matching = [rule for rule in stateless if matches(rule.condition, event)]
        if all(shown[rule.id] >= OF_ONE_SUBSCRIPTION for rule in matching):
            return None
        shown.update(rule.id for rule in matching)
        receivers = frozenset(host for rule in matching for host in rule.receivers)
        labels, edges = self._way(receivers)
        return {
            "partition": partition,
            "offset": offset,
            "message": index,
            "event": {
                name: self._specification.field(name).render(raw) for name, raw in event.items()
            },
            "subscriptions": [rule.id for rule in matching],
            "receivers": sorted(receivers),
            "labels": [self._label(label) for label in labels],
            "edges": [list(edge) for edge in edges],
        }

    def _messages(self, payload: bytes, batch: Batch) -> list[FoundMessage]:
        try:
            return list(self._read(payload, batch))
        except MessageError:
            return []

    def _way(self, receivers: frozenset[str]) -> tuple[list[int], list[tuple[str, str]]]:
        """Labels and links of the notification."""
        encodings = self._encoder.encode(receivers)
        return (
            [label for e in encodings for label in e.labels],
            [edge for e in encodings for edge in e.edges],
        )

    def _label(self, label: int) -> dict[str, Any]:
        kind, number = self._network.labels.split(label)
        return {"text": self._network.describe(label), "kind": KINDS[kind], "id": number}


class FilteredShowcase(Showcase):
    """The same where the switches match: no stacks, and one tree for all."""

    def __init__(
        self,
        network: Network,
        specification: Specification,
        publisher: str,
        read: RecordReader | None = None,
        registry: Registry | None = None,
    ) -> None:
        super().__init__(network, (), specification, publisher, 1, read, registry)
        self._publisher = publisher
        self._ports = ports_towards(network, publisher)
        self._ends = {(link.switch, link.port): link.neighbor for link in network.links}

    def _way(self, receivers: frozenset[str]) -> tuple[list[int], list[tuple[str, str]]]:
        first = self._network.host(self._publisher).switch
        edges = [(self._publisher, first)]
        for switch, ports in self._ports.items():
            taken = {ports[name] for name in receivers if name in ports}
            edges += ((switch, self._ends[switch, port]) for port in sorted(taken))
        return [], edges
