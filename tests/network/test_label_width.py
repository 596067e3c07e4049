"""The width of labels, of a network and of what its switches run: they agree, or it is said."""

from __future__ import annotations

import dataclasses
import json

import pytest
from networks import bytes_on_links, relabelled

from stackcast.lab.fabric.network import read_description
from stackcast.lab.up import deployment
from stackcast.udfs.errors import LabError, NetworkError, StackError
from stackcast.udfs.network.encodings import ROUTES
from stackcast.udfs.network.labels import FORMATS, HOP, NARROW, STOP, TREE, WIDE
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.programs import FILTERING, STACKS, check_labels
from stackcast.udfs.network.rows import network_from_rows, network_to_rows
from stackcast.udfs.network.source_routes import WIDE_SOURCE_ROUTES
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.stacks.forwarding import ForwardingModel, network_tables
from stackcast.udfs.trees.broadcast import broadcast_trees
from stackcast.udfs.trees.encode import Encoder

pytestmark = pytest.mark.unit

NETWORK = fabric(2, 2, 2, 2, 2)
WIDE_NETWORK = Network.from_rows(
    NETWORK.switches.values(),
    NETWORK.hosts.values(),
    [dataclasses.replace(link, id=link.id + (1 << 20)) for link in NETWORK.links],
    WIDE,
)
EACH = pytest.mark.parametrize("network", [NETWORK, WIDE_NETWORK], ids=["16 bits", "32 bits"])


@pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: f"{form.bits} bits")
def test_type_and_id_fill_a_label(form):
    for kind in (TREE, HOP, STOP):
        for number in (1, 5, (1 << form.bits - 2) - 1):
            value = form.label(kind, number)
            assert value == kind * 2 ** (form.bits - 2) + number
            assert form.split(value) == (kind, number)
        for number in (0, -1, 1 << form.bits - 2):
            with pytest.raises(StackError, match="BAD_LABEL"):
                form.label(kind, number)
    for value in (0, 5, 1 << form.bits - 2, 1 << form.bits, -1):
        with pytest.raises(StackError, match="BAD_LABEL"):
            form.split(value)


def test_a_label_is_described_by_its_network():
    link = WIDE_NETWORK.links[0]
    value = WIDE.label(HOP, link.id)
    assert WIDE_NETWORK.describe(value) == f"hop {link.id} ({link.switch}:{link.port})"
    assert WIDE.describe(value) == f"hop {link.id}"


@EACH
def test_rows_name_the_program_for_the_networks_labels(network):
    rows = network_to_rows(network, dict.fromkeys(network.switches, ""))
    assert {row["pipeline"] for row in rows["switches"]} == {network.labels.program}
    assert network_from_rows(**rows, labels=network.labels) == network


@EACH
def test_switches_that_read_labels_of_another_width_are_refused(network):
    rows = network_to_rows(network, dict.fromkeys(network.switches, ""))
    other = WIDE if network.labels == NARROW else NARROW
    words = rf"WRONG_PIPELINE.*{network.labels.program}.*label\.bits {other.bits}"
    with pytest.raises(NetworkError, match=words):
        network_from_rows(**rows, labels=other)
    rows["switches"][-1]["pipeline"] = other.program
    with pytest.raises(NetworkError, match=rows["switches"][-1]["switch"]):
        network_from_rows(**rows, labels=network.labels)


def test_programs_that_read_no_stacks_or_are_not_ours_have_no_width():
    for labels in (NARROW, WIDE):
        check_labels({"a": FILTERING, "b": "of_ones_own", "c": labels.program}, labels)
    assert [STACKS[labels.program] for labels in (NARROW, WIDE)] == [NARROW, WIDE]


def test_a_link_id_of_over_14_bits_needs_wide_labels():
    rows = network_to_rows(WIDE_NETWORK, dict.fromkeys(NETWORK.switches, ""), "virtual_trees")
    with pytest.raises(NetworkError, match=r"TOO_MANY_LINKS.*32-bit"):
        network_from_rows(**rows)


@EACH
def test_bytes_on_links_count_labels_by_their_size(network):
    trees = broadcast_trees(network)
    (encoding,) = Encoder(network, "feed1", trees).encode(frozenset(["h1", "h8"]))
    delivery = ForwardingModel(network, network_tables(network, trees)).deliver(
        "feed1", encoding.labels
    )
    assert sorted(delivery.hosts) == ["h1", "h8"]
    found = bytes_on_links(network, delivery, 100)
    for u, v, labels in delivery.links:
        stack = 0 if v in network.hosts else 2 + network.labels.bits // 8 * labels
        assert found[u, v] == 14 + stack + 100


@pytest.mark.parametrize(
    "form", [*ROUTES.values(), *WIDE_SOURCE_ROUTES.values()], ids=lambda form: form.program
)
def test_a_network_of_another_encoding_has_its_own_program(form, tmp_path):
    network, encoding = relabelled(NETWORK, form), form.encoding
    made = network_to_rows(network, dict.fromkeys(network.switches, ""))
    assert network_from_rows(**made, labels=network.labels) == network
    with pytest.raises(NetworkError, match=f"WRONG_PIPELINE.*encoding {encoding}.*virtual_trees"):
        network_from_rows(**made)
    path = tmp_path / "network.json"
    width = {"label_bits": 32} if form in WIDE_SOURCE_ROUTES.values() else {}
    path.write_text(json.dumps({**made, "encoding": encoding, **width}))
    assert read_description(path) == network


def test_switches_of_the_other_width_of_an_encoding_are_refused():
    network = relabelled(NETWORK, WIDE_SOURCE_ROUTES["port"])
    made = network_to_rows(network, dict.fromkeys(network.switches, ""))
    with pytest.raises(NetworkError, match=r"WRONG_PIPELINE.*label\.bits 32.*label\.bits 16"):
        network_from_rows(**made, labels=ROUTES["port"])


def test_a_switch_that_reads_other_labels_forwards_nothing():
    trees = broadcast_trees(WIDE_NETWORK)
    (encoding,) = Encoder(WIDE_NETWORK, "feed1", trees).encode(frozenset(["h1", "h8"]))
    tables = network_tables(WIDE_NETWORK, trees)
    for held in tables.values():
        held.labels = NARROW
    assert not ForwardingModel(WIDE_NETWORK, tables).deliver("feed1", encoding.labels).hosts


@EACH
def test_the_labs_description_says_the_width(network, tmp_path):
    path = tmp_path / "network.json"
    rows = network_to_rows(network, dict.fromkeys(network.switches, ""))
    path.write_text(json.dumps({**rows, "label_bits": network.labels.bits}))
    assert read_description(path) == network
    path.write_text(json.dumps({**rows, "label_bits": 24}))
    with pytest.raises(LabError, match=r"BAD_DESCRIPTION.*16 or 32"):
        read_description(path)


@EACH
@pytest.mark.parametrize("match", ["spark", "network"])
def test_a_deployment_of_the_lab_has_the_program_that_it_needs(network, match):
    rows = deployment.rows(network, "127.0.0.1:1", 3, 1, match=match)
    wanted = FILTERING if match == "network" else network.labels.program
    assert {row["pipeline"] for row in rows["switches"]} == {wanted}
    tables = {name: rows[name] for name in ("switches", "hosts", "links")}
    assert network_from_rows(**tables, labels=network.labels) == network
