"""Message formats: CAMUS's example is understood, faults are pointed at, constants are exact."""

from __future__ import annotations

import ipaddress
from decimal import Decimal
from fractions import Fraction

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.errors import SpecificationError
from stackcast.udfs.messages.specification import Field, Specification, parse_specification

pytestmark = pytest.mark.unit

# CAMUS Fig. 2, in the spelling of its annotations and in that of its pragmas.
FIGURE_2 = """
header_type itch_add_order_t {
    fields {
        stock_locate: 16;
        /* ... */
        shares: 32;
        stock: 64;
        price: 32;
    }
}
header itch_add_order_t add_order;

@query_field(add_order.shares)
@query_field(add_order.price)
@query_field_exact(add_order.stock)
@query_counter(my_counter, 100, 1024)
"""


def fault(text: str) -> SpecificationError:
    with pytest.raises(SpecificationError) as caught:
        parse_specification(text, "mine")
    return caught.value


@pytest.mark.parametrize("mark", ["@", "@pragma ", "#pragma "])
def test_figure_2_of_camus_is_read_as_printed(mark: str):
    text = FIGURE_2.replace("@", mark)
    specification = parse_specification(text, "figure 2")
    (header,) = specification.headers
    assert (header.name, header.type_name, header.length) == ("add_order", "itch_add_order_t", 18)
    assert [(f.name, f.bits, f.bit_offset) for f in header.fields] == [
        ("stock_locate", 16, 0),
        ("shares", 32, 16),
        ("stock", 64, 48),
        ("price", 32, 112),
    ]
    assert [(f.qualified, f.match, f.query) for f in specification.order()] == [
        ("add_order.shares", "range", True),
        ("add_order.price", "range", True),
        ("add_order.stock", "exact", True),
        ("add_order.stock_locate", "range", False),
    ]
    (counter,) = specification.counters
    assert (counter.name, counter.window, counter.slots) == ("my_counter", 100, 1024)


def test_comments_widths_and_the_default_action_are_read():
    specification = parse_specification(
        """
        // one
        # two
        header_type t { fields { @string kind: 8; @decimals(2) a: 12; b: 4; } }  // three
        @message_type("T") header t h;
        @query_field_lpm(h.a, 12)
        @query_field_range(h.b)
        @query_default_action(drop)
        """,
        "mine",
    )
    (header,) = specification.headers
    assert header.message_type == ord("T") and header.length == 3
    kind, a, b = header.fields
    assert (kind.kind, a.kind, a.decimals, b.kind) == ("string", "decimal", 2, "integer")
    assert (a.match, b.match, b.bit_offset) == ("lpm", "range", 20)
    assert specification.default_action == "drop"
    assert specification.header_of_type(ord("T")) is header
    assert specification.header_of_type(ord("U")) is None


# As printed in the paper, but for its line of three dots.
FIGURE_2_OF_THE_PAPER = """
header_type itch_add_order_t {
    fields {
        shares: 32;
        stock: 64;
        price: 32;
    }
}
header itch_add_order_t add_order;

@query_field(add_order.shares)
@query_field(add_order.price)
@query_field_exact(add_order.stock)
@query_counter(my_counter, 100)
"""


def test_figure_2_of_the_paper_is_read_and_its_symbols_and_prices_compared():
    specification = parse_specification(FIGURE_2_OF_THE_PAPER, "paper")
    googl = int.from_bytes(b"GOOGL   ", "big")
    assert specification.field("stock").parse("GOOGL") == (googl, googl)
    assert specification.field("price").parse("50") == (50, 50)
    counter = specification.counter("my_counter")
    assert counter is not None and (counter.window, counter.slots) == (100, 1)
    assert specification.counter("other") is None


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("drop", "drop"),
        ("drop()", "drop()"),
        ("fwd(1, 2)", "fwd(1, 2)"),
        ("answerDNS(10.0.0.97)", "answerDNS(10.0.0.97)"),
        ('"flood"', "flood"),
    ],
)
@pytest.mark.parametrize("mark", ["@", "@pragma ", "#pragma "])
def test_the_default_action_may_have_arguments(mark: str, written: str, read: str):
    text = f"{T}header t h;\n{mark}query_default_action({written})"
    assert parse_specification(text, "mine").default_action == read


