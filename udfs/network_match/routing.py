"""Rules of each switch, where the switches match (CAMUS 2: rules follow the ports).

Every event enters at its publisher's switch and follows one tree, away from there, since no switch
sends out of the port that it came in by; several publishers share the tree. A switch of it holds
the rules of the hosts behind it, with ports in place of hosts: a port wants the events of all hosts
behind it. So each event crosses a link at most once, and crosses none that leads to nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from stackcast.udfs.errors import NetworkError, SubscriptionError
from stackcast.udfs.filters.meaning.evaluate import is_stateful
from stackcast.udfs.filters.subscriptions import CheckedRule, CheckedRules, Rejection
from stackcast.udfs.messages.specification import Specification
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.publishers import receiving, sending, several
from stackcast.udfs.trees.switch_graph import SwitchGraph


def ports_towards(network: Network, publisher: str) -> dict[str, dict[str, int]]:
    """Returns by switch of the tree the egress port towards each receiver behind it, as far as
    events of a publisher leave by it.

    publisher: one or several, as the setting names them. The tree is a Steiner tree that joins
    their switches and those of all receivers, so an edit of subscriptions does not move it; of a
    network in parts, each with a publisher has one. Receivers that no usable link leads to are left
    out. Raises NetworkError ``UNKNOWN_HOST`` for an only publisher, ``NO_PUBLISHER`` for several.
    """
    graph = SwitchGraph(network)
    names = sending(network, publisher) if several(publisher) else (publisher,)
    roots = dict.fromkeys(graph.index[network.host(name).switch] for name in names)
    receivers, _ = receiving(network, publisher)
    hosts = {
        name: host
        for name, host in network.hosts.items()
        if name in receivers and network.link(host.switch, name).up
    }
    wanted = {graph.index[host.switch] for host in hosts.values()}
    found: dict[str, dict[str, int]] = {}
    ways: dict[int, dict[int, int]] = {}
    for tree in _trees(graph, list(roots), wanted):
        found |= {graph.names[u]: {} for u in tree}
        inside = [root for root in roots if root in tree]
        ways |= {v: _onward(tree, inside, v) for v in wanted if v in tree}
    for name, host in hosts.items():
        v = graph.index[host.switch]
        if v not in ways:
            continue
        found[host.switch][name] = host.port
        for u, following in ways[v].items():
            found[graph.names[u]][name] = network.link(graph.names[u], graph.names[following]).port
    return found


def _trees(
    graph: SwitchGraph, roots: Sequence[int], wanted: Collection[int]
) -> Iterator[dict[int, list[int]]]:
    """Yields the tree of each part of the network that has a root: neighbors by switch."""
    left = list(roots)
    while left:
        ends = {*left, *wanted}
        try:
            members, parent = graph.grow(left[0], ends)
        except NetworkError as error:
            cut = {graph.index[name] for name in error.fields["switches"]}
            members, parent = graph.grow(left[0], ends - cut)
        neighbors: dict[int, list[int]] = {v: [] for v in members}
        for v in members[1:]:
            neighbors[v].append(parent[v])
            neighbors[parent[v]].append(v)
        yield neighbors
        left = [root for root in left if root not in neighbors]


def _onward(tree: Mapping[int, Sequence[int]], roots: Iterable[int], to: int) -> dict[int, int]:
    """Returns the next switch on the way to one, of each by which events of the roots come to
    it."""
    towards, queue = {to: to}, [to]
    for u in queue:
        for v in tree[u]:
            if v not in towards:
                towards[v] = u
                queue.append(v)
    found: dict[int, int] = {}
    for root in roots:
        at = root
        while at != to and at not in found:
            found[at] = towards[at]
            at = towards[at]
    return found


def rules_of_switch(
    rules: Sequence[CheckedRule], ports: Mapping[str, int], specification: Specification
) -> Sequence[CheckedRule]:
    """Returns the rules whose receivers are among ``ports``, with port numbers as receivers."""
    known: dict[tuple[str, ...], tuple[str, ...]] = {}

    def through(receivers: tuple[str, ...]) -> tuple[str, ...]:
        found = known.get(receivers)
        if found is None:
            numbers = {ports[name] for name in receivers if name in ports}
            found = known[receivers] = tuple(sorted(map(str, numbers)))
        return found

    if not isinstance(rules, CheckedRules):
        return [
            replace(rule, receivers=taken) for rule in rules if (taken := through(rule.receivers))
        ]
    behind = [(at, taken) for at, r in enumerate(rules.receivers) if (taken := through(r))]
    numbers = [rules.numbers[at] for at, _ in behind]
    return CheckedRules(
        [rules.ids[at] for at, _ in behind],
        [taken for _, taken in behind],
        numbers,
        rules.texts,
        rules.table,
        {number: rules.trees[number] for number in numbers if number in rules.trees},
        specification,
    )


def refused_in_network(
    rules: Sequence[CheckedRule], network: Network, publisher: str
) -> list[Rejection]:
    """Finds rules that switches cannot hold exactly, although the stream can.

    State is right only where every event is seen, which is an only publisher's switch: a rule with
    state may have no receiver behind another one. publisher: as of `ports_towards`.
    """
    near: set[str] = set()
    why = (
        "no switch sees the events of all publishers: set spark.stackcast.publisher to a single "
        "publisher"
    )
    if not several(publisher):
        first = network.host(publisher).switch
        near = {name for name, host in network.hosts.items() if host.switch == first}
        why = (
            "only the switch of the publisher can evaluate it exactly, but {} is attached to "
            "another switch: attach the host there"
        )
    rejections = []
    for rule in _with_trees(rules):
        far = ", ".join(sorted(set(rule.receivers) - near))
        if far and (rule.updates or is_stateful(rule.condition)):
            fault = SubscriptionError(
                "STATE_BEYOND_FIRST_SWITCH",
                f"this rule reads or updates state, and {why.format(far)}, or let the stream match "
                "(spark.stackcast.match=spark)",
            )
            rejections.append(Rejection(rule.id, fault.code, 1, 1, fault.message))
    return rejections


def _with_trees(rules: Sequence[CheckedRule]) -> Iterable[CheckedRule]:
    """Returns the rules that may have state: plain rules have none, and most are plain."""
    if not isinstance(rules, CheckedRules):
        return rules
    return (rules[at] for at, number in enumerate(rules.numbers) if number in rules.trees)
