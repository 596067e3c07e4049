"""The generated program: committed as made, complete, with its P4Info."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

import p4_products
import pytest
from google.protobuf import text_format
from p4_tables import by_table
from paths import COMPILED_P4, P4, ROOT

from stackcast.schemas.p4runtime import p4info_pb2
from stackcast.udfs.errors import FilterError
from stackcast.udfs.filters.compiler.compile import compile_texts
from stackcast.udfs.messages.specification import Specification, parse_specification
from stackcast.udfs.network_match.entries import program_entries
from stackcast.udfs.network_match.framing import Repetition
from stackcast.udfs.network_match.layout import PREFIX, NamedAction, ProgramOptions, program_layout
from stackcast.udfs.network_match.table_sizes import stage_sizes
from stackcast.udfs.p4_program.program import files, generate
from tests.make.p4 import generated

pytestmark = pytest.mark.unit

PROGRAM = ROOT / "p4/packet_subscriptions.p4"
FOLDER = ROOT / "p4/packet_subscriptions"
INFO = COMPILED_P4 / "packet_subscriptions.p4info.txtpb"
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
SEVERAL = parse_specification(
    """
    header_type feed_t { fields { number: 32; count: 16; } }
    header feed_t feed;
    header_type size_t { fields { length: 16; } }
    header size_t size;
    header_type add_t { fields { kind: 8; price: 32; } }
    @message_type("A") header add_t add;
    header_type end_t { fields { kind: 8; why: 8; } }
    @message_type("E") header end_t end;
    @query_field(add.price)
    @query_counter(seen, 100)
    @query_default_action("fwd(64)")
    """,
    "several",
)
TELL = ProgramOptions(actions=(NamedAction("tell", (32,)),), resolution={"add_order.price": 8})
PROGRAMS = [(ITCH, None), (FIG2, TELL), (WIDE, None), (CLOCK, None), (IP, None)]
PROGRAMS.append((SEVERAL, ProgramOptions(messages=3, actions=(NamedAction("tell", (32,)),))))


def test_the_committed_program_is_the_one_that_the_specification_makes():
    held = {
        path.relative_to(P4).as_posix(): path.read_text() for path in [PROGRAM, *FOLDER.glob("*")]
    }
    assert held == generated(), p4_products.COMMAND


@pytest.mark.parametrize(
    ("specification", "options"), PROGRAMS, ids=lambda x: getattr(x, "name", "")
)
def test_equal_specifications_make_equal_programs_with_every_stage_once_and_in_order(
    specification: Specification, options
):
    program = program_layout(specification, options)
    text = generate(specification, options)
    assert text == generate(specification, options)
    applied = re.findall(r"^ {12}(\w+)\.apply\(hdr, meta\);$", text, re.MULTILINE)
    tables = [f"conjunctions_{number}" for number in range(1, 9)]
    assert applied == [*tables, *(stage.name for stage in program.stages)]
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
    assert "(0x41, 36): parse_add_order;" in text
    assert "register<start_t>(1024) recent_start;" in text
    assert "register<" not in generate(IP)


def test_several_messages_a_datagram_are_told_by_their_count_and_lengths():
    def found(head: str, block: str = "length: 16;", message: str = '@message_type("A")'):
        return program_layout(
            parse_specification(
                f"header_type h_t {{ fields {{ {head} }} }} header h_t head;"
                f"header_type b_t {{ fields {{ {block} }} }} header b_t block;"
                f"header_type a_t {{ fields {{ kind: 8; }} }} {message} header a_t a;",
                "framing",
            )
        ).repetition

    assert found("session: 80; count: 16;") == Repetition("head", "block")
    assert program_layout(ITCH).repetition == Repetition("moldudp64", "message_block")
    assert found("count: 16; session: 80;") is None
    assert found("count: 8;") is None
    assert found("count: 16;", "length: 8;") is None
    assert found("count: 16;", "length: 16; flags: 8;") is None
    assert found("count: 16;", message="") is None
    for specification, _ in PROGRAMS:
        several = specification in (ITCH, SEVERAL)
        assert (program_layout(specification).repetition is not None) == several
        assert ("pruning" in generate(specification)) == several


def test_a_program_is_one_control_a_file_with_a_picture_in_the_main_one():
    for specification, options in PROGRAMS:
        made = files(program_layout(specification, options))
        main = made.pop("packet_subscriptions.p4")
        assert main.startswith("// Packet subscriptions for") and "traffic manager > egress" in main
        included = re.findall(r'#include "([\w/.]+)"', main)
        assert included == list(made)
        for path, text in made.items():
            controls = re.findall(r"^(?:control|parser) (\w+)\(", text, re.MULTILINE)
            assert len(controls) <= 1, path
            assert text.startswith("// "), path


def window(specification: Specification) -> int:
    """Of the first counter, as entries have it."""
    compiled = compile_texts([f"{specification.counters[0].name} > 1 : fwd(1)"], specification)
    (load,) = by_table(program_entries(compiled, specification, {}))[f"{PREFIX}.cells.load_1"]
    return int.from_bytes(dict(load.params)["window"])


def test_fig_2_has_its_three_fields_in_order_and_registers_for_its_counter():
    program = program_layout(FIG2)
    assert [(stage.field, stage.kinds) for stage in program.stages] == [
        ("add_order.shares", ("exact", "range")),
        ("add_order.price", ("exact", "range")),
        ("add_order.stock", ("exact",)),
    ]
    text = generate(FIG2)
    assert "register<start_t>(1024) my_counter_start;" in text
    assert window(FIG2) == 100


def test_a_table_has_room_for_what_it_can_hold_and_no_more():
    text = generate(ITCH)

    def size(control: str, table: str) -> str:
        body = text[text.index(f"control {control}(") :].split("\n}\n")[0]
        found = re.search(rf'@name\("{table}"\).*?size = (\w+);', body, re.DOTALL)
        assert found is not None
        return found[1]

    # One state a group of rules asks for the type, in each of two sets of states.
    states = 2 * (1 + ProgramOptions().passes)
    assert size("message_type_stage", "exact") == str(states * 256)
    assert size("message_type_stage", "otherwise") == str(states)
    assert size("add_order_stock_stage", "exact") == "65536"
    assert size("add_order_stock_stage", "otherwise") == str(states * 258)
    assert size("add_order_price_stage", "otherwise") == "65536"
    assert size("state_stage", "load_1") == size("state_stage", "range_4") == "8192"
    assert size("state_stage", "otherwise_2") == "16384"
    assert size("state_stage", "update_1") == "65536" and size("leaf", "leaf") == "ROWS"
    sizes = stage_sizes(program_layout(FIG2, TELL))
    assert sizes["add_order_shares", "otherwise"] == states
    assert sizes["add_order_price", "map"] == 2 * 256
    few = generate(ITCH, ProgramOptions(rows=100))
    assert max(int(n) for n in re.findall(r"size = (\d+);", few)) == 100


@pytest.mark.parametrize(("specification", "options"), PROGRAMS[:2], ids=["itch", "fig2"])
def test_the_entries_of_rules_fit_the_sizes_of_the_first_tables(specification, options):
    rules = [f"shares == {n} or shares < {n % 7} : fwd({n % 9 + 1})" for n in range(1, 600)]
    options = options or ProgramOptions()
    made = program_entries(compile_texts(rules, specification), specification, {}, options=options)
    sizes = {
        stage.table(kind): stage_sizes(program_layout(specification, options))[stage.name, kind]
        for stage in program_layout(specification, options).stages
        for kind in (*stage.kinds, "otherwise")
    }
    for table, found in by_table(made).items():
        # Room for two sets.
        assert 2 * len(found) <= sizes.get(table, 65_536), table


def test_wide_fields_are_matched_lane_by_lane_and_words_of_p4_are_no_names():
    program = program_layout(WIDE)
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
    given = ProgramOptions(resolution={"add_order.price": 8})
    assert [stage.code_bits for stage in program_layout(written).stages] == [0, 8]
    assert generate(written) == generate(plain, given) != generate(plain)
    other = ProgramOptions(resolution={"add_order.price": 4})
    assert generate(written, other) == generate(plain, other)


def test_windows_are_in_the_units_of_the_events_own_clock():
    program = program_layout(CLOCK)
    assert program.clock_units == 1000
    assert window(CLOCK) == 100_000
    assert program.start_bits == 48
    text = generate(CLOCK)
    assert text.index("hdr.add.at") < text.index("hdr.end.at")
    assert "} else {\n            meta.now = (bit<64>) hdr.end.at;" in text


def test_where_an_event_may_lack_a_clock_it_has_the_time_at_which_its_packet_arrived():
    assert "ingress_global_timestamp" not in generate(CLOCK) + generate(ITCH)
    assert "meta.now = (bit<64>) standard_metadata.ingress_global_timestamp;" in generate(FIG2)
    several = generate(SEVERAL)
    assert "meta.now = (bit<64>) meta.arrived;" in several
    assert "@field_list(KEPT_FIELDS) bit<48> arrived;" in several


@pytest.mark.parametrize(
    ("specification", "options", "code"),
    [
        (ITCH, ProgramOptions(resolution={"add_order.stock": 8}), "FILTER.NO_TABLE"),
        (ITCH, ProgramOptions(resolution={"trade.price": 8}), "FILTER.NO_TABLE"),
        *(
            (
                parse_specification(
                    "header_type t { fields { a: 8; } } header t h;"
                    f'@query_default_action("fwd({ports})")',
                    "ports",
                ),
                None,
                "FILTER.BAD_ACTION",
            )
            for ports in ("1, 2", "0", "65", "1" * 5000)
        ),
    ],
)
def test_what_cannot_be_a_program_is_refused(specification, options, code):
    with pytest.raises(FilterError) as caught:
        generate(specification, options)
    assert caught.value.code == code


RULES = [
    "stock == GOOGL and price > 50 : fwd(1)",
    "stock == GOOGL and price between 20 and 60 and shares in {100, 200} : fwd(1, 2)",
    "stock != AAPL and buy_sell == B : { fwd(3, h1); recent <- sum(shares) }",
    "recent > 1000 and stock == AAPL : fwd(2)",
    "stock == MSFT and avg(price) > 50 and count() <= 7 : fwd(4)",
    "stock == IBM and max(shares) > 50 and min(price) < 7 : fwd(4, 5)",
]


def test_the_entries_of_rules_with_state_are_what_the_p4info_names():
    info = text_format.Parse(INFO.read_text(), p4info_pb2.P4Info())
    tables = {table.preamble.name: table for table in info.tables}
    actions = {action.preamble.id: action for action in info.actions}
    made = program_entries(compile_texts(RULES, ITCH), ITCH, {"h1": 7})
    assert len(by_table(made)) >= 12
    assert any(".cells." in entry.table for entry in made.entries)
    for entry in made.entries:
        table = tables[entry.table]
        keys = {field.name: field for field in table.match_fields}
        types = {field.name: field.match_type for field in table.match_fields}
        needed = {name for name, kind in types.items() if kind == p4info_pb2.MatchField.EXACT}
        assert needed <= {match.name for match in entry.match} <= keys.keys()
        for match in entry.match:
            assert types[match.name] == getattr(p4info_pb2.MatchField, match.kind.upper())
            ends = (match.value, match.other)
            assert all(int.from_bytes(end) >> keys[match.name].bitwidth == 0 for end in ends)
        allowed = [actions[reference.id] for reference in table.action_refs]
        (action,) = (found for found in allowed if found.preamble.name == entry.action)
        widths = {param.name: param.bitwidth for param in action.params}
        assert widths.keys() == {name for name, _ in entry.params}
        assert all(int.from_bytes(value) >> widths[name] == 0 for name, value in entry.params)


@pytest.fixture
def p4c(pytestconfig: pytest.Config) -> str:
    return str(pytestconfig.getoption("--p4c"))


@pytest.mark.p4c
@pytest.mark.parametrize(
    ("specification", "options"), PROGRAMS, ids=lambda x: getattr(x, "name", "")
)
def test_p4c_takes_the_program_and_names_its_tables_as_the_entries_do(
    p4c, specification, options, tmp_path
):
    source = tmp_path / "program.p4"
    source.write_text(generate(specification, options))
    names = set(re.findall(r'name: "([\w.]+)"', p4info_of(p4c, source)))
    program = program_layout(specification, options)
    for stage in program.stages:
        wanted = {stage.table(kind) for kind in (*stage.kinds, "otherwise")} | {stage.set_state}
        assert wanted <= names
    if program.blocks:
        assert {f"ingress.subscriptions.cells.load_{n}" for n in range(1, 5)} <= names
        assert {f"ingress.subscriptions.cells.{o.action}" for o in program.operands} <= names


def p4info_of(p4c: str, source: Path) -> str:
    with tempfile.TemporaryDirectory() as folder:
        info = Path(folder, "program.p4info.txtpb")
        subprocess.run(
            [p4c, "--p4runtime-files", info, "-o", Path(folder, "program.json"), source],
            check=True,
            timeout=300,
        )
        return info.read_text()