def test_a_resolution_stands_beside_what_a_field_is():
    specification = parse_specification(
        "header_type t { fields { @decimals(4) @resolution(8) price: 32; "
        "@resolution(16) shares: 64; @resolution(3) @clock(1) at: 48; k: 8; } }\n"
        "header t x; @query_field(x.price)",
        "text",
    )
    price = specification.field("x.price")
    assert (price.kind, price.decimals, price.resolution, price.match) == ("decimal", 4, 8, "range")
    assert specification.field("x.shares").resolution == 16
    at = specification.field("x.at")
    assert (at.clock, at.resolution) == (1, 3)
    assert specification.field("x.k").resolution == 0


def test_times_and_windows_reach_to_the_last_that_an_int64_holds():
    specification = parse_specification(
        "header_type t { fields { @clock(2) a: 56; } } header t x;\n"
        "header_type u { fields { @clock(256) a: 56; } } header u y;\n"
        "header_type v { fields { @clock(999999937) unused: 56; } }\n"
        f"@query_counter(c, {(1 << 49) - 1})",
        "wide",
    )
    assert specification.clock_units == 256
    specification = parse_specification(
        "header_type t { fields { @clock(1) a: 63; k: 1; } } header t x;", "wide"
    )
    assert specification.clock_units == 1
    assert parse_specification("header_type t { fields { k: 8; } } header t x;", "").clock_units


def test_a_header_tells_the_time_in_units_of_its_clock():
    specification = parse_specification(
        "header_type t { fields { @clock(1000) at: 48; k: 16; } } header t x;"
        "header_type u { fields { k: 8; } } header u w;",
        "mine",
    )
    clock = specification.clock("x")
    assert clock is not None and (clock.qualified, clock.clock) == ("x.at", 1000)
    assert specification.clock("w") is None and specification.field("x.k").clock == 0


def test_only_fields_of_headers_without_a_message_type_may_be_absent(itch: Specification):
    assert not itch.is_optional(itch.field("add_order.price"))
    assert itch.is_optional(itch.field("moldudp64.session"))
    several = parse_specification(
        "header_type t { fields { a: 8; } } header t first; header t second;", "several"
    )
    assert all(several.is_optional(field) for field in several.order())


def test_the_only_header_of_a_format_is_in_every_event():
    paper = parse_specification(FIGURE_2_OF_THE_PAPER, "paper")
    assert not any(paper.is_optional(field) for field in paper.order())


@given(st.integers(1, 2048), st.integers(0, 64))
def test_the_lanes_of_a_field_are_its_bits_in_order(bits: int, offset: int):
    field = Field("ip6", "dst", bits, offset, match="lpm", query=True)
    lanes = field.lanes()
    assert sum(lane.bits for lane in lanes) == bits and all(lane.bits <= 64 for lane in lanes)
    assert (lanes == (field,)) == (bits <= 64)
    at, left = offset, bits
    for lane in lanes:
        assert (lane.bit_offset, lane.match, lane.query, lane.header) == (at, "lpm", True, "ip6")
        if bits > 64:
            assert lane.qualified == f"ip6.dst[{left - 1}:{left - lane.bits}]"
            assert lane.kind == "integer"
        at, left = at + lane.bits, left - lane.bits


CONSTANTS = [
    (32, "10.0.0.0/8", 0x0A000000, 0x0AFFFFFF),
    (32, "10.1.2.3/8", 0x0A000000, 0x0AFFFFFF),
    (32, "192.168.0.1", 0xC0A80001, 0xC0A80001),
    (32, "0/0", 0, 0xFFFFFFFF),
    (32, "7/32", 7, 7),
    (16, "0x1F00/8", 0x1F00, 0x1FFF),
    (128, "2001:db8::1", 0x20010DB8 << 96 | 1, 0x20010DB8 << 96 | 1),
    (128, "2001:DB8::/32", 0x20010DB8 << 96, (0x20010DB8 << 96) | (1 << 96) - 1),
    (128, "::ffff:10.0.0.1", 0xFFFF0A000001, 0xFFFF0A000001),
    (128, "::", 0, 0),
    (48, "00:11:22:aA:44:55", 0x001122AA4455, 0x001122AA4455),
    (48, "00-11-22-aa-44-55", 0x001122AA4455, 0x001122AA4455),
    (48, "00:11:22:00:00:00/24", 0x001122000000, 0x001122FFFFFF),
    (64, "GOOGL", 0x474F4F474C202020, 0x474F4F474C202020),
    (2048, "9" * 600, int("9" * 600), int("9" * 600)),
]


