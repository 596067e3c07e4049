"""When hosts register their states again."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.states.messages import MessageKind, group_of, read_message
from stackcast.udfs.states.outputs import ToNetwork
from stackcast.udfs.states.requests import REFRESH, Requests, next_refresh

pytestmark = pytest.mark.unit

STATES = st.integers(1, (1 << 22) - 1)
TIMES = st.floats(0, 2e9)
#: Of a double that holds a time of day.
PRECISION = 1e-6
TICK = 0.02


def next_register(requests: Requests, state: int, now: float) -> float:
    """Subscribe, acknowledge at once, and return when the next register is sent."""
    asked = [each for each in requests.want(state, 1, now) if isinstance(each, ToNetwork)]
    header, _ = read_message(asked[0].datagram)
    assert requests.acknowledge(state, header, now) == []
    due = now
    while not requests.due(due):
        due += TICK
    return due


@given(STATES, TIMES, TIMES)
def test_hosts_register_a_state_again_at_the_same_time_of_day(state, one, other):
    first, second = next_refresh(state, one), next_refresh(state, other)
    assert 0 < first - one <= REFRESH + PRECISION
    apart = (first - second) % REFRESH
    assert min(apart, REFRESH - apart) < PRECISION


@given(st.integers(1, 1000), st.floats(0, 1e5), st.floats(0, 1e5), st.floats(0, 1e5))
def test_programs_agree_whenever_they_subscribe_and_whatever_their_clocks_began_with(
    state: int, offset: float, now: float, later: float
) -> None:
    one = next_register(Requests(1), state, now)
    other = next_register(Requests(9, lambda clock: clock + offset), state, later)
    apart = (other + offset - one) % REFRESH
    assert min(apart, REFRESH - apart) < 2 * TICK


def test_the_times_of_many_states_are_spread_over_the_interval():
    count = 300
    times = sorted(next_refresh(state, 0) for state in range(1, count + 1))
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert max(gaps) < 3 * REFRESH / count


def test_a_refresh_is_a_new_request_to_the_switch():
    requests = Requests(5)
    due = next_register(requests, 7, 0)
    assert requests.due(due + REFRESH)
    again = requests.want(8, 1, 2 * REFRESH)
    groups = [each.address for each in again if isinstance(each, ToNetwork)]
    assert groups == [group_of(MessageKind.REGISTER, 8)]
