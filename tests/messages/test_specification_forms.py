"""Specifications with headers in P4_16, and those of query fields alone."""

from __future__ import annotations

import pytest

from stackcast.udfs.errors import SpecificationError
from stackcast.udfs.messages.specification import parse_specification

pytestmark = pytest.mark.unit

P4_16 = """
#include <core.p4>
typedef bit<32> ip4_t;
/* as in a program */
header ipv4_t {
    bit<4> version; bit<4> ihl;
    bit<48>  pad;
    ip4_t src; ip4_t dst;
}
@message_type("A")
header itch_add_order_t {
    @string bit<8> message_type;
    @clock(1000) @time_of_day(ns) bit<48> timestamp;
    @string bit<64> stock;
    @decimals(4) bit<32> price;
}
"""
AS_BEFORE = """
header_type ipv4_t { fields { version: 4; ihl: 4; pad: 48; src: 32; dst: 32; } }
header_type itch_add_order_t { fields {
    @string message_type: 8; @clock(1000) @time_of_day(ns) timestamp: 48; @string stock: 64;
    @decimals(4) price: 32;
} }
"""
QUERIES = "@query_field_lpm({ip}.dst, 32)\n@pragma query_field({add}.price)\n@query_counter(c, 5)\n"


def fault(text: str) -> SpecificationError:
    with pytest.raises(SpecificationError) as caught:
        parse_specification(text, "mine")
    return caught.value


@pytest.mark.parametrize(
    ("instances", "ip", "add"),
    [
        ("", "ipv4", "itch_add_order"),
        ("header ipv4_t ip; header itch_add_order_t add;", "ip", "add"),
        (
            "struct meta_t { bit<9> port; ip4_t next; }\n"
            "struct all_t { ipv4_t ip; itch_add_order_t add; }",
            "ip",
            "add",
        ),
        ('struct all_t { ipv4_t ip; @message_type("A") itch_add_order_t add; }', "ip", "add"),
    ],
)
def test_headers_in_p4_16_are_those_of_the_older_syntax(instances: str, ip: str, add: str):
    queries = QUERIES.format(ip=ip, add=add)
    if instances.startswith("header"):
        instances = instances.replace("header itch", '@message_type("A") header itch')
    made = parse_specification(P4_16 + instances + queries, "mine")
    older = f'header ipv4_t {ip}; @message_type("A") header itch_add_order_t {add};\n'
    assert made == parse_specification(AS_BEFORE + older + queries, "mine")
    assert made.fields[f"{add}.timestamp"].parse("09:30:00") == (34_200 * 10**9,) * 2


def test_query_fields_alone_are_a_format():
    made = parse_specification(
        "@pragma query_field(car.lat, 16)\n@pragma query_field_exact(car.lon, 16)\n"
        "#pragma query_field_lpm(ip.dst, 32)\n@query_counter(seen, 100)",
        "cars",
    )
    assert [(h.name, h.length) for h in made.headers] == [("car", 4), ("ip", 4)]
    assert [(f.qualified, f.bits, f.bit_offset, f.match) for f in made.order()] == [
        ("car.lat", 16, 0, "range"),
        ("car.lon", 16, 16, "exact"),
        ("ip.dst", 32, 0, "lpm"),
    ]
    assert made.field("lat").qualified == "car.lat"


@pytest.mark.parametrize(
    ("text", "what", "line", "column", "words"),
    [
        ("@query_field(car.lat)", "UNKNOWN_FIELD", 1, 14, "@query_field(car.lat, 16)"),
        ("@query_field(car.lat, 12)", "BAD_WIDTH", 1, 14, "not a whole number of bytes"),
        ("@query_field(car.lat, 9999)", "BAD_WIDTH", 1, 23, "1 to 2048"),
        (
            "header a_t { bit<8> k; }\n@query_field(b.k, 8)",
            "UNKNOWN_FIELD",
            2,
            14,
            "unknown field b.k",
        ),
        ("header a_t { mac_t k; }", "UNKNOWN_TYPE", 1, 14, "unknown type mac_t"),
        ("header a_t { bit<7> k; }", "BAD_WIDTH", 1, 8, "not a whole number of bytes"),
        ("header a_t { bit<0> k; }", "BAD_WIDTH", 1, 18, "0 bits"),
        ("header a_t { int<8> k; }", "SYNTAX", 1, 17, "expected"),
        ("header a_t { bit<8> k; bit<8> k; }", "DUPLICATE", 1, 31, "a_t contains field k twice"),
        (
            "header a_t { bit<8> k; } struct s { a_t x; a_t x; }",
            "DUPLICATE",
            1,
            48,
            "header x is defined twice",
        ),
        ("header a_t { bit<8> k; } struct s { bit<8> x; }", None, 0, 0, ""),
        ("header a_t { @time_of_day(d) bit<8> k; }", "BAD_ANNOTATION", 1, 15, "s, ms, us or ns"),
        (
            "header a_t { @string @time_of_day(s) bit<8> k; }",
            "BAD_ANNOTATION",
            1,
            45,
            "an integer field",
        ),
        ("header a_t { @time_of_day(s) bit<72> k; }", "BAD_WIDTH", 1, 38, "wider than 64 bits"),
    ],
)
def test_what_is_wrong_with_headers_in_p4_16(
    text: str, what: str | None, line: int, column: int, words: str
):
    if what is None:
        assert [h.name for h in parse_specification(text, "mine").headers] == ["a"]
        return
    error = fault(text)
    assert (error.what, error.line, error.column) == (what, line, column)
    assert words in error.message