@pytest.mark.parametrize(("bits", "text", "low", "high"), CONSTANTS)
def test_addresses_prefixes_and_text_are_constants_of_plain_fields(
    bits: int, text: str, low: int, high: int
):
    assert Field("h", "f", bits, 0).parse(text) == (low, high)


@given(st.ip_addresses(), st.integers(0, 128), st.data())
def test_a_prefix_spans_what_the_network_has(address: object, length: int, data: st.DataObject):
    bits = 32 if isinstance(address, ipaddress.IPv4Address) else 128
    network = ipaddress.ip_network((address, length % (bits + 1)), strict=False)
    written = data.draw(
        st.sampled_from([str(network), network.exploded, f"{address}/{network.prefixlen}"])
    )
    span = Field("ip", "dst", bits, 0).parse(written)
    assert span == (int(network[0]), int(network[-1]))


@pytest.mark.parametrize(
    ("bits", "text", "quoted", "what"),
    [
        (32, "10.0.0.0/33", False, "TOO_WIDE"),
        (16, "10.0.0.1", False, "TOO_WIDE"),
        (64, "2001:db8::1", False, "TOO_WIDE"),
        (32, "10.0.0.256", False, "NOT_NUMBER"),
        (64, "1O0", False, "NOT_NUMBER"),
        (12, "GOOGL", False, "NOT_NUMBER"),
        (32, "GOOGL", False, "TOO_LONG"),
        (64, "x" * 65, True, "TOO_LONG"),
        (64, "é", True, "NOT_ASCII"),
    ],
)
def test_other_constants_of_plain_fields_are_refused(bits: int, text: str, quoted: bool, what: str):
    with pytest.raises(SpecificationError) as caught:
        Field("h", "f", bits, 0).parse(text, quoted)
    assert caught.value.what == f"CONSTANT_{what}"


def test_the_raw_values_of_an_event_are_taken_as_they_are():
    assert Field("h", "price", 32, 0, "decimal", 4).from_raw(502500) == 502500
    assert Field("h", "dst", 32, 0).from_raw("10.0.0.1") == 0x0A000001
    assert Field("h", "stock", 64, 0).from_raw("GOOGL") == int.from_bytes(b"GOOGL   ", "big")
    zero = Field("h", "name", 32, 0, "string", padding="\0")
    assert zero.from_raw("ab") == zero.encode("ab") == 0x61620000
    assert zero.render(0x61620000) == "ab"
    assert Field("h", "name", 16, 0, "string").from_raw("\xe9") == 0xE920
    for field, value in (
        (Field("h", "f", 8, 0), 256),
        (Field("h", "f", 8, 0), -1),
        (Field("h", "f", 8, 0), True),
        (Field("h", "f", 32, 0), "10.0.0.0/8"),
        (Field("h", "f", 32, 0, "decimal", 4), "50.25"),
        (Field("h", "f", 16, 0, "string"), "abc"),
    ):
        with pytest.raises(SpecificationError):
            field.from_raw(value)


@examples(300)
@given(st.text(max_size=40) | st.text("0123456789abcdefx.:/-+ ", max_size=40), st.data())
def test_no_constant_makes_anything_but_a_span_or_a_specification_error(
    text: str, data: st.DataObject
):
    bits = data.draw(st.sampled_from([1, 8, 12, 16, 32, 48, 64, 72, 128, 2048]))
    kind = data.draw(st.sampled_from(["integer", "decimal"] + ["string"] * (bits % 8 == 0)))
    field = Field("h", "f", bits, 0, kind, 4 * (kind == "decimal"))
    try:
        low, high = field.parse(text, data.draw(st.booleans()))
    except SpecificationError:
        return
    assert 0 <= low <= high < 1 << bits


T = "header_type t { fields { k: 8; } }\n"


