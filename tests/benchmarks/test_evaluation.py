"""The scenarios of docs/results/virtual-trees*.md are as described, and their pictures readable."""

from random import Random
from xml.etree import ElementTree

import pytest

from benchmarks.support.bars import Bars, Dot, Scatter
from benchmarks.support.map import Map
from benchmarks.support.plot import Legend, Panel, svg
from benchmarks.support.tables import pages
from benchmarks.trees import document, networks, reasons
from benchmarks.trees.clients import MIGRATIONS, Moving, crowd, migration, sample
from stackcast.udfs.network.topology import jellyfish

pytestmark = pytest.mark.unit

NAME = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def litnet():
    return networks.zoo("Litnet")


def test_sixty_percent_of_the_switches_are_dense_each_in_one_cluster(litnet):
    dense = [switch for members in litnet.dense for switch in members]
    assert len(dense) == len(set(dense)) == round(0.6 * len(litnet.network.switches))
    assert len(litnet.clusters) == 4
    for members, chosen, centre in zip(litnet.clusters, litnet.dense, litnet.centres, strict=True):
        assert set(chosen) <= set(members)
        assert chosen[0] == centre
    assert {switch for members in litnet.clusters for switch in members} == set(
        litnet.network.switches
    )


def test_populated_hosts_are_drawn_more_often(litnet):
    weights = litnet.weights()
    drawn = [sample(Random(seed), list(weights), weights, 1)[0] for seed in range(400)]
    dense = sum(weights[host] == networks.HIGH for host in drawn)
    assert dense > 0.85 * len(drawn)


def test_a_sample_has_no_host_twice_and_all_if_all_are_asked_for():
    weights = {f"h{n}": float(n + 1) for n in range(9)}
    assert sorted(sample(Random(1), list(weights), weights, 9)) == sorted(weights)
    assert sorted(sample(Random(1), list(weights), weights, 20)) == sorted(weights)


@pytest.mark.parametrize("how", MIGRATIONS)
def test_clients_move_and_their_number_stays(litnet, how):
    before, after = migration(litnet, how)
    random = Random(how)
    who = crowd(litnet.network, random, 0.3, 0.3, before)
    moving = Moving(litnet.network, random, who, after)
    counts = [len(who.subscribers), {len(hosts) for hosts in who.subscribers.values()}]
    for step in range(11):
        moving.move(step / 10)
        now = moving.crowd().subscribers
        assert [len(now), {len(hosts) for hosts in now.values()}] == counts
        for publisher, hosts in now.items():
            assert publisher not in hosts
            assert len(set(hosts)) == len(hosts)
        if step == 0:
            assert now == who.subscribers
    assert now != who.subscribers


def test_distant_clients_leave_the_clusters_they_were_in(litnet):
    before, after = migration(litnet, "distant")
    old = {host for host, weight in before.items() if weight == networks.HIGH}
    new = {host for host, weight in after.items() if weight == networks.HIGH}
    assert old and new and not old & new


def test_publications_are_drawn_by_how_often_hosts_want_them():
    network = jellyfish(12, 3, publishers=0)
    who = crowd(network, Random(3), 0.3, 0.5)
    drawn = who.draw(Random(4), 300)
    for publisher, hosts in who.subscribers.items():
        mine = [each for each in drawn if each.publisher == publisher]
        for host in hosts:
            share = sum(host in each.receivers for each in mine) / 300
            assert share == pytest.approx(who.frequency[host], abs=0.12)
        assert all(each.receivers <= set(hosts) for each in mine)


def test_bars_dots_maps_and_legends_stand_inside_their_picture():
    curves = {f"curve {n}": [(0.0, n), (1.0, n + 1.0)] for n in range(12)}
    panel = Panel("p", "x", "y", curves, names="none")
    bars = Bars("b", "labels", {"one": [(1.0, 2.0, 0.0)], "two": [(0.5, 0.5, 4.0)] * 11}, thin=True)
    dots = Scatter("s", "d", "f", [Dot(4, 0.1, 5, 2, "a & b"), Dot(40, 9.0, 2, 0, "c")])
    places = {"s1": (0.0, 0.0), "s2": (5.0, 1.0), "s3": (2.0, 7.0)}
    chart = Map("m", places, [("s1", "s2")], [("s1", "s2", 1, "dashed")] * 3, {"s3": (0, 4.0)})
    text = svg("T", "D", [panel, bars, dots, chart, Legend(list(curves), 2)], 2)
    root = ElementTree.fromstring(text)
    _, _, width, height = map(float, root.get("viewBox").split())
    assert width == 2 * panel.width
    assert height > panel.height + dots.height
    for mark in root.iter(f"{NAME}rect"):
        assert float(mark.get("x")) >= 0 and float(mark.get("width")) >= 0
    for dot in root.iter(f"{NAME}circle"):
        assert 0 <= float(dot.get("cx")) <= width and 0 <= float(dot.get("cy")) <= height


def page_texts() -> str:
    return "".join(page.read_text("utf-8") for page in pages("trees"))


def test_every_mark_of_the_pages_names_a_table_and_every_picture_is_shown():
    text = page_texts()
    marks = document.MARK.findall(text)
    assert {name.partition(" ")[0] for _, name, _ in marks} == set(document.TABLES)
    assert text.count("<!-- table trees ") == len(marks)
    for name in document.pictures.PICTURES:
        assert f"(../pictures/evaluation-{name}.svg)" in text


def test_every_claim_that_both_algorithms_judge_has_an_explanation():
    text = page_texts()
    rows = [
        line for line in text.splitlines() if line.count("confirmed: ") + line.count("**: ") >= 2
    ]
    assert len(rows) >= len(reasons.REASONS) and reasons.UNKNOWN not in text
    assert all(row.rstrip(" |").rpartition("|")[2].strip() for row in rows)
    assert all(claim in text and each.words in text for claim, each in reasons.REASONS.items())


def test_a_reason_is_given_for_the_verdicts_that_it_was_written_for_alone():
    claim, each = next(iter(reasons.REASONS.items()))
    assert reasons.why(claim, each.by_its_own, each.by_ours) == each.words
    assert reasons.why(claim, not each.by_its_own, each.by_ours) == reasons.UNKNOWN


def test_fluctuations_of_the_table_are_counted_as_the_text_counts_them():
    """A star of five switches, and 83 without a link."""
    degrees = [4, 1, 1, 1, 1]
    assert networks.padded_fluctuation(degrees) == pytest.approx(20 / 88 - (8 / 88) ** 2)


def test_without_measured_lines_the_pages_stay_as_they_are():
    assert all(not table([], "30") for table in document.TABLES.values())
    assert document.filled(page_texts(), []) == page_texts()
