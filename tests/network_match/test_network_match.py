"""Subscriptions as a source of the switches' tables: what is made, what is refused, and when."""

from __future__ import annotations

import json

import pytest
from paths import COMPILED_P4

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.switches.filters import NetworkMatch, check_pipelines
from stackcast.udfs.errors import FilterError, NetworkError, SettingsError, SwitchError
from stackcast.udfs.network.programs import FILTERING
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network_match.filters import START, event_ports
from stackcast.udfs.p4_program.program import MAIN
from stackcast.udfs.switches import derivation
from stackcast.udfs.switches.derivation import derive
from stackcast.udfs.switches.entry import GROUPS, entry_to_row
from stackcast.udfs.switches.rollout import NetworkVersion
from stackcast.udfs.switches.routes import ROUTE
from stackcast.udfs.switches.sources import SOURCE
from stackcast.udfs.trees.broadcast import broadcast_trees

pytestmark = pytest.mark.unit

NETWORK = fabric(2, 2, 1, 1, 1)
PIPELINES = dict.fromkeys(NETWORK.switches, FILTERING)


def settings(**given) -> Settings:
    return Settings(match="network", p4_folder=str(COMPILED_P4), **given)


def row(number: int, text: str, host: str = "h1", **other) -> dict:
    return {
        "id": f"s{number}",
        "subscriber": host,
        "format": "itch",
        "filter": text,
        "enabled": True,
        **other,
    }


def entries(
    match: NetworkMatch, rows, version: int = 1, held=(), pipelines=PIPELINES, grants=(), order=()
):
    """``order``: rows from the oldest on."""
    versions = {"switches": 0, "hosts": 0, "links": 0, "subscriptions": version}
    standing = [entry_to_row(e) for e in held]
    since = [
        {"id": r["id"], "subscriber": r["subscriber"], "since_version": v}
        for v, r in enumerate(order)
    ]
    others = (pipelines, (), grants, lambda: since)
    return match.entries(NETWORK, versions, rows, standing, *others)


class FakeTables:
    def __init__(self) -> None:
        self.written: list[list[dict]] = []

    def overwrite(self, name: str, rows: list[dict]) -> None:
        assert name == "rejected_subscriptions"
        self.written.append(rows)


def test_the_shipped_program_takes_events_at_the_port_that_hosts_see():
    config = (COMPILED_P4 / "packet_subscriptions.json").read_bytes()
    assert event_ports(config) == {Settings().port}


@pytest.mark.parametrize("config", [b"", b"\x7fELF", b"[]", b"{}", b'{"parsers": [{}]}'])
def test_a_target_that_does_not_say_its_port_is_trusted(config):
    assert event_ports(config) == set()


def test_another_port_than_the_programs_is_refused_with_both():
    with pytest.raises(SettingsError) as refused:
        NetworkMatch(settings(port=26401))
    assert refused.value.code == "SETTINGS.WRONG_PORT"
    assert "26401" in refused.value.message and "26400" in refused.value.message


def test_a_program_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SwitchError) as refused:
        NetworkMatch(Settings(match="network", p4_folder=str(tmp_path)))
    assert refused.value.code == "SWITCH.NO_P4INFO"


def test_a_program_of_another_port_goes_with_that_port(tmp_path):
    shipped = COMPILED_P4 / "packet_subscriptions.json"
    text = shipped.read_text().replace('"0x6720"', '"0x1f90"')
    assert json.loads(text) != json.loads(shipped.read_text())
    (tmp_path / shipped.name).write_text(text)
    info = shipped.with_suffix(".p4info.txtpb").name
    (tmp_path / info).write_text((COMPILED_P4 / info).read_text())
    NetworkMatch(Settings(match="network", p4_folder=str(tmp_path), port=8080))
    with pytest.raises(SettingsError):
        NetworkMatch(Settings(match="network", p4_folder=str(tmp_path)))


