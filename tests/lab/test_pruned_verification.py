"""The verdict on datagrams that switches took messages off, under the number of their packet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackcast.lab.proof.verification import Expectation, Receipt, compare

pytestmark = pytest.mark.unit

SESSION = b"STACKCAST1"
HOSTS = ("h1", "h2")


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[Expectation, dict[str, list[Receipt]]]:
    """Packets of distinct messages, and what is left of them for each host: a perfect delivery."""
    expectation = Expectation()
    received: dict[str, list[Receipt]] = {host: [] for host in HOSTS}
    number = 1
    for size in draw(st.lists(st.integers(1, 5), min_size=2, max_size=6)):
        messages = [bytes([number + i]) for i in range(size)]
        expectation.packets[SESSION, number] = tuple(messages)
        for host in HOSTS:
            wanted = [m for m in messages if draw(st.booleans())]
            expectation.deliveries[host].update((SESSION, number, m) for m in wanted)
            if wanted:
                received[host].append(Receipt(SESSION, number, tuple(wanted)))
        number += size
    return expectation, received


@given(deliveries())
def test_packets_without_the_messages_that_nobody_asked_for_are_exact(case):
    expectation, received = case
    outcome = compare(expectation, received, pruned=True)
    assert outcome.exact
    assert outcome.received == outcome.expected == expectation.total


@given(deliveries(), st.data())
def test_whatever_is_wrong_with_one_datagram_is_noticed(case, data):
    expectation, received = case
    places = [(host, at) for host in HOSTS for at in range(len(received[host]))]
    if not places:
        return
    host, at = data.draw(st.sampled_from(places))
    own = received[host]
    session, sequence, messages = own[at]
    fault = data.draw(
        st.sampled_from(["lost", "twice", "late", "message", "order", "number", "session"])
    )
    if fault == "lost":
        del own[at]
        assert compare(expectation, received, pruned=True).missing == len(messages)
    elif fault == "twice":
        own.insert(at, own[at])
        assert compare(expectation, received, pruned=True).duplicates == len(messages)
    elif fault == "late" and at + 1 < len(own):
        own[at], own[at + 1] = own[at + 1], own[at]
        assert compare(expectation, received, pruned=True).out_of_order == 1
    elif fault == "message":
        unwanted = [
            m
            for m in expectation.packets[session, sequence]
            if not expectation.deliveries[host][session, sequence, m]
        ]
        if unwanted:
            own[at] = Receipt(session, sequence, (*messages, unwanted[0]))
            assert compare(expectation, received, pruned=True).extra == 1
    elif fault == "order" and len(messages) > 1:
        own[at] = Receipt(session, sequence, messages[::-1])
        assert compare(expectation, received, pruned=True).misnumbered == 1
    elif fault == "number":
        own[at] = Receipt(session, sequence + 1000, messages)
        outcome = compare(expectation, received, pruned=True)
        assert (outcome.misnumbered, outcome.extra) == (1, len(messages))
    elif fault == "session":
        own[at] = Receipt(b"STACKCAST2", sequence, messages)
        outcome = compare(expectation, received, pruned=True)
        assert (outcome.misnumbered, outcome.missing) == (1, len(messages))
