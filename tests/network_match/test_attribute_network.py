"""Attribute/value events in a network whose switches match: who receives, and what edits touch."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable

import pytest
from attribute_passes import Table, keys_of
from examples import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from paths import COMPILED_P4
from program_switches import fill, open_ports
from rollout_world import FakeSession, HastyClock, InOrder, World, hasty

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.switches.filters import NetworkMatch, check_pipelines
from stackcast.jobs.adapters.switches.lead import Refresher
from stackcast.jobs.adapters.switches.program import P4Program
from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.switch.p4runtime.device import Device
from stackcast.switch.p4runtime.server import P4RuntimeServer
from stackcast.udfs.errors import NetworkError, SwitchError
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.subscriptions import CheckedRule, Subscription, check
from stackcast.udfs.messages.attributes.registry import Registry, attribute
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.programs import (
    ATTRIBUTES,
    EVENT,
    FILTERING,
    MATCHING,
    PASSES,
    matching_program,
)
from stackcast.udfs.network.programs import VALUES as VALUE_TABLES
from stackcast.udfs.network.rows import network_to_rows
from stackcast.udfs.network.topology import fabric, line
from stackcast.udfs.network_match.generic.boxes import boxes_of
from stackcast.udfs.network_match.generic.entries import event_entries
from stackcast.udfs.network_match.generic.network import AttributeFilters
from stackcast.udfs.network_match.generic.passes import Limits, passes_of
from stackcast.udfs.switches.bridge import BRIDGE
from stackcast.udfs.switches.derivation import derive
from stackcast.udfs.switches.entry import (
    GROUPS,
    SwitchEntry,
    difference,
    entry_from_row,
    entry_to_row,
)
from stackcast.udfs.switches.ordering import withheld, write_steps
from stackcast.udfs.switches.rollout import NetworkVersion
from stackcast.udfs.switches.routes import ROUTE
from stackcast.udfs.switches.sources import SOURCE
from stackcast.udfs.trees.broadcast import broadcast_trees

pytestmark = pytest.mark.unit

LAST = (1 << 32) - 1


#: The testbed of KUNDEL IV: two hosts on each of three switches.
LINE = line(3, 2)
NETWORKS = {"line": LINE, "fabric": fabric(2, 2, 1, 1, 1)}
REGISTRY = Registry(
    (
        attribute(0, "time", "timestamp"),
        attribute(1, "temp", "unsigned"),
        attribute(2, "hum", "unsigned"),
        attribute(31, "last", "unsigned"),
    )
)
WIDER = Registry(
    (*REGISTRY.attributes[:3], attribute(7, "co2", "decimal"), *REGISTRY.attributes[3:])
)
#: Around the ends of what the conditions ask for.
VALUES = (0, 3, 4, 15, 16, 30, 31, 47, 48, LAST)
CONDITIONS = (
    "temp between 16 and 47",
    "temp == 3",
    "temp < 4",
    "temp < 16 and hum < 48",
    "hum between 4 and 15",
    "hum < 32 or temp == 30",
    "not (temp < 16)",
    "hum != 3",
    "temp != 30",
    "last >= 0",
    "last == 4294967295 and time < 4",
    "time in {3, 16} or hum == 47",
)


#: All in one pass of rows where they add up; hardly any rows; no room for either.
LIMITS = [
    Limits(),
    Limits(rows=8, words=1, passes=16),
    Limits(ways=("priorities",), rows=0),
]


def rules(texts: Iterable[tuple[str, str]], network: Network = LINE, registry: Registry = REGISTRY):
    """Checked rules of (host, condition)."""
    rows = [Subscription(f"r{n}", host, text) for n, (host, text) in enumerate(texts)]
    found, rejections = check(rows, registry.specification(), set(network.subscribers()), "feed1")
    assert not rejections
    return found


def made(filters: AttributeFilters, found, held=None, network: Network = LINE):
    filtered = filters.entries(network, found, held or {})
    keys = [entry.key for entries in filtered.entries.values() for entry in entries]
    assert len(keys) == sum(len({entry.key for entry in one}) for one in filtered.entries.values())
    assert not filtered.rejections
    return {switch: list(entries) for switch, entries in filtered.entries.items()}


def events(seed: int, count: int = 60) -> list[dict[int, int]]:
    rng = random.Random(seed)
    known = [one.id for one in REGISTRY.attributes]
    drawn = [
        {i: rng.choice(VALUES) for i in known if rng.random() < 0.7} or {1: rng.choice(VALUES)}
        for _ in range(count)
    ]
    # One with an attribute that no rule knows.
    return [*drawn, {1: 30, 9: 5}, {9: 5}]


def delivered(network: Network, tables: dict[str, Table], keys: dict[str, int]) -> list[str]:
    """The hosts that an event of feed1 comes to, once for each copy."""
    onward = {(link.switch, link.port): link.neighbor for link in network.links}
    pending, found = [network.hosts["feed1"].switch], []
    while pending:
        switch = pending.pop()
        (ports,) = tables[switch].outcomes(keys)
        for port in ports:
            neighbor = onward[switch, port]
            (pending if neighbor in network.switches else found).append(neighbor)
    return sorted(found)


def wanted(found, event: dict[int, int]) -> list[str]:
    names = {one.id: one.name for one in WIDER.attributes}
    fields = {names[i]: value for i, value in event.items() if i in names}
    return sorted(
        {host for rule in found if matches(rule.condition, fields) for host in rule.receivers}
    )


def texts(network: Network, conditions=CONDITIONS):
    pair = st.tuples(st.sampled_from(sorted(network.subscribers())), st.sampled_from(conditions))
    return st.lists(pair, max_size=4)


@pytest.mark.parametrize("name", NETWORKS)
@examples(20)
@given(data=st.data(), seed=st.integers(0, 1 << 30), limits=st.sampled_from(LIMITS))
def test_every_event_comes_to_just_the_hosts_whose_rules_it_fulfils(name, data, seed, limits):
    network = NETWORKS[name]
    found = rules(data.draw(texts(network)), network)
    tables = {
        s: Table(e)
        for s, e in made(AttributeFilters(REGISTRY, "feed1", limits), found, None, network).items()
    }
    for event in events(seed, 30):
        for junk in (0, 30):
            assert delivered(network, tables, keys_of(event, junk)) == wanted(found, event)


@examples(20)
@given(
    first=texts(LINE),
    second=texts(LINE),
    seed=st.integers(0, 1 << 30),
    limits=st.sampled_from(LIMITS),
)
def test_a_refresh_that_dies_anywhere_leaves_every_event_its_old_or_its_new_ports(
    first, second, seed, limits
):
    filters, rng = AttributeFilters(REGISTRY, "feed1", limits), random.Random(seed)
    old = made(filters, rules(first))
    new = made(filters, rules(second), old)
    keys = [keys_of(event) for event in events(seed, 30)]
    for switch, entries in new.items():
        held = {entry.key: entry for entry in old[switch]}
        before, after = Table(old[switch]), Table(entries)
        allowed = [before.outcomes(event) | after.outcomes(event) for event in keys]
        assert all(len(one.outcomes(event)) == 1 for one in (before, after) for event in keys)
        for step in write_steps(difference(entries, held.values())):
            # A target may take the updates of one step in any order.
            for entry in rng.sample(step.entries, len(step.entries)):
                if step.kind == "delete":
                    del held[entry.key]
                else:
                    held[entry.key] = entry
                now = Table(held.values())
                for event, either in zip(keys, allowed, strict=True):
                    assert now.outcomes(event) <= either
        assert not difference(entries, held.values())


@examples(20)
@given(
    first=texts(LINE),
    second=texts(LINE),
    third=texts(LINE),
    seed=st.integers(0, 1 << 30),
    limits=st.sampled_from(LIMITS),
)
def test_after_such_a_death_the_next_refresh_has_the_switch_go_on_as_gently(
    first, second, third, seed, limits
):
    filters, rng = AttributeFilters(REGISTRY, "feed1", limits), random.Random(seed)
    old = made(filters, rules(first))
    new = made(filters, rules(second), old)
    newest = made(filters, rules(third), new)
    keys = [keys_of(event) for event in events(seed, 20)]
    for switch in new:
        held = {entry.key: entry for entry in old[switch]}
        updates = [
            (step.kind, entry)
            for step in write_steps(difference(new[switch], held.values()))
            for entry in step.entries
        ]
        for kind, entry in updates[: rng.randint(0, len(updates))]:
            held.pop(entry.key, None)
            if kind != "delete":
                held[entry.key] = entry
        cut_off, after = Table(held.values()), Table(newest[switch])
        there = list(held.values())
        for step in write_steps(difference(newest[switch], there), held=there):
            for entry in step.entries:
                held.pop(entry.key, None)
                if step.kind != "delete":
                    held[entry.key] = entry
            now = Table(held.values())
            for event in keys:
                assert now.outcomes(event) <= cut_off.outcomes(event) | after.outcomes(event)


@examples(20)
@given(
    first=texts(LINE),
    second=texts(LINE),
    seed=st.integers(0, 1 << 30),
    limits=st.sampled_from(LIMITS),
)
def test_whatever_a_switch_refuses_every_event_keeps_its_old_or_gets_its_new_ports(
    first, second, seed, limits
):
    filters, rng = AttributeFilters(REGISTRY, "feed1", limits), random.Random(seed)
    old = made(filters, rules(first))
    new = made(filters, rules(second), old)
    keys = [keys_of(event) for event in events(seed, 20)]
    for switch, entries in new.items():
        held = {entry.key: entry for entry in old[switch]}
        before, after = Table(old[switch]), Table(entries)
        failed: list[SwitchEntry] = []
        for step in write_steps(difference(entries, held.values())):
            kept = withheld(step, failed)
            for entry in step.entries:
                if entry in kept or rng.random() < 0.05:
                    failed.append(entry)
                    continue
                held.pop(entry.key, None)
                if step.kind != "delete":
                    held[entry.key] = entry
            now = Table(held.values())
            for event in keys:
                assert now.outcomes(event) <= before.outcomes(event) | after.outcomes(event)


@examples(20)
@given(first=texts(LINE), second=texts(LINE), limits=st.sampled_from(LIMITS))
def test_an_edit_touches_no_entry_that_leads_where_it_led(first, second, limits):
    filters = AttributeFilters(REGISTRY, "feed1", limits)
    old = made(filters, rules(first))
    new = made(filters, rules(second), old)
    for switch in new:
        change = difference(new[switch], old[switch])
        before = {entry.key: entry for entry in old[switch]}
        # What is not a row of the table says what it says for good, but for where all begin.
        for entry in change.modify:
            assert entry.table == EVENT or entry.match == ((("pass", "exact", b"\0")),)
            assert entry.params != before[entry.key].params
        # The same rules in another order, by a program that was just started: nothing to do.
        again = made(AttributeFilters(REGISTRY, "feed1", limits), rules(second[::-1]), new)
        assert not difference(again[switch], new[switch])


def test_an_edit_of_one_pass_of_rows_writes_just_these():
    filters = AttributeFilters(REGISTRY, "feed1")
    first = [("h1", f"temp == {n}") for n in range(40)]
    old = made(filters, rules(first))
    new = made(filters, rules([*first, ("h1", "temp == 99")]), old)
    change = difference(new["s1"], old["s1"])
    assert [entry.table for entry in change.insert] == [EVENT]
    assert not change.modify and not change.delete


def test_an_edit_of_one_pass_of_vectors_writes_these_and_the_chain_and_moves_all_at_once():
    limits = Limits(rows=0, words=1, passes=16)
    filters = AttributeFilters(REGISTRY, "feed1", limits)
    first = [("h1", f"temp > {5 * n} and hum < {7 * n}") for n in range(1, 20)]
    old = made(filters, rules(first))
    new = made(filters, rules([*first, ("h1", "last == 5")]), old)
    change = difference(new["s1"], old["s1"])
    assert [entry.table for entry in change.modify] == [PASSES]
    numbers = {entry.match[0] for entry in change.insert if entry.table.startswith(VALUE_TABLES)}
    assert len(numbers) == 1
    assert {entry.match[0] for entry in old["s1"] if entry.table.startswith(VALUE_TABLES)} & {
        entry.match[0] for entry in new["s1"] if entry.table.startswith(VALUE_TABLES)
    }


def test_rules_that_need_more_room_than_a_switch_has_harm_no_other():
    """Those go that share least, and who wrote one is told which switch is full."""
    limits = Limits(rows=0, words=2, passes=2)
    filters = AttributeFilters(REGISTRY, "feed1", limits)
    first = [("h1", "temp == 3"), ("h3", "hum between 4 and 15"), ("h5", "last >= 1")]
    old = made(filters, rules(first))
    many = [("h4", f"time > {99 * n} and hum > {77 * n} and temp < {3 * n}") for n in range(1, 60)]
    both = filters.entries(LINE, rules([*first, *many]), old)
    refused = {rejection.id for rejection in both.rejections}
    # At s1 all of h3 to h6 are behind one port.
    assert refused and refused < {f"r{1 + n}" for n in range(61)}
    assert "r0" not in refused
    assert {r.code for r in both.rejections} == {"SUBSCRIPTION.NO_ROOM_ON_SWITCHES"}
    assert all("'s1'" in rejection.message for rejection in both.rejections)
    left = [rule for rule in rules([*first, *many]) if rule.id not in refused]
    anew = AttributeFilters(REGISTRY, "feed1", limits)
    assert both.entries == anew.entries(LINE, left, old).entries
    tables = {switch: Table(entries) for switch, entries in both.entries.items()}
    for event in events(3):
        assert delivered(LINE, tables, keys_of(event)) == wanted(left, event)
    # Once there is room again, all are live.
    roomy = AttributeFilters(REGISTRY, "feed1")
    assert not roomy.entries(LINE, rules([*first, *many]), old).rejections


def test_rules_on_many_attributes_add_up_instead_of_multiplying():
    """40 rules on 11 attributes, each to its own host: as many terms, and rows by the threshold."""
    known = Registry(tuple(attribute(n, f"a{n}", "unsigned") for n in range(11)))
    rng = random.Random(40)
    for operator in ("==", ">"):
        found = [
            CheckedRule(
                str(n),
                parse_rule(
                    f"a{n % 11} {operator} {rng.getrandbits(32)}", known.specification()
                ).condition,
                (str(n + 1),),
            )
            for n in range(40)
        ]
        made_of = passes_of(boxes_of(found, known), Limits())
        entries = event_entries("s1", made_of.passes, [])
        assert len(made_of.passes) == 1 and len(entries) <= 1 + 40 + 2 * 11
        table = Table(entries)
        for _ in range(200):
            event = {n: rng.getrandbits(32) for n in range(11) if rng.random() < 0.8}
            fields = {f"a{n}": value for n, value in event.items()}
            ports = tuple(n + 1 for n, r in enumerate(found) if matches(r.condition, fields))
            assert table.outcomes(keys_of(event)) == {ports}


@examples(20)
@given(first=texts(LINE), limits=st.sampled_from(LIMITS))
def test_a_new_attribute_changes_no_entry(first, limits):
    old = made(AttributeFilters(REGISTRY, "feed1", limits), rules(first))
    held = {
        switch: [entry_from_row(entry_to_row(entry)) for entry in entries]
        for switch, entries in old.items()
    }
    new = made(AttributeFilters(WIDER, "feed1", limits), rules(first, LINE, WIDER), held)
    for switch, entries in new.items():
        assert not difference(entries, held[switch])
        assert [entry_to_row(e) for e in entries] == [entry_to_row(e) for e in held[switch]]


@examples(20)
@given(first=texts(LINE, CONDITIONS[:6]), host=st.sampled_from(sorted(LINE.subscribers())))
def test_rules_on_a_new_attribute_only_add_entries_where_overlaps_are_solved_by_priorities(
    first, host
):
    def filters(registry: Registry) -> AttributeFilters:
        return AttributeFilters(registry, "feed1", Limits(("priorities",)))

    old = made(filters(REGISTRY), rules(first))
    new = made(filters(WIDER), rules([*first, (host, "co2 between 5.5 and 9")], LINE, WIDER), old)
    # Rules that multiply leave the table.
    assume(not any(e.table.startswith(VALUE_TABLES) for one in new.values() for e in one))
    for switch, entries in new.items():
        change = difference(entries, old[switch])
        assert not change.modify and not change.delete


def test_priorities_are_steps_and_those_are_few():
    found = rules(
        [
            (f"h{1 + n % 6}", f"temp between {5 * n} and {5 * n + 30} and hum == {n % 9}")
            for n in range(300)
        ]
    )
    entries = made(AttributeFilters(REGISTRY, "feed1"), found)["s1"]
    assert len([entry for entry in entries if entry.table == EVENT]) > 500
    assert len(write_steps(difference(entries, []))) < 70
    assert len(write_steps(difference([], entries))) < 70


# The job's side.


PIPELINES = dict.fromkeys(LINE.switches, ATTRIBUTES)
ROWS = [
    {
        "id": one.id,
        "name": one.name,
        "type": one.type,
        "scale": one.scale,
        "offset": one.offset,
        "registered_by": "tests",
        "registered_at": None,
    }
    for one in WIDER.attributes
]
OLD_ROWS = [row for row in ROWS if row["name"] != "co2"]


def of_attributes(**given) -> Settings:
    return Settings(match="network", format="attributes", p4_folder=str(COMPILED_P4), **given)


def row(number: int, text: str, host: str = "h1", **other) -> dict:
    subscription = {"id": f"s{number}", "subscriber": host, "format": "attributes"}
    return {**subscription, "filter": text, "enabled": True, **other}


def entries_of(match, rows, version=1, held=(), pipelines=PIPELINES, attributes=OLD_ROWS):
    versions = {"switches": 0, "hosts": 0, "links": 0, "subscriptions": version}
    versions["attributes"] = len(attributes)
    rows_held = [entry_to_row(entry) for entry in held]
    return match.entries(LINE, versions, rows, rows_held, pipelines, attributes)


def test_the_program_that_is_shipped_has_the_table_the_fields_and_the_actions_of_the_entries():
    pipeline = P4Program.read(COMPILED_P4, ATTRIBUTES)
    assert EVENT in pipeline.sizes
    names = [
        f.name for t in pipeline.p4info.tables if t.preamble.name == EVENT for f in t.match_fields
    ]
    assert names == ["rows", "bitmask", *(f"value_{i}" for i in range(32))]
    actions = {a.preamble.name: [p.name for p in a.params] for a in pipeline.p4info.actions}
    assert actions["ingress.subscriptions.send_to_ports"] == ["ports"]
    assert actions["ingress.subscriptions.require"] == ["terms"]


def test_each_format_has_the_program_that_matches_it():
    assert matching_program("attributes") == ATTRIBUTES
    assert matching_program("itch") == FILTERING
    assert {ATTRIBUTES, FILTERING} == MATCHING


def test_subscriptions_of_other_formats_and_rules_that_no_switch_holds_leave_the_rest_live():
    match = NetworkMatch(of_attributes())
    assert match.sources == ("subscriptions", "subscription_seniority", "grants", "attributes")
    good = [row(1, "temp < 30 and hum > 15", "h5")]
    bad = [
        row(2, "stock == AAPL", format="itch"),
        row(3, "unheard < 3"),
        row(4, "temp < "),
        row(5, "temp < 3", "nobody"),
        row(6, "temp < 3", enabled=False),
        row(7, "count(temp, 1000) > 3"),
    ]
    assert entries_of(match, good + bad) == entries_of(NetworkMatch(of_attributes()), good)

    class Tables:
        def overwrite(self, name, rows):
            assert name == "rejected_subscriptions"
            self.rows = {r["id"]: r["code"] for r in rows}

    tables = Tables()
    match.write_rejections(tables)
    assert tables.rows.keys() == {"s3", "s4", "s5", "s7"}
    assert tables.rows["s3"] == "SUBSCRIPTION.UNKNOWN_FIELD"


def test_a_new_row_of_attributes_changes_nothing_and_then_its_rules_are_live():
    match = NetworkMatch(of_attributes())
    rows = [row(1, "temp < 30", "h5"), row(2, "hum > 4294967000")]
    first = entries_of(match, rows)
    assert entries_of(match, rows, 1, first, attributes=ROWS) == first
    rows.append(row(3, "co2 < 2", "h3"))
    assert entries_of(match, rows, 2, first) == first
    change = difference(entries_of(match, rows, 3, first, attributes=ROWS), first)
    assert {entry.switch for entry in change.insert} == {"s1", "s2"}
    assert not {entry.switch for entry in (*change.modify, *change.delete)} & {"s3"}


def test_without_any_attribute_there_are_no_entries_but_the_switches_are_known():
    match = NetworkMatch(of_attributes())
    assert entries_of(match, [row(1, "temp < 30")], attributes=[]) == []


def test_the_port_of_messages_does_not_matter_to_events_of_attributes():
    NetworkMatch(of_attributes(port=26401))


def test_switches_on_the_way_must_run_the_program_of_the_format():
    with pytest.raises(NetworkError) as refused:
        entries_of(NetworkMatch(of_attributes()), [], pipelines=PIPELINES | {"s2": FILTERING})
    assert refused.value.code == "NETWORK.WRONG_PIPELINE"
    assert "'s2'" in refused.value.message and repr(ATTRIBUTES) in refused.value.message


@pytest.mark.parametrize("program", sorted(MATCHING))
def test_where_the_stream_matches_neither_matching_program_may_run(program):
    with pytest.raises(NetworkError) as refused:
        check_pipelines({"a": "virtual_trees", "b": program})
    assert refused.value.code == "NETWORK.WRONG_PIPELINE"
    assert repr(program) in refused.value.message and "'virtual_trees'" in refused.value.message


def test_such_a_switch_holds_routes_its_entries_and_their_groups_and_nothing_else():
    filters = entries_of(NetworkMatch(of_attributes()), [row(1, "temp < 30", "h5")])
    source = NetworkVersion(LINE, broadcast_trees(LINE))
    union = derive(source, [source], PIPELINES, {ATTRIBUTES: [EVENT, ROUTE]}, filters)
    assert not union.taken_back
    others = {GROUPS, ROUTE, BRIDGE, SOURCE}
    assert {entry.table for entry in union.entries} == {*others, PASSES, EVENT}
    assert {e for e in union.entries if e.table not in others} == set(filters)
    with pytest.raises(SwitchError) as refused:
        derive(source, [], PIPELINES, {ATTRIBUTES: ["ingress.subscriptions.start"]})
    assert refused.value.code == "SWITCH.WRONG_PROGRAM"
    assert EVENT in refused.value.message and ATTRIBUTES in refused.value.message


class Site:
    """A world whose switches match events of attributes, and one refresher of it."""

    def __init__(self) -> None:
        self.world = World()
        self.tables = self.world.tables
        rows = network_to_rows(LINE, dict.fromkeys(LINE.switches, ""))
        rows["switches"] = [row | {"pipeline": ATTRIBUTES} for row in rows["switches"]]
        for name, content in rows.items():
            self.tables.overwrite(name, content)

        def opened(target) -> FakeSession:
            return FakeSession(self.world, "a", target, lambda: None)

        self.job = Refresher(
            self.tables.through(lambda: None),
            of_attributes(),
            open_session=opened,
            threads=InOrder(HastyClock()),
        )

    def polls(self) -> None:
        for _ in range(4):
            self.job.poll()

    def held(self) -> dict[str, dict[str, SwitchEntry]]:
        return {
            switch: {
                key: entry
                for key, entry in held.items()
                if entry.table not in (GROUPS, ROUTE, BRIDGE, SOURCE)
            }
            for switch, held in self.world.held.items()
        }

    def delivered(self, event: dict[int, int]) -> list[str]:
        tables = {switch: Table(held.values()) for switch, held in self.held().items()}
        return delivered(LINE, tables, keys_of(event))


@pytest.fixture
def site():
    with hasty():
        yield Site()


def test_a_row_of_attributes_is_taken_up_by_itself_and_leaves_the_switches_as_they_are(site):
    site.tables.overwrite("attributes", OLD_ROWS)
    texts = {"h2": "temp < 30", "h6": "hum == 3 or temp == 30", "h4": "co2 == 5"}
    rows = [row(n, text, host) for n, (host, text) in enumerate(texts.items())]
    site.tables.overwrite("subscriptions", rows)
    site.polls()
    before, version = site.held(), site.tables.version("switch_entries")
    co2 = WIDER.by_name["co2"]
    event = {1: 3, 2: 3, co2.id: int((5 - co2.offset) / co2.scale)}
    assert site.delivered(event) == ["h2", "h6"]
    assert [r["id"] for r in site.tables.rows("rejected_subscriptions")] == ["s2"]
    site.tables.overwrite("subscriptions", rows[:2])
    site.polls()
    assert site.held() == before
    # The attribute alone: no switch is written, and still all are ready for it.
    site.tables.overwrite("attributes", ROWS)
    site.polls()
    assert site.held() == before
    assert site.tables.version("switch_entries") == version
    ready = site.tables.rows("network_versions")[-1]["versions"]
    assert ready["attributes"] == site.tables.version("attributes")
    assert not site.tables.rows("rejected_subscriptions")
    site.tables.overwrite("subscriptions", rows)
    site.polls()
    assert site.delivered(event) == ["h2", "h4", "h6"]
    after = site.held()
    assert before["s3"] == after["s3"]


def test_rows_that_are_no_registry_leave_the_switches_as_they_are_until_they_are_mended(
    site, caplog
):
    site.tables.overwrite("attributes", OLD_ROWS)
    site.tables.overwrite("subscriptions", [row(1, "temp < 30", "h6")])
    site.polls()
    before = site.held()
    site.tables.overwrite("attributes", [*OLD_ROWS, OLD_ROWS[0] | {"name": "twice"}])
    site.tables.overwrite("subscriptions", [row(1, "temp < 16", "h6")])
    site.polls()
    assert "ATTRIBUTE.DUPLICATE_ID" in caplog.text
    assert site.held() == before
    site.tables.overwrite("attributes", OLD_ROWS)
    site.polls()
    assert site.held() != before
    assert site.delivered({1: 15}) == ["h6"] and site.delivered({1: 16}) == []


# What is written over P4Runtime is what the shipped program does with frames.


@pytest.fixture(scope="module")
def switches():
    """A software switch for each of the line, and the address of their P4Runtime server."""
    running = {name: SimpleSwitch() for name in LINE.switches}
    devices = [Device(n, s.device_id, running[n]) for n, s in LINE.switches.items()]
    server = P4RuntimeServer(devices).start()
    yield running, server.address
    server.stop()


def frame(event: dict[int, int], encoding: str) -> bytes:
    """One frame as KUNDEL III-B has it, made by hand."""
    if encoding == "bitmask":
        last, body = 2, struct.pack(">I", sum(1 << i for i in event))
        body += b"".join(struct.pack(">I", event[i]) for i in sorted(event))
    else:
        last, ids = 1, sorted(event)
        body = bytes([ids[0]]) + b"".join(
            struct.pack(">IB", event[i], following)
            for i, following in zip(ids, [*ids[1:], 0], strict=True)
        )
    target = bytes([3, 0x53, 0x43, 0, 0, last])
    return target + bytes([2, 0, 0, 0, 0, 9]) + b"\x90\x01" + body + b"key"


def received(running, sent: bytes) -> list[str]:
    onward = {(link.switch, link.port): (link.neighbor, link.neighbor_port) for link in LINE.links}
    publisher = LINE.hosts["feed1"]
    pending, found = [(publisher.switch, publisher.port, sent)], []
    while pending:
        switch, ingress, data = pending.pop()
        for port, made in running[switch].process(ingress, data):
            neighbor, its_port = onward[switch, port]
            if neighbor in LINE.switches:
                pending.append((neighbor, its_port, made))
            else:
                assert made == sent
                found.append(neighbor)
    return sorted(found)


def test_the_software_switches_deliver_both_encodings_as_the_rules_say_edit_after_edit(switches):
    running, address = switches
    filters, rng = AttributeFilters(REGISTRY, "feed1"), random.Random(7)
    hosts, held = sorted(LINE.subscribers()), {}
    for edit in range(3):
        found = rules([(rng.choice(hosts), text) for text in rng.sample(CONDITIONS, 5)])
        held = made(filters, found, held)
        for name, switch in LINE.switches.items():
            groups = open_ports(name, [link.port for link in LINE.links if link.switch == name])
            fill(address, switch, [*groups, *held[name]], ATTRIBUTES)
        came = 0
        for event in events(edit, 25):
            for encoding in ("bitmask", "id_pairs"):
                assert received(running, frame(event, encoding)) == wanted(found, event)
            came += len(wanted(found, event))
        assert came > 10
