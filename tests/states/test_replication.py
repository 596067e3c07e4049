"""Every replica converges to the last update of each publisher, whatever gets lost or killed."""

from __future__ import annotations

from collections import Counter

import pytest
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st
from state_world import TICK, World

from stackcast.udfs.errors import StateError
from stackcast.udfs.states.messages import MOST_BYTES, MessageKind, StateHeader, group_of
from stackcast.udfs.states.program import Update
from stackcast.udfs.states.requests import LEASE
from stackcast.udfs.states.segments import ASK_AGAIN, REORDERED, Stream, cut

pytestmark = pytest.mark.unit

STATE = "scanners"
QUIET = 130.0
"""Longer than a lease, a refresh and every wait."""


def world(loss: float = 0.0, seed: int = 1, programs: str = "abc") -> World:
    made = World(len(programs), seed, loss)
    for host, name in enumerate(programs, 1):
        made.start(name, host)
    return made


def held(made: World, name: str, state: str = STATE) -> dict[str, bytes]:
    values = made.clients[name].program.values(state)
    return {publisher: update.data for publisher, update in values.items()}


def stored(made: World) -> dict[int, int]:
    """Returns how many segments of each update the backlog has."""
    return dict(Counter(update for _, _, update, _ in made.backlog))


def numbers(made: World, name: str) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for update in made.clients[name].seen:
        found.setdefault(update.vnf, []).append(update.number)
    return found


def test_a_replica_gets_each_update_and_programs_of_the_same_host_do_too() -> None:
    made = world()
    made.start("neighbour", 1)
    for name in ("b", "neighbour"):
        made.subscribe(name, STATE)
    made.run(1)
    for number in range(5):
        made.publish("a", STATE, b"%d" % number)
        made.run(0.5)
    assert held(made, "b") == held(made, "neighbour") == {"a": b"4"}
    assert [update.data for update in made.clients["b"].seen] == [b"0", b"1", b"2", b"3", b"4"]
    assert made.clients["a"].program.unacknowledged == 0
    # One message an update to the one host, and one to the controller; none to a's own.
    assert not made.hosts[1].groups & {group_of(MessageKind.REGISTER, 1)}


def test_who_subscribes_later_gets_the_last_update_of_each_publisher() -> None:
    made = world()
    for name in "ab":
        for number in range(3):
            made.publish(name, STATE, f"{name}{number}".encode())
    made.run(2)
    made.subscribe("c", STATE)
    made.run(3)
    assert held(made, "c") == {"a": b"a2", "b": b"b2"}
    assert len(made.clients["c"].seen) == 2


def test_of_two_publishers_every_replica_names_the_same_value() -> None:
    made = world(0.2)
    for name in "abc":
        made.subscribe(name, STATE)
    made.run(2)
    for number in range(9):
        made.publish("ab"[number % 2], STATE, b"%d" % number)
    made.run(30)
    values = {name: made.clients[name].program.value(STATE) for name in "abc"}
    assert len(set(values.values())) == 1
    value = values["a"]
    # a wrote five times, b four.
    assert value is not None and (value.publisher, value.data) == ("a", b"8")


def test_of_updates_with_one_number_that_of_the_greater_vnf_is_the_value() -> None:
    small, great = (Update(STATE, "x", vnf, 7, b"") for vnf in (5001, 5002))
    assert great.is_newer(small) and not small.is_newer(great)
    assert Update(STATE, "x", 5001, 8, b"").is_newer(great)
    assert Update(STATE, "x", 5001, 0, b"").is_newer(Update(STATE, "x", 5002, (1 << 24) - 1, b""))


def test_a_last_update_that_is_lost_is_found_without_a_next_one() -> None:
    made = world()
    made.subscribe("b", STATE)
    made.publish("a", STATE, b"first")
    made.run(2)
    made.loss = 1.0
    made.publish("a", STATE, b"last")
    made.run(3)
    assert held(made, "b") == {"a": b"last"}


def test_what_the_controller_lost_too_is_brought_as_soon_as_it_has_it() -> None:
    made = world()
    for name in "bc":
        made.subscribe(name, STATE)
    made.run(2)
    made.loss = 1.0
    made.publish("a", STATE, b"1")
    made.run(0.01)
    made.loss = 0.0
    made.publish("a", STATE, b"2")
    # Noticed in one tick and asked for in the next; an answer takes three ways.
    made.run(3 * TICK)
    assert [[u.data for u in made.clients[name].seen] for name in "bc"] == [[b"1", b"2"]] * 2
    assert made.controller.recovered == 2


