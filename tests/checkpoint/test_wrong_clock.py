"""Durations between the stamps of two machines, or of one whose clock was set."""

from __future__ import annotations

import datetime as dt

import pytest

from stackcast.jobs.adapters.tables.network_versions import waited

pytestmark = pytest.mark.unit

NOW = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)


def test_an_edit_is_never_ready_before_it_was_made():
    assert waited(NOW, NOW + dt.timedelta(seconds=1.5)) == 1.5
    assert waited(NOW, NOW - dt.timedelta(days=1)) == 0
