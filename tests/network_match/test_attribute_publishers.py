"""Attribute/value events of several publishers, in a network whose switches match."""

from __future__ import annotations

import pytest
from attribute_passes import Table, keys_of
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.subscriptions import Subscription, check
from stackcast.udfs.messages.attributes.registry import Registry, attribute
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network_match.generic.network import AttributeFilters

pytestmark = pytest.mark.unit

NETWORK = fabric(2, 2, 1, 1, 1, publishers=3)
REGISTRY = Registry((attribute(1, "temp", "unsigned"), attribute(2, "hum", "unsigned")))
NAMES = {one.id: one.name for one in REGISTRY.attributes}
CONDITIONS = ("temp between 16 and 47", "temp == 3", "hum < 32 or temp == 30", "hum != 3")
EVENT = st.dictionaries(st.sampled_from([1, 2]), st.sampled_from([3, 16, 30, 48]), min_size=1)


def delivered(tables: dict[str, Table], keys: dict[str, int], publisher: str) -> list[str]:
    """The hosts that an event comes to, once for each copy; no switch sends it back."""
    onward = {(link.switch, link.port): link.neighbor for link in NETWORK.links}
    pending, found = [(publisher, NETWORK.hosts[publisher].switch)], []
    while pending:
        before, switch = pending.pop()
        (ports,) = tables[switch].outcomes(keys)
        for neighbor in {onward[switch, port] for port in ports} - {before}:
            if neighbor in NETWORK.switches:
                pending.append((switch, neighbor))
            else:
                found.append(neighbor)
        assert len(found) <= len(NETWORK.hosts), "it goes round"
    return sorted(found)


@examples(60)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(NETWORK.hosts)), st.sampled_from(CONDITIONS)), max_size=6
    ),
    st.lists(EVENT, min_size=1, max_size=9),
)
def test_events_come_to_all_others_whose_rules_they_fulfil(drawn, events):
    rows = [Subscription(f"r{n}", host, text) for n, (host, text) in enumerate(drawn)]
    rules, rejections = check(rows, REGISTRY.specification(), set(NETWORK.hosts), "")
    assert not rejections
    filtered = AttributeFilters(REGISTRY, "*").entries(NETWORK, rules, {})
    assert not filtered.rejections
    tables = {switch: Table(entries) for switch, entries in filtered.entries.items()}
    for event in events:
        fields = {NAMES[number]: value for number, value in event.items()}
        wanted = {h for rule in rules if matches(rule.condition, fields) for h in rule.receivers}
        for publisher in NETWORK.publishers():
            others = sorted(wanted - {publisher})
            assert delivered(tables, keys_of(event, 0), publisher) == others
