"""What did not change from plan to plan is not read, compiled or made again."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.planning.plans import Plans
from stackcast.jobs.adapters.planning.versions import LINK_STATES
from stackcast.jobs.adapters.wire import sink_options
from stackcast.udfs.errors import StackcastError
from stackcast.udfs.network.ingresses import Ingresses
from stackcast.udfs.network.rows import network_to_rows, tree_to_row
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.trees.broadcast import broadcast_trees

pytestmark = pytest.mark.unit

NETWORK = fabric(pods=2, racks=2, hosts=1, planes=1, spines=1)


class Versions:
    """Tables with a list of rows a version, which count how often each is read."""

    def __init__(self) -> None:
        addresses = dict.fromkeys(NETWORK.switches, "127.0.0.1:9")
        first = {name: list(rows) for name, rows in network_to_rows(NETWORK, addresses).items()}
        first["virtual_trees"] = [tree_to_row(tree) for tree in broadcast_trees(NETWORK)]
        first["subscriptions"] = [
            {
                "id": f"s{number}",
                "subscriber": f"h{1 + number % 3}",
                "format": "itch",
                "filter": f'stock == "S{number % 7}" and price > {number}',
                "enabled": True,
            }
            for number in range(50)
        ]
        first["subscription_seniority"] = []
        first["advertisements"] = []
        grant = {"id": "g", "subscriber": "*", "format": "itch", "filter": "all"}
        first["grants"] = [grant]
        first["ingresses"] = [{"place": "rack1", "publisher": "feed1", "transport": "far:1"}]
        self.held: dict[str, list[list[dict[str, Any]]]] = {
            name: [rows] for name, rows in first.items()
        }
        self.reads: Counter[str] = Counter()

    def rows(self, name: str, version: int) -> list[dict[str, Any]]:
        self.reads[name] += 1
        return self.held[name][version]

    @property
    def newest(self) -> dict[str, int]:
        found = {name: len(rows) - 1 for name, rows in self.held.items()}
        return found | {LINK_STATES: found["links"]}

    def edit(self, name: str, change: dict[str, Any]) -> None:
        first, *others = self.held[name][-1]
        self.held[name].append([first | change, *others])


@pytest.fixture
def tables() -> Versions:
    return Versions()


@pytest.fixture
def plans(tables: Versions) -> Plans:
    made = Plans(Settings(publisher="feed1"), tables)
    made.at(tables.newest)
    tables.reads.clear()
    return made


EDITS = {
    "subscriptions": {"filter": "price > 1"},
    "links": {"weight": 2.5},
    "virtual_trees": {"strategy": "other"},
    "grants": {"filter": "price > 3"},
    "hosts": {"mac": 0x020000009999},
    "ingresses": {"transport": "far:2"},
}


@pytest.mark.parametrize("name", EDITS)
def test_only_what_changed_is_read_again(tables: Versions, plans: Plans, name: str) -> None:
    tables.edit(name, EDITS[name])
    plans.at(tables.newest)
    network = {"switches", "hosts", "links"}
    assert set(tables.reads) == (network if name in network else {name})
    assert set(tables.reads.values()) == {1}
    tables.reads.clear()
    plans.at(tables.newest)
    assert not tables.reads


def test_an_edit_of_grants_decides_which_rules_are_live(tables: Versions, plans: Plans) -> None:
    tables.edit("grants", {"filter": "price > 25"})
    made = plans.at(tables.newest)
    assert [rule.id for rule in made.compilation.rules] == sorted(f"s{n}" for n in range(25, 50))
    fresh = Plans(Settings(publisher="feed1"), tables).at(tables.newest)
    assert fresh.compilation.rejection_rows() == made.compilation.rejection_rows()
    assert len(made.compilation.rejections) == 25
    tables.edit("grants", {"filter": "prise > 25"})
    codes = [rejection.code for rejection in plans.at(tables.newest).compilation.rejections]
    assert codes == ["SUBSCRIPTION.UNKNOWN_FIELD"] + ["SUBSCRIPTION.NOT_GRANTED"] * 50


def test_an_edit_of_a_link_compiles_no_filter_and_gives_the_plan_of_scratch(
    tables: Versions, plans: Plans
) -> None:
    before = plans.at(tables.newest)
    tables.edit("links", {"up": False})
    after = plans.at(tables.newest)
    assert after.subscriptions is before.subscriptions
    assert after.compilation.filter is before.compilation.filter
    assert list(after.compilation.rules) == list(before.compilation.rules)
    fresh = Plans(Settings(publisher="feed1"), tables).at(tables.newest)
    assert fresh.compilation.receiver_sets == after.compilation.receiver_sets
    assert fresh.network == after.network != before.network


def test_an_older_plan_is_what_it_was(tables: Versions, plans: Plans) -> None:
    first = tables.newest
    rules = list(plans.at(first).compilation.rules)
    tables.edit("subscriptions", {"enabled": False})
    assert len(plans.at(tables.newest).compilation.rules) == len(rules) - 1
    assert list(plans.at(first).compilation.rules) == rules


def test_an_edit_of_ingresses_keeps_stacks_and_gives_workers_the_new_transports(
    tables: Versions, plans: Plans
) -> None:
    before = plans.at(tables.newest).compilation
    tables.edit("ingresses", {"transport": "far:2"})
    after = plans.at(tables.newest).compilation
    assert after.header_stacks is before.header_stacks
    assert after.plan.ingresses.transport("rack1", "feed1") == "far:2"
    assert before.plan.ingresses.transport("rack1", "feed1") == "far:1"


def test_ingresses_that_do_not_fit_the_sink_or_the_network_are_refused(tables: Versions) -> None:
    settings = Settings(publisher="feed1", udp_endpoint="far:1")
    plans = Plans(settings, tables, sink=sink_options(settings))
    plans.at(tables.newest)
    for change, error in (
        ({"transport": "far"}, "BAD_ENDPOINT.*'rack1'"),
        ({"transport": "far:1", "publisher": "h1"}, "NO_PUBLISHER.*'h1' in table ingresses"),
    ):
        tables.edit("ingresses", change)
        with pytest.raises(StackcastError, match=error):
            plans.at(tables.newest)
    tables.edit("ingresses", {"transport": "far:1", "publisher": None})
    plans.at(tables.newest)


def test_a_plan_for_one_ingress_does_not_read_the_table(tables: Versions) -> None:
    """Replays use the ingress that the ledger names."""
    plans = Plans(Settings(publisher="feed1"), tables, ingresses=Ingresses.at_host("feed1"))
    plans.at(tables.newest)
    assert "ingresses" not in tables.reads
