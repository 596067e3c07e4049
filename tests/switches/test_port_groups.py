"""Multicast groups: any set of ports is served by one group, or by one group of each subset."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from program_switches import group_of

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.labels import MAX_PORT
from stackcast.udfs.switches.entry import group_id, replicas
from stackcast.udfs.switches.ports import FAN_OUT, SUBSET, port_groups, port_mask

pytestmark = pytest.mark.unit

SETS = st.sets(st.integers(1, MAX_PORT), max_size=20)


def subset_of(port):
    return (port - 1) // SUBSET


@given(SETS, st.data())
def test_every_set_of_a_switchs_ports_is_served_port_by_port(ports, data):
    groups = {group_id(entry): replicas(entry) for entry in port_groups("s", ports)}
    wanted = data.draw(st.sets(st.sampled_from(sorted(ports)))) if ports else set()
    number = group_of(port_mask(wanted))
    if not wanted:
        assert number is None
        return
    served = []
    if number != FAN_OUT:
        served = groups[number]
    else:
        # Each copy goes on to the ports of its own subset alone.
        for _, instance in groups[FAN_OUT]:
            own = group_of(port_mask({p for p in wanted if subset_of(p) == instance - 1}))
            served += groups[own] if own is not None else []
    assert sorted(served) == [(port, 0) for port in sorted(wanted)]


@given(SETS)
def test_groups_are_numbered_by_subset_and_mask_and_no_group_is_without_ports(ports):
    entries = port_groups("s", ports)
    numbers = [group_id(entry) for entry in entries]
    assert len(numbers) == len(set(numbers)) and all(0 < n < 1 << 16 for n in numbers)
    sizes = [sum(subset_of(p) == s for p in ports) for s in range(-(-MAX_PORT // SUBSET))]
    several = sum(map(bool, sizes)) > 1
    assert len(numbers) == sum(2**n - 1 for n in sizes) + several
    assert (FAN_OUT in numbers) == several
    for entry in entries:
        where = replicas(entry)
        assert where and {port for port, _ in where} <= ports
        if group_id(entry) == FAN_OUT:
            firsts = {subset_of(p): p for p in sorted(ports, reverse=True)}
            assert where == [(port, s + 1) for s, port in sorted(firsts.items())]


def test_a_full_subset_takes_255_groups():
    assert len(port_groups("s", range(1, 9))) == 255
    assert group_of(0b1010) == 0b1010
    assert group_of(0b1010 << 8) == 0x10A
    assert group_of(1 << 63) == 0x780
    assert group_of(1 << 510) == 0x3F40
    assert group_of(1 | 1 << 8) == FAN_OUT


@pytest.mark.parametrize("port", [0, -1, 512, 1000])
def test_a_port_that_no_mask_holds_is_named(port):
    with pytest.raises(NetworkError, match=f"TOO_MANY_PORTS.*{port}"):
        port_groups("s", [port])
