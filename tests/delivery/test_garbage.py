"""Spark collects garbage after every task; what a plan leaves is not looked at each time."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from udfs import columns

pytestmark = pytest.mark.unit


class Plan:
    """Anything that a worker keeps."""


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    gc.unfreeze()
    columns._FROZEN.clear()


def test_a_plan_is_taken_out_of_collection_once_and_the_one_before_can_be_freed():
    first: Any = Plan()
    first.self = first
    columns._freeze(first)
    kept = gc.get_freeze_count()
    assert kept > 10_000
    later = [[] for _ in range(1000)]
    columns._freeze(first)
    assert gc.get_freeze_count() <= kept
    second: Any = Plan()
    del first
    columns._freeze(second)
    assert gc.get_freeze_count() > kept - 10_000
    assert not [each for each in gc.get_objects() if isinstance(each, Plan)], later
    # A circle is freed by collection alone.
    gc.unfreeze()
    assert [each for each in gc.get_objects() if isinstance(each, Plan)] == [second]
