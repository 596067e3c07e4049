"""SQL's explanation reads entries and leaves of one compilation, while a stream writes them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import AnalysisException

from stackcast.jobs.adapters.tables.who_gets import ATTEMPTS, TableAt, agreeing
from stackcast.udfs.errors import TableError

pytestmark = pytest.mark.unit

NOTHING = TableAt(frozenset(), frozenset())


def of(subscriptions: int, *states: int) -> TableAt:
    return TableAt(frozenset({subscriptions}), frozenset(states))


class Written:
    """Two tables by version; ``later`` is what the stream commits while the question waits."""

    def __init__(
        self, entries: list[TableAt], leaves: list[TableAt], *later: Callable[[Written], None]
    ) -> None:
        self.tables = {"filter_entries": entries, "filter_leaves": leaves}
        self.later = list(later)
        self.waits = 0
        self.gone: set[tuple[str, int]] = set()

    def current(self, name: str) -> int:
        return len(self.tables[name]) - 1

    def held(self, name: str, version: int) -> TableAt:
        if (name, version) in self.gone:
            raise AnalysisException("files of the version are gone")
        return self.tables[name][version]

    def pause(self, seconds: float) -> None:
        self.waits += 1
        if self.later:
            self.later.pop(0)(self)

    def answer(self) -> tuple[int, int]:
        return agreeing(self.current, self.held, self.pause)


def test_the_newest_versions_are_taken_where_they_agree():
    tables = Written([NOTHING, of(1, 3, 4), of(2, 5)], [NOTHING, of(1, 3, 4), of(2, 5, 6)])
    assert tables.answer() == (2, 2) and not tables.waits


def test_entries_that_are_ahead_of_their_leaves_are_left_for_those_before():
    tables = Written([NOTHING, of(1, 3), of(2, 3)], [NOTHING, of(1, 3)])
    assert tables.answer() == (1, 1) and not tables.waits


def test_leaves_of_entries_that_could_not_be_written_are_left_for_those_before():
    tables = Written([of(1, 3)], [of(1, 3), of(2, 3)])
    assert tables.answer() == (0, 0)


def test_states_numbered_anew_at_the_same_version_are_told_apart():
    tables = Written([of(7, 3, 4), of(7, 8, 9)], [of(7, 3, 4)])
    assert tables.answer() == (0, 0)


def test_a_first_plan_is_waited_for():
    tables = Written(
        [NOTHING, of(1, 3)], [NOTHING], lambda t: t.tables["filter_leaves"].append(of(1, 3))
    )
    assert tables.answer() == (1, 1) and tables.waits == 1


def test_tables_without_any_plan_answer_with_nothing():
    assert Written([NOTHING], [NOTHING]).answer() == (0, 0)


def test_a_filter_without_entries_has_one_leaf():
    assert Written([of(1, 3), NOTHING], [of(1, 3, 4), of(2, 0)]).answer() == (1, 1)
    assert Written([of(1, 3), NOTHING], [of(1, 3, 4)]).answer() == (0, 0)


def test_versions_whose_files_are_gone_are_passed_over_and_the_error_says_what_to_do():
    tables = Written([of(1, 3), of(2, 3)], [of(1, 3)])
    tables.gone.add(("filter_entries", 0))
    with pytest.raises(TableError) as caught:
        tables.answer()
    assert caught.value.code == "TABLE.VERSIONS_DIFFER" and tables.waits == ATTEMPTS - 1


def test_a_newest_version_that_cannot_be_read_is_an_error_of_sql():
    tables = Written([of(1, 3)], [of(1, 3)])
    tables.gone.add(("filter_leaves", 0))
    with pytest.raises(AnalysisException):
        tables.answer()


@given(st.lists(st.booleans(), max_size=12), st.integers(0, 3))
def test_whatever_could_be_written_the_answer_is_of_one_compilation(written, back):
    entries, leaves = [of(0, 0)], [of(0, 0)]
    for plan, done in enumerate(written, 1):
        for table in (entries, leaves) if done else ([entries, leaves][(plan + back) % 2],):
            table.append(of(plan, plan))
    try:
        found = Written(entries, leaves).answer()
    except TableError:
        return
    assert entries[found[0]] == leaves[found[1]]
