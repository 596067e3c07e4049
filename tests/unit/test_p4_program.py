"""The generated program: committed as made, complete, and taken by p4c where that is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from udfs.errors import FilterError
from udfs.filters.p4_pipeline import NamedAction, Options, pipeline
from udfs.filters.p4_program import generate
from udfs.messages.specification import Specification, parse_specification

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
ITCH = parse_specification((ROOT / "schemas/messages/itch.spec").read_text(), "itch")
FIG2 = parse_specification(
    """
    header_type itch_add_order_t { fields { shares: 32; stock: 64; price: 32; } }
    header itch_add_order_t add_order;
    @query_field(add_order.shares)
    @query_field(add_order.price)
    @query_field_exact(add_order.stock)
    @query_counter(my_counter, 100, 1024)
    """,
    "fig2",
)
WIDE = parse_specification(
    """
    header_type ipv4_t { fields {
        v: 8; tos: 8; len: 16; id: 16; frag: 16; ttl: 8; proto: 8; sum: 16; src: 32; dst: 32;
    } }
    header_type ipv6_t { fields { v: 32; len: 16; next: 8; hops: 8; src: 128; dst: 128; } }
    header_type a_t { fields { type: 8; size: 24; } }
    header_type b_t { fields { odd: 100; rest: 28; } }
    header ipv4_t ip;
    header ipv6_t ip6;
    header a_t a;
    header b_t b;
    @query_field_lpm(ip.dst)
    @query_field(ip6.dst)
    @query_field(a.type)
    @query_field_exact(a.size)
    @query_field(b.odd)
    """,
    "wide",
)
CLOCK = parse_specification(
    """
    header_type add_t { fields { kind: 8; @clock(1000) at: 48; price: 32; } }
    @message_type("A") header add_t add;
    header_type end_t { fields { kind: 8; @clock(1000) at: 48; } }
    @message_type("E") header end_t end;
    @query_field(add.price)
    @query_counter(seen, 100)
    """,
    "clock",
)
IP = parse_specification(
    """
    header_type ipv4_t { fields {
        v: 8; tos: 8; len: 16; id: 16; frag: 16; ttl: 8; proto: 8; sum: 16; src: 32; dst: 32;
    } }
    header ipv4_t ip;
    @query_field_lpm(ip.dst)
    """,
    "ip",
)
TELL = Options(actions=(NamedAction("tell", (32,)),), resolution={"add_order.price": 8})
PROGRAMS = [(ITCH, None), (FIG2, TELL), (WIDE, None), (CLOCK, None), (IP, None)]


def test_the_committed_program_is_the_one_that_the_specification_makes():
    assert (ROOT / "p4/packet_subscriptions.p4").read_text() == generate(ITCH), (
        "write udfs.filters.p4_program.generate(schemas/messages/itch.spec) to "
        "p4/packet_subscriptions.p4"
    )


@pytest.mark.parametrize(
    ("specification", "options"), PROGRAMS, ids=lambda x: getattr(x, "name", "")
)
def test_equal_specifications_make_equal_programs_with_every_stage_once_and_in_order(
    specification: Specification, options
):
    program = pipeline(specification, options)
    text = generate(specification, options)
    assert text == generate(specification, options)
    applied = re.findall(r"^ {12}(\w+)\.apply\(hdr, meta\);$", text, re.MULTILINE)
    assert applied == [stage.name for stage in program.stages]
    for stage in program.stages:
        body = text[text.index(f"control {stage.name}_stage(") :].split("\n}\n")[0]
        declared = re.findall(r'@name\("(\w+)"\)\n +table', body)
        wanted = ["map"] if stage.code_bits else []
        assert declared == [*wanted, *stage.kinds, "otherwise"]
    assert text.count("{") == text.count("}")
    assert max(map(len, text.splitlines())) <= 100


def test_itch_is_told_by_its_type_byte_behind_its_framing():
    text = generate(ITCH)
    assert "parser ethernet > ipv4 > udp > moldudp64 > message_block > system_event" in text
    assert "0x41: reach_add_order;" in text
    assert "register<start_t>(1024) recent_start;" in text
    assert "register<" not in generate(IP)


def test_fig_2_has_its_three_fields_in_order_and_registers_for_its_counter():
    program = pipeline(FIG2)
    assert [(stage.field, stage.kinds) for stage in program.stages] == [
        ("add_order.shares", ("exact", "range")),
        ("add_order.price", ("exact", "range")),
        ("add_order.stock", ("exact",)),
    ]
    text = generate(FIG2)
    assert "register<start_t>(1024) my_counter_start;" in text
    assert "cell.window = 100;" in text


def test_wide_fields_are_matched_lane_by_lane_and_words_of_p4_are_no_names():
    program = pipeline(WIDE)
    assert [stage.value for stage in program.stages] == [
        "hdr.ip.dst",
        "hdr.ip6.dst[127:64]",
        "hdr.ip6.dst[63:0]",
        "hdr.a.type_",
        "hdr.a.size_",
        "hdr.b.odd[99:64]",
        "hdr.b.odd[63:0]",
    ]
    optional = {stage.field: stage.optional for stage in program.stages}
    assert optional["ip.dst"] and optional["b.odd[63:0]"] and not optional["a.size"]


def test_a_resolution_in_the_specification_is_the_one_of_the_options():
    lines = """
        header_type t { fields { @string stock: 64; %s price: 32; } }
        header t add_order;
        @query_field_exact(add_order.stock)
        @query_field(add_order.price)
        """
    written = parse_specification(lines % "@decimals(4) @resolution(8)", "text")
    plain = parse_specification(lines % "@decimals(4)", "text")
    given = Options(resolution={"add_order.price": 8})
    assert [stage.code_bits for stage in pipeline(written).stages] == [0, 8]
    assert generate(written) == generate(plain, given) != generate(plain)
    other = Options(resolution={"add_order.price": 4})
    assert generate(written, other) == generate(plain, other)


def test_windows_are_in_the_units_of_the_events_own_clock():
    program = pipeline(CLOCK)
    assert program.clock_units == 1000
    assert program.blocks[0].window == 100_000
    assert program.start_bits == 48
    text = generate(CLOCK)
    assert text.index("hdr.add.at") < text.index("hdr.end.at") < text.index("ingress_global_timest")


@pytest.mark.parametrize(
    ("specification", "options", "code"),
    [
        (ITCH, Options(resolution={"add_order.stock": 8}), "FILTER.NO_TABLE"),
        (ITCH, Options(resolution={"trade.price": 8}), "FILTER.NO_TABLE"),
        (
            parse_specification(
                'header_type t { fields { a: 8; } } header t h; @query_default_action("fwd(1, 2)")',
                "two",
            ),
            None,
            "FILTER.BAD_ACTION",
        ),
    ],
)
def test_what_cannot_be_a_program_is_refused(specification, options, code):
    with pytest.raises(FilterError) as caught:
        generate(specification, options)
    assert caught.value.code == code


@pytest.mark.skipif(shutil.which("p4c-bm2-ss") is None, reason="p4c is not installed")
@pytest.mark.parametrize(
    ("specification", "options"), PROGRAMS, ids=lambda x: getattr(x, "name", "")
)
def test_p4c_takes_the_program_and_names_its_tables_as_the_entries_do(
    specification, options, tmp_path
):
    source, info = tmp_path / "program.p4", tmp_path / "program.p4info.txtpb"
    source.write_text(generate(specification, options))
    done = subprocess.run(
        ["p4c-bm2-ss", "--p4runtime-files", info, "-o", tmp_path / "program.json", source],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    names = set(re.findall(r'name: "([\w.]+)"', info.read_text()))
    program = pipeline(specification, options)
    for stage in program.stages:
        wanted = {stage.table(kind) for kind in (*stage.kinds, "otherwise")} | {stage.set_state}
        assert wanted <= names
    if program.blocks:
        assert {f"ingress.subscriptions.cells.load_{n}" for n in range(1, 5)} <= names
        assert {f"ingress.subscriptions.cells.{o.action}" for o in program.operands} <= names
