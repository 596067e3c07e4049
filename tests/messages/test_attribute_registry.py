"""The registry of attributes: which tables are one, and how values become numbers."""

from __future__ import annotations

import pickle
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stackcast.udfs.errors import StackcastError
from stackcast.udfs.messages.attributes.events import WIDTHS
from stackcast.udfs.messages.attributes.json_events import raw_values
from stackcast.udfs.messages.attributes.registry import (
    Attribute,
    Registry,
    Type,
    attribute,
    is_name,
)

pytestmark = pytest.mark.unit

TOP = (1 << 32) - 1
ROW = {"id": 1, "name": "temp", "type": "decimal", "scale": Decimal("0.01"), "offset": Decimal(0)}

numbers = st.decimals(allow_nan=False, allow_infinity=False, places=18)
scales = st.one_of(
    st.integers(1, 10**9).map(lambda n: Decimal(n).scaleb(-6)),
    st.sampled_from(["1", "0.01", "0.001", "1e-18", "0.25", "0.3", "7", "1e9"]).map(Decimal),
)
offsets = st.one_of(
    st.integers(-(10**12), 10**12).map(lambda n: Decimal(n).scaleb(-3)),
    st.just(Decimal(0)),
)


def code(rows: list[dict[str, Any]]) -> tuple[str, str]:
    with pytest.raises(StackcastError) as caught:
        Registry.from_rows(rows)
    return caught.value.code, caught.value.message


def test_a_table_is_read_by_ascending_id_in_any_order_of_its_rows() -> None:
    other = ROW | {"id": 0, "name": "hum", "registered_by": "somebody"}
    registry = Registry.from_rows([ROW, other])
    assert [one.name for one in registry.attributes] == ["hum", "temp"]
    assert registry == Registry.from_rows([other, ROW])
    assert registry.known == 0b11
    fields = registry.specification().order()
    assert [field.qualified for field in fields] == ["hum", "temp"]
    assert registry.ids_of(reversed(fields)) == [1, 0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"id": 32}, "0 to 31"),
        ({"id": -1}, "0 to 31"),
        ({"id": None}, "0 to 31"),
        ({"id": True}, "0 to 31"),
        ({"name": ""}, "1 to 63 letters"),
        ({"name": "9lives"}, "1 to 63 letters"),
        ({"name": "two words"}, "1 to 63 letters"),
        ({"name": "größe"}, "1 to 63 letters"),
        ({"name": "temp\n"}, "1 to 63 letters"),
        ({"name": "a" * 64}, "1 to 63 letters"),
        ({"name": None}, "1 to 63 letters"),
        ({"name": "Between"}, "reserved word"),
        ({"name": "message_type"}, "reserved word"),
        ({"type": "double"}, "unsigned, signed, decimal, timestamp"),
        ({"scale": Decimal(0)}, "above 0"),
        ({"scale": Decimal(-1)}, "above 0"),
        ({"scale": None}, "DECIMAL(38,18)"),
        ({"scale": Decimal("NaN")}, "DECIMAL(38,18)"),
        ({"scale": Decimal("1e-19")}, "DECIMAL(38,18)"),
        ({"offset": Decimal("1e999999")}, "DECIMAL(38,18)"),
        ({"offset": Decimal("1e-999999")}, "DECIMAL(38,18)"),
        ({"offset": "much"}, "DECIMAL(38,18)"),
        ({"offset": Decimal(1 << 60)}, "doubles"),
        ({"offset": Decimal(10**9), "scale": Decimal("1e-9")}, "doubles"),
    ],
)
def test_a_wrong_row_is_named_with_a_way_to_take_it_out(change: dict[str, Any], words: str) -> None:
    found, message = code([ROW | change])
    assert found == "ATTRIBUTE.BAD_ROW"
    assert words in message
    assert "UNSET TBLPROPERTIES" in message and "DELETE" in message and "SET TBL" in message


def test_an_id_and_a_name_are_given_once() -> None:
    found, message = code([ROW, ROW | {"name": "hum"}])
    assert found == "ATTRIBUTE.DUPLICATE_ID"
    assert "id 1" in message and "'temp'" in message and "'hum'" in message
    found, message = code([ROW, ROW | {"id": 2}])
    assert found == "ATTRIBUTE.DUPLICATE_NAME"
    assert "'temp'" in message and "1 and 2" in message and "UNSET TBLPROPERTIES" in message