def test_an_update_of_4095_segments_arrives_whole_though_a_tenth_is_lost() -> None:
    made = world(0.1, programs="ab")
    made.subscribe("b", STATE)
    made.run(2)
    data = made.dice.randbytes(MOST_BYTES)
    made.publish("a", STATE, data)
    made.run(30)
    assert held(made, "b") == {"a": data}


def test_the_last_to_leave_a_host_leaves_its_switch_too() -> None:
    made = world()
    made.start("neighbour", 2)
    for name in ("b", "neighbour"):
        made.subscribe(name, STATE)
    made.run(1)
    made.unsubscribe("b", STATE)
    made.run(1)
    assert made._ports[1] == {2}
    made.start("neighbour", 2)  # ends the one before, without a word of its
    made.run(1)
    assert not made._ports[1] and not made.hosts[2].groups


def test_forged_and_malformed_messages_are_dropped_and_counted() -> None:
    made = world()
    made.subscribe("b", STATE)
    made.publish("a", STATE, b"true")
    made.run(2)
    group = group_of(MessageKind.PUBLISH, 1)
    vnf = made.clients["a"].program.vnf
    forged = StateHeader(vnf, 2, 1, 1).pack() + b"forged"
    stranger = StateHeader(4242, 1, 1, 1).pack() + b"stranger"
    at_a, elsewhere = 0x0A000001, 0x0A000003
    made.inject(2, group, elsewhere, forged)
    made.inject(2, group, at_a, forged[:5])
    made.inject(2, group, at_a, StateHeader(vnf, 2, 2, 1).pack() + b"short")
    made.inject(2, group, elsewhere, stranger)
    made.inject(2, group_of(MessageKind.ACK, 1), elsewhere, StateHeader(vnf, 99).pack())
    made.inject(2, group_of(MessageKind.REGISTER, 1), elsewhere, StateHeader(vnf, 99).pack())
    made.inject(2, group_of(MessageKind.PUBLISH, 9), at_a, forged)
    made.inject(1, group, elsewhere, forged)
    made.run(20)
    dropped = made.hosts[2].middleware.dropped
    assert dropped == {
        "forged": 2,
        "bad_message": 2,
        "unasked_ack": 1,
        "not_for_hosts": 1,
        "not_subscribed": 1,
    }
    assert held(made, "b") == {"a": b"true"}


def test_a_middleware_cannot_speak_for_programs_of_another() -> None:
    made = world()
    made.run(1)
    controller = made.controller
    other = made.clients["a"].program.vnf
    connection = made.hosts[2].connection
    from stackcast.udfs.states.messages import Signal, SignalKind  # noqa: PLC0415

    for kind in (SignalKind.SUB_REG, SignalKind.INIT_PUB, SignalKind.ACKNOWLEDGED):
        signal = Signal(kind, other, 1, 5, data=STATE.encode())
        assert controller.from_middleware(connection, signal, made.now) == []
    lease = controller.from_middleware(
        connection, Signal(SignalKind.LEASE, other, data=b"a"), made.now
    )
    assert [output.signal.count for output in lease] == [1]
    assert controller.dropped["not_its_program"] == 4


def test_the_backlog_keeps_what_a_subscriber_lacks_and_lets_it_go_when_it_is_dead() -> None:
    made = world()
    made.subscribe("b", STATE)
    made.subscribe("c", STATE)
    made.run(1)
    made.kill_middleware(3, 10_000)
    for number in range(20):
        made.publish("a", STATE, b"%d" % number)
    made.run(5)
    assert {key[2] for key in made.backlog} == set(range(1, 21))
    made.run(100)
    assert {key[2] for key in made.backlog} == {20}


