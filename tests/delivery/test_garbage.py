"""Spark collects garbage after every task; what a plan leaves is not looked at each time."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from collections.abc import Iterator
from typing import Any

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
    message,
)

from stackcast.udfs.delivery import deliver as delivering
from stackcast.udfs.delivery.plan import Planner
from stackcast.udfs.filters.subscriptions import Subscription
from stackcast.udfs.messages.readers import Packets
from stackcast.udfs.messages.reference import build_packet

pytestmark = pytest.mark.unit


class Plan:
    """Anything that a worker keeps."""


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    # The test run has frozen what it imported and collected, with some garbage.
    gc.unfreeze()
    gc.collect()
    yield
    delivering._FROZEN.clear()
    gc.freeze()


@pytest.mark.integration
def test_a_plan_is_taken_out_of_collection_once_and_the_one_before_can_be_freed():
    first: Any = Plan()
    first.self = first
    delivering._freeze(first)
    kept = gc.get_freeze_count()
    assert kept > 10_000
    later = [[] for _ in range(1000)]
    delivering._freeze(first)
    assert gc.get_freeze_count() <= kept
    second: Any = Plan()
    del first
    delivering._freeze(second)
    assert gc.get_freeze_count() > kept - 10_000
    assert not [each for each in gc.get_objects() if isinstance(each, Plan)], later
    # A circle is freed by collection alone.
    gc.unfreeze()
    assert [each for each in gc.get_objects() if isinstance(each, Plan)] == [second]


@pytest.mark.integration
def test_a_plan_that_is_used_no_more_is_freed_without_collection():
    # Spark takes it from the worker after the next plan's first task: it is frozen by then.
    addressing = dataclasses.replace(ADDRESSING, summary_port=26401)
    rules = [Subscription(f"s{n}", HOSTS[n], text) for n, text in enumerate(FILTERS[:6])]
    compilation = Planner(Packets(ITCH), addressing).plan(rules, NETWORK, TREES, VERSIONS)
    rows = [(0, 1, build_packet(b"SOURCE    ", 1, [GOOGL, message("P")]))]
    try:
        gc.disable()
        for _ in range(2):
            plan, stacks = handle(compilation.plan), handle(compilation.header_stacks)
            list(delivering.deliver(plan, stacks, TOPIC, ListSink, 10)(batches_of(rows, [], False)))
            delivering._freeze(plan.value)
            used = weakref.ref(plan.value), weakref.ref(plan.value.headers)
            del plan
            assert [each() for each in used] == [None, None]
    finally:
        gc.enable()
