"""A table of prefixes means what the intervals mean, and no table with fewer prefixes does."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.filters.prefixes import cover, split

pytestmark = pytest.mark.unit


def blocks(bits: int) -> list[tuple[int, int]]:
    """All prefixes of a field."""
    return [
        (low, low + size - 1)
        for size in (1 << height for height in range(bits + 1))
        for low in range(0, 1 << bits, size)
    ]


def longest(prefixes, value: int) -> int:
    """What a switch does: of the prefixes that hold the value the longest wins."""
    holding = [(high - low, child) for low, high, child in prefixes if low <= value <= high]
    return min(holding)[1]


def rows_of(children: list[int]) -> list[tuple[int, int, int]]:
    return [(value, value, child) for value, child in enumerate(children)]


@st.composite
def rows(draw, bits: int = 6) -> list[tuple[int, int, int]]:
    end = (1 << bits) - 1
    lows = sorted({0, *draw(st.lists(st.integers(1, end), max_size=12))})
    return [
        (low, high - 1, draw(st.integers(-3, 3)))
        for low, high in zip(lows, [*lows[1:], end + 1], strict=True)
    ]


@given(rows(), st.integers(-3, 3) | st.none())
def test_the_longest_prefix_has_the_child_of_the_interval(intervals, prefer):
    prefixes = cover(intervals, 6, prefer)
    assert set((low, high) for low, high, _ in prefixes) <= set(blocks(6))
    assert len({(low, high) for low, high, _ in prefixes}) == len(prefixes)
    assert prefixes[-1][:2] == (0, 63)
    assert prefixes[:-1] == sorted(prefixes[:-1])
    for low, high, child in intervals:
        assert all(longest(prefixes, value) == child for value in range(low, high + 1))


def fewest(bits: int, most: int, colours: int) -> dict[tuple[int, ...], int]:
    """By trying all tables of up to ``most`` prefixes: meaning to the least number of them."""
    inner = [block for block in blocks(bits) if block != (0, (1 << bits) - 1)]
    found: dict[tuple[int, ...], int] = {}
    for count in range(most):
        for chosen in itertools.combinations(inner, count):
            holders = [
                min(
                    (high - low, at)
                    for at, (low, high) in enumerate([*chosen, (0, (1 << bits) - 1)])
                    if low <= value <= high
                )[1]
                for value in range(1 << bits)
            ]
            for children in itertools.product(range(colours), repeat=count + 1):
                found.setdefault(tuple(children[at] for at in holders), count + 1)
    return found


def test_no_table_of_three_bits_is_smaller():
    best = fewest(3, 5, 2) | fewest(3, 4, 3)
    for meaning, count in best.items():
        assert len(cover(rows_of(list(meaning)), 3)) == count
    # All meanings with two children were among them.
    assert set(itertools.product(range(2), repeat=8)) <= set(best)


@pytest.mark.parametrize("step", [8, pytest.param(1, marks=pytest.mark.long)])
def test_no_table_of_four_bits_is_smaller(step: int):
    best = fewest(4, 4, 2)
    for meaning, count in best.items():
        assert len(cover(rows_of(list(meaning)), 4)) == count
    others = (each for each in itertools.product(range(2), repeat=16) if each not in best)
    for meaning in itertools.islice(others, None, None, step):
        assert len(cover(rows_of(list(meaning)), 4)) > 4


@given(rows(), st.permutations(range(-3, 4)))
def test_names_of_children_do_not_matter(intervals, names):
    other = [(low, high, names[child + 3]) for low, high, child in intervals]
    expected = [(low, high, names[child + 3]) for low, high, child in cover(intervals, 6)]
    assert cover(other, 6) == expected


def test_wide_fields():
    end = (1 << 64) - 1
    assert cover([(0, end, 7)], 64) == [(0, end, 7)]
    middle = 10 << 56, (11 << 56) - 1
    intervals = [(0, middle[0] - 1, -1), (*middle, 4), (middle[1] + 1, end, -1)]
    assert cover(intervals, 64) == [(*middle, 4), (0, end, -1)]
    assert cover([(0, 0, 1), (1, end, 2)], 64, prefer=1) == [(0, 0, 1), (0, end, 2)]


def test_the_preferred_child_is_the_rest_where_that_costs_nothing():
    halves = [(0, 7, 1), (8, 15, 2)]
    assert cover(halves, 4) == [(8, 15, 2), (0, 15, 1)]
    assert cover(halves, 4, prefer=2) == [(0, 7, 1), (0, 15, 2)]


@given(st.integers(0, 63), st.integers(0, 63))
def test_an_interval_is_split_into_the_fewest_disjoint_prefixes(one, other):
    low, high = sorted((one, other))
    pieces = split(low, high, 6)
    assert set(pieces) <= set(blocks(6))
    assert [value for first, last in pieces for value in range(first, last + 1)] == [
        *range(low, high + 1)
    ]
    # Every piece is the greatest block of its values inside the interval, and those are disjoint.
    inside = [block for block in blocks(6) if low <= block[0] and block[1] <= high]
    for first, last in pieces:
        assert not [b for b in inside if b[0] <= first and last <= b[1] and b != (first, last)]


def test_splits_of_the_text():
    assert split(16, 47, 6) == [(16, 31), (32, 47)]
    assert split(0, (1 << 64) - 1, 64) == [(0, (1 << 64) - 1)]
    assert len(split(1, (1 << 64) - 2, 64)) == 126


@pytest.mark.parametrize("wrong", [[], [(0, 14, 1)], [(1, 15, 1)], [(0, 3, 1), (5, 15, 2)]])
def test_rows_that_do_not_cover_the_field_are_refused(wrong):
    with pytest.raises(ValueError, match="rows"):
        cover(wrong, 4)


@pytest.mark.parametrize(("low", "high"), [(3, 2), (-1, 3), (0, 16)])
def test_what_is_no_interval_is_refused(low, high):
    with pytest.raises(ValueError, match="no interval"):
        split(low, high, 4)
