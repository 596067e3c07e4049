"""Rules of each switch, where the switches match (CAMUS 2: rules follow the ports).

Every event enters at the publisher's switch and follows one tree. A switch of the tree holds the
rules of the hosts behind it, with ports in place of hosts: a port wants the events of all hosts
behind it. So each event crosses a link at most once, and crosses none that leads to nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from udfs.errors import NetworkError, SubscriptionError
from udfs.filters.meaning.evaluate import is_stateful
from udfs.filters.subscriptions import CheckedRule, CheckedRules, Rejection
from udfs.messages.specification import Specification
from udfs.network.network import Network
from udfs.trees.switch_graph import SwitchGraph


def ports_towards(network: Network, publisher: str) -> dict[str, dict[str, int]]:
    """Returns by switch of the tree the egress port towards each subscriber behind it.

    The tree is a Steiner tree from the publisher's switch to the switches of all subscribers, so
    an edit of subscriptions does not move it. Subscribers that no usable link leads to are left
    out. Raises NetworkError ``UNKNOWN_HOST`` for the publisher.
    """
    graph = SwitchGraph(network)
    root = graph.index[network.host(publisher).switch]
    hosts = {
        name: network.hosts[name]
        for name in network.subscribers()
        if network.link(network.hosts[name].switch, name).up
    }
    wanted = {graph.index[host.switch] for host in hosts.values()}
    try:
        members, parent = graph.grow(root, wanted)
    except NetworkError as error:
        cut = {graph.index[name] for name in error.fields["switches"]}
        members, parent = graph.grow(root, wanted - cut)
    inside = set(members)
    found: dict[str, dict[str, int]] = {graph.names[u]: {} for u in members}
    for name, host in hosts.items():
        v = graph.index[host.switch]
        if v not in inside:
            continue
        found[host.switch][name] = host.port
        while v != root:
            u = parent[v]
            found[graph.names[u]][name] = graph.bits[u][v].bit_length()
            v = u
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


def refused_in_network(rules: Sequence[CheckedRule], first_ports: Iterable[str]) -> list[Rejection]:
    """Finds rules that switches cannot hold exactly, although the stream can.

    State is right only where every event is seen, which is the publisher's switch: a rule with
    state may have no receiver behind another one. ``first_ports``: hosts at the publisher's switch.
    """
    near = set(first_ports)
    rejections = []
    for rule in _with_trees(rules):
        far = ", ".join(sorted(set(rule.receivers) - near))
        if far and (rule.updates or is_stateful(rule.condition)):
            fault = SubscriptionError(
                "STATE_BEYOND_FIRST_SWITCH",
                "this rule reads or updates state, which only the publisher's switch keeps "
                f"exactly; {far} is behind another one: attach the host there, or let the stream "
                "match (spark.stackcast.match=spark)",
            )
            rejections.append(Rejection(rule.id, fault.code, 1, 1, fault.message))
    return rejections


def _with_trees(rules: Sequence[CheckedRule]) -> Iterable[CheckedRule]:
    """Returns the rules that may have state: plain rules have none, and most are plain."""
    if not isinstance(rules, CheckedRules):
        return rules
    return (rules[at] for at, number in enumerate(rules.numbers) if number in rules.trees)
