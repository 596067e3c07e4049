"""The delivery plan: all that a worker needs to turn packets into frames, for one set of versions.

Work per receiver set, not per event: delivery tree, header stack and frame header are worked out
once for each set of receivers that the compiled filter knows (a *delivery*), and used by reference
for every event. Of several publishers, each has them for the deliveries that its events come to
(`stackcast.udfs.delivery.routes`). The planner waits for none of them: it ships those that are
known already, and a worker works out what its batch uses of the others
(`stackcast.udfs.delivery.frame_headers`). Leaves that differ only in what they do to state share a
delivery: rules that send nothing must not change the frames of those that do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.delivery.frame_headers import FrameHeaders
from stackcast.udfs.delivery.host_packets import HostPackets
from stackcast.udfs.delivery.matched import read_matched
from stackcast.udfs.delivery.partition_states import clocks
from stackcast.udfs.delivery.publishers import Publishers, publishers_of
from stackcast.udfs.delivery.receiver_sets import IndexDelivery, ReceiverSets
from stackcast.udfs.delivery.receiver_summaries import SummaryHosts
from stackcast.udfs.delivery.routes import Routes
from stackcast.udfs.delivery.senders import Senders, senders_of, with_columns
from stackcast.udfs.errors import NetworkError
from stackcast.udfs.filters.advertisements import Advertisement, check_advertisements
from stackcast.udfs.filters.compiler.compile import Order
from stackcast.udfs.filters.grants import Grant, Grants
from stackcast.udfs.filters.grouped import Grouped
from stackcast.udfs.filters.live_rules import LiveRules
from stackcast.udfs.filters.matching.cells import StatefulMatcher
from stackcast.udfs.filters.matching.matcher import Matcher
from stackcast.udfs.filters.meaning.state import clock_of
from stackcast.udfs.filters.predicate_index.stateful_index import StatefulIndex
from stackcast.udfs.filters.subscriptions import CheckedRule, Rejection, Subscription, rejection
from stackcast.udfs.messages.buffers import Batch
from stackcast.udfs.messages.moldudp64 import Messages
from stackcast.udfs.messages.readers import Format, PacketReader, Reader
from stackcast.udfs.messages.specification import Field, Specification
from stackcast.udfs.messages.summary_keys import SummaryKey
from stackcast.udfs.network.ingresses import NO_INGRESSES, Ingresses
from stackcast.udfs.network.labels import LabelFormat
from stackcast.udfs.network.network import Host, Network
from stackcast.udfs.network.publishers import PARTITION, receiving, several
from stackcast.udfs.network.virtual_tree import VirtualTree, check_ids
from stackcast.udfs.stacks.frame import MAX_MTU, header_template, label_capacity, plain_template
from stackcast.udfs.trees.header_stacks import HeaderStacks, PlainFrames, Receivers, Stack, Stacks


@dataclass(frozen=True)
class Addressing:
    """Holds the addresses and limits that all frames of a deployment have in common.

    publisher: host of the network that the frames leave from, or several, as
    `stackcast.udfs.network.publishers.listed` reads it. group (IPv4 as an integer), port: the
    multicast address that hosts see. mtu: most bytes after the Ethernet header. max_labels: the
    switches' limit. summary_port: of the summaries for hosts; 0: there are none. publisher_by: what
    says whose a record is, where there are several publishers: ``partition``, ``header:NAME`` or
    ``field:NAME``. in_network: switches match, and bring hosts their messages of the publisher's
    own packets; the stream sends summaries alone, without stacks.
    """

    publisher: str
    group: int
    port: int
    mtu: int
    max_labels: int
    summary_port: int = 0
    publisher_by: str = PARTITION
    in_network: bool = False


@dataclass(frozen=True)
class Plan:
    """Holds the part that ships to the workers: mostly arrays, a few hundred kilobytes.

    reader: its columns are those that ``matcher`` takes, then others that ``index``, ``state`` and
    ``senders`` take, then the clock. headers: by route; 0 is nobody's. delivery: int32, by leaf
    number, the leaf's delivery; None where both have the same number, as in every filter without
    state. state: of a filter that keeps some, else None, with its columns: a matcher with state in
    place of ``matcher``, or an index with state. index: of the rules that the matcher does not
    have, None where it has all. senders: whose messages are, and which count. summaries: whom they
    go to, or None. routes: of the headers. links: the hosts through whose links frames enter, by
    number, with their switches. ingresses: the transports to these links. host_packets: None but
    where switches match: frames are then what these bring to each host, and the stream sends none
    of them.
    """

    specification: Specification
    reader: Reader
    matcher: Matcher
    headers: FrameHeaders
    mtu: int
    state: StatefulMatcher | StatefulIndex | None = None
    state_columns: tuple[int, ...] = ()
    delivery: NDArray[np.int32] | None = None
    index: IndexDelivery | None = None
    senders: Senders = field(default_factory=Senders)
    summaries: SummaryHosts | None = None
    routes: Routes = field(default_factory=lambda: Routes(ReceiverSets([()]), several=False))
    host_packets: HostPackets | None = None
    links: tuple[tuple[str, str], ...] = ()
    ingresses: Ingresses = NO_INGRESSES

    @property
    def publishers(self) -> Publishers | None:
        """Those of the stream; None where there is one, by whose link all enters."""
        return self.senders.publishers

    def matched(self, batch: Batch) -> tuple[Messages, NDArray[np.int32]] | None:
        """Returns what `stackcast.udfs.delivery.matched.read_matched` does; None where a message
        for nobody is to be looked at, too, or does not come in packets."""
        asked = self.state or self.index or not self.senders.plain
        if asked or not isinstance(self.reader, PacketReader):
            return None
        return read_matched(self.reader.layout, self.matcher, self.delivery, batch)

    def deliveries(self, messages: Messages, stateful: NDArray[Any] | None) -> NDArray[np.int32]:
        """Returns the delivery of each message, int32[m]. stateful: what ``state`` finds."""
        leaf: NDArray[Any]
        if isinstance(self.state, StatefulMatcher) and stateful is not None:
            leaf, stateful = stateful, None
        else:
            columns = len(self.matcher.fields)
            present = None if messages.present is None else messages.present[:columns]
            leaf = self.matcher.match(messages.message_type, messages.values[:columns], present)
            if np.count_nonzero(messages.message_reason):
                leaf[messages.message_reason != 0] = 0
        delivery = leaf if self.delivery is None else self.delivery[leaf]
        return delivery if self.index is None else self.index.unite(delivery, messages, stateful)


class PlanHandle(Protocol):
    """A broadcast plan; ``value`` loads it once a worker."""

    @property
    def value(self) -> Plan: ...


@dataclass(frozen=True)
class Compilation:
    """Holds a plan with all that the driver records about it.

    header_stacks: of the network and its trees; what it remembers grows while the plan is in use.
    receiver_sets: by delivery, all different; the first is nobody, and behind those of leaves stand
    those of single rules of the index, then the hosts alone that summaries go to. Workers may meet
    others. stacks: by delivery, those that the plan was made with; None where they were not known.
    announced: the publishers' advertisements that are live. filter: of all rules.
    """

    plan: Plan
    versions: Mapping[str, int]
    rules: Sequence[CheckedRule]
    rejections: Sequence[Rejection]
    filter: Grouped
    header_stacks: HeaderStacks = field(repr=False)
    receiver_sets: Sequence[Receivers] = field(repr=False)
    stacks: Sequence[Stacks | None] = field(repr=False)
    announced: Sequence[Advertisement] = ()

    @property
    def receivers(self) -> Sequence[Receivers]:
        """Receivers of each leaf, by leaf number."""
        return self.plan.matcher.receivers

    @cached_property
    def reached(self) -> Sequence[Sequence[Receivers] | None]:
        """The receivers that each stack reaches, by delivery; None if the plan came without."""
        return [
            None if stacks is None else [part.receivers for part in stacks.parts]
            for stacks in self.stacks
        ]

    @property
    def cut_off(self) -> dict[str, str]:
        """Subscribers that no stack can lead to, as far as is known, with the reason; they get
        nothing; of several publishers, nothing of one of them."""
        known = [self.header_stacks.known(receivers) for receivers in self.receiver_sets]
        if self.plan.publishers is not None:
            known = [stacks for _, _, stacks in self.header_stacks.remembered()]
        return dict(sorted(cut for stacks in known if stacks for cut in stacks.cut_off))

    @cached_property
    def shipped(self) -> int:
        """The number of receiver sets that the plan came with stacks for."""
        return sum(stacks is not None for stacks in self.stacks)

    def unknown(self) -> list[Receivers]:
        """Returns receiver sets whose stacks are still not known, in the order of deliveries; none
        where there are several publishers, as nobody knows yet which sets each sends to."""
        if self.plan.publishers is not None:
            return []
        return [r for r in self.receiver_sets if self.header_stacks.known(r) is None]

    def with_known(self) -> Compilation:
        """Returns the same with all stacks that are known by now: its frames have the same
        bytes."""
        if self.plan.publishers is not None:
            return self
        stacks = [self.header_stacks.known(receivers) for receivers in self.receiver_sets]
        plan = replace(self.plan, headers=self.plan.headers.with_stacks(stacks))
        return replace(self, plan=plan, stacks=stacks)

    def filter_rows(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Returns the rows of `filter_entries` and `filter_leaves`."""
        version = {"subscriptions_version": self.versions["subscriptions"]}
        leaf_of = {state: leaf for leaf, state in enumerate(self.plan.matcher.states.tolist())}
        entries = [row | version for row in self.filter.diagram.entry_rows()]
        leaves = [
            row | version | {"leaf": leaf_of[row["state"]], "predicates": None}
            for row in self.filter.diagram.leaf_rows()
        ]
        leaves += [row | version for row in self.filter.term_rows()]
        return entries, leaves

    def rejection_rows(self) -> list[dict[str, Any]]:
        """Returns the rows of `rejected_subscriptions`."""
        return [each.row(self.versions["subscriptions"]) for each in self.rejections]

    def stack_rows(self, publisher: str) -> list[dict[str, Any]]:
        """Returns the rows of `header_stacks`: one for each receiver set that is known, and part;
        of several publishers, or ingresses, for each pair of link and receivers that is in use.

        Their versions are those that stacks are made from: rules make none.
        """
        versions = self._stack_versions
        publishers = self.plan.publishers
        known = (
            [(publisher, each, self.header_stacks.known(each)) for each in self.receiver_sets]
            if publishers is None
            else [
                (publishers.links[number], receivers, stacks)
                for number, receivers, stacks in self.header_stacks.remembered()
            ]
        )
        return [
            {
                "publisher": sender,
                "receivers": list(receivers),
                "part": number,
                "part_receivers": list(part.receivers),
                "labels": list(part.labels),
                "versions": versions,
            }
            for sender, receivers, stacks in known
            if stacks is not None
            for number, part in enumerate(stacks.parts)
            if part.labels
        ]

    def stacks_of(
        self, rows: Iterable[Mapping[str, Any]], publisher: str
    ) -> dict[Receivers, Stacks]:
        """Returns the stacks of this plan's receiver sets by rows that an earlier one wrote.

        Only those of the same versions, and of sets that one stack reaches whole: who is cut off is
        in no row.
        """
        sets = {receivers: receivers for receivers in self.receiver_sets}
        found = {}
        for row in rows:
            receivers = sets.get(tuple(row["receivers"]))
            same = row["publisher"] == publisher and row["versions"] == self._stack_versions
            if receivers and same and row["part_receivers"] == row["receivers"]:
                found[receivers] = Stacks((Stack(tuple(row["labels"]), receivers),))
        return found

    @cached_property
    def _stack_versions(self) -> dict[str, int]:
        others = ("subscriptions", "subscription_seniority", "grants", "ingresses")
        return {name: v for name, v in self.versions.items() if name not in others}


