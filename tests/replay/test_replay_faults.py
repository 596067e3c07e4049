"""An error of storage that passes is no reason to tell hosts that something is gone for good."""

from __future__ import annotations

import errno
from types import SimpleNamespace

import pytest

from stackcast.jobs.adapters.replay.replay import Replay
from stackcast.udfs.errors import ReplayError, StreamError
from stackcast.udfs.replay.sent_ranges import SentRanges

pytestmark = pytest.mark.unit


def replay_whose_state(error: Exception) -> Replay:
    """The state before batch 7 cannot be read."""
    made = Replay.__new__(Replay)
    ranges = SentRanges()
    ranges.batch(7, 1_000, 0)
    made.ledger = SimpleNamespace(ranges=ranges)  # type: ignore[assignment]

    def before(batch: int) -> None:
        raise error

    made._state = SimpleNamespace(before=before)  # type: ignore[assignment]
    return made


SPAN = SimpleNamespace(ranges=[SimpleNamespace(batch=7, started=1_000, until=50)])


def test_a_stale_handle_is_an_error_that_may_pass():
    made = replay_whose_state(OSError(errno.ESTALE, "Stale file handle"))
    with pytest.raises(OSError, match="Stale file handle"):
        made._carried(SPAN)  # type: ignore[arg-type]


def test_a_damaged_file_is_gone_for_good():
    made = replay_whose_state(StreamError("STATE_UNREADABLE", "cut short"))
    with pytest.raises(ReplayError, match=r"STATE_GONE.*cut short"):
        made._carried(SPAN)  # type: ignore[arg-type]