def test_of_a_program_that_starts_again_and_again_the_backlog_keeps_the_last_alone() -> None:
    made = world()
    for number in range(5):
        made.publish("a", STATE, b"%d" % number)
        made.run(1)
        made.start("a", 1)
        made.run(1)
    assert {datagram[-1:] for datagram in made.backlog.values()} == {b"4"}
    made.subscribe("b", STATE)
    made.run(2)
    assert held(made, "b") == {"a": b"4"}
    assert len(made.clients["b"].seen) == 1
    # And so it is for the next controller.
    made.kill_controller(1)
    made.subscribe("c", STATE)
    made.run(5)
    assert held(made, "c") == {"a": b"4"}
    assert len([key for key in made.records if key.startswith("publisher/")]) == 1


def half_stored() -> World:
    """Returns programs whose controller was killed within the write of a second update."""
    made = world()
    made.publish("a", STATE, b"first")
    made.run(1)
    made.kill_controller_in_write(1, segments=2)
    made.publish("a", STATE, b"x" * 3000)
    made.run(0.5)
    return made


def test_an_update_of_which_only_a_part_was_stored_is_brought_again() -> None:
    made = half_stored()
    assert made.is_controller_down and stored(made) == {1: 1, 2: 2}
    made.subscribe("b", STATE)
    made.run(10)
    assert held(made, "b") == {"a": b"x" * 3000}
    assert stored(made) == {2: 3} and not made.clients["a"].program.unacknowledged


def test_nothing_is_left_of_an_update_of_which_a_part_was_stored_and_that_nobody_has() -> None:
    made = half_stored()
    made.clients.pop("a")
    made.kill_middleware(1, 1)
    made.run(LEASE + 5)
    assert stored(made) == {1: 1}
    # The program gets its number back, and so does its next update.
    made.start("a", 1)
    made.publish("a", STATE, b"new")
    made.run(1)
    made._end_client(made.clients.pop("a"))
    made.run(1)
    made.kill_controller(1)
    made.run(5)
    made.subscribe("b", STATE)
    made.run(5)
    assert held(made, "b") == {"a": b"new"} and stored(made) == {2: 1}


def test_segments_that_were_let_go_in_part_are_let_go() -> None:
    made = world()
    made.publish("a", STATE, b"x" * 3000)
    made.run(1)
    # The first write stores the second update and removes the first segment of the first one.
    made.kill_controller_in_write(1, segments=2)
    made.publish("a", STATE, b"second")
    made.run(0.5)
    assert made.is_controller_down and stored(made) == {1: 2, 2: 1}
    made.run(5)
    assert stored(made) == {2: 1}


def test_who_waits_for_an_update_that_is_let_go_with_its_publisher_gets_the_next_one() -> None:
    made = world()
    made.subscribe("b", STATE)
    made.publish("a", STATE, b"first")
    made.run(1)
    made.loss = 1.0
    made.hosts[2].middleware.controller_down()
    made.publish("a", STATE, b"l" * 1500)
    made.run(1)
    header = StateHeader(made.clients["a"].program.vnf, 2, 2, 1)
    made.inject(2, group_of(MessageKind.PUBLISH, 1), 0x0A000001, header.pack() + b"l" * 1400)
    made.start("a", 1)
    made.publish("a", STATE, b"last")
    made.run(1)
    made.loss = 0.0
    made._do(2, made.hosts[2].middleware.controller_up(made.now))
    made.run(15)
    assert held(made, "b") == {"a": b"last"}
    streams = made.hosts[2].middleware._replicas[1].streams.values()
    assert all(stream.through == stream.last for stream in streams)


def test_what_is_on_record_says_who_holds_what_and_how_far() -> None:
    made = world()
    made.subscribe("b", STATE)
    made.publish("a", STATE, b"first")
    made.run(1)
    made.loss = 1.0
    made.publish("a", STATE, b"x" * 3000)
    made.run(3)
    made.loss = 0.0
    a, b = (made.clients[name].program.vnf for name in "ab")
    assert made.records[f"subscription/{b}/1"].value == {"wanted": True, "live": True}
    assert made.records[f"publisher/{a}/1"].value == {"first": 1, "newest": 2}
    assert made.records[f"position/{b}/1/{a}"].value == {"update": 2, "segment": 3}
    assert made.records["state/1"].value == {"name": STATE, "owner": a, "segments": 3}
    recovered = [r.value for key, r in made.records.items() if key.startswith("recovery/")]
    wanted = {"publisher": a, "state": 1, "update": 2, "segment": 1, "count": 3}
    assert {**wanted, "recovery": 1, "address": 0x0A000002} in recovered
    made.unsubscribe("b", STATE)
    made.run(1)
    assert made.records[f"subscription/{b}/1"].value == {"wanted": False, "live": False}
    assert f"position/{b}/1/{a}" not in made.records


