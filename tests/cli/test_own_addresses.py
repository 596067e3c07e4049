"""A receiver knows the addresses of its host, also those that it was given a moment ago."""

from __future__ import annotations

import pytest

from stackcast.cli.receive import own_addresses
from stackcast.cli.receive.own_addresses import OwnAddresses

pytestmark = pytest.mark.unit


def test_an_address_that_the_host_gets_later_is_its_own_within_a_second(monkeypatch):
    addresses, clock, queries = {"10.0.0.7"}, [100.0], []

    def read() -> frozenset[str]:
        queries.append(clock[0])
        return frozenset(addresses)

    monkeypatch.setattr(own_addresses, "interface_addresses", read)
    monkeypatch.setattr(own_addresses.time, "monotonic", lambda: clock[0])
    own = OwnAddresses()
    assert "10.0.0.7" in own and "10.0.0.8" not in own
    addresses.add("10.0.0.8")
    addresses.remove("10.0.0.7")
    clock[0] += 1
    assert "10.0.0.8" in own and "10.0.0.7" not in own
    # The kernel is not asked for each datagram.
    assert queries == [100.0, 101.0]


@pytest.mark.parametrize("address", ["127.0.0.1", "127.255.0.9"])
def test_all_of_loopback_belongs_to_the_host(address):
    assert address in OwnAddresses()
