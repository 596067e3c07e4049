"""Links are up or down as the newest rows of `links` say, unless these contradict each other."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.rows import network_to_rows, with_states
from stackcast.udfs.network.topology import fabric

pytestmark = pytest.mark.unit

NETWORK = fabric(pods=2, racks=2, hosts=1, planes=1, spines=1)
LINKS = network_to_rows(NETWORK, dict.fromkeys(NETWORK.switches, "s:1"))["links"]
NUMBERS = [row["link_id"] for row in LINKS]
states = st.dictionaries(st.sampled_from(NUMBERS), st.booleans())


@examples(50)
@given(states)
def test_a_link_is_as_its_newest_row_says(up: Mapping[int, bool]) -> None:
    now = [row | {"up": up[row["link_id"]], "weight": 7.0} for row in LINKS if row["link_id"] in up]
    expected = [row | {"up": up.get(row["link_id"], row["up"])} for row in LINKS]
    assert with_states(LINKS, now) == expected


@pytest.mark.parametrize("other", [True, False])
def test_two_rows_of_a_link_are_an_error(other: bool) -> None:
    number = LINKS[3]["link_id"]
    with pytest.raises(NetworkError, match=f"two links have the id {number}") as caught:
        with_states(LINKS, [*LINKS, LINKS[3] | {"up": other}])
    assert caught.value.code == "NETWORK.DUPLICATE_LINK"
