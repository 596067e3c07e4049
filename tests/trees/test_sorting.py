"""The encoder's own sorting says what numpy's says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from stackcast.udfs.trees.kernels import sorting

pytestmark = pytest.mark.unit

keys = st.lists(st.integers(-5, 5) | st.integers(-(2**62), 2**62), max_size=40).map(
    lambda some: np.array(some, np.int64)
)


# Kernels that only kernels call have no wrappers for Python.
@njit
def order(some):
    return sorting.sorted_by(some)


@njit
def least(some, most):
    return sorting.least(some, most)


@njit
def sort(some, number):
    sorting.sort(some, number)


@given(keys)
def test_places_stand_in_the_order_of_their_keys_and_equal_ones_as_they_stood(some):
    assert order(some).tolist() == np.argsort(some, kind="stable").tolist()


@given(keys, st.integers(0, 45))
def test_the_least_keys_ascending(some, most):
    assert least(some, most).tolist() == sorted(some.tolist())[:most]


@given(keys, st.integers(0, 40))
def test_the_first_few_are_sorted_in_place_and_no_others(some, number):
    number = min(number, len(some))
    before = some.tolist()
    sort(some, number)
    assert some.tolist() == sorted(before[:number]) + before[number:]
