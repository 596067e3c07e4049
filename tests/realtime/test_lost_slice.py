"""A stream ends where a task was lost whose successor had gone on from another offset."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from stackcast.jobs.adapters.fetch.client import Range
from stackcast.jobs.adapters.fetch.slices import Read, Turn
from stackcast.jobs.adapters.stream.slices import Slice, Slices
from stackcast.udfs.delivery.told import Telling
from stackcast.udfs.errors import StreamError

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "read",
    [Read(offset=20, first=15), Read(lost=True)],
    ids=["its successor began elsewhere", "an earlier try of its successor may have sent"],
)
def test_what_overlaps_is_not_recorded(read: Read) -> None:
    stream = Slices.__new__(Slices)
    stream._delivery = SimpleNamespace()  # type: ignore[assignment]
    stream._at = {3: 13}
    found: Future[list[tuple[bytes, Read]]] = Future()
    found.set_result([(b"", read)])
    turn = Turn("run", 2, [Range("topic", 3, 0, 99)], 1.0, 10)
    running = Slice(7, None, {}, turn, Telling({}), True, found)  # type: ignore[arg-type]
    with pytest.raises(StreamError, match=r"STREAM.SLICE_LOST: .*partition 3 of topic.*start"):
        stream._end(running, None)
    assert stream._at == {3: 13}
