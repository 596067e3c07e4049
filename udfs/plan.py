"""The delivery plan: all that a worker needs to turn packets into frames, for one set of versions.

Work per receiver set, not per event: delivery tree, header stack and frame header are computed
here, once for each set of receivers that the compiled filter knows (a *delivery*), and used by
reference for every event. Leaves that differ only in what they do to state share a delivery: rules
that send nothing must not change the frames of those that do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from udfs.errors import NetworkError
from udfs.filters.compiler.compile import CompiledFilter
from udfs.filters.live_rules import LiveRules
from udfs.filters.matching.cells import StatefulMatcher
from udfs.filters.matching.matcher import Matcher
from udfs.filters.meaning.state import clock_of
from udfs.filters.subscriptions import CheckedRule, Rejection, Subscription
from udfs.messages.specification import Field, Specification
from udfs.stacks.frame import FrameTemplates, header_template
from udfs.trees.encode import Encoder, Encoding
from udfs.trees.network import Network
from udfs.trees.virtual_tree import VirtualTree, check_ids


@dataclass(frozen=True)
class Addressing:
    """What every frame of a deployment has in common.

    publisher: host of the network that the frames leave from. group (IPv4 as an integer), port: the
    multicast address that hosts see. mtu: most bytes after the Ethernet header. max_labels: the
    switches' limit.
    """

    publisher: str
    group: int
    port: int
    mtu: int
    max_labels: int


@dataclass(frozen=True)
class Plan:
    """The part that ships to the workers: arrays only, a few hundred kilobytes.

    fields: those whose columns ``matcher`` takes. templates: by delivery; 0 is nobody's.
    delivery: int32, by leaf number, the leaf's delivery; None where both have the same number,
    as in every filter without state. state: of a filter that keeps some, else None.
    """

    specification: Specification
    fields: tuple[Field, ...]
    matcher: Matcher
    templates: FrameTemplates
    mtu: int
    state: StatefulMatcher | None = None
    delivery: NDArray[np.int32] | None = None

    def deliveries(self, leaf: NDArray[np.int32]) -> NDArray[np.int32]:
        """Delivery of each event, int32[m], by its leaf."""
        return leaf if self.delivery is None else self.delivery[leaf]


@dataclass(frozen=True)
class Compilation:
    """A plan with all that the driver records about it.

    receiver_sets: by delivery, all different; the first is nobody. stacks: by delivery.
    cut_off: subscribers that no stack can lead to, and why; they get nothing until one can.
    """

    plan: Plan
    versions: Mapping[str, int]
    rules: Sequence[CheckedRule]
    rejections: Sequence[Rejection]
    compiled: CompiledFilter
    receiver_sets: Sequence[tuple[str, ...]] = field(repr=False)
    stacks: Sequence[Sequence[Encoding]] = field(repr=False)
    cut_off: Mapping[str, str] = field(default_factory=dict)

    @property
    def receivers(self) -> Sequence[tuple[str, ...]]:
        """Receivers of each leaf, by leaf number."""
        return self.plan.matcher.receivers

    @cached_property
    def reached(self) -> Sequence[Sequence[tuple[str, ...]]]:
        """By delivery, the receivers that each of its header stacks reaches."""
        return [[encoding.receivers for encoding in encodings] for encodings in self.stacks]

    def filter_rows(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Rows of `filter_entries` and `filter_leaves`."""
        version = {"subscriptions_version": self.versions["subscriptions"]}
        leaf_of = {state: leaf for leaf, state in enumerate(self.plan.matcher.states.tolist())}
        entries = [row | version for row in self.compiled.entry_rows()]
        leaves = [
            row | version | {"leaf": leaf_of[row["state"]]} for row in self.compiled.leaf_rows()
        ]
        return entries, leaves

    def rejection_rows(self) -> list[dict[str, Any]]:
        """Rows of `rejected_subscriptions`."""
        return [
            {
                "id": r.id,
                "code": r.code,
                "line": r.line,
                "column": r.column,
                "message": r.message,
                "subscriptions_version": self.versions["subscriptions"],
            }
            for r in self.rejections
        ]

    def stack_rows(self, publisher: str) -> list[dict[str, Any]]:
        """Rows of `header_stacks`: one for each receiver set and part."""
        return [
            {
                "publisher": publisher,
                "receivers": list(receivers),
                "part": part,
                "part_receivers": list(encoding.receivers),
                "labels": list(encoding.labels),
                "versions": dict(self.versions),
            }
            for receivers, encodings in zip(self.receiver_sets, self.stacks, strict=True)
            for part, encoding in enumerate(encodings)
        ]


