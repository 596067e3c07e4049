"""The programs of source and stored routes forward as the forwarding model says, bit by bit."""

from __future__ import annotations

import itertools
import random
from contextlib import ExitStack
from functools import partial

import program_switches
import pytest
import routes_cases as cases
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import mended, random_network, relabelled
from p4_coverage import soil
from program_switches import holding, sent
from routes_cases import REASONS, modelled, stack_frame
from virtual_trees_cases import datagram, plain_frame, spread

from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.udfs.network.encodings import ROUTES
from stackcast.udfs.network.labels import SwitchTables
from stackcast.udfs.network.source_routes import WIDE_SOURCE_ROUTES, SourceRoute
from stackcast.udfs.network.stored_routes import HYBRID, PORT_BITMAPS, StoredRoute
from stackcast.udfs.stacks.forwarding import ForwardingModel, network_tables
from stackcast.udfs.switches.stack_entries import switch_entries
from stackcast.udfs.trees.encoders import encoder_of
from stackcast.udfs.trees.publisher_trees import first_trees

pytestmark = pytest.mark.unit

told = partial(program_switches.told, REASONS)

RANDOM = st.randoms(use_true_random=False)
FORMS = (*ROUTES.values(), *WIDE_SOURCE_ROUTES.values())


def switch_with(entries, form, **options) -> SimpleSwitch:
    switch = SimpleSwitch(**options)
    switch.load(cases.program(form))
    switch.apply({entry.key: entry for entry in entries})
    return switch


@pytest.fixture(scope="module", params=FORMS, ids=lambda form: form.program)
def form(request):
    """The format of labels; each has a program of its own."""
    return request.param


@pytest.fixture(scope="module")
def bare(form):
    """A switch without entries; each test applies its own and takes them away again."""
    return switch_with([], form, cached=False)


@pytest.fixture(scope="module")
def pool(form):
    """Switches without entries, as many as a random network can have."""
    return [switch_with([], form) for _ in range(8)]


def odd_tables(form) -> SwitchTables:
    ports = frozenset(range(1, 21))
    mask = (1 << 20) - 1
    of_links = {100 + port: 1 << port - 1 for port in ports}
    own = of_links if form.encoding == "hops" else {cases.OWN: mask}
    own = {} if isinstance(form, StoredRoute) else own
    tables = SwitchTables({}, {}, {}, ports - {1}, ports | {0, 65, 257}, form, own, cases.OWN)
    if form == HYBRID:
        tables.hops |= {100 + port: port for port in ports}
    elif isinstance(form, StoredRoute):
        tables.trees |= of_links
    if form == PORT_BITMAPS:
        tables.own[cases.OWN] = mask
    return tables


@pytest.fixture(scope="module")
def odd(form):
    """A switch for `cases.odd_frames`."""
    return switch_with(cases.entries_of(odd_tables(form), 20), form, cached=False)


def why(tables, port, labels):
    """The reason to drop a stack that leads nowhere."""
    if port not in tables.sources:
        return "UNKNOWN_PORT" if port % 2 else "NO_PUBLISHER"
    form, own = tables.labels, tables.own
    if isinstance(form, StoredRoute):
        return "NO_PORT" if chosen(tables, labels) else "UNKNOWN_LABELS"
    if not any(form.id_of(label) in own for label in labels):
        return "UNKNOWN_LABELS"
    if form.id_of(labels[-1]) not in own:
        return "NO_PORT"
    last = itertools.takewhile(lambda label: form.id_of(label) in own, reversed(labels))
    hosts = {1 << port - 1 for port in tables.host_ports}
    led = [form.named(label) & own[form.id_of(label)] for label in last]
    return "NO_PORT" if any(host & mask for mask in led for host in hosts) else "NO_LABEL_LEFT"


def chosen(tables, labels) -> int:
    """The ports that labels of stored routes choose, that of the ingress among them."""
    if tables.labels == PORT_BITMAPS:
        return chosen_by_bitmaps(tables, labels)
    ports, own = 0, True
    for label in labels:
        kind, number = (label >> 14, label & 16_383) if tables.labels == HYBRID else (1, label)
        if kind == 1:
            ports |= tables.trees.get(number, 0)
        elif kind == 0:
            own = number == tables.device
        elif kind == 2 and own and number in tables.hops:
            ports |= 1 << tables.hops[number] - 1
    return ports


def chosen_by_bitmaps(tables, labels) -> int:
    ports = named = 0
    for label in labels:
        if label >> 14 == 3:
            ports |= (label & 2047) << 11 * (label >> 11 & 7) & named
        else:
            named = tables.own[tables.device] if label == 2 << 14 | tables.device else 0
            ports |= tables.trees.get(label, 0)
    return ports


def lost(tables, port, labels, wanted) -> int:
    """Copies of stored routes that have no label left: each is dropped by itself."""
    if port not in tables.sources or not isinstance(tables.labels, StoredRoute):
        return 0
    return (chosen(tables, labels) & ~(1 << port - 1)).bit_count() - len(wanted)


