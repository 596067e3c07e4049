"""Registered names have the steps that the user chose, and values between steps are counted."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from attribute_records import arrow_of
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.messages.attributes.json_events import JsonReader
from stackcast.udfs.messages.attributes.registry import Registry, attribute
from stackcast.udfs.messages.attributes.steps import USUAL_STEPS, Steps, between_steps
from stackcast.udfs.messages.attributes.unknown_names import NewName, count_names, new_names

pytestmark = pytest.mark.unit

DEGREES = Steps.parse("0.1, latitude=0.0000001,longitude=0.0000001")


def test_steps_are_a_number_and_numbers_by_name():
    assert Steps.parse("0.01") == USUAL_STEPS
    assert DEGREES.usual == Decimal("0.1")
    assert Steps.parse("a=2") == Steps(Decimal("0.01"), {"a": Decimal(2)})
    latitude = DEGREES.attribute(3, "latitude", "decimal")
    assert latitude == attribute(3, "latitude", "decimal", "0.0000001", "-214.7483648")
    assert latitude.most == Decimal("214.7483647")
    assert DEGREES.attribute(3, "height", "decimal").scale == Decimal("0.1")
    # Other types have their own scale.
    assert DEGREES.attribute(3, "latitude", "signed") == attribute(3, "latitude", "signed")


@given(
    st.decimals("0.0000001", 1000, places=7),
    st.integers(0, (1 << 32) - 1),
    st.sampled_from([0, 1, 5, 9]),
)
def test_a_value_is_between_steps_if_it_is_no_multiple_of_the_step(
    step: Decimal, raw: int, tenths: int
):
    one = Steps(step).attribute(0, "a", "decimal")
    # Oracle: exact fractions.
    value = Fraction(one.offset) + (raw + Fraction(tenths, 10)) * Fraction(one.scale)
    assert between_steps(np.array([float(value)]), one).tolist() == [tenths != 0]


def names_of(*records: bytes, steps: Steps = USUAL_STEPS) -> dict[str, NewName]:
    run = count_names(JsonReader(Registry(())), steps=steps)
    return new_names(pa.Table.from_batches(run([arrow_of(list(records))])))


def test_values_that_a_registration_will_round_are_counted():
    records = (
        b'{"latitude": 52.5200066, "temp": 20.25, "count": 3, "far": 1000000000.5}',
        b'{"latitude": 52.52, "temp": 20.125, "seen": "2026-03-01T00:00:00Z"}',
        b'{"latitude": 13.4049540, "temp": 20.5}',
    )
    assert names_of(*records) == {
        "count": NewName("decimal", 1, 0),
        "far": NewName("signed", 1, 1),
        "latitude": NewName("decimal", 3, 2),
        "seen": NewName("timestamp", 1, 0),
        "temp": NewName("decimal", 3, 1),
    }
    finer = names_of(*records, steps=DEGREES)
    assert finer["latitude"] == NewName("decimal", 3, 0)
    assert finer["temp"] == NewName("decimal", 3, 2)


def test_a_name_with_a_step_of_its_own_gets_no_type_that_ignores_the_step():
    records = (b'{"latitude": 5200.5}', b'{"latitude": 5201}')
    assert names_of(*records)["latitude"].type == "decimal"
    assert names_of(*records, steps=DEGREES)["latitude"] == NewName(None, 2, 0)


def test_names_are_registered_with_their_steps():
    types = {"latitude": "decimal", "height": "decimal", "count": "unsigned"}
    _, new = Registry(()).with_new(types, DEGREES.attribute)
    scales = {one.name: one.scale for one in new}
    assert scales == {"count": 1, "height": Decimal("0.1"), "latitude": Decimal("0.0000001")}
