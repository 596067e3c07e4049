"""Sequence numbers and sessions follow from the source alone, and never meet."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.errors import MessageError
from stackcast.udfs.messages.sequence import (
    MAX_MESSAGES,
    Topic,
    sequence_number,
    session_id,
    split_sequence,
)

pytestmark = pytest.mark.unit

OFFSETS = st.integers(0, (1 << 38) - 1)
INDEXES = st.integers(0, MAX_MESSAGES)


@given(OFFSETS, INDEXES, INDEXES)
def test_any_message_of_a_frame_leads_back_to_offset_and_first_index(
    offset: int, index: int, place: int
):
    sequence = sequence_number(offset, index)
    assert sequence >= 0 and sequence + place < 1 << 64
    assert split_sequence(sequence + place) == (offset, index)


@given(OFFSETS, INDEXES, OFFSETS, INDEXES)
def test_ranges_of_two_frames_never_overlap(a: int, i: int, b: int, j: int):
    first, second = sorted([(a, i), (b, j)])
    if first != second:
        assert sequence_number(*first) + MAX_MESSAGES < sequence_number(*second)


@given(st.lists(st.tuples(st.integers(0, (1 << 37) - 1), INDEXES), max_size=20))
def test_columns_get_the_same_numbers(pairs: list[tuple[int, int]]):
    offset = np.array([offset for offset, _ in pairs], np.int64)
    index = np.array([index for _, index in pairs], np.int64)
    expected = [sequence_number(*pair) for pair in pairs]
    assert sequence_number(offset, index).tolist() == expected


def test_name_id_generation_and_partition_of_a_topic_all_change_its_session():
    topics = [Topic("itch.raw"), Topic("itch.raw", "Xk3"), Topic("itch.raw", "Xk3", 1), Topic("ü")]
    names = {session_id(topic, p) for topic in topics for p in range(2000)}
    assert len(names) == 8000
    assert all(len(name) == 10 and name.isalnum() and name.upper() == name for name in names)
    # Part of the wire format: receivers keep their place by it.
    # A constant, because the session must be the same in each process and on each machine.
    assert session_id(Topic("itch.raw"), 0) == b"U7TTJJ0000"
    assert session_id(Topic("itch.raw"), 35)[6:] == b"000Z"
    assert session_id(Topic("itch.raw"), 36**4 - 1)[6:] == b"ZZZZ"


@pytest.mark.parametrize("partition", [-1, 36**4])
def test_a_partition_without_four_digits_is_refused(partition: int):
    with pytest.raises(MessageError, match="BAD_PARTITION"):
        session_id(Topic("itch.raw"), partition)