@pytest.mark.parametrize(
    ("text", "what", "line", "column", "words"),
    [
        ("header_type t {\n  fields { a 8; } }", "SYNTAX", 2, 14, "a 8"),
        ("header_type t { fields { a: 8; }", "SYNTAX", 1, None, "expected"),
        ("header u x;", "UNKNOWN_TYPE", 1, 8, "unknown header_type u"),
        (T + T, "DUPLICATE", 2, 13, "t is defined twice"),
        (T + "header t x;\nheader t x;", "DUPLICATE", 3, 10, "header x is defined twice"),
        (
            "header_type t { fields { a: 8; a: 8; } }",
            "DUPLICATE",
            1,
            32,
            "t contains field a twice",
        ),
        ("header_type t { fields { a: 0; } }", "BAD_WIDTH", 1, 29, "0 bits"),
        ("header_type t { fields { a: 999999999; } }", "BAD_WIDTH", 1, 29, "bits"),
        ("header_type t { fields { a: 7; } }", "BAD_WIDTH", 1, 13, "number of bytes"),
        ("header_type t { fields { @string a: 7; } }", "BAD_WIDTH", 1, 34, "number of bytes"),
        ("header_type t { fields { @text a: 8; } }", "BAD_ANNOTATION", 1, 27, "@text"),
        ("header_type t { fields { @decimals(19) a: 8; } }", "BAD_ANNOTATION", 1, 27, "1 to 18"),
        (
            "header_type t { fields { @string @decimals(1) a: 8; } }",
            "BAD_ANNOTATION",
            1,
            35,
            "conflicting annotations",
        ),
        (T + '@message_type("AB")\nheader t x;', "MESSAGE_TYPE", 2, 15, "single ASCII character"),
        (
            T + '@message_type("A") header t x; @message_type("A") header t y;',
            "DUPLICATE",
            2,
            46,
            "A",
        ),
        (
            'header_type t { fields { k: 16; } } @message_type("A") header t x;',
            "MESSAGE_TYPE",
            1,
            65,
            "8 bits",
        ),
        (T + "header t x;\n@query_field(x.y)", "UNKNOWN_FIELD", 3, 14, "unknown field x.y"),
        (T + "header t x;\n@query_field(x.k, 16)", "BAD_WIDTH", 3, 19, "8 bits, but"),
        (T + "header t x; @query_field(x.k)\n@query_field(x.k)", "DUPLICATE", 3, 14, "twice"),
        (T + "@query_counter(c)", "BAD_ANNOTATION", 2, 2, "query_counter"),
        (T + "@query_counter(c, 0)", "BAD_ANNOTATION", 2, 19, "window must be at least 1"),
        (T + "@query_counter(c, 1, 0)", "BAD_ANNOTATION", 2, 22, "slots must be at least 1"),
        (T + "@query_counter(c, 9999999999999999)", "BAD_ANNOTATION", 2, 19, "15 digits"),
        (T + "@query_counter(and, 1)", "BAD_ANNOTATION", 2, 16, "reserved word"),
        (T + "@query_counter(Count, 1)", "BAD_ANNOTATION", 2, 16, "reserved word"),
        ("", "EMPTY", 1, 1, "no header"),
        ("// nothing\n" + T, "EMPTY", 1, 1, "no header"),
        (T + "@query_counter(c, 1, 2000000)", "BAD_ANNOTATION", 2, 22, "1048576"),
        (
            T + "@query_counter(c, 1)\n@query_counter(c, 1)",
            "DUPLICATE",
            3,
            16,
            "c is declared twice",
        ),
        (T + "header t x; @query_counter(k, 1)", "DUPLICATE", 2, 28, "name of a field"),
        ("@query_default_action(a)\n@query_default_action(b)", "DUPLICATE", 2, 2, "two default"),
        ("header_type t { fields { @clock(0) a: 8; } }", "BAD_ANNOTATION", 1, 27, "microsecond"),
        ("header_type t { fields { @clock(1) a: 72; } }", "BAD_WIDTH", 1, 36, "clock a"),
        ("header_type t { fields { @clock(1) a: 64; } }", "BAD_WIDTH", 1, 36, "wider than 63 bits"),
        (
            "header_type t { fields { @clock(2) a: 56; } }\nheader t x;\n"
            "header_type u { fields { @clock(1001) a: 40; } }\nheader u y;",
            "BAD_WIDTH",
            1,
            36,
            "multiplied by 1001",
        ),
        (
            "header_type t { fields { @clock(1000000) a: 40; } }\nheader t x;\n"
            "@query_counter(c, 9223372036855)",
            "BAD_ANNOTATION",
            3,
            16,
            "exceeds 9223372036854 microseconds",
        ),
        (
            "header_type t { fields { @clock(1) a: 8; @clock(1) b: 8; } }",
            "DUPLICATE",
            1,
            52,
            "two clocks",
        ),
        ("header_type t { fields { @string(one) a: 8; } }", "BAD_ANNOTATION", 1, 27, "@string"),
        ("header_type t { fields { @resolution(17) a: 32; } }", "BAD_ANNOTATION", 1, 27, "1 to 16"),
        ("header_type t { fields { @resolution(0) a: 32; } }", "BAD_ANNOTATION", 1, 27, "1 to 16"),
        ("header_type t { fields { @resolution(8) a: 8; } }", "BAD_WIDTH", 1, 41, "9 to 64"),
        ("header_type t { fields { @resolution(8) a: 72; } }", "BAD_WIDTH", 1, 41, "72 bits"),
        (
            "header_type t { fields { @resolution(8) @resolution(8) a: 32; } }",
            "BAD_ANNOTATION",
            1,
            42,
            "conflicting annotations",
        ),
        (
            "header_type t { fields { @resolution(4) a: 8; } } header t x; @query_field_exact(x.a)",
            "BAD_ANNOTATION",
            1,
            82,
            "requires range matching",
        ),
    ],
)
def test_a_fault_is_named_with_line_and_column(
    text: str, what: str, line: int, column: int | None, words: str
):
    error = fault(text)
    assert error.code == f"SPECIFICATION.{what}"
    assert error.line == line and words in error.message and "mine, line" in error.message
    if column is not None:
        assert error.column == column


