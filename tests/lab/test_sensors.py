"""The lab's sensors are worth a demonstration: the same again, varied, and mostly sound."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal

import networkx as nx
import pytest
from generic_rows import generic_table

from stackcast.lab.fabric.topologies import NetworkOptions, load_network
from stackcast.lab.proof.attribute_reader import read_json
from stackcast.lab.traffic import sensors
from stackcast.lab.traffic.publisher import publish_records
from stackcast.lab.up import deployment
from stackcast.udfs.errors import KafkaError, LabError, MessageError
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.nodes import And, Not, Or, Predicate
from stackcast.udfs.filters.subscriptions import Subscription, check
from stackcast.udfs.network.topology import fabric, line

pytestmark = pytest.mark.unit

HOSTS = [f"h{number}" for number in range(1, 17)]
REGISTRY = sensors.registry()


def checked(rows, registry=REGISTRY):
    wanted = [Subscription(row["id"], row["subscriber"], row["filter"]) for row in rows]
    return check(wanted, registry.specification(), set(HOSTS), "feed1")


def condition(text):
    rules, rejections = checked([{"id": "x", "subscriber": "h1", "filter": text}])
    assert not rejections
    return rules[0].condition


ADVERTISED = [condition(row["filter"]) for row in sensors.advertisements("feed1")]


def sensor_event(record, registry=REGISTRY):
    values = read_json(record, registry)
    return {one.name: values[one.id] for one in registry.attributes if one.id in values}


def reason(record, registry=REGISTRY):
    try:
        event = sensor_event(record, registry)
    except MessageError as error:
        return error.what.lower()
    return "" if any(matches(each, event) for each in ADVERTISED) else "outside_advertisement"


# --- events -------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_events():
    made = list(sensors.events(300, seed=3, faults=0.2, late=True))
    assert made == list(sensors.events(300, seed=3, faults=0.2, late=True))
    assert made != list(sensors.events(300, seed=4, faults=0.2, late=True))


def test_what_is_damaged_leaves_the_other_records_as_they_are():
    sound, damaged = list(sensors.events(500)), list(sensors.events(500, faults=0.1))
    differs = [i for i in range(500) if sound[i] != damaged[i]]
    assert 20 < len(differs) < 90
    assert list(sensors.events(200)) == sound[:200]


def test_values_are_in_reach_of_their_attributes_and_lose_nothing():
    lowest: dict[str, Decimal] = {}
    for record in sensors.events(2_000):
        event = json.loads(record, parse_float=Decimal, parse_int=Decimal)
        raw = read_json(record, REGISTRY)
        assert len(raw) == len(event)
        for name, value in event.items():
            one = REGISTRY.by_name[name]
            if not isinstance(value, str):
                assert one.offset + raw[one.id] * one.scale == value
                lowest[name] = min(value, lowest.get(name, value))
    assert {name for name, value in lowest.items() if value < 0} >= {"temperature", "water_level"}


def test_times_rise_whether_told_as_text_or_as_a_number():
    records = list(sensors.events(2_000))
    times = [read_json(record, REGISTRY)[0] for record in records]
    assert times == sorted(times)
    assert times[0] == sensors.START
    assert {type(json.loads(record)["timestamp"]) for record in records} == {int, str}


def test_every_fault_is_found_under_its_reason():
    event = next(sensors.events(1))
    texts = {name: json.dumps(value) for name, value in json.loads(event).items()}
    assert {name: reason(damage(texts)) for name, damage in sensors.FAULTS.items()} == {
        "truncated": "malformed_json",
        "not a number": "not_a_number",
        "invalid name": "unknown_attribute",
        "text": "not_a_number",
        "too cold": "value_out_of_range",
        "beyond 32 bits": "value_out_of_range",
        "nested": "nested_json",
        "repeated name": "id_twice",
        "empty": "empty_event",
        "not an object": "malformed_json",
        "not UTF-8": "malformed_json",
        "unannounced station": "outside_advertisement",
    }
    assert reason(event) == ""


def test_all_that_is_not_damaged_is_sound_and_announced():
    found = Counter(reason(record) for record in sensors.events(3_000, faults=0.02))
    assert 30 < 3_000 - found[""] < 90
    assert Counter(reason(record) for record in sensors.events(1_000)) == {"": 1_000}


def test_a_late_attribute_turns_up_in_the_middle():
    late = list(sensors.events(1_000, late=True))
    assert list(sensors.events(1_000))[:500] == late[:500]
    places = [i for i, record in enumerate(late) if sensors.LATE in json.loads(record)]
    assert 500 <= places[0] < 520
    assert len(places) > 50
    assert reason(late[places[0]]) == "unknown_attribute"
    known = sensors.registry(late=True)
    assert all(reason(record, known) == "" for record in late)
    assert known.attributes[:-1] == REGISTRY.attributes


def test_records_have_no_recorded_speed():
    with pytest.raises(KafkaError, match=r"BAD_SPEED.*full or records per second"):
        publish_records("127.0.0.1:1", "attributes.raw", [], speed="recorded")


# --- subscriptions ------------------------------------------------------------------------------


def test_subscriptions_are_valid_varied_and_evenly_spread():
    rows = sensors.subscriptions(HOSTS, 1_000)
    assert rows == sensors.subscriptions(HOSTS, 1_000)
    assert rows != sensors.subscriptions(HOSTS, 1_000, seed=2)
    assert len({row["id"] for row in rows}) == 1_000
    share = Counter(row["subscriber"] for row in rows)
    assert max(share.values()) - min(share.values()) <= 1
    rules, rejections = checked(rows)
    assert not rejections
    used, fields = Counter(), set()
    for rule in rules:
        pending = [rule.condition]
        while pending:
            node = pending.pop()
            used[type(node)] += 1
            if isinstance(node, Predicate):
                fields.add(node.field.qualified)
            else:
                pending += node.children if isinstance(node, And | Or) else [node.child]
    assert all(used[kind] > 50 for kind in (And, Or, Not))
    assert fields == set(REGISTRY.by_name)
    texts = " ".join(row["filter"] for row in rows)
    assert "between" in texts
    assert "temperature < -" in texts
    assert "timestamp >= '2026-03-01T" in texts


def test_most_events_are_wanted_by_some_hosts_and_a_few_rules_by_no_event():
    rows = sensors.subscriptions(HOSTS, 300)
    rules, _ = checked(rows)
    events = [sensor_event(record) for record in sensors.events(600)]
    wanted = [
        {h for rule in rules if matches(rule.condition, event) for h in rule.receivers}
        for event in events
    ]
    assert sum(map(bool, wanted)) / len(wanted) > 0.4
    assert sum(map(len, wanted)) / len(wanted) < 10
    hopeless = [row for row in rows if "temperature > 6" in row["filter"]]
    assert hopeless
    assert len(hopeless) < 30


@pytest.mark.long
def test_rules_for_switches_fit_the_one_table_that_matches():
    rows = sensors.subscriptions(HOSTS, 200, coarse=True)
    rules, rejections = checked(rows)
    assert not rejections
    assert sum("station" in row["filter"] for row in rows) > 180
    found = generic_table(rules[:25], REGISTRY)
    assert 25 < len(found.rows) < 1_000
    events = [sensor_event(record) for record in sensors.events(600)]
    wanted = [any(matches(rule.condition, event) for rule in rules) for event in events]
    assert 0.4 < sum(wanted) / len(wanted) < 1


def test_rules_for_the_late_attribute_wait_for_its_registration():
    rows = sensors.subscriptions(HOSTS, 100, late=True)
    assert len(checked(rows)[1]) == 5
    assert checked(rows, sensors.registry(late=True))[1] == []


# --- the lab's network and tables ---------------------------------------------------------------


def test_the_line_is_three_switches_with_the_publisher_at_the_first():
    network = load_network(NetworkOptions(name="line", hosts_per_switch=2))
    assert list(network.switches) == ["s1", "s2", "s3"]
    assert [network.hosts[host].switch for host in network.subscribers()] == [
        "s1", "s1", "s2", "s2", "s3", "s3",
    ]  # fmt: skip
    assert network.host("feed1").switch == "s1"
    graph = network.graph()
    assert nx.shortest_path(graph, "feed1", "h6") == ["feed1", "s1", "s2", "s3", "h6"]
    assert [len(line(n).switches) for n in (1, 5)] == [1, 5]


def test_who_asks_for_an_unknown_network_is_told_of_the_line():
    with pytest.raises(LabError, match=r"UNKNOWN_NETWORK.*'line' is a line of three switches"):
        load_network(NetworkOptions(name="lines"))


@pytest.mark.parametrize(
    ("match", "program"), [("spark", "virtual_trees"), ("network", "attribute_value")]
)
def test_rows_of_a_lab_of_sensors(match, program):
    network = fabric(2, 2, 2, 2, 2)
    rows = deployment.rows(network, "", 50, 1, match=match, message_format="attributes")
    assert {row["pipeline"] for row in rows["switches"]} == {program}
    assert {row["format"] for row in rows["subscriptions"]} == {"attributes"}
    assert {row["publisher"] for row in rows["advertisements"]} == {"feed1"}
    assert [row["id"] for row in rows["attributes"]] == list(range(11))
    assert type(rows["attributes"][1]["scale"]) is Decimal
    assert set(rows) > {"hosts", "links", "virtual_trees"}
    own = sensors.subscriptions(network.subscribers(), 50, 1, coarse=True)
    assert [row["filter"] for row in rows["subscriptions"]] == [row["filter"] for row in own]


def test_rows_of_a_lab_of_a_market_are_as_they_were():
    network = fabric(2, 2, 2, 2, 2)
    rows = deployment.rows(network, "", 50, 1, match="network")
    assert {row["pipeline"] for row in rows["switches"]} == {"packet_subscriptions"}
    assert {row["format"] for row in rows["subscriptions"]} == {"itch"}
    assert not {"attributes", "advertisements"} & set(rows)
