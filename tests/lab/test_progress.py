"""The progress of a run: a line a stage with its time, and what is waited for."""

from __future__ import annotations

import io
import logging
import re
import time

import pytest
from virtual_time import VirtualTime

from stackcast.jobs.embedded.progress import Parts, Progress

pytestmark = pytest.mark.unit

log = logging.getLogger("stackcast.test")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _levels():
    log.setLevel(logging.INFO)


def test_a_stage_is_one_line_with_its_time_and_what_it_came_to():
    stream = io.StringIO()
    with Progress(stream) as progress, progress.stage("switches") as stage:
        stage.finished = "started 20 [switches]"
    (line,) = stream.getvalue().splitlines()
    assert re.fullmatch(r" *\d+\.\d s  started 20 \[switches\] \(\d+\.\d s\)", line)


def test_a_failed_stage_is_not_printed():
    stream = io.StringIO()
    with (
        pytest.raises(ValueError, match="no"),
        Progress(stream) as progress,
        progress.stage("outer"),
        progress.stage("inner"),
    ):
        raise ValueError("no")
    assert stream.getvalue() == ""


def test_without_a_terminal_a_stage_in_progress_is_printed_periodically_with_its_count():
    stream = io.StringIO()
    threads = VirtualTime()
    with (
        Progress(stream, 5, threads) as progress,
        progress.stage("reading records", "read records") as stage,
    ):
        progress.count(stage, 1_500, 4_000)
        threads.clock.sleep(12)
        assert stream.getvalue().count("still reading records: 1,500 of 4,000") == 2
        progress.count(stage, 4_000, 4_000)
    assert re.search(r"s  read records: 4,000 of 4,000 \(", stream.getvalue().splitlines()[-1])
    assert "\x1b" not in stream.getvalue()


def test_on_a_terminal_a_bar_is_drawn_and_gone_at_the_end():
    stream = Terminal()
    with Progress(stream) as progress, progress.stage("records") as stage:
        progress.count(stage, 1, 4)
        deadline = time.monotonic() + 600
        while "records: 1 of 4" not in stream.getvalue():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        progress.count(stage, 4, 4)
    assert "\u2501" in stream.getvalue()
    assert "records: 4 of 4 (" in stream.getvalue()


def test_log_lines_go_to_a_file_and_only_warnings_are_shown(tmp_path):
    before = list(logging.getLogger().handlers)
    stream = io.StringIO()
    with Progress(stream) as progress:
        log.info("too early for the file")
        progress.log_to(tmp_path / "log" / "run.log")
        log.info("[detail]")
        log.warning("[careful]")
        progress.log_to(tmp_path / "second.log")
        log.info("of the second run")
    assert logging.getLogger().handlers == before
    assert (tmp_path / "second.log").read_text().endswith("of the second run\n")
    shown, kept = stream.getvalue(), (tmp_path / "log" / "run.log").read_text()
    assert "[detail]" in kept and "[careful]" in kept
    assert "second" not in kept
    assert "[detail]" not in shown and "WARNING stackcast.test: [careful]" in shown
    assert str(tmp_path / "log" / "run.log") in shown


def test_parts_of_a_run_follow_each_other_and_add_up():
    clock = VirtualTime()
    parts = Parts(clock)
    assert parts.seconds() == {}
    for name in ("tables", "publishing", "report"):
        parts.begin(name)
        clock.sleep(len(name))
    seconds = parts.seconds()
    assert seconds == {"tables": 6, "publishing": 10, "report": 6}