SLIPS = [
    ("header_typ t { fields { k: 8; } }", "SYNTAX", 1, 1, "header_type"),
    ("header_type t { field { k: 8; } }", "SYNTAX", 1, 17, "fields"),
    (T + "heder t x;", "SYNTAX", 2, 1, "header"),
    (T + "header t x;\nquery_field(x.k)", "SYNTAX", 3, 1, "@query_field"),
    (T + "header t x;\n@query_feild(x.k)", "BAD_ANNOTATION", 3, 2, "query_field"),
    (
        T + "header t x; // @query_feild\n@query_counte(c, 1)",
        "BAD_ANNOTATION",
        3,
        2,
        "query_counter",
    ),
    (T + "header t x;\n#pragma query_field_exat(x.k)", "BAD_ANNOTATION", 3, 9, "query_field_exact"),
    ("header_type t { fields { @strng k: 8; } }", "BAD_ANNOTATION", 1, 27, "string"),
    (T + '@mesage_type("A") header t x;', "BAD_ANNOTATION", 2, 2, "message_type"),
    ("header_type order_t { fields { k: 8; } } header ordr_t x;", "UNKNOWN_TYPE", 1, 49, "order_t"),
    (T + "header t x; @query_field(xx.k)", "UNKNOWN_FIELD", 2, 26, "x.k"),
    (T + "header t x; @query_field(k)", "BAD_ANNOTATION", 2, 26, "x.k"),
]


@pytest.mark.parametrize(("text", "what", "line", "column", "meant"), SLIPS)
def test_a_slip_comes_with_what_was_meant(text: str, what: str, line: int, column: int, meant: str):
    error = fault(text)
    assert (error.what, error.line, error.column) == (what, line, column)
    assert error.suggestion == meant and f"did you mean '{meant}'?" in error.message


def test_a_fault_shows_its_line_with_a_caret_and_the_name_of_its_file():
    with pytest.raises(SpecificationError) as caught:
        parse_specification("header_type t {\n\tfields { a: 0; } }", "mine", "some/mine.spec")
    assert str(caught.value).split("\n") == [
        "SPECIFICATION.BAD_WIDTH: some/mine.spec, line 2, column 14: "
        "a has 0 bits, but a field must have 1 to 2048",
        "   fields { a: 0; } }",
        "               ^",
    ]


def test_a_field_may_be_called_as_the_words_of_a_specification_are():
    specification = parse_specification(
        "header_type header_x { fields { fields: 8; @clock(1) header_type: 8; header: 8; } }"
        "header header_x header;",
        "mine",
    )
    assert list(specification.fields) == ["header.fields", "header.header_type", "header.header"]


