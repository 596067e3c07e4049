"""What one switch remembers of who subscribed: Table II, leases, and who hears of a remove."""

from __future__ import annotations

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.states.subscriptions import Subscriptions, needless, ports_of

pytestmark = pytest.mark.unit

SECOND = 1 << 20
PORTS = st.integers(1, 6)


@pytest.mark.parametrize(
    ("bits", "ports"), [("00011110", [4, 5, 6, 7]), ("10001010", [1, 5, 7]), ("10000000", [1])]
)
def test_masks_are_written_as_in_table_2_with_port_1_first(bits, ports):
    mask = sum(1 << port - 1 for port in ports)
    assert f"{mask:08b}"[::-1] == bits
    assert list(ports_of(mask)) == ports


@examples(300)
@given(st.integers(0, 255), st.integers(0, 255))
def test_a_remove_goes_on_where_no_other_port_is_left(left, links):
    wanted = {q for q in ports_of(links) if not left & ~(1 << q - 1)}
    assert set(ports_of(needless(left, links))) == wanted


def test_a_port_is_kept_for_one_to_two_generations():
    held = Subscriptions(links=0b11, hosts=0b100, lease=20)
    assert held.register(1, 3, 5 * SECOND - 1) == 0b11
    assert held.at(1, 6 * SECOND - 1) == 0b100
    assert held.at(1, 6 * SECOND) == 0
    assert held.forget(6 * SECOND) == [1]
    held.register(1, 3, 6 * SECOND)
    assert held.at(1, 8 * SECOND - 1) == 0b100
    assert held.at(1, 8 * SECOND) == 0


@examples(200)
@given(st.lists(st.tuples(st.booleans(), PORTS, st.integers(0, 3)), max_size=30))
def test_a_port_is_there_if_it_was_refreshed_and_not_removed_since(steps):
    held = Subscriptions(links=0b111, hosts=0b111000, lease=20)
    refreshed: dict[int, int] = {}
    generation = 0
    for register, port, later in steps:
        generation += later
        if register:
            held.register(7, port, generation * SECOND)
            refreshed[port] = generation
        else:
            held.remove(7, port, generation * SECOND)
            refreshed.pop(port, None)
        wanted = {p for p, when in refreshed.items() if generation - when <= 1}
        assert set(ports_of(held.at(7, generation * SECOND))) == wanted
        assert held.at(8, generation * SECOND) == 0


def test_what_left_the_tree_is_forgotten():
    held = Subscriptions(links=0b111, hosts=0, lease=20)
    for port in (1, 2, 3):
        held.register(1, port, 0)
    held.links = 0b011
    assert held.at(1, 0) == 0b011
    assert held.remove(1, 1, 0) == 0b010
