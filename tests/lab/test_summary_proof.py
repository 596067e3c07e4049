"""The lab holds the summaries that hosts were sent against what these hosts wrote down."""

from __future__ import annotations

from pathlib import Path

import pytest
from lossy_network import Stream

from stackcast.lab.proof.summaries import check_recorded_summaries
from stackcast.udfs.messages.sequence import Topic, session_id

pytestmark = pytest.mark.unit

SESSION = session_id(Topic("itch.raw"), 0)


def stream() -> Stream:
    """Three batches of two records each, the second without anything for the host."""
    made = Stream(SESSION)
    for number, sent in enumerate(({0: 2, 1 << 26: 1}, {}, {5 << 26: 3})):
        made.append(sent, (2 * number + 2) << 26)
    return made


def written(folder: Path, datagrams: list[bytes]) -> Path:
    (folder / "receipts").mkdir()
    content = b"".join(len(each).to_bytes(2) + each for each in datagrams)
    (folder / "receipts" / "h1.mold").write_bytes(content)
    return folder


def all_of(made: Stream) -> list[bytes]:
    return [datagram for number in range(3) for datagram in made.datagrams(number)]


def test_a_host_that_was_told_what_it_has_of_everything_is_told_right(tmp_path):
    datagrams = all_of(stream())
    # A batch that ran again says the same again.
    tally = check_recorded_summaries(
        written(tmp_path, [*datagrams, datagrams[2]]), {"h1"}, {SESSION: 6}
    )
    assert tally.exact and tally.summaries == 4


@pytest.mark.parametrize(
    ("left_out", "wrong", "short"), [(0, 1, 0), (2, 0, 1), (3, 0, 1), (4, 1, 0), (5, 0, 1)]
)
def test_a_notification_that_is_not_there_makes_a_summary_wrong_and_one_of_these_leaves_a_hole(
    left_out, wrong, short, tmp_path
):
    datagrams = all_of(stream())
    del datagrams[left_out]
    tally = check_recorded_summaries(written(tmp_path, datagrams), {"h1"}, {SESSION: 6})
    assert (tally.wrong, tally.short, tally.exact) == (wrong, short, False)


def test_a_host_that_was_told_nothing_was_told_too_little(tmp_path):
    tally = check_recorded_summaries(written(tmp_path, []), {"h1"}, {SESSION: 6})
    assert (tally.summaries, tally.short, tally.exact) == (0, 1, False)