@pytest.mark.parametrize("text", ["foo", ""])
def test_who_says_which_fields_are_text_has_said_that_the_others_are_not(text: str):
    lines = "header_type t { fields { %s stock: 64; shares: 32; } } header t x;"
    plain = parse_specification(lines % "", "mine").field("shares")
    assert plain.parse(text, quoted=True) == (int.from_bytes(text.encode().ljust(4)),) * 2
    says = parse_specification(lines % "@string", "mine")
    with pytest.raises(SpecificationError) as caught:
        says.field("shares").parse(text, quoted=True)
    assert caught.value.what == "CONSTANT_NOT_NUMBER" and "quote it" not in caught.value.message
    word = int.from_bytes(b"GOOG", "big")
    assert plain.show(word) == "GOOG" and says.field("shares").show(word) == str(word)


@pytest.mark.parametrize("kind", ["string", "integer"])
@pytest.mark.parametrize("text", ["A\tB", "A\0", "\x7f"])
def test_no_rule_asks_for_characters_that_do_not_print(kind: str, text: str):
    field = Field("h", "f", 64, 0, kind)
    with pytest.raises(SpecificationError) as caught:
        field.parse(text, quoted=True)
    assert caught.value.what == "CONSTANT_NOT_TEXT"
    # Events may hold them.
    assert field.from_raw(text) == int.from_bytes(text.encode().ljust(8), "big")


@examples(150)
@given(st.data())
def test_no_text_makes_anything_but_a_specification_error(data: st.DataObject):
    at = data.draw(st.integers(0, len(FIGURE_2)))
    cut = data.draw(st.integers(0, 12))
    put = data.draw(st.text('@#{}();:,."/*\nab8é', max_size=6))
    try:
        parse_specification(FIGURE_2[:at] + put + FIGURE_2[at + cut :], "fuzz")
    except SpecificationError as error:
        assert error.line >= 1 and error.column >= 1


WORDS = """header_type header fields t u x x.k k 8 16 0 99999999999 @string @string(zero)
@decimals(4) @clock(1) @message_type("A") @query_field(x.k) @query_field_lpm(x.k,8)
@query_counter(c,1) @query_counter( @query_default_action(d(1))
@pragma #pragma @ # { } ( ) : ; , " . é ² ٣"""
words = st.sampled_from(WORDS.split())


@examples(300)
@given(st.text(max_size=60) | st.lists(words, max_size=40).map(" ".join))
def test_no_soup_of_words_makes_anything_but_a_specification_error(text: str):
    try:
        parse_specification(text, "fuzz")
    except SpecificationError as error:
        assert error.line >= 1 and error.column >= 1


@pytest.mark.parametrize(
    ("name", "constant", "what"),
    [
        ("stock", "TOOLONGNAME", "TOO_LONG"),
        ("stock", "GÖÖGL", "NOT_ASCII"),
        ("stock", 5, "NOT_TEXT"),
        ("price", Decimal("1.00001"), "TOO_FINE"),
        ("price", Decimal("1e-999999"), "TOO_FINE"),
        ("price", Decimal("-1"), "NEGATIVE"),
        ("price", Decimal("429496.7296"), "TOO_WIDE"),
        ("price", Decimal("1e999999"), "TOO_WIDE"),
        ("price", "GOOGL", "NOT_NUMBER"),
        ("price", Decimal("NaN"), "NOT_NUMBER"),
        ("price", Decimal("Infinity"), "NOT_NUMBER"),
        ("price", "0." + "1" * 9000, "TOO_FINE"),
        ("price", "1e999999", "TOO_WIDE"),
        ("price", "1e99999999999999999999", "NOT_NUMBER"),
        ("price", "", "NOT_NUMBER"),
        pytest.param("price", 10**5000, "TOO_WIDE", id="too many digits to print"),
        pytest.param("price", -(10**5000), "NEGATIVE", id="and negative"),
        pytest.param("stock", 10**5000, "NOT_TEXT", id="and no text"),
        ("shares", 1 << 32, "TOO_WIDE"),
        ("shares", Decimal("0.5"), "TOO_FINE"),
    ],
)
def test_a_constant_that_does_not_fit_is_refused(
    itch: Specification, name: str, constant: str | int | Decimal, what: str
):
    with pytest.raises(SpecificationError) as caught:
        itch.field(name).encode(constant)
    assert caught.value.what == f"CONSTANT_{what}"
    assert f"add_order.{name}" in caught.value.message and len(caught.value.message) < 200