class Planner:
    """Makes plans; keeps what did not change from one to the next.

    Rules are checked and compiled where their subscription has changed, encodings are kept by their
    receivers, so an edit of a few subscriptions costs no more than that and a few new trees. States
    of the filter stay from plan to plan. ``order``: of the fields' tables, as of
    ``IncrementalCompiler``.
    """

    def __init__(
        self, specification: Specification, addressing: Addressing, order: str = "specification"
    ) -> None:
        self._specification = specification
        self._addressing = addressing
        self._encoder: tuple[Network, tuple[VirtualTree, ...], Encoder] | None = None
        self._rules = LiveRules(specification, addressing.publisher, order)

    def plan(
        self,
        subscriptions: Sequence[Subscription],
        network: Network,
        trees: Sequence[VirtualTree],
        versions: Mapping[str, int],
        rejected: Sequence[Rejection] = (),
    ) -> Compilation:
        """Compile one set of versions; ``rejected`` are rows that were refused before.

        Subscriptions that do not compile are in the result's ``rejections``; the others are live.
        Raises FilterError where the whole set does not fit the limits, NetworkError where the
        network is broken or lacks the publisher, or its labels cannot name a tree.
        """
        address = self._addressing
        publisher = network.host(address.publisher)
        check_ids(trees, network.labels)
        receivers = set(network.subscribers())
        rules, rejections, compiled = self._rules.update(subscriptions, receivers)
        state = None
        if compiled.cells:
            state = StatefulMatcher(compiled, clock_of(self._specification).units)
        matcher = Matcher(compiled) if state is None else state.matcher
        encoder = self._encoder_for(network, tuple(trees))
        cut_off = _cut_off(encoder, receivers)
        sets, delivery = _receiver_sets(matcher.receivers)
        stacks = [encoder.encode(frozenset(r).difference(cut_off)) for r in sets]
        templates = FrameTemplates.build(
            [
                [
                    header_template(
                        e.labels,
                        source_mac=publisher.mac,
                        source_ipv4=publisher.ipv4,
                        group_ipv4=address.group,
                        port=address.port,
                        label_format=network.labels,
                    )
                    for e in encodings
                ]
                for encodings in stacks
            ]
        )
        plan = Plan(
            specification=self._specification,
            fields=_fields(matcher, self._specification),
            matcher=matcher,
            templates=templates,
            mtu=address.mtu,
            state=state,
            delivery=delivery,
        )
        rejections = [*rejected, *rejections]
        return Compilation(plan, dict(versions), rules, rejections, compiled, sets, stacks, cut_off)

    def _encoder_for(self, network: Network, trees: tuple[VirtualTree, ...]) -> Encoder:
        if self._encoder is None or self._encoder[0] is not network or self._encoder[1] != trees:
            address = self._addressing
            encoder = Encoder(network, address.publisher, trees, address.max_labels)
            self._encoder = (network, trees, encoder)
        return self._encoder[2]


def _receiver_sets(
    leaves: Sequence[tuple[str, ...]],
) -> tuple[list[tuple[str, ...]], NDArray[np.int32] | None]:
    """The different ones, by delivery in order of their first leaves; and each leaf's delivery.

    ``leaves``: sorted receivers by leaf number, the first nobody. The second result is int32 by
    leaf number, or None where deliveries are numbered as leaves.
    """
    number: dict[tuple[str, ...], int] = {}
    delivery = [number.setdefault(receivers, len(number)) for receivers in leaves]
    same = len(number) == len(delivery)
    return list(number), None if same else np.array(delivery, np.int32)


def _fields(matcher: Matcher, specification: Specification) -> tuple[Field, ...]:
    """The fields that tables read, then those that only updates of state read."""
    read = matcher.definitions
    updated = matcher.fields[len(read) :]
    return (*read, *(specification.fields[name] for name in updated))


def _cut_off(encoder: Encoder, subscribers: Iterable[str]) -> dict[str, str]:
    """Subscribers that cannot be reached: one of them must not cost the others their events."""
    cut = {}
    for host in sorted(subscribers):
        try:
            encoder.encode(frozenset((host,)))
        except NetworkError as error:
            if error.what not in {"UNREACHABLE", "STACK_TOO_LONG"}:
                raise
            cut[host] = str(error)
    return cut
