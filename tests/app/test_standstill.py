"""A standstill of the driver is noticed where executors are in the driver, and nowhere else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from stackcast.jobs.adapters.app.lifecycle import Lifecycle

pytestmark = pytest.mark.unit

YEARS = 1e9


@pytest.mark.parametrize(
    ("master", "noticed"),
    [
        ("local", True),
        ("local[2]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://master:7077", False),
    ],
)
def test_a_standstill_is_noticed_where_executors_are_in_the_driver(
    master: str, noticed: bool, monkeypatch: pytest.MonkeyPatch
):
    conf = SimpleNamespace(getTimeAsSeconds=lambda key, otherwise: otherwise.rstrip("s"))
    clock = SimpleNamespace(currentTimeMillis=lambda: 0)
    context: Any = SimpleNamespace(
        master=master,
        _jsc=SimpleNamespace(sc=lambda: SimpleNamespace(conf=lambda: conf)),
        _jvm=SimpleNamespace(System=clock),
    )
    lifecycle = Lifecycle()
    lifecycle._notice_standstill(context)
    monkeypatch.setattr(lifecycle, "_ticked", lifecycle._ticked - YEARS)
    assert bool(lifecycle.stood_still) == noticed
    lifecycle._ended.set()