@examples(200)
@given(st.integers(1, 64), st.integers(0, 18), st.data())
def test_what_is_rendered_is_encoded_back(bits: int, decimals: int, data: st.DataObject):
    kind = "decimal" if decimals else "integer"
    field = Field("h", "f", bits, 0, kind, decimals)
    raw = data.draw(st.integers(0, (1 << bits) - 1))
    assert field.encode(field.render(raw)) == raw
    assert field.encode(Decimal(field.render(raw))) == raw


@given(st.integers(1, 8), st.data())
def test_text_is_padded_with_blanks_and_rendered_without(length: int, data: st.DataObject):
    field = Field("h", "f", 8 * length, 0, "string")
    text = data.draw(st.text(st.characters(max_codepoint=126, min_codepoint=33), max_size=length))
    raw = field.encode(text)
    assert raw.to_bytes(length) == text.encode().ljust(length)
    assert field.render(raw) == text and field.encode(field.render(raw)) == raw


@examples(200)
@given(
    st.one_of(
        st.decimals(allow_nan=False, allow_infinity=False),
        st.integers(),
        st.decimals(0, 500_000, places=5),
        st.builds("{}e{}".format, st.integers(-99, 99), st.integers(-30, 30)),
    )
)
def test_a_number_is_exact_or_refused(constant: Decimal | int | str):
    # Oracle: exact fractions. What has no raw value of its own is never rounded to another.
    exact = Fraction(constant) * 10**4
    try:
        raw = Field("h", "price", 32, 0, "decimal", 4).encode(constant)
    except SpecificationError:
        assert exact < 0 or exact >= 1 << 32 or exact.denominator > 1
    else:
        assert raw == exact


WORDS = st.from_regex(r"[A-Za-z][A-Za-z0-9.\-]*", fullmatch=True)


@given(WORDS, st.integers(4, 10))
def test_a_number_whose_bytes_are_a_word_is_shown_as_rules_write_it(word: str, length: int):
    word = word[:length]
    field = Field("h", "symbol", 8 * length, 0)
    raw = int.from_bytes(word.encode().ljust(length), "big")
    assert field.show(raw) == word and field.parse(field.show(raw)) == (raw, raw)
    # What programs read stays a number.
    assert field.render(raw) == str(raw)


@given(st.integers(0, 2**128 - 1), st.sampled_from([8, 16, 32, 36, 48, 64, 128, 136]))
def test_what_is_shown_of_a_number_asks_for_that_number(raw: int, bits: int):
    field = Field("h", "f", bits, 0)
    raw &= (1 << bits) - 1
    assert field.parse(field.show(raw)) == (raw, raw)
    if raw < 1 << (bits - 2):
        assert field.show(raw) == str(raw), "small numbers are never words"


@pytest.mark.parametrize(
    "field",
    [
        Field("h", "f", 16, 0),
        Field("h", "net", 32, 0, match="lpm"),
        Field("h", "time", 64, 0, clock=1000),
        Field("h", "price", 64, 0, "decimal", 4),
    ],
    ids=lambda field: field.name,
)
def test_prefixes_times_prices_and_narrow_numbers_are_never_words(field: Field):
    assert field.show(int.from_bytes(b"A" * (field.bits // 8), "big"))[:1].isdigit()
    assert Field("h", "mac", 136, 0).show(int.from_bytes(b"AA-BB-CC-DD-EE-FF", "big")).isdigit()


@pytest.mark.parametrize("clocked", [False, True])
def test_a_clock_leaves_room_for_the_arrival_of_events_without_one(clocked: bool):
    text = (
        "header_type t { fields { @clock(1000000) at: 40; } } header t x;"
        f"header_type u {{ fields {{ {'@clock(1000000)' if clocked else ''} k: 8; }} }} header u w;"
    )
    if clocked:
        assert parse_specification(text, "mine").clock_units == 1_000_000
        return
    with pytest.raises(SpecificationError) as caught:
        parse_specification(text, "mine")
    assert caught.value.code == "SPECIFICATION.BAD_ANNOTATION"
    assert (caught.value.line, caught.value.column) == (1, 42)
