"""A record that is no event names the attribute at fault."""

from __future__ import annotations

import json

import pytest
from attribute_records import chain, read_records
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.messages.attributes.events import REASONS
from stackcast.udfs.messages.attributes.faults import header_fault, json_fault
from stackcast.udfs.messages.attributes.json_events import JsonReader
from stackcast.udfs.messages.attributes.registry import Registry, attribute

pytestmark = pytest.mark.unit

REGISTRY = Registry(
    (
        attribute(1, "temp", "decimal"),
        attribute(2, "hum", "unsigned"),
        attribute(3, "place", "text"),
        attribute(4, "ts", "timestamp"),
    )
)
READER = JsonReader(REGISTRY)


def fault(record: bytes) -> tuple[str, str]:
    """Returns the reason by the compiled reader, and the attribute at fault."""
    reason = REASONS[int(read_records([record], REGISTRY).reason[0])]
    return reason, json_fault(record, reason, READER)


@pytest.mark.parametrize(
    ("record", "reason", "field"),
    [
        (b'{"temp": 1, "device": "truck-0042"}', "unknown_attribute", "device"),
        (b'{"gone": null, "h\\u0075m": 1, "\\u0061": 1}', "unknown_attribute", "a"),
        (b'{"order": 1, "customer": {"tier": "gold"}}', "nested_json", "customer"),
        (b'{"temp": 1, "tags": [', "nested_json", "tags"),
        (b'{"temp": 1, "hum": 2, "temp": 3}', "id_twice", "temp"),
        (b'{"what": null, "hum": 1, "what": null}', "id_twice", "what"),
        (b'{"temp": 1, "hum": 4294967296}', "value_out_of_range", "hum"),
        (b'{"temp": 1, "place": "Paris"}', "value_out_of_range", "place"),
        (b'{"hum": 1, "temp": "25.5"}', "not_a_number", "temp"),
        (b'{"ts": "yesterday", "hum": null, "place": "EDDF"}', "not_a_number", "ts"),
        (b'{"temp": 1e400}', "not_a_number", "temp"),
        (b'{"temp": ' + b"1" * 300 + b', "place": 3}', "value_out_of_range", "temp"),
        (b'{"temp": 1, "place": 7}', "not_a_text", "place"),
        (b'{"temp": 1, "hum": }', "malformed_json", "hum"),
        (b'{"temp": 1, "hum": 01}', "malformed_json", "hum"),
        (b'{"temp": 1, "place": "ED', "malformed_json", "place"),
        (b'{"temp": 1, "hu', "malformed_json", ""),
        (b'{"temp": 1} {"temp": 2}', "malformed_json", ""),
        (b"plain text", "malformed_json", ""),
        (b"", "malformed_json", ""),
        (b"{}", "empty_event", ""),
        (b'{"temp": 1' + b" " * (1 << 16) + b"}", "event_too_large", ""),
    ],
)
def test_json_names_the_attribute_at_fault(record: bytes, reason: str, field: str):
    assert fault(record) == (reason, field)


GOOD = {"temp": "25.5", "hum": "30", "place": '"EUR"', "ts": '"2026-03-01"', "other": "null"}
BAD = {
    "unknown_attribute": st.sampled_from(["1", "true", '"text"', "-0.5e3"]),
    "nested_json": st.sampled_from(["{", "[", '{"temp": 1}', "[1, 2]"]),
    "value_out_of_range": st.sampled_from(["1e20", "-1e12"]),
    "not_a_number": st.sampled_from(["true", '"warm"', "NaN"]),
}


@examples(60)
@given(st.data(), st.sampled_from(sorted(BAD)), st.text(min_size=1, max_size=80))
def test_the_bad_member_is_named_wherever_it_stands(data: st.DataObject, reason: str, new: str):
    members = data.draw(st.permutations(sorted(GOOD.items())))[: data.draw(st.integers(0, 5))]
    wrong = new if reason in ("unknown_attribute", "nested_json") else "temp"
    members = [member for member in members if member[0] != wrong]
    if new in REGISTRY.by_name and reason == "unknown_attribute":
        return
    members.insert(data.draw(st.integers(0, len(members))), (wrong, data.draw(BAD[reason])))
    blank = data.draw(st.sampled_from(["", " ", "\n\t "]))
    escaped = data.draw(st.booleans())
    text = ",".join(
        f"{blank}{json.dumps(name, ensure_ascii=escaped)}{blank}:{blank}{value}"
        for name, value in members
    )
    reader_reason, field = fault(f"{{{text}}}".encode("utf-8", "surrogatepass"))
    assert reader_reason == reason
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in wrong[:64])
    assert field == (shown if len(wrong) <= 64 else shown + "...")


@examples(60)
@given(st.binary(max_size=40), st.sampled_from(sorted(REASONS.values())))
def test_any_bytes_and_any_reason_are_answered(record: bytes, reason: str):
    json_fault(record, reason, READER)
    json_fault(b'{"temp": ' + record, reason, READER)
    for encoding in ("id_pairs", "bitmask"):
        header_fault(record, reason, encoding, REGISTRY)


def test_a_record_of_thousands_of_members_is_looked_at_in_part():
    members = ", ".join(f'"gone{n}": null' for n in range(4_000))
    record = f'{{{members}, "device": 1}}'.encode()
    assert fault(record) == (
        "event_too_large" if len(record) > 1 << 16 else "unknown_attribute",
        "",
    )


@pytest.mark.parametrize(
    ("record", "encoding", "reason", "field"),
    [
        (chain([(1, 5), (2, 7), (1, 9)]), "id_pairs", "id_twice", "temp"),
        (chain([(1, 5), (9, 7)]), "id_pairs", "unknown_attribute", "id 9"),
        (chain([(1, 5), (2, 7)])[:-3], "id_pairs", "truncated_event", "hum"),
        (bytes.fromhex("00000006 00000001"), "bitmask", "truncated_event", "hum"),
        (bytes.fromhex("00000202 00000001 00000001"), "bitmask", "unknown_attribute", "id 9"),
        (bytes.fromhex("0000"), "bitmask", "truncated_event", ""),
        (bytes.fromhex("00000000"), "bitmask", "empty_event", ""),
        (b"", "id_pairs", "empty_event", ""),
    ],
)
def test_a_header_names_the_attribute_at_fault(
    record: bytes, encoding: str, reason: str, field: str
):
    assert header_fault(record, reason, encoding, REGISTRY) == field
