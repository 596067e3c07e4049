"""Frames of one size go to the kernel together, and it cuts them where they were put together."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.stacks.segments import MOST_SEGMENTS, segment_bounds

pytestmark = pytest.mark.unit

# Few different sizes, so that neighbors are often alike.
sizes = st.lists(st.sampled_from([1, 60, 62, 62, 62, 1400, 40_000]), max_size=200) | st.lists(
    st.just(62), max_size=200
)


def groups(some, most):
    offsets = np.concatenate(([0], np.cumsum(some))).astype(np.int64)
    bounds = segment_bounds(offsets, most).tolist()
    return [some[first:end] for first, end in pairwise(bounds)]


def can_be_cut(group, most):
    """As udp(7) and the kernel's udp_send_skb have it."""
    *front, last = group
    return len(group) == 1 or (
        len(group) <= MOST_SEGMENTS
        and sum(group) <= 65_487
        and len(set(front)) == 1
        and last <= front[0] <= most
    )


@given(sizes, st.integers(1, 2000))
def test_each_group_is_cut_into_its_frames_and_none_could_take_the_next_frame_too(some, most):
    found = groups(some, most)
    assert [size for group in found for size in group] == some
    assert all(can_be_cut(group, most) for group in found)
    for group, (first, *_) in pairwise(found):
        assert not can_be_cut([*group, first], most)


def test_an_empty_frame_is_in_no_group():
    assert groups([5, 0, 5], 100) == [[5], [0], [5]]