@pytest.mark.integration
@examples(80)
@given(RANDOM)
def test_any_stack_is_forwarded_as_the_model_says(bare, form, rng):
    ports = rng.choice([1, 3, 8, 9, 16, 20, 63])
    tables, numbers = cases.random_tables(rng, ports, form), range(1, ports + 1)
    if rng.random() < 0.5:
        tables, numbers = spread(rng, tables, ports)
    with holding(bare, cases.entries_of(tables, numbers)):
        for _ in range(10):
            labels = cases.random_stack(rng, form)
            port = rng.choice(numbers)
            behind = datagram(rng.randbytes(rng.choice([0, 1, 9, 300])))
            wanted = modelled(tables, port, labels, behind)
            copies, reasons = told(bare, port, stack_frame(form, labels, behind))
            assert copies == wanted
            gone = lost(tables, port, labels, wanted)
            said = [] if wanted or gone else [why(tables, port, labels)]
            assert reasons == said + ["NO_LABEL_LEFT"] * gone


@pytest.mark.integration
@examples(60)
@given(RANDOM)
def test_every_receiver_gets_the_plain_datagram_once_and_nobody_else(pool, form, rng):
    network = relabelled(mended(random_network(rng, 8)), form)
    publisher = rng.choice(network.publishers())
    others = sorted(set(network.hosts) - {publisher})
    host = network.hosts[publisher]
    trees = first_trees(network) if isinstance(form, StoredRoute) else []
    model = ForwardingModel(network, network_tables(network, trees))
    entries = switch_entries(network, trees)
    encoder = encoder_of(network, publisher, trees)
    behind = datagram()
    with ExitStack() as stack:
        switches = {
            name: stack.enter_context(holding(switch, [e for e in entries if e.switch == name]))
            for name, switch in zip(network.switches, pool, strict=False)
        }
        for _ in range(4):
            receivers = frozenset(rng.sample(others, rng.randint(0, len(others))))
            for encoding in encoder.encode(receivers):
                frame = stack_frame(form, encoding.labels, behind)
                got, links = sent(network, switches, host.switch, host.port, frame)
                assert got == {(name, plain_frame(behind)): 1 for name in encoding.receivers}
                wanted = model.deliver(publisher, encoding.labels)
                crossed = [(u, v) for u, v, _ in wanted.links if u in network.switches]
                assert sorted(links) == sorted(crossed)


def test_what_cannot_be_forwarded_is_dropped_and_counted_once(odd, form):
    for name, frame, reason in cases.odd_frames(form):
        copies, reasons = told(odd, 1, frame)
        assert (bool(copies), reasons) == (reason is None, [reason] if reason else []), name


@pytest.mark.integration
def test_metadata_need_not_be_zeros_at_first(form, monkeypatch):
    rng = random.Random(6)
    tables = odd_tables(form)
    switch = switch_with(cases.entries_of(tables, 20), form, cached=False)
    soil(monkeypatch, switch, cases.program(form))
    for _ in range(100):
        labels, port, behind = cases.random_stack(rng, form), rng.randint(1, 20), datagram()
        frame = stack_frame(form, labels, behind)
        assert told(switch, port, frame)[0] == modelled(tables, port, labels, behind)


@pytest.mark.integration
@examples(60)
@given(RANDOM)
def test_any_bytes_are_forwarded_or_counted_and_never_more(odd, form, rng):
    for _ in range(5):
        stack = stack_frame(form, cases.random_stack(rng, form), datagram())
        frame = bytearray(rng.choice([rng.randbytes(rng.randint(0, 64)), stack]))
        for _ in range(rng.randint(0, 3)):
            if frame:
                frame[rng.randrange(len(frame))] = rng.getrandbits(8)
        if rng.random() < 0.3:
            del frame[rng.randint(0, 64) :]
        copies, reasons = told(odd, rng.randint(1, 20), bytes(frame))
        if isinstance(form, SourceRoute):
            assert len(reasons) == (0 if copies else 1)
        else:
            # Of its copies some may have no label left.
            assert copies or reasons
            assert not copies or set(reasons) <= {"NO_LABEL_LEFT"}


def test_of_a_port_above_64_nothing_is_left_out(odd, form):
    ports = [cases.OWN << form.bits // 2 | port for port in (10, 11)]
    labels = {
        "port": ports,
        "port_reactive": ports,
        "bitmask": [cases.OWN << 16 | 3 << 9],
        "mc_group": [cases.OWN << 16 | 1 << 8 | 3 << 1],  # of 24 bits or 32
        "mixed": [cases.OWN << 24 | 2 << 16 | 3 << 9],
        "hybrid": [2 << 14 | 110, 2 << 14 | 111],
        "port_bitmaps": [2 << 14 | cases.OWN, 3 << 14 | 1 << 9, 3 << 14 | 1 << 10],
    }.get(form.encoding, [110, 111])
    for entered in (0, 65, 257):
        copies, _ = told(odd, entered, stack_frame(form, labels, datagram()))
        assert [port for port, _ in copies] == [10, 11]
