"""A worker loads any plan ahead of its first records, and delivers nothing by that."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa
import pytest
from delivery_cases import (
    ADDRESSING,
    FILTERS,
    GOOGL,
    HOSTS,
    ITCH,
    NETWORK,
    TOPIC,
    TREES,
    VERSIONS,
    ListSink,
    batches_of,
    handle,
)

from stackcast.udfs.columns import loaded
from stackcast.udfs.delivery.deliver import deliver
from stackcast.udfs.delivery.plan import Planner
from stackcast.udfs.filters.subscriptions import Subscription
from stackcast.udfs.messages.attributes.registry import Registry, attribute
from stackcast.udfs.messages.readers import AttributeEvents, Format, Packets
from stackcast.udfs.messages.reference import build_packet
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.trees.broadcast import broadcast_trees

pytestmark = pytest.mark.unit

REGISTRY = Registry(tuple(attribute(n, f"a{n}", "unsigned") for n in range(3)))
ROW = pa.record_batch({"id": pa.array([0], pa.int64())})
SUMMARIES = dataclasses.replace(ADDRESSING, summary_port=26401)
SEVERAL = fabric(pods=2, racks=2, hosts=2, planes=1, spines=1, publishers=3)


@pytest.mark.parametrize(
    ("form", "rules", "changes", "network"),
    [
        (Packets(ITCH), FILTERS, {}, NETWORK),
        (Packets(ITCH), [*FILTERS, "stock == GOOGL and avg(price) > 50"], {}, NETWORK),
        (Packets(ITCH), FILTERS, {"publisher": "*", "publisher_by": "header:sender"}, SEVERAL),
        (AttributeEvents(REGISTRY, "json", "bitmask", 300), ["a0 < 30"], {}, NETWORK),
        (Packets(ITCH), FILTERS, {"in_network": True}, NETWORK),
    ],
    ids=["packets", "state", "several publishers", "attributes", "switches that match"],
)
def test_any_plan_is_loaded_without_a_record(
    form: Format, rules: list[str], changes: dict[str, Any], network: Any
):
    subscriptions = [
        Subscription(f"s{n}", HOSTS[n % len(HOSTS)], text) for n, text in enumerate(rules)
    ]
    compilation = Planner(form, dataclasses.replace(SUMMARIES, **changes)).plan(
        subscriptions, network, broadcast_trees(network), VERSIONS
    )
    assert not compilation.rejections
    run = loaded(handle(compilation.plan), handle(compilation.header_stacks), TOPIC)
    assert list(run(iter([ROW]))) == [ROW]


def test_records_are_delivered_as_if_nothing_had_been_loaded():
    subscriptions = [Subscription(f"s{n}", "h1", text) for n, text in enumerate(FILTERS)]
    compilation = Planner(Packets(ITCH), ADDRESSING).plan(subscriptions, NETWORK, TREES, VERSIONS)
    records = [(0, 7, build_packet(b"SOURCE    ", 1, [GOOGL]))]
    frames, reports = [], []
    for ahead in (False, True):
        plan, stacks = handle(compilation.plan), handle(compilation.header_stacks)
        if ahead:
            list(loaded(plan, stacks, TOPIC)(iter([ROW])))
        sink = ListSink()
        run = deliver(plan, stacks, TOPIC, lambda sink=sink: sink, 1)
        reports.append(list(run(batches_of(records, [], large=False))))
        frames.append(sink.frames)
    assert frames[0] == frames[1] != []
    assert reports[0] == reports[1]