class _Matching(NamedTuple):
    """Holds the parts of a plan that its filter makes; ``receiver_sets`` by delivery."""

    matcher: Matcher
    state: StatefulMatcher | StatefulIndex | None
    receiver_sets: ReceiverSets
    delivery: NDArray[np.int32] | None
    summaries: SummaryHosts | None


class Planner:
    """Makes plans of one format; keeps the parts that did not change from one to the next.

    Rules are checked and compiled where their subscription has changed, and stacks are kept by
    their receivers while network and trees are what they were, so an edit of a few subscriptions
    costs no more than that and a few new stacks. States of the filter stay from plan to plan.
    ``order``: of the fields' tables, as of ``IncrementalCompiler``. ``summary_key``: the master key
    that authenticates summaries, which no plan has.
    """

    def __init__(
        self,
        form: Format,
        addressing: Addressing,
        order: Order = "specification",
        summary_key: SummaryKey | None = None,
    ) -> None:
        self._addressing = addressing
        self._summary_key = summary_key
        self._order = order
        self._made_for: (
            tuple[Network, tuple[VirtualTree, ...], int, tuple[str, ...], HeaderStacks] | None
        ) = None
        self._plain: PlainFrames | None = None
        self._form = form
        self._rules = self._live_rules(form)
        self._matching: tuple[Grouped, _Matching] | None = None
        self._granted: tuple[Sequence[Grant], Grants] | None = None

    def use(self, form: Format) -> None:
        """Makes the next plans for another format, or other fields; keeps stacks."""
        if form != self._form:
            self._form = form
            self._rules = self._live_rules(form)
            self._granted = None

    def _live_rules(self, form: Format) -> LiveRules:
        text = self._addressing.publisher
        only = "" if several(text) else text
        return LiveRules(form.specification, only, self._order)

    def plan(
        self,
        subscriptions: Sequence[Subscription],
        network: Network,
        trees: Sequence[VirtualTree],
        versions: Mapping[str, int],
        rejected: Sequence[Rejection] = (),
        advertisements: Sequence[Advertisement] = (),
        grants: Sequence[Grant] | None = None,
        ingresses: Ingresses = NO_INGRESSES,
    ) -> Compilation:
        """Compiles one set of versions; ``rejected`` are rows that were refused before.

        ``advertisements``: of all publishers; those that do not compile are among the rejections.
        Whose own one is may publish everything: a slip may not cost events. ``grants``: None where
        everybody may subscribe to everything; one that does not compile is among the rejections,
        and grants nothing. ``ingresses``: where the frames of executors enter the network.

        Subscriptions that do not compile are in the result's ``rejections``; the others are live.
        Raises FilterError where the whole set does not fit the limits, NetworkError where the
        network is broken or lacks the publisher, or its labels cannot name a tree.
        """
        address = self._addressing
        hosts, publishers = self._publishers(network, ingresses)
        check_ids(trees, network.labels)
        receivers, _ = receiving(network, address.publisher)
        granted = None if grants is None else self._grants_of(grants)
        rules, rejections, grouped = self._rules.update(subscriptions, receivers, granted)
        specification = self._form.specification
        matcher, state, sets, delivery, summaries = self._matching_of(grouped)
        fields = _fields(matcher, specification)
        index, state_columns = None, tuple(range(len(fields)))
        if grouped.indexes:
            columns: tuple[int, ...] = ()
            if grouped.index is not None:
                fields, columns = with_columns(fields, grouped.index.definitions)
            if grouped.stateful is not None:
                fields, state_columns = with_columns(fields, grouped.stateful.definitions)
            index = IndexDelivery(sets, grouped.index, columns, grouped.stateful)
        announced, refused = _announced(advertisements, specification, network)
        refused += [rejection(*wrong) for wrong in granted.errors] if granted else []
        names = [host.name for host in hosts]
        senders = senders_of(
            names, publishers, address.publisher_by, announced, specification, fields
        )
        header_stacks = self._header_stacks_for(network, tuple(trees), publishers)
        header_stacks.retain(sets)
        routes = Routes(sets, several=publishers is not None)
        if publishers is not None:
            hosts = [network.hosts[name] for name in publishers.by_sender]
        template: _Template | _PlainTemplate = _Template(address, network.labels, hosts)
        if address.in_network:
            template = _PlainTemplate(address.port, hosts, network.hosts)
        stacks: list[Stacks | None] = [Stacks(())]
        if publishers is None:
            stacks = [header_stacks.known(each) for each in sets]
        plan = Plan(
            specification=specification,
            reader=self._form.reader(senders.fields, clocks(specification) if state else ()),
            matcher=matcher,
            headers=FrameHeaders(
                routes, stacks, template, None if publishers is None else publishers.link
            ),
            mtu=MAX_MTU if address.in_network else address.mtu,
            state=state,
            state_columns=state_columns,
            delivery=delivery,
            index=index,
            senders=senders,
            summaries=summaries,
            routes=routes,
            host_packets=_host_packets(sets, routes, publishers) if address.in_network else None,
            links=((hosts[0].name, hosts[0].switch),)
            if publishers is None
            else publishers.attached,
            ingresses=ingresses,
        )
        return Compilation(
            plan,
            dict(versions),
            rules,
            [*rejected, *refused, *rejections],
            grouped,
            header_stacks,
            sets[:],
            stacks,
            [row for name in names for row in announced.get(name, ())],
        )

    def _grants_of(self, rows: Sequence[Grant]) -> Grants:
        if self._granted is None or self._granted[0] != rows:
            self._granted = rows, Grants(rows, self._form.specification)
        return self._granted[1]

    def _publishers(
        self, network: Network, ingresses: Ingresses
    ) -> tuple[list[Host], Publishers | None]:
        """Returns the hosts that send, by number, and whose records are whose if they are
        several, or frames enter through the links of others."""
        address = self._addressing
        # Switches that match take plain frames from any link.
        shared = () if address.in_network else ingresses.shared_hosts
        if several(address.publisher) or set(shared) - {address.publisher}:
            found = publishers_of(network, address.publisher, address.publisher_by, shared)
            return [network.hosts[name] for name in found.names], found
        publisher = network.host(address.publisher)
        if publisher.role != "publisher":
            raise NetworkError(
                "NO_PUBLISHER",
                f"host {publisher.name!r} is a subscriber, but switches accept events only from "
                "publishers: give it the role publisher in table hosts, or set "
                "spark.stackcast.publisher to a publisher",
                host=publisher.name,
            )
        return [publisher], None

    def _matching_of(self, grouped: Grouped) -> _Matching:
        """Makes the parts that follow from the filter alone; most edits of the network keep
        them."""
        if self._matching is None or self._matching[0] is not grouped:
            compiled = grouped.diagram
            state: StatefulMatcher | StatefulIndex | None = grouped.stateful
            if compiled.cells:
                state = StatefulMatcher(compiled, clock_of(self._form.specification).units)
            matcher = state.matcher if isinstance(state, StatefulMatcher) else Matcher(compiled)
            found, delivery = _receiver_sets(matcher.receivers)
            for index in grouped.indexes:
                found = list(dict.fromkeys((*found, *index.receivers)))
            if self._addressing.summary_port or self._addressing.in_network:
                found = _with_each_alone(found)
            sets = ReceiverSets(found)
            summaries = None
            if self._addressing.summary_port:
                port = self._addressing.summary_port
                summaries = SummaryHosts(sets, port, self._summary_key)
            self._matching = grouped, _Matching(matcher, state, sets, delivery, summaries)
        return self._matching[1]

    def _header_stacks_for(
        self, network: Network, trees: tuple[VirtualTree, ...], publishers: Publishers | None
    ) -> HeaderStacks:
        address = self._addressing
        if address.in_network:
            names = () if publishers is None else publishers.names
            if self._plain is None or self._plain.publishers != names:
                self._plain = PlainFrames(names)
            return self._plain
        # By content: other versions of the tables may hold the same network.
        longest = self._form.longest
        links = (address.publisher,) if publishers is None else publishers.links
        if self._made_for is None or self._made_for[:4] != (network, trees, longest, links):
            # A stack that leaves no room for a message in a frame is split.
            most = label_capacity(address.mtu, longest, network.labels)
            made = HeaderStacks(network, links, trees, max(1, min(address.max_labels, most)))
            self._made_for = (network, trees, longest, links, made)
        return self._made_for[4]


