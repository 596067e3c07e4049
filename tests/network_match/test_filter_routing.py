"""Where switches match, each host gets what it subscribed to, once, over links that need it."""

from __future__ import annotations

import dataclasses
import random

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast import schemas
from stackcast.udfs.errors import NetworkError
from stackcast.udfs.filters.compiler.compile import compile_rules
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.subscriptions import Subscription, check
from stackcast.udfs.messages.specification import parse_specification
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network_match.routing import ports_towards, refused_in_network, rules_of_switch

pytestmark = pytest.mark.unit

ITCH = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
STOCKS = ("AAPL", "GOOGL", "MSFT")


def subscriptions(network: Network, seed: int, count: int) -> list[Subscription]:
    rng = random.Random(seed)
    hosts = network.subscribers()
    made = []
    for number in range(count):
        text = f"stock == {rng.choice(STOCKS)} and price > {rng.randrange(0, 20)}"
        if rng.random() < 0.3:
            text += f": fwd({', '.join(rng.sample(hosts, rng.randint(1, min(3, len(hosts)))))})"
        made.append(Subscription(f"s{number}", rng.choice(hosts), text))
    return made


def event(stock: str, dollars: int) -> dict[str, int]:
    return {
        "add_order.stock": int.from_bytes(stock.ljust(8).encode(), "big"),
        "add_order.price": dollars * 10_000,
        "add_order.message_type": ord("A"),
    }


def wants(rules, one: dict[str, int]) -> set[str]:
    return {name for rule in rules if matches(rule.condition, one) for name in rule.receivers}


def walk(network: Network, publisher: str, by_switch, one: dict[str, int]) -> tuple[list, list]:
    """Hosts that got the event and links that it crossed, switch by switch: none sends out of the
    port that it came in by."""
    hosts, links = [], []
    ends = {(link.switch, link.port): link.neighbor for link in network.links}
    waiting = [(publisher, network.hosts[publisher].switch)]
    while waiting:
        before, switch = waiting.pop()
        for port in wants(by_switch.get(switch, []), one):
            neighbor = ends[switch, int(port)]
            if neighbor == before:
                continue
            links.append((switch, neighbor))
            assert len(links) <= len(network.links), "it goes round"
            if neighbor in network.hosts:
                hosts.append(neighbor)
            else:
                waiting.append((switch, neighbor))
    return hosts, links


@examples(60)
@given(
    st.tuples(*(st.integers(1, 3) for _ in range(3)), st.integers(1, 2), st.integers(1, 2)),
    st.integers(0, 1 << 30),
    st.sampled_from([0, 1, 7, 40]),
)
def test_each_host_gets_what_it_subscribed_to_once_and_no_link_is_crossed_for_nothing(
    sizes, seed, count
):
    network = fabric(*sizes)
    rules, rejected = check(
        subscriptions(network, seed, count), ITCH, set(network.subscribers()), "feed1"
    )
    assert not rejected
    ports = ports_towards(network, "feed1")
    by_switch = {name: rules_of_switch(rules, behind, ITCH) for name, behind in ports.items()}
    for stock in STOCKS:
        for dollars in (0, 7, 19, 25):
            one = event(stock, dollars)
            hosts, links = walk(network, "feed1", by_switch, one)
            assert sorted(hosts) == sorted(wants(rules, one))
            assert len(links) == len(set(links))


@examples(60)
@given(
    st.tuples(*(st.integers(1, 3) for _ in range(3)), st.integers(1, 2), st.integers(1, 2)),
    st.integers(2, 6),
    st.booleans(),
    st.integers(0, 1 << 30),
    st.sampled_from([1, 7, 40]),
)
def test_events_of_each_of_several_publishers_come_to_all_others_that_want_them(
    sizes, publishers, named, seed, count
):
    network = fabric(*sizes, publishers=publishers)
    names = network.publishers()
    rng = random.Random(seed)
    some = rng.sample(names, rng.randint(2, len(names))) if named else names
    text = ",".join(some) if named else "*"
    rows = [
        Subscription(f"s{number}", rng.choice(list(network.hosts)), f"price > {rng.randrange(20)}")
        for number in range(count)
    ]
    rules, rejected = check(rows, ITCH, set(network.hosts), "")
    assert not rejected
    ports = ports_towards(network, text)
    by_switch = {name: rules_of_switch(rules, behind, ITCH) for name, behind in ports.items()}
    crossed = set()
    for publisher in some:
        for dollars in (0, 7, 19, 25):
            one = event("AAPL", dollars)
            hosts, links = walk(network, publisher, by_switch, one)
            assert sorted(hosts) == sorted(wants(rules, one) - {publisher})
            assert len(links) == len(set(links))
            # By one tree: no link is crossed but those of it.
            crossed |= {frozenset(link) for link in links}
    assert len(crossed) < len(network.switches) + len(network.hosts)
    # No port is named that no event could leave by, were everything wanted everywhere.
    everything, _ = check(
        [Subscription(name, name, "price >= 0") for name in network.hosts],
        ITCH,
        set(network.hosts),
        "",
    )
    all_of_it = {name: rules_of_switch(everything, behind, ITCH) for name, behind in ports.items()}
    left = {
        link
        for publisher in some
        for link in walk(network, publisher, all_of_it, event("AAPL", 1))[1]
    }
    ends = {(link.switch, link.port): link.neighbor for link in network.links}
    assert left == {(s, ends[s, port]) for s, behind in ports.items() for port in behind.values()}