@pytest.mark.parametrize("number", [1, 9])
def test_a_younger_rule_takes_no_room_on_a_switch_from_an_older_one(number):
    near = [h.name for h in NETWORK.hosts.values() if h.switch == NETWORK.hosts["feed1"].switch]
    near.remove("feed1")
    old = row(5, "max(price, 1000000) > 3", near[0])
    # An event reads four cells at most.
    macros = " and ".join(f"{f}(shares, 1000000) > 3" for f in ("sum", "avg", "min", "max"))
    new = row(number, macros, near[-1])
    match, tables = NetworkMatch(settings()), FakeTables()
    first = entries(match, [old])
    assert entries(match, [new, old], 2, held=first, order=[old, new]) == first
    match.write_rejections(tables)
    ((rejected,),) = tables.written
    assert (rejected["id"], rejected["subscriber"]) == (new["id"], new["subscriber"])
    assert rejected["code"] == "FILTER.TOO_MANY_VARIABLES"


def test_rules_that_no_switch_can_hold_are_rows_and_the_others_are_live():
    match, tables = NetworkMatch(settings()), FakeTables()
    far = next(
        name
        for name in NETWORK.subscribers()
        if NETWORK.hosts[name].switch != NETWORK.hosts["feed1"].switch
    )
    good = [row(1, "stock == AAPL")]
    bad = [
        row(2, "stock == "),
        row(3, "trade.price > 3"),
        row(4, "avg(price) > 3", far),
        row(5, "price > 1", "nobody"),
        row(6, "price > 1", format="unheard"),
    ]
    made = entries(match, good + bad)
    assert made == entries(NetworkMatch(settings()), good)
    match.write_rejections(tables)
    assert {r["id"]: (r["code"], r["subscriptions_version"]) for r in tables.written[0]} == {
        "s2": ("SUBSCRIPTION.SYNTAX", 1),
        "s3": ("SUBSCRIPTION.NOT_ON_SWITCHES", 1),
        "s4": ("SUBSCRIPTION.STATE_BEYOND_FIRST_SWITCH", 1),
        "s5": ("SUBSCRIPTION.UNKNOWN_HOST", 1),
        "s6": ("SUBSCRIPTION.UNKNOWN_FORMAT", 1),
    }
    match.write_rejections(tables)
    assert len(tables.written) == 1


def test_switches_hold_the_rules_that_are_granted_alone():
    match, tables = NetworkMatch(settings()), FakeTables()
    rows = [row(1, "stock == AAPL and price > 3"), row(2, "price > 3")]
    grant = {"id": "g1", "subscriber": "h1", "format": "itch", "filter": "stock == AAPL"}
    broken = {"id": "g2", "subscriber": "h1", "format": "itch", "filter": "prise > 3"}
    every = entries(match, rows)
    assert match.sources == ("subscriptions", "subscription_seniority", "grants")
    some = entries(match, rows, 2, grants=[grant, broken])
    assert some == entries(NetworkMatch(settings()), rows[:1]) != every
    match.write_rejections(tables)
    assert {r["id"]: r["code"] for r in tables.written[0]} == {
        "g2": "SUBSCRIPTION.UNKNOWN_FIELD",
        "s2": "SUBSCRIPTION.NOT_GRANTED",
    }
    assert entries(match, rows, 3) == every


def test_an_edit_that_changes_no_rule_changes_no_entry():
    match = NetworkMatch(settings())
    rows = [row(1, "stock == AAPL"), row(2, "price > 7", enabled=False)]
    first = entries(match, rows)
    assert entries(match, rows, 2, first) == first
    assert entries(NetworkMatch(settings()), rows, 3, first) == first
    assert entries(match, [rows[0]], 4, first) == first
    assert entries(match, [row(1, "stock == AAPL and price > 1")], 5, first) != first


