"""Two streams with different checkpoints never both send the events of a topic."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pcap_deployment import Deployment, records

from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.stream.delivery import BatchDelivery
from stackcast.jobs.adapters.stream.spark_stream import Consent, start
from stackcast.udfs.errors import StackcastError, TableError
from stackcast.udfs.messages.specification import Specification

pytestmark = pytest.mark.integration


#: Limits waits, so that a test that hangs ends.
WAIT_S = 600


class Stream:
    """A stream that runs in a thread; `stalled` stops it before it sends."""

    def __init__(self, deployment: Deployment, *, take_over: bool = False) -> None:
        self._lifecycle = Lifecycle()
        self._query, self.delivery = start(
            deployment.spark, deployment.settings, self._lifecycle, Consent(take_over)
        )
        self.error: StackcastError | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._lifecycle.run(self._query, self.delivery.fence.lost)
        except StackcastError as error:
            self.error = error
        finally:
            self.delivery.close()

    def reach(self, offsets: dict[int, int]) -> None:
        while self.delivery.recorder.processed != offsets:
            assert self._thread.is_alive(), self.error
            self._thread.join(0.05)

    def end(self) -> None:
        self._lifecycle.stopping.set()
        self._thread.join()

    def ended(self) -> None:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


@contextmanager
def stalled(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Stop the stream before it sends, until the end of the block.

    Yields:
        An event, which is set when the stream is about to send.
    """
    plain, about_to_send, gate = BatchDelivery.work, threading.Event(), threading.Event()

    def work(delivery: BatchDelivery, *arguments: object, **named: object) -> object:
        if delivery is stream.delivery:
            about_to_send.set()
            gate.wait(WAIT_S)
        return plain(delivery, *arguments, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(BatchDelivery, "work", work)
        try:
            yield about_to_send
        finally:
            gate.set()


@pytest.mark.long
@pytest.mark.parametrize("latency", ["microbatch", "realtime"])
def test_a_stream_that_lost_its_place_ends_before_it_sends(
    deployment: Deployment,
    itch: Specification,
    monkeypatch: pytest.MonkeyPatch,
    latency: str,
) -> None:
    deployment.set(latency=latency, realtime_slice="300 milliseconds", wait_seconds=0)
    deployment.publish(records()[:40])
    first = Stream(deployment)
    first.reach({0: 20, 1: 20})
    before = deployment.settings
    deployment.set(
        checkpoint=str(Path(before.checkpoint).with_name("another")),
        starting_offsets=json.dumps({before.topic: {"0": 20, "1": 20}}),
    )
    # The second stream is refused, and the first one continues.
    with pytest.raises(TableError, match=rf"WRITER_ACTIVE: .*{before.checkpoint}, since"):
        start(deployment.spark, deployment.settings, Lifecycle())
    with stalled(first, monkeypatch) as about_to_send:
        # A slice that had started before sends the records that come until it ends.
        assert latency == "microbatch" or about_to_send.wait(WAIT_S)
        deployment.publish(records()[40:80])
        assert about_to_send.wait(WAIT_S)
        second = Stream(deployment, take_over=True)
        second.reach({0: 40, 1: 40})
    first.ended()
    with pytest.raises(TableError, match=rf"FENCED: .*{deployment.settings.checkpoint}, since"):
        first.delivery.fence.check()
    deployment.publish(records()[80:120])
    second.reach({0: 60, 1: 60})
    second.end()
    assert second.error is None
    outcome = deployment.outcome(itch)
    assert (outcome.missing, outcome.extra, outcome.duplicates) == (0, 0, 0)
    assert outcome.received > 20
    # The topic is free again: the first checkpoint may have it, and repeats its unrecorded batch.
    deployment.set(checkpoint=before.checkpoint)
    Stream(deployment).end()
