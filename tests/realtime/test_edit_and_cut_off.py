"""An edit of a rule shortly before a crash changes no frame that is sent again."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pcap_deployment import Deployment, deliver_in_slices, exact_deliveries, feed, records
from waiting import until

from stackcast.jobs.adapters.stream.batch_recorder import BatchResult
from stackcast.jobs.adapters.stream.plan_keeper import LivePlan
from stackcast.jobs.adapters.stream.slice_recorder import SliceRecorder
from stackcast.jobs.adapters.stream.slices import Slice, Slices
from stackcast.udfs.errors import StreamError
from stackcast.udfs.messages.specification import Specification

pytestmark = pytest.mark.integration


def test_a_slice_by_a_new_rule_waits_for_the_record_of_the_slice_before(
    deployment: Deployment, itch: Specification, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Edit a rule before the record of a slice, which then fails, and start the stream again."""
    packets = records()
    last = deliver_in_slices(deployment, packets[:40]) + 2
    pins = Path(deployment.settings.checkpoint, "stackcast-pins")
    edited, waits = Event(), Event()
    start = Slices._start
    record, await_records = SliceRecorder._record, SliceRecorder.await_records

    def editing(self: Slices, number: int, plan: LivePlan, *arguments: Any) -> Slice:
        started = start(self, number, plan, *arguments)
        if number == last and not edited.is_set():
            # The slice in progress continues with the rule before the edit.
            deployment.change("subscriptions", {"id": "high"}, filter="price > 1")
            until(lambda: self._plans.current_plan is not plan)
            edited.set()
        return started

    def failing(self: SliceRecorder, result: BatchResult, ends: Mapping[int, int]) -> None:
        if result.batch_id < last:
            record(self, result, ends)
            return
        count = len(deployment.frames())
        next_pin = pins / f"{last + 1}.json"
        until(
            lambda: waits.is_set() or (next_pin.exists() and len(deployment.frames()) > count + 20)
        )
        waits.set()
        raise StreamError("FAILED", "cut off")

    def waiting(self: SliceRecorder, pending: int) -> None:
        if edited.is_set() and not pending:
            waits.set()
        await_records(self, pending)

    def publish() -> None:
        more = (packets[40 + number % 200] for number in range(3000))
        feed(deployment, takewhile(lambda _: not waits.is_set(), more), 0.015)

    with monkeypatch.context() as patch:
        patch.setattr(Slices, "_start", editing)
        patch.setattr(SliceRecorder, "_record", failing)
        patch.setattr(SliceRecorder, "await_records", waiting)
        with pytest.raises(StreamError, match="cut off"):
            deployment.run(publish)
    deployment.run()
    exact_deliveries(deployment, itch)
