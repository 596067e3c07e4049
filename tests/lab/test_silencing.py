"""One host cannot silence the others, tried on a switch and receivers in processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from silencing import BATCHES, EACH, attack, forgeries
from virtual_trees_cases import REASONS

pytestmark = pytest.mark.integration


def test_what_a_host_forges_does_not_leave_its_switch(tmp_path: Path):
    heard, counters = attack(tmp_path, trusted=False)
    for name, found in heard.items():
        assert (found.code, found.delivered) == (0, BATCHES * EACH), (name, found)
    assert counters["drops"] == {f"ingress.dropped[{REASONS.index('NO_PUBLISHER')}]": 1}


@pytest.mark.long
def test_receivers_lose_nothing_where_a_forged_summary_comes_through(tmp_path: Path):
    heard, _ = attack(tmp_path, trusted=True)
    for name, found in heard.items():
        assert (found.code, found.delivered) == (0, BATCHES * EACH), (name, found)
        assert (found.statistics["suspicious"], found.statistics["late"]) == (1, 0)


@pytest.mark.long
def test_receivers_with_keys_leave_forged_summaries_of_any_form_alone(tmp_path: Path):
    heard, _ = attack(tmp_path, trusted=True, keys=True)
    # Host h1 has the key of what is made up for h1: it may doubt itself, and has all the same.
    assert heard.pop("h1").delivered == BATCHES * EACH
    for name, found in heard.items():
        counts = found.statistics
        assert (found.code, found.delivered) == (0, BATCHES * EACH), (name, found)
        assert (counts["forged"], counts["summaries"]) == (len(forgeries(0)), BATCHES)
        assert not any(counts[n] for n in ("late", "missing", "suspicious", "disputed", "requests"))
