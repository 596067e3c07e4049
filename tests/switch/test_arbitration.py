"""Who may write a switch: arbitration among clients, held against the specification's words."""

from __future__ import annotations

from typing import Any

import pytest
from control_plane import Inbox
from examples import examples
from google.rpc import code_pb2
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from stackcast.switch.p4runtime.arbitration import Arbitration
from stackcast.switch.p4runtime.refusal import Refusal

pytestmark = pytest.mark.unit

IDS = st.one_of(st.none(), st.integers(0, 5), st.just(1 << 100))


def test_clients_are_told_of_every_change_of_the_primary() -> None:
    first, second, reader = Inbox(), Inbox(), Inbox()
    arbitration = Arbitration(1)
    arbitration.join(reader, None)
    arbitration.join(first, 5)
    arbitration.join(second, 7)
    arbitration.leave(second)
    arbitration.join(first, 8)
    arbitration.join(first, 3)
    assert reader.told == [
        "NOT_FOUND",
        *["ALREADY_EXISTS"] * 2,
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "NOT_FOUND",
    ]
    assert first.told == ["OK", "ALREADY_EXISTS", "NOT_FOUND", "OK", "NOT_FOUND"]
    assert second.told == ["OK"]
    assert not arbitration.is_primary(3)
    # As long as nobody was primary, there is no id to tell; then it is the highest ever seen.
    assert not reader[0].arbitration.HasField("election_id")
    assert [each.arbitration.election_id.low for each in reader[1:]] == [5, 7, 7, 8, 8]


def test_the_new_primary_is_told_last() -> None:
    order: list[str] = []

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def put(self, _message: Any) -> None:
            order.append(self.name)

    arbitration = Arbitration(1)
    arbitration.join(Named("old"), 1)
    order.clear()
    arbitration.join(Named("new"), 2)
    assert order == ["old", "new"]
    new = Named("newest")
    arbitration.join(new, 3)
    assert order[-1] == "newest"


def test_election_id_0_is_an_id_and_none_is_not() -> None:
    arbitration = Arbitration(1)
    reader, zero = Inbox(), Inbox()
    arbitration.join(reader, None)
    assert not arbitration.is_primary(None)
    arbitration.join(zero, 0)
    assert zero.told == ["OK"] and arbitration.is_primary(0) and not arbitration.is_primary(None)
    with pytest.raises(Refusal) as answer:
        arbitration.join(Inbox(), 0)
    assert answer.value.code == code_pb2.INVALID_ARGUMENT
    arbitration.join(Inbox(), None)  # any number of clients may have none


def test_there_is_room_for_so_many_clients() -> None:
    arbitration = Arbitration(1, most=2)
    clients = [Inbox(), Inbox()]
    for number, client in enumerate(clients):
        arbitration.join(client, number)
    with pytest.raises(Refusal) as answer:
        arbitration.join(Inbox(), 9)
    assert answer.value.code == code_pb2.RESOURCE_EXHAUSTED
    arbitration.join(clients[0], 9)  # one that is there may ask again
    arbitration.leave(clients[1])
    arbitration.join(Inbox(), 10)


class Clients(RuleBasedStateMachine):
    """The specification's rules as a plain model beside the real thing."""

    def __init__(self) -> None:
        super().__init__()
        self.arbitration = Arbitration(1)
        self.ids: dict[Inbox, int | None] = {}
        self.highest: int | None = None
        self.primary: Inbox | None = None

    def ask(self, client: Inbox, number: int | None) -> None:
        taken = [n for other, n in self.ids.items() if other is not client]
        if number is not None and number in taken:
            with pytest.raises(Refusal):
                self.arbitration.join(client, number)
            return
        before = self.primary
        counts = {each: len(each) for each in [*self.ids, client]}
        self.arbitration.join(client, number)
        self.ids[client] = number
        if number is not None and (self.highest is None or number >= self.highest):
            self.primary, self.highest = client, number
        elif client is self.primary:
            self.primary = None
        all_told = self.primary is client or before is client
        for each, count in counts.items():
            assert len(each) - count == int(all_told or each is client)

    @rule(number=IDS)
    @precondition(lambda self: len(self.ids) < 6)
    def join(self, number: int | None) -> None:
        self.ask(Inbox(), number)

    @rule(which=st.integers(0, 5), number=IDS)
    @precondition(lambda self: self.ids)
    def ask_again(self, which: int, number: int | None) -> None:
        self.ask(list(self.ids)[which % len(self.ids)], number)

    @rule(which=st.integers(0, 5))
    @precondition(lambda self: self.ids)
    def leave(self, which: int) -> None:
        client = list(self.ids)[which % len(self.ids)]
        self.arbitration.leave(client)
        del self.ids[client]
        if self.primary is client:
            self.primary = None

    @invariant()
    def agree(self) -> None:
        for number in (None, 0, 1, 2, 3, 4, 5, 1 << 100):
            writes = self.primary is not None and self.ids[self.primary] == number
            assert self.arbitration.is_primary(number) == writes
        for client in self.ids:
            last = client[-1].arbitration
            if client is self.primary:
                assert last.status.code == code_pb2.OK
            elif self.primary is not None:
                assert last.status.code == code_pb2.ALREADY_EXISTS
            else:
                assert last.status.code == code_pb2.NOT_FOUND
            assert last.HasField("election_id") == (self.highest is not None)
            told = last.election_id.high << 64 | last.election_id.low
            assert told == (self.highest or 0)


TestClients = Clients.TestCase
TestClients.settings = examples(100)
