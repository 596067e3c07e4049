"""The stacks of a receiver set, whatever is wrong with single receivers.

Oracle: the forwarding model of the switches.
"""

from __future__ import annotations

import dataclasses
import pickle
import random
import sys
import tracemalloc

import pytest
from delivery_cases import HOSTS, NETWORK, TREES
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st

from stackcast.udfs.errors import NetworkError, StackError
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.stacks.forwarding import ForwardingModel, network_tables
from stackcast.udfs.trees import header_stacks
from stackcast.udfs.trees.broadcast import broadcast_trees
from stackcast.udfs.trees.encode import Encoder
from stackcast.udfs.trees.header_stacks import HeaderStacks, Stack, Stacks
from stackcast.udfs.trees.kernels.encode import encode
from stackcast.udfs.trees.stack_task import StackTask

pytestmark = pytest.mark.unit


@examples(25)
@given(
    st.sets(st.sampled_from(range(len(NETWORK.links))), max_size=6),
    st.lists(st.sampled_from(HOSTS), unique=True).map(sorted).map(tuple),
    st.integers(1, 12),
    st.booleans(),
)
@example(set(), tuple(HOSTS), 12, True)  # one stack
@example(set(), tuple(HOSTS), 6, False)  # three
@example(set(), tuple(HOSTS), 4, False)  # two, and hosts that none leads to
def test_all_who_can_be_reached_get_it_once_and_the_others_are_named(
    failed: set[int], receivers: tuple[str, ...], most: int, with_trees: bool
):
    links = [dataclasses.replace(e, up=n not in failed) for n, e in enumerate(NETWORK.links)]
    network = Network.from_rows(NETWORK.switches.values(), NETWORK.hosts.values(), links)
    trees = TREES if with_trees else []
    made = HeaderStacks(network, "feed1", trees, most).of(receivers)
    encoder = Encoder(network, "feed1", trees, most)
    # All together may need fewer labels than one alone: what would be stopped is wanted.
    together = _encoded(encoder, receivers)
    cut_off = {host for host in receivers if together is None and not _encoded(encoder, (host,))}
    assert {host for host, _ in made.cut_off} == cut_off
    assert all(why for _, why in made.cut_off)
    model = ForwardingModel(network, network_tables(network, trees))
    reached = []
    for part in made.parts:
        assert len(part.labels) <= most
        delivery = model.deliver("feed1", part.labels)
        assert not delivery.loop and delivery.hosts == dict.fromkeys(part.receivers, 1)
        reached += part.receivers
    assert sorted(reached) == sorted(set(receivers) - cut_off)
    if together is not None:
        assert [part.labels for part in made.parts] == together


def _encoded(encoder: Encoder, receivers: tuple[str, ...]) -> list[tuple[int, ...]] | None:
    """Labels of the stacks; None if the set is refused."""
    try:
        return [encoding.labels for encoding in encoder.encode(frozenset(receivers))]
    except NetworkError:
        return None


def test_a_set_that_cannot_be_encoded_as_a_whole_still_reaches_everyone(monkeypatch):
    encode = Encoder.encode

    def alone_only(self: Encoder, receivers: frozenset[str]):
        if len(receivers) > 1:
            raise NetworkError("NOT_DELIVERABLE", "not together")
        return encode(self, receivers)

    monkeypatch.setattr(Encoder, "encode", alone_only)
    made = HeaderStacks(NETWORK, "feed1", TREES).of(("h1", "h2"))
    assert [part.receivers for part in made.parts] == [("h1",), ("h2",)] and not made.cut_off


def test_each_of_several_publishers_has_stacks_of_its_own():
    publishers, hosts = ("h1", "h5", "feed1"), ("h2", "h3", "h4", "h6", "h7", "h8")
    rows = [
        dataclasses.replace(host, role="publisher" if host.name in publishers else host.role)
        for host in NETWORK.hosts.values()
    ]
    network = Network.from_rows(NETWORK.switches.values(), rows, NETWORK.links)
    together = HeaderStacks(network, publishers, [], 6)
    for number, publisher in enumerate(publishers):
        alone = HeaderStacks(network, publisher, [], 6)
        for receivers in (hosts, *((host,) for host in hosts)):
            assert together.of(receivers, number) == alone.of(receivers)
    made = [together.of(hosts, number) for number in range(len(publishers))]
    assert made[0] != made[1] and all(len(stacks.parts) > 1 for stacks in made)


def test_any_process_works_out_the_same_and_what_is_remembered_stays_behind():
    ours = HeaderStacks(NETWORK, "feed1", TREES)
    seed = random.Random(3)
    drawn = (tuple(sorted(seed.sample(HOSTS, seed.randrange(1, 8)))) for _ in range(40))
    sets = list(dict.fromkeys(drawn))
    made = {receivers: ours.of(receivers) for receivers in sets}
    theirs = pickle.loads(pickle.dumps(ours))
    seed.shuffle(sets)
    for receivers in sets:
        assert theirs.known(receivers) is None
        assert theirs.of(receivers) == made[receivers] == theirs.known(receivers)


def test_what_another_process_worked_out_is_not_worked_out_again(monkeypatch):
    stacks = HeaderStacks(NETWORK, "feed1", TREES)
    pair = Stacks((Stack((0x4001,), ("h1", "h2")),))
    stacks.learn({("h1", "h2"): pair})
    monkeypatch.setattr(Encoder, "encode", None)
    assert stacks.of(("h1", "h2")) is stacks.known(("h1", "h2")) is pair
    assert stacks.known(("h1",)) is None and stacks.known(()) == Stacks(())


#: Memory for a quarter of the sets of `wide`.
LIMIT = 1 << 19


