"""The version of a table is told without a look at its whole log, whatever becomes of the log."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.jobs.adapters.tables.changes import added_files, only_adds
from stackcast.jobs.adapters.tables.log import FolderLog, parse_commit

pytestmark = pytest.mark.unit


class Table:
    """A folder with commits, as Delta writes them."""

    def __init__(self, folder):
        self.log = folder / "_delta_log"
        self.made = 0
        # No two files are of one instant, as the file system's clock may tell of fast tests.
        self._clock = itertools.count(1)

    def numbers(self):
        return sorted(int(path.stem) for path in self.log.glob("*.json") if path.stem.isdigit())

    def path(self, version):
        return self.log / f"{version:020d}.json"

    def commit(self):
        self.log.mkdir(exist_ok=True)
        version = max(self.numbers(), default=-1) + 1
        if not version:
            self.made += 1
        action = {"metaData": {"id": str(self.made)}} if not version else {"add": {"path": "x"}}
        self.path(version).write_text(json.dumps(action) + "\n")
        now = next(self._clock)
        os.utime(self.path(version), ns=(now, now))

    def clean(self):
        """The oldest commits go; a checkpoint has what they said."""
        for version in self.numbers()[:-1]:
            self.path(version).unlink()

    def recreate(self, commits):
        shutil.rmtree(self.log, ignore_errors=True)
        for _ in range(commits):
            self.commit()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.integers(1, 4)),
        st.tuples(st.just("clean"), st.just(0)),
        st.tuples(st.just("recreate"), st.integers(0, 6)),
        st.tuples(st.just("look"), st.just(0)),
    ),
    max_size=20,
)


@examples(60)
@given(STEPS)
def test_version_and_table_are_those_that_a_listing_shows(steps):
    with tempfile.TemporaryDirectory() as folder:
        table = Table(Path(folder))
        log = FolderLog(Path(folder))
        cleaned = False
        for step, number in [*steps, ("look", 0)]:
            if step == "commit":
                for _ in range(number):
                    table.commit()
            elif step == "clean":
                table.clean()
            elif step == "recreate":
                table.recreate(number)
            else:
                numbers = table.numbers()
                assert log.version() == max(numbers, default=None)
                cleaned = bool(numbers) and numbers[0] > 0
                if not cleaned:
                    assert log.id() == (str(table.made) if numbers else None)
                else:
                    # Known from before, or to be asked elsewhere.
                    assert log.id() in (None, str(table.made))


def test_a_long_log_is_listed_once(tmp_path, monkeypatch):
    table = Table(tmp_path)
    table.recreate(30)
    (table.log / f"{29:020d}.checkpoint.parquet").write_text("")
    (table.log / "_last_checkpoint").write_text("{}")
    (table.log / f"{0:020d}.{9:020d}.compacted.json").write_text("")
    listed = []
    every = FolderLog._newest_listed
    monkeypatch.setattr(FolderLog, "_newest_listed", lambda log: listed.append(1) or every(log))
    log = FolderLog(tmp_path)
    for number in range(29, 40):
        assert log.version() == number and log.id() == "1"
        table.commit()
    assert listed == [1]
    table.recreate(2)
    assert log.version() == 1 and log.id() == "2"
    assert listed == [1, 1]
    # As long as the old one was: it is another one all the same.
    table.recreate(2)
    assert log.version() == 1 and log.id() == "3"


def test_commits_that_take_rows_away_are_told_from_those_that_add():
    def commit(*found):
        return parse_commit("\n".join(json.dumps(action) for action in found) + "\n")

    info, add = {"commitInfo": {"operation": "x"}}, {"add": {"dataChange": True}}
    assert only_adds(commit(info, add, add))
    assert only_adds(commit(info, add, {"remove": {"dataChange": False}}))
    assert not only_adds(commit(info, {"remove": {"dataChange": True}}, add))
    assert not only_adds(commit(info, {"remove": {}}))
    for damaged in ("", '{"add": {}}\n{"rem'):
        assert not only_adds(parse_commit(damaged)) and added_files(parse_commit(damaged)) is None


def test_without_a_table_there_is_no_version(tmp_path):
    for place in (tmp_path, tmp_path / "none"):
        log = FolderLog(place)
        assert log.version() is None and log.id() is None and not log.commit(0)
