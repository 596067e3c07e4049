"""Compile the kernels of the streams into the cache of numba, before jobs and tests need them.

    python -m stackcast.udfs.delivery.kernel_cache

Otherwise, the workers of a stream divide this work among them as they start (:func:`compile_from`),
and each process compiles other kernels when it first calls them. The product's own code calls the
kernels on a few events, so that they are compiled for the right types.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from types import SimpleNamespace

import numpy as np
import pyarrow as pa

from stackcast import schemas
from stackcast.udfs.delivery import compiled_mark
from stackcast.udfs.delivery.plan import Addressing, Planner
from stackcast.udfs.delivery.receiver_sets import IndexDelivery, ReceiverSets
from stackcast.udfs.delivery.routes import Routes
from stackcast.udfs.delivery.task import Task
from stackcast.udfs.filters.advertisements import Advertisement
from stackcast.udfs.filters.compiler.compile import table_of_texts
from stackcast.udfs.filters.language.shapes import read_table
from stackcast.udfs.filters.predicate_index.predicate_index import PredicateIndex
from stackcast.udfs.filters.predicate_index.stateful_index import StatefulIndex
from stackcast.udfs.filters.predicate_index.terms import FlatTerms
from stackcast.udfs.filters.subscriptions import Subscription
from stackcast.udfs.messages.attributes.encodings import ENCODINGS
from stackcast.udfs.messages.attributes.reference import write_event
from stackcast.udfs.messages.attributes.registry import Registry, attribute
from stackcast.udfs.messages.readers import AttributeEvents, Encoding, Format, Input, Packets
from stackcast.udfs.messages.record_batches import next_offset, read_records
from stackcast.udfs.messages.reference import build_packet
from stackcast.udfs.messages.sequence import Topic
from stackcast.udfs.messages.specification import parse_specification
from stackcast.udfs.network.labels import NARROW, TREE
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.stacks.segments import segment_bounds
from stackcast.udfs.trees.broadcast import broadcast_trees
from stackcast.udfs.trees.header_stacks import Receivers, Stack, Stacks, warm_up

_RULES = (
    "stock == GOOGL and price > 50",
    "price < 10 or shares >= 300",
    "not (buy_sell == B) : fwd(h1, h2)",
)
_STATEFUL = ("stock == GOOGL and avg(price) > 50",)
_COUNTING = ("count(1000000) > 1 and price >= 0",)


def main() -> None:
    """Compile in two processes. The encoder takes as long as all other kernels."""
    with ProcessPoolExecutor(2) as pool:
        for part in [pool.submit(call) for call in (warm_up, _all_but_the_encoder)]:
            part.result()


def compile_from(number: int) -> None:
    """Compile the kernels of packet streams.

    Args:
        number: number of the worker. Even and odd numbers begin at opposite ends, so that two
            workers divide the work.
    """
    for part in (warm_up, _packets) if number % 2 == 0 else (_packets, warm_up):
        part()
    compiled_mark.put()


def _all_but_the_encoder() -> None:
    _packets()
    _attributes()
    none = np.zeros(1, np.int32), np.zeros(0, np.uint8)
    for encoding in ENCODINGS.values():
        encoding.encode(encoding.decode(*none, known=1, longest=1000), none[1])


def _packets() -> None:
    itch = Packets(parse_specification(schemas.read_text("messages/itch.spec"), "itch"))
    order = itch.specification.header_of_type(ord("A"))
    assert order is not None
    packet = build_packet(b"SOURCE    ", 1, [b"A".ljust(order.length, b"\0")] * 2)
    for rules in (_RULES, _RULES + _STATEFUL, _COUNTING):
        _deliver(itch, rules, [packet, b"no packet"])
    _deliver(itch, _RULES, [packet], "price >= 0")
    _deliver(itch, _RULES, [packet], in_network=True)
    _index(itch)
    segment_bounds(np.zeros(1, np.int64), 1)
    # Records from a broker are in read-only memory.
    fetched = np.frombuffer(b"", np.uint8)
    read_records(fetched, 0, 1)
    next_offset(fetched, 0, 1)


def _index(form: Packets) -> None:
    rules = [f"{rule} : fwd(h1)" for rule in ("stock == GOOGL and price > 50", "shares >= 300")]
    table = table_of_texts(rules, read_table(rules, form.specification), form.specification)
    # The first rule depends on a value, the other one matches all events of a block.
    index = PredicateIndex(FlatTerms.of(table), form.specification, candidate=0)
    places = range(len(index.fields))
    events = SimpleNamespace(
        message_type=np.zeros(1, np.uint8),
        values=np.zeros((len(places), 1), np.uint64),
        present=None,
        message_reason=np.zeros(1, np.uint8),
    )
    IndexDelivery(ReceiverSets([()]), index, places).unite(np.zeros(1, np.int32), events)
    keeping = [f"{rule} : fwd(h1)" for rule in _STATEFUL]
    table = table_of_texts(keeping, read_table(keeping, form.specification), form.specification)
    stateful = StatefulIndex(FlatTerms.of(table), table.cells.values(), form.specification)
    values = np.zeros((len(stateful.fields), 1), np.uint64)
    kinds, read = np.zeros(1, np.uint8), np.zeros(1, np.bool_)
    stateful.match(kinds, values, None, read, np.zeros(1, np.int64), None)


def _attributes() -> None:
    registry = Registry(tuple(attribute(n, f"a{n}", "unsigned") for n in range(3)))
    encodings: tuple[Encoding, ...] = ("id_pairs", "bitmask")
    sources: dict[Input, bytes] = {
        encoding: write_event({0: 1, 2: 7}, encoding) for encoding in encodings
    }
    # The kernel does not read the second number, because it is too long.
    sources["json"] = b'{"a0": 1, "a2": 7.0000000000000000001}'
    for source, event in sources.items():
        for encoding in encodings:
            form = AttributeEvents(registry, source, encoding, 1000)
            _deliver(form, ("a0 < 30 and a2 > 15", "a1 == 5"), [event, b""], "a0 >= 0")


class _SomeStacks:
    """Stacks that need no encoder."""

    def of(self, receivers: Receivers, publisher: int) -> Stacks:
        return Stacks((Stack((NARROW.label(TREE, 1),), receivers),))


def _deliver(
    form: Format,
    rules: tuple[str, ...],
    records: list[bytes],
    announced: str | None = None,
    in_network: bool = False,
) -> None:
    network = fabric(pods=2, racks=2, hosts=2, planes=1, spines=1)
    (publisher,) = network.publishers()
    group = 0xE9360C01
    addressing = Addressing(publisher, group, 26400, 1500, 64, 26401, in_network=in_network)
    compilation = Planner(form, addressing).plan(
        [Subscription(f"s{n}", f"h{n + 1}", text) for n, text in enumerate(rules)],
        network,
        broadcast_trees(network),
        {"subscriptions": 1},
        advertisements=[Advertisement(publisher, announced)] if announced else [],
    )
    assert not compilation.rejections
    task = Task(compilation.plan, SimpleNamespace(value=_SomeStacks()), Topic("topic"), 1, {})
    count = len(records)
    for partitions in ([0] * count, list(range(count))):
        task.add(
            pa.record_batch(
                {
                    "partition": pa.array(partitions, pa.int32()),
                    "offset": pa.array(range(count), pa.int64()),
                    "value": pa.array(records, pa.binary()),
                }
            )
        )
    task.summaries()
    task.rows()
    none = np.zeros(1, np.int32)
    Routes(ReceiverSets([()]), several=True).numbers(none, none)


if __name__ == "__main__":
    main()