@dataclass(frozen=True)
class _Template:
    """Makes the headers of frames from ``hosts``, by number; picklable."""

    address: Addressing
    labels: LabelFormat
    hosts: Sequence[Host]

    def __call__(self, publisher: int, stack: Stack) -> bytes:
        host = self.hosts[publisher]
        return header_template(
            stack.labels,
            source_mac=host.mac,
            source_ipv4=host.ipv4,
            group_ipv4=self.address.group,
            port=self.address.port,
            label_format=self.labels,
        )


@dataclass(frozen=True)
class _PlainTemplate:
    """Makes the headers of frames to one host, by its IPv4 address; picklable."""

    port: int
    publishers: Sequence[Host]
    hosts: Mapping[str, Host]

    def __call__(self, publisher: int, stack: Stack) -> bytes:
        host, source = self.hosts[stack.receivers[0]], self.publishers[publisher]
        return plain_template(source.mac, source.ipv4, host.mac, host.ipv4, self.port)


def _host_packets(sets: ReceiverSets, routes: Routes, publishers: Publishers | None) -> HostPackets:
    return HostPackets(sets, routes, () if publishers is None else publishers.names)


def _announced(
    rows: Sequence[Advertisement], specification: Specification, network: Network
) -> tuple[dict[str, list[Advertisement]], list[Rejection]]:
    """Returns what each publisher announces, none of those with a row that is wrong; and all that
    is wrong."""
    fine, refused = check_advertisements(rows, specification, network.hosts)
    wrong = {rejection.id for rejection in refused}
    slipped = {row.publisher for row in rows if (row.id or row.publisher) in wrong}
    announced: dict[str, list[Advertisement]] = {}
    for row in fine:
        if row.publisher not in slipped:
            announced.setdefault(row.publisher, []).append(row)
    return announced, refused


def _receiver_sets(
    leaves: Sequence[tuple[str, ...]],
) -> tuple[list[tuple[str, ...]], NDArray[np.int32] | None]:
    """Returns the different sets, by delivery in order of first leaves; and each leaf's delivery.

    ``leaves``: sorted receivers by leaf number, the first nobody. The second result is int32 by
    leaf number, or None where deliveries are numbered as leaves.
    """
    number: dict[tuple[str, ...], int] = {}
    delivery = [number.setdefault(receivers, len(number)) for receivers in leaves]
    same = len(number) == len(delivery)
    return list(number), None if same else np.array(delivery, np.int32)


def _with_each_alone(sets: Sequence[Receivers]) -> list[Receivers]:
    """Returns these, and behind them each of their hosts alone where that is not among them."""
    there = set(sets)
    hosts = sorted({host for receivers in sets for host in receivers})
    return [*sets, *((host,) for host in hosts if (host,) not in there)]


def _fields(matcher: Matcher, specification: Specification) -> tuple[Field, ...]:
    """Returns the fields that tables read, then those that only updates of state read."""
    read = matcher.definitions
    updated = matcher.fields[len(read) :]
    return (*read, *(specification.fields[name] for name in updated))