def test_what_replicas_alone_have_becomes_the_last_update_of_all() -> None:
    made = world()
    made.subscribe("b", STATE)
    made.publish("a", STATE, b"first")
    made.run(1)
    # The controller hears of nothing, and the publisher ends with its middleware.
    made.kill_controller(5)
    for number in range(200):
        made.publish("a", STATE, b"%d" % number)
    made.run(1)
    assert held(made, "b") == {"a": b"199"}
    made.start("a", 1)
    made.kill_middleware(1, 1)
    made.run(60)
    made.subscribe("c", STATE)
    made.run(5)
    assert held(made, "b") == held(made, "c") == {"a": b"199"}


def test_a_controller_that_stood_still_takes_nobody_for_dead() -> None:
    made = world()
    made.subscribe("b", STATE)
    made.run(1)
    made.now += 200
    made._do(0, made.controller.tick(made.now))
    assert made.records[f"subscription/{made.clients['b'].program.vnf}/1"].value["wanted"]


def test_an_update_that_is_too_large_harms_no_other() -> None:
    made = world()
    made.subscribe("b", STATE)
    for data in (b"first", b"x" * (MOST_BYTES + 1), b"last"):
        if len(data) > MOST_BYTES:
            with pytest.raises(StateError, match=r"STATE\.TOO_LARGE"):
                made.publish("a", STATE, data)
        else:
            made.publish("a", STATE, data)
    made.run(2)
    assert [update.data for update in made.clients["b"].seen] == [b"first", b"last"]


@pytest.mark.integration
def test_one_program_holds_more_states_than_a_switch_has_registers_for() -> None:
    made = world(programs="ab")
    states = [f"{STATE}/{number}" for number in range(2100)]
    for state in states:
        made.publish("a", state, state.encode())
        made.subscribe("b", state)
    made.run(2)
    assert all(held(made, "b", state) == {"a": state.encode()} for state in states)
    # What is all there costs nothing while time goes by.
    assert not made.controller._waiting and not made.hosts[2].middleware._waiting


def test_a_number_belongs_to_one_program_at_a_time_even_after_a_new_controller_has_begun() -> None:
    made = world()
    made.run(1)
    before = {client.program.vnf for client in made.clients.values()}
    made.kill_controller(1)
    made.run(5)
    made.start("d", 1)
    made.run(1)
    assert made.clients["d"].program.vnf not in before | {0}


@examples(40)
@given(
    st.integers(0, 1 << 30),
    st.floats(0, 0.4),
    st.lists(
        st.tuples(
            st.sampled_from(
                ["publish"] * 6
                + ["big", "subscribe", "middleware", "controller", "cut write", "program"]
                + ["switch", "wait", "unsubscribe"]
            ),
            st.integers(0, 2),
            st.floats(0, 3),
        ),
        max_size=60,
    ),
)
# A program ends while the controller, which never answers it, is away.
@example(
    0,
    0.0,
    [("wait", 0, 1), ("publish", 0, 0), ("publish", 1, 0), ("controller", 0, 1), ("program", 0, 0)],
)
def test_all_replicas_converge(seed: int, loss: float, steps: list[tuple[str, int, float]]) -> None:
    made = world(loss, seed)
    published: dict[str, list[bytes]] = {name: [] for name in "abc"}
    #: What a program published before it was killed may not have left it, and the one after it
    #: does not know of it: so many are safe, and so many were published by those before.
    certain: dict[str, int] = dict.fromkeys("abc", 0)
    before: dict[str, int] = dict.fromkeys("abc", 0)
    for name in "ab":
        made.subscribe(name, STATE)
    wants = {"a", "b"}
    for count, (step, who, seconds) in enumerate(steps):
        name = "abc"[who]
        if step in ("publish", "big"):
            data = b"%d" % count * (2000 if step == "big" else 1)
            made.publish(name, STATE, data)
            published[name].append(data)
        elif step == "subscribe":
            made.subscribe(name, STATE)
            wants.add(name)
        elif step == "unsubscribe" and name in wants:
            made.unsubscribe(name, STATE)
            wants.remove(name)
        elif step == "middleware":
            made.kill_middleware(who + 1, seconds)
        elif step == "controller":
            made.kill_controller(seconds)
        elif step == "cut write":
            made.kill_controller_in_write(seconds)
        elif step == "program":
            lost = made.clients[name].program.unacknowledged
            if len(published[name]) - lost > before[name]:
                certain[name] = len(published[name]) - lost
            before[name] = len(published[name])
            made.start(name, who + 1)
            if name in wants:
                made.subscribe(name, STATE)
        elif step == "switch":
            made.restart_switch()
        if step == "wait":
            made.run(seconds)
        is_safe = not made.clients[name].program.unacknowledged
        if is_safe and len(published[name]) > before[name]:
            certain[name] = len(published[name])
    made.loss = 0.0
    made.run(QUIET)
    assert not any(client.program.unacknowledged for client in made.clients.values())
    replicas = {name: held(made, name) for name in wants}
    assert len({tuple(sorted(replica.items())) for replica in replicas.values()}) <= 1
    killed = {"abc"[who] for step, who, _ in steps if step == "program"}
    for replica in replicas.values():
        for name, all_of_it in published.items():
            if name not in killed:
                assert replica.get(name) == (all_of_it[-1] if all_of_it else None)
            elif all_of_it[certain[name] - 1 :] and certain[name]:
                assert replica[name] in all_of_it[certain[name] - 1 :]
    # Of one publisher, in order and each once.
    for name in "abc":
        for seen in numbers(made, name).values():
            assert seen == sorted(set(seen))