def test_each_part_of_a_network_with_a_publisher_has_a_tree():
    whole = fabric(2, 2, 1, 1, 1, publishers=2)
    first, second = (whole.hosts[name].switch for name in ("feed1", "feed2"))
    assert first != second
    down = [link for link in whole.links if {link.switch, link.neighbor} <= set(whole.switches)]
    network = Network.from_rows(
        whole.switches.values(),
        whole.hosts.values(),
        [dataclasses.replace(link, up=link not in down) for link in whole.links],
    )
    ports = ports_towards(network, "*")
    assert {switch: set(behind) for switch, behind in ports.items()} == {
        switch: {name for name, host in network.hosts.items() if host.switch == switch}
        for switch in (first, second)
    }
    with pytest.raises(NetworkError, match="NO_PUBLISHER"):
        ports_towards(network, "h1,h2")


def test_many_rules_that_are_read_as_columns_are_parted_in_the_same_way():
    network = fabric(2, 2, 2, 1, 1)
    rows = [
        Subscription(f"s{n}", network.subscribers()[n % 8], f"stock == S{n} and price > {n % 50}")
        for n in range(1100)
    ]
    rules, _ = check(rows, ITCH, set(network.subscribers()), "feed1")
    ports = ports_towards(network, "feed1")
    for behind in ports.values():
        columns = rules_of_switch(rules, behind, ITCH)
        objects = rules_of_switch(list(rules), behind, ITCH)
        assert list(columns) == objects
        both = (compile_rules(kind, ITCH) for kind in (columns, objects))
        assert len({one.entries.tobytes() for one in both}) == 1


def test_hosts_that_no_usable_link_leads_to_take_nothing_from_the_others():
    whole = fabric(2, 2, 2, 1, 1)
    host = whole.subscribers()[0]
    rack = whole.hosts[whole.subscribers()[-1]].switch
    down = {(whole.hosts[host].switch, host)} | {
        (link.switch, link.neighbor) for link in whole.links if rack in (link.switch, link.neighbor)
    }
    network = Network.from_rows(
        whole.switches.values(),
        whole.hosts.values(),
        [
            type(link)(
                link.id,
                link.switch,
                link.port,
                link.neighbor,
                link.neighbor_port,
                link.weight,
                (link.switch, link.neighbor) not in down,
            )
            for link in whole.links
        ],
    )
    reached = {name for behind in ports_towards(network, "feed1").values() for name in behind}
    cut = {host} | {name for name in network.subscribers() if network.hosts[name].switch == rack}
    assert reached == set(network.subscribers()) - cut


def test_a_rule_with_state_is_refused_beyond_the_switch_that_sees_every_event():
    network = fabric(2, 2, 2, 1, 1)
    near = {
        name
        for name in network.subscribers()
        if network.hosts[name].switch == network.hosts["feed1"].switch
    }
    rows = [
        Subscription(f"{name}-{kind}", name, text)
        for name in network.subscribers()
        for kind, text in (
            ("plain", "price > 5"),
            ("reads", "stock == AAPL and avg(price) > 5"),
        )
    ]
    rules, rejected = check(rows, ITCH, set(network.subscribers()), "feed1")
    assert not rejected
    refused = refused_in_network(rules, network, "feed1")
    far = [name for name in network.subscribers() if name not in near]
    assert {r.id for r in refused} == {f"{name}-reads" for name in far}
    assert {r.code for r in refused} == {"SUBSCRIPTION.STATE_BEYOND_FIRST_SWITCH"}
    assert all(r.id.removesuffix("-reads") in r.message for r in refused)
    # Of several publishers no switch sees every event.
    none = refused_in_network(rules, network, "feed1,feed2")
    assert {r.id for r in none} == {f"{name}-reads" for name in network.subscribers()}
    assert {r.code for r in none} == {"SUBSCRIPTION.STATE_BEYOND_FIRST_SWITCH"}