def test_types_have_a_usual_scale_and_offset() -> None:
    def ends(one: Attribute) -> tuple[Decimal, Decimal]:
        return one.value(0), one.most

    assert ends(attribute(0, "a", "unsigned")) == (0, TOP)
    assert ends(attribute(0, "a", "timestamp")) == (0, TOP)
    assert ends(attribute(0, "a", "signed")) == (-(1 << 31), (1 << 31) - 1)
    assert ends(attribute(0, "a", "decimal")) == (Decimal("-21474836.48"), Decimal("21474836.47"))
    assert ends(attribute(0, "a", "signed", "0.5", "-3")) == (-3, Decimal("0.5") * TOP - 3)


def test_the_same_numbers_however_written_are_the_same_attribute() -> None:
    written = ["100", "100.000000000000000000", "1E+2"]
    assert len({attribute(0, "a", "unsigned", text, text) for text in written}) == 1
    registry = Registry((attribute(3, "a", "unsigned"),))
    assert pickle.loads(pickle.dumps(registry)) == registry


names = st.one_of(
    st.sampled_from(["temp", "hum", "not", "a" * 63, "a" * 64, "two words", "", "é", "_", "fwd"]),
    st.text("abc_1", max_size=4),
)


@given(st.dictionaries(st.integers(0, 31), st.text("abc_", min_size=1, max_size=4)), st.sets(names))
def test_new_names_get_free_ids_and_known_attributes_stay(
    held: dict[int, str], asked: set[str]
) -> None:
    distinct = {name: id for id, name in held.items()}
    before = Registry.from_rows(ROW | {"id": id, "name": n} for n, id in distinct.items())
    types: dict[str, Type] = {n: "signed" if len(n) % 2 else "decimal" for n in asked}
    after, new = before.with_new(types)
    assert set(before.attributes) | set(new) == set(after.attributes)
    assert len({one.id for one in after.attributes}) == len(after.attributes)
    wanted = sorted(name for name in asked if is_name(name) and name not in distinct)
    assert [one.name for one in new] == wanted[: WIDTHS.bitmask - len(distinct)]
    assert [one.id for one in new] == sorted(one.id for one in new)
    assert all(one == attribute(one.id, one.name, types[one.name]) for one in new)
    assert after.with_new(types)[0] == after


def test_a_full_registry_leaves_new_names_out_and_a_free_id_is_given() -> None:
    full = Registry(tuple(attribute(at, f"a{at}", "unsigned") for at in range(32)))
    assert full.with_new({"temp": "decimal"}) == (full, [])
    gap = Registry(full.attributes[:5] + full.attributes[6:])
    assert [one.id for one in gap.with_new({"temp": "decimal"})[1]] == [5]


def registered(scale: Decimal, offset: Decimal) -> Attribute:
    try:
        return attribute(0, "a", "decimal", scale, offset)
    except StackcastError as error:
        assert error.code == "ATTRIBUTE.BAD_ROW"
        assume(False)
        raise


@given(scales, offsets, st.lists(st.integers(0, TOP), min_size=1))
def test_every_value_of_an_attribute_is_read_as_its_own_raw_value(
    scale: Decimal, offset: Decimal, raws: list[int]
) -> None:
    one = registered(scale, offset)
    values = np.array([float(one.value(raw)) for raw in raws])
    found, reason = raw_values(values, one)
    assert found.tolist() == raws
    assert not reason.any()
    exact = [Fraction(offset) + raw * Fraction(scale) for raw in raws]
    assert [Fraction(one.value(raw)) for raw in raws] == exact


@given(scales, offsets, st.integers(0, TOP))
def test_what_is_shown_of_a_value_is_what_a_rule_may_say(
    scale: Decimal, offset: Decimal, raw: int
) -> None:
    one = registered(scale, offset)
    (field,) = Registry((one,)).specification().order()
    assert Fraction(field.render(raw)) == Fraction(one.value(raw))
    text = field.show(raw)
    if len(text) <= 64:
        assert field.parse(text) == (raw, raw)
    time = replace(field, attribute=replace(one, type="timestamp"))
    assert time.parse(time.show(raw), quoted=True) == (raw, raw)
