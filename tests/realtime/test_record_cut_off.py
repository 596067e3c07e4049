"""After a crash while a slice is recorded, frames are sent again unchanged."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pcap_deployment import Deployment, deliver_in_slices, exact_deliveries, feed, records
from waiting import until

from stackcast.jobs.adapters.checkpoint.progress import Progress
from stackcast.jobs.adapters.stream.batch_recorder import BatchRecorder, BatchResult
from stackcast.udfs.errors import StreamError
from stackcast.udfs.messages.specification import Specification

pytestmark = pytest.mark.integration

#: Step of the record that fails, and how its first argument names the batch.
STEPS: dict[str, tuple[type, str, Callable[[Any], int]]] = {
    "planned, and not on record": (BatchRecorder, "record", lambda result: result.batch_id),
    "on record, and not committed": (Progress, "done", lambda number: number),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_record_that_was_cut_off(
    deployment: Deployment, itch: Specification, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    packets = records()
    last = deliver_in_slices(deployment, packets[:40]) + 2
    next_pin = Path(deployment.settings.checkpoint, "stackcast-pins", f"{last + 1}.json")
    fed = Event()
    owner, method, number_of = STEPS[step]
    plain = getattr(owner, method)

    def failing(self: object, argument: BatchResult | int) -> None:
        if number_of(argument) == last:
            until(lambda: next_pin.exists() and fed.is_set())
            raise StreamError("FAILED", "cut off")
        plain(self, argument)

    def publish() -> None:
        feed(deployment, packets[40:200], 0.015)
        fed.set()

    with monkeypatch.context() as patch:
        patch.setattr(owner, method, failing)
        with pytest.raises(StreamError, match="cut off"):
            deployment.run(publish)
    # Frames that were sent are sent again by the same rules.
    deployment.change("subscriptions", {"id": "high"}, filter="price > 1")
    deployment.publish(packets[200:])
    deployment.run()
    exact_deliveries(deployment, itch)
    # The ledger has each record once.
    ends = deployment.topics.end_offsets()
    for partition in ends:
        spans = sorted(
            (p["from_offset"], p["until_offset"])
            for row in deployment.ledger
            for p in row["partitions"]
            if p["partition"] == partition
        )
        assert spans[0][0] == 0 and spans[-1][1] == ends[partition]
        assert all(before[1] == after[0] for before, after in pairwise(spans))
