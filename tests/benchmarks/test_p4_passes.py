"""The benchmark of the P4 programs counts passes as one does by hand, whichever way."""

from __future__ import annotations

import pytest

from benchmarks.p4 import passes as counted
from benchmarks.p4.text_program import by_hand
from stackcast.udfs.network.labels import HOP, NARROW, STOP, TREE, SwitchTables

pytestmark = pytest.mark.unit

TABLES = SwitchTables(
    trees={1: 0b0000_0111, 2: 0b1_0000_0000},
    hops={100 + port: port for port in range(1, 10)},
    stops={100 + port: port for port in range(1, 10)},
)
TREE_1, TREE_2 = NARROW.label(TREE, 1), NARROW.label(TREE, 2)
HOP_2, HOP_5 = NARROW.label(HOP, 102), NARROW.label(HOP, 105)
STOP_3 = NARROW.label(STOP, 103)
OTHER = NARROW.label(STOP, 9000)


@pytest.fixture(scope="module")
def counts():
    return counted


@pytest.mark.parametrize(
    ("labels", "passes"),
    [
        # A label of others is stepped over.
        ((OTHER,), 1),
        # One port, and its copy leaves at once: no label is behind.
        ((HOP_5,), 1),
        # Three ports of the tree, the ingress port among them; two copies with nothing behind.
        ((TREE_1,), 3),
        # Three ports and a label; the copies for 2 and 3 see the stop, which ends the one for 3.
        ((TREE_1, STOP_3), 4 + 2),
        # The copy for 3 ends at its stop, the one for 2 sees what is behind it, too.
        ((TREE_1, STOP_3, OTHER), 5 + 1 + 2),
        # Port 2 is served already: the hop takes its pass and makes no copy.
        ((TREE_1, HOP_2), 4 + 2),
        ((HOP_5, OTHER, OTHER), 3 + 2),
    ],
)
def test_the_listings_are_counted_pass_by_pass(labels, passes):
    assert by_hand(TABLES, 1, labels).passes == passes


@pytest.mark.parametrize(
    ("labels", "at_a_time", "passes"),
    [
        ((TREE_1,), 8, 1),
        ((TREE_1, *[OTHER] * 7), 8, 1),
        ((TREE_1, *[OTHER] * 8), 8, 2),
        ((TREE_1, *[OTHER] * 8), 1, 9),
        # Ports of two subsets: a pass for each once the labels are seen.
        ((TREE_1, TREE_2), 8, 1 + 2),
        ((TREE_1, TREE_2), 1, 2 + 2),
    ],
)
def test_ours_are_labels_over_labels_a_pass_and_one_for_each_of_several_subsets(
    counts, labels, at_a_time, passes
):
    assert counts.computed(TABLES, ("s", 1, labels), at_a_time) == passes