@examples(100)
@given(
    st.lists(st.binary(max_size=4000), max_size=8),
    st.randoms(use_true_random=False),
)
def test_a_stream_gives_every_update_in_order_from_segments_in_any(
    updates: list[bytes], dice: object
) -> None:
    start = (1 << 24) - 3
    pieces = [
        piece
        for number, data in enumerate(updates, 1)
        for piece in cut(5001, (start + number) % (1 << 24), data)
    ] * 2
    dice.shuffle(pieces)  # type: ignore[attr-defined]
    stream, out = Stream(start), []
    for header, data in pieces:
        stream.take(header, data)
        out += [data for _, data in stream.pop()]
    assert out == updates
    assert not stream.missing(9)


def test_each_gap_is_asked_for_by_itself_after_a_moment_and_again_later() -> None:
    stream = Stream(0)

    def comes(update: int, data: bytes, *numbers: int) -> None:
        for number in numbers:
            stream.take(*cut(5001, update, data)[number - 1])

    comes(2, b"two", 1)
    assert stream.wanted(1.0, 9) == []
    assert stream.wanted(1.0 + REORDERED, 9) == [(1, 1, 0)]
    comes(4, b"four", 1)
    assert stream.wanted(1.1, 9) == []
    assert stream.wanted(1.1 + REORDERED, 9) == [(3, 1, 0)]
    assert stream.wanted(1.0 + REORDERED + ASK_AGAIN, 9) == [(1, 1, 0)]
    comes(1, b"one", 1)
    assert len(list(stream.pop())) == 2
    # Of the last one segments still come; once none does, the others are asked for.
    large = b"x" * 6000
    comes(5, large, 1)
    assert stream.wanted(2.0, 9) == [(3, 1, 0)]
    comes(5, large, 2)
    assert stream.wanted(2.0 + REORDERED, 9) == []
    assert stream.wanted(2.0 + 2 * REORDERED, 9) == [(5, 3, 3)]


@examples(100)
@given(st.binary(max_size=9000), st.randoms(use_true_random=False))
def test_what_a_stream_says_is_missing_makes_it_whole(data: bytes, dice: object) -> None:
    pieces = cut(5001, 3, data)
    stream = Stream(1)
    for piece in pieces:
        if dice.random() < 0.5:  # type: ignore[attr-defined]
            stream.take(*piece)
    stream.announce(3)
    for piece in cut(5001, 2, b"two"):
        stream.take(*piece)
    for update, first, many in stream.missing(99):
        assert update == 3
        for piece in pieces[first - 1 :][: many or None]:
            assert stream.take(*piece) == ""
    assert list(stream.pop()) == [(2, b"two"), (3, data)]