def test_a_cell_of_state_has_one_tag_while_it_stays_and_another_when_it_comes_back():
    near = next(
        name
        for name in NETWORK.subscribers()
        if NETWORK.hosts[name].switch == NETWORK.hosts["feed1"].switch
    )
    rows, held, tags = [row(1, "changed(price)", near)], [], []
    for version, wanted in enumerate((rows, [*rows, row(2, "price > 7", near)], [], rows)):
        held = entries(NetworkMatch(settings()), wanted, version, held)
        tags.append({value for one in held for name, value in one.params if name == "tag"})
    first, stayed, gone, back = tags
    assert len(first) == len(back) == 1 and not gone
    assert first == stayed != back


def test_only_switches_on_the_way_of_a_changed_rule_change():
    match = NetworkMatch(settings())
    near = next(
        name
        for name in NETWORK.subscribers()
        if NETWORK.hosts[name].switch == NETWORK.hosts["feed1"].switch
    )
    others = [row(n, f"price > {n}", name) for n, name in enumerate(NETWORK.subscribers(), 10)]
    first = entries(match, others)
    second = entries(match, [*others, row(1, "stock == AAPL", near)], 2, first)
    changed = {entry.switch for entry in set(first) ^ set(second)}
    assert changed == {NETWORK.hosts["feed1"].switch}


def test_too_many_entries_are_an_error_and_the_next_edit_works(monkeypatch):
    match = NetworkMatch(settings())
    first = entries(match, [row(1, "stock == AAPL")])

    def too_large(*_args, **_options):
        raise FilterError("TOO_LARGE", "too many rows")

    with monkeypatch.context() as patched:
        patched.setattr("stackcast.udfs.network_match.filters.fitting_rules", too_large)
        with pytest.raises(FilterError):
            entries(match, [row(1, "stock == MSFT")], 2, first)
    assert entries(match, [row(1, "stock == AAPL")], 3, first) == first


def test_switches_on_the_way_must_run_the_program_that_filters():
    first = NETWORK.hosts["feed1"].switch
    mixed = PIPELINES | {first: "virtual_trees"}
    with pytest.raises(NetworkError) as refused:
        entries(NetworkMatch(settings()), [row(1, "price > 1")], pipelines=mixed)
    assert refused.value.code == "NETWORK.WRONG_PIPELINE"
    assert first in refused.value.message


def test_where_the_stream_matches_no_switch_may_filter():
    check_pipelines(dict.fromkeys(NETWORK.switches, "virtual_trees") | {"x": "of_ones_own"})
    with pytest.raises(NetworkError) as refused:
        check_pipelines({"a": "virtual_trees", "b": FILTERING})
    assert refused.value.code == "NETWORK.WRONG_PIPELINE"


def test_a_filtering_switch_holds_groups_routes_and_its_filters_and_nothing_of_older_versions():
    match = NetworkMatch(settings())
    filters = entries(match, [row(1, "price > 1")])
    source = NetworkVersion(NETWORK, broadcast_trees(NETWORK))
    union = derive(source, [source], PIPELINES, {FILTERING: [START]}, filters)
    assert not union.taken_back
    kinds = {entry.table for entry in union.entries}
    others = {GROUPS, ROUTE, SOURCE}
    assert others | {START} <= kinds
    assert all(t in others or t.startswith("ingress.subscriptions.") for t in kinds)
    assert set(filters) <= set(union.entries)
    with pytest.raises(SwitchError) as refused:
        derive(source, [], PIPELINES, {FILTERING: ["ingress.label_1.look_up"]})
    assert refused.value.code == "SWITCH.WRONG_PROGRAM"
    assert FILTERING in derivation.DERIVATIONS
    assert FILTERING == MAIN


def test_a_flood_of_rejections_is_all_in_the_table_and_some_in_the_log(caplog):
    match, tables = NetworkMatch(settings()), FakeTables()
    entries(match, [row(n, "trade.price > 3") for n in range(50)])
    match.write_rejections(tables)
    assert len(tables.written[0]) == 50
    assert len(caplog.records) == 11
    assert caplog.messages[-1].startswith("40 more")
