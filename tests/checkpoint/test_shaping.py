"""Pins and ledger name the settings that shape bytes, and what differs from a try before."""

from __future__ import annotations

import dataclasses

import pytest

from stackcast.jobs.adapters.app.settings import PREFIX, Settings
from stackcast.jobs.adapters.checkpoint.identity import SHAPING, SPECIFICATION, changed, shaping

pytestmark = pytest.mark.unit


def test_the_settings_come_back_from_their_texts():
    first = Settings(publisher="feed9", mtu=1400, label_bits=32, port=99, format="attributes")
    found = shaping(first)
    assert set(found) == {*SHAPING, SPECIFICATION}
    again = Settings.read([(PREFIX + key, found[key]) for key in SHAPING])
    assert shaping(again) == found


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({}, {}),
        ({"sink": "pcap", "checkpoint": "elsewhere", "topic": "t"}, {}),
        ({"mtu": 1400}, {"mtu": "1500"}),
        ({"group": "239.1.1.1", "publisher": "x"}, {"multicast.group", "publisher"}),
        ({"format": "attributes"}, {"format", SPECIFICATION}),
    ],
)
def test_what_another_start_would_change_in_the_bytes_is_told(other, told):
    first = Settings()
    found = changed(shaping(first), shaping(dataclasses.replace(first, **other)))
    assert found == told if isinstance(told, dict) else set(found) == told
