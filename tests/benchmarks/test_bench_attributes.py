"""The benchmark of attribute/value events counts what it says it counts."""

from __future__ import annotations

import pytest

from benchmarks.attributes import codecs, entries, headers

pytestmark = pytest.mark.unit


def test_the_bitmask_is_smaller_from_eight_attributes_on_as_in_the_text():
    assert headers.first_smaller(id_bits=4) == 8
    assert headers.first_smaller(id_bits=8) == 4


def test_the_codecs_are_compared_on_the_same_events():
    batch = codecs.EncodedEvents.make(20)
    assert [len(values) for values in batch.values] == [
        int(mask).bit_count() for mask in batch.events.mask
    ]


@pytest.mark.parametrize("family", entries.FAMILIES)
def test_more_subscriptions_of_a_family_are_those_before_and_others(family: str):
    texts = entries.FAMILIES[family]
    assert texts(20)[:5] == texts(5)
    assert len(texts(entries.COUNTS[-1])) == entries.COUNTS[-1]