@pytest.fixture(scope="module")
def wide():
    """A network whose receiver sets are large, and many of them."""
    network = fabric(8, 4, 8, 2, 2)
    seed, hosts = random.Random(8), network.subscribers()
    sets = {tuple(sorted(seed.sample(hosts, seed.randrange(20, 200)))) for _ in range(300)}
    return network, sorted(sets)


@pytest.mark.integration
def test_what_is_remembered_takes_no_more_memory_than_is_said(wide, monkeypatch):
    monkeypatch.setattr(header_stacks, "REMEMBERED_BYTES", LIMIT)
    network, sets = wide
    stacks = HeaderStacks(network, "feed1", broadcast_trees(network))
    stacks.of(sets[0])  # makes what it works with
    tracemalloc.start()
    try:
        for receivers in sets:
            stacks.of(receivers)
        kept = [each for each in sets if stacks.known(each) is not None]
        full, _ = tracemalloc.get_traced_memory()
        del stacks
        freed = full - tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    # The keys are of the test, and stay.
    keys = sum(map(sys.getsizeof, kept))
    assert LIMIT / 2 < freed + keys < LIMIT
    assert sets[0] not in kept and sets[-1] in kept


def test_what_was_used_last_is_forgotten_last(wide, monkeypatch):
    monkeypatch.setattr(header_stacks, "REMEMBERED_BYTES", LIMIT)
    network, sets = wide
    stacks = HeaderStacks(network, "feed1", broadcast_trees(network))
    used = stacks.of(sets[0])
    for receivers in sets[1:]:
        stacks.of(receivers)
        assert stacks.of(sets[0]) is used


def test_what_a_plan_uses_is_kept_and_beyond_the_limit_nothing_else(monkeypatch):
    monkeypatch.setattr(header_stacks, "REMEMBERED_BYTES", 500)
    stacks = HeaderStacks(NETWORK, "feed1", TREES)
    stacks.learn({(host,): Stacks(()) for host in HOSTS})
    stacks.retain([(), *((host,) for host in HOSTS[:6])])
    assert [each for each in HOSTS if stacks.known((each,))] == HOSTS[:6]


def test_what_is_learnt_takes_no_more_memory_than_is_said_either(wide, monkeypatch):
    monkeypatch.setattr(header_stacks, "REMEMBERED_BYTES", LIMIT)
    network, sets = wide
    worker = HeaderStacks(network, "feed1", broadcast_trees(network))
    made = {each: worker.of(each) for each in sets}
    stacks = HeaderStacks(network, "feed1", broadcast_trees(network))
    monkeypatch.setattr(header_stacks, "LEARNT_BYTES", 2 * LIMIT)
    first, second = ({each: made[each] for each in part} for part in (sets[::2], sets[1::2]))
    assert stacks.learn({sets[0]: made[sets[0]]})
    assert not (stacks.learn(first) and stacks.learn(second))
    kept = [each for each in sets if stacks.known(each) is not None]
    sizes = sum(header_stacks._bytes(each, made[each]) for each in kept)
    assert 2 * LIMIT * 0.9 < sizes < 2 * LIMIT
    # What the plan uses stays when others are worked out beside it, as many as fit.
    other = next(each for each in sets if each not in kept)
    assert stacks.of(other) == made[other]
    gone = [header_stacks._bytes(each, made[each]) for each in kept if stacks.known(each) is None]
    assert sum(gone) - max(gone) < header_stacks._bytes(other, made[other]) <= sum(gone)
    # Another plan has room again, once this one's sets are not its own.
    last = kept[-1]
    stacks.retain([last])
    assert stacks.learn({other: made[other]})
    assert {each for each in sets if stacks.known(each)} == {last, other}


class Uneven:
    """Header stacks of which a task has its own copy."""

    value = property(lambda self: self)

    def of(self, receivers: tuple[str, ...]) -> Stacks:
        parts = tuple(Stack((0x4001,), (host,)) for host in receivers[:-1])
        return Stacks(parts, ((receivers[-1], "why"),))


def test_tasks_compute_the_stacks_of_all_sets_and_equal_names_are_one_object():
    """Names are many, and each would take some 50 bytes in every set that contains it."""
    sets = [tuple(f"h{n}" for n in range(count + 1)) for count in range(7)]
    task: StackTask = pickle.loads(pickle.dumps(StackTask(Uneven(), sets, 3)))
    results = pickle.loads(pickle.dumps([task(number) for number in range(3)]))
    assert all(seconds >= 0 for _, seconds in results)
    stacks = task.read_stacks(stacks for stacks, _ in results)
    assert stacks == {receivers: Uneven().of(receivers) for receivers in sets}
    names = [n for found in stacks.values() for part in found.parts for n in part.receivers]
    assert len({id(name) for name in names}) == len(set(names)) == 6


def test_a_fault_of_the_encoder_is_told_with_the_receiver_set(monkeypatch):
    def broken(self: Encoder, receivers: frozenset[str]):
        raise ZeroDivisionError("a fault")

    stacks = HeaderStacks(NETWORK, "feed1", TREES)
    monkeypatch.setattr(Encoder, "encode", broken)
    with pytest.raises(StackError, match=r"'feed1' to the receivers h1, h2 .*a fault") as caught:
        stacks.of(("h1", "h2"))
    assert caught.value.code == "STACK.NOT_ENCODED" and caught.value.receivers == ("h1", "h2")
    with pytest.raises(StackError, match="and 2 more"):
        stacks.of(tuple(f"h{n}" for n in range(12)))
    assert stacks.known(("h1", "h2")) is None


def test_warming_up_leaves_nothing_to_compile():
    header_stacks.warm_up()
    before = encode.signatures[:]
    HeaderStacks(NETWORK, "feed1", TREES).of(tuple(HOSTS[:3]))
    assert before and encode.signatures == before
