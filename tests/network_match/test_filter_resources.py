"""The report of resources, the order of fields, and the drawing of a filter."""

from __future__ import annotations

import itertools
import json
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from p4_tables import by_table, entries_of, grouped
from paths import ROOT

from benchmarks.support.siena import SienaWorkload
from stackcast.lab.traffic.subscriptions import subscriptions
from stackcast.udfs.filters.compiler.compile import compile_table, compile_texts, table_of_texts
from stackcast.udfs.filters.compiler.order import choose_order, field_uses
from stackcast.udfs.filters.compiler.tables import CompiledFilter
from stackcast.udfs.filters.explanation.dot import dot
from stackcast.udfs.filters.language.shapes import read_table
from stackcast.udfs.filters.prefixes import split
from stackcast.udfs.messages.specification import parse_specification
from stackcast.udfs.network_match.entries import program_entries
from stackcast.udfs.network_match.layout import ProgramOptions, program_layout
from stackcast.udfs.network_match.resources import prefix_count, render, report

pytestmark = pytest.mark.unit

FIG3 = parse_specification(
    """
    header_type t { fields { shares: 32; @string stock: 64; } }
    header t add_order;
    @query_field(add_order.shares)
    @query_field_exact(add_order.stock)
    """,
    "fig3",
)
RULES = [
    "shares > 100 : fwd(1)",
    "shares > 100 ^ stock == MSFT : fwd(2)",
    "shares < 60 ^ stock == AAPL : fwd(3)",
]
NETS = parse_specification(
    """
    header_type t { fields { dst: 32; port: 16; kind: 8; } }
    header t h;
    @query_field_lpm(h.dst)
    @query_field(h.port)
    @query_field_exact(h.kind)
    """,
    "nets",
)


def savings(found) -> dict[str, tuple[int, int]]:
    return {s["what"].split(",")[0]: (s["before"], s["after"]) for s in found["savings"]}


@given(st.integers(0, 2**16 - 1), st.integers(0, 2**16 - 1))
def test_prefixes_are_counted_as_they_are_made(one, other):
    low, high = min(one, other), max(one, other)
    assert prefix_count(low, high) == len(split(low, high, 16))


def test_prefixes_are_counted_at_the_ends_of_the_widest_field():
    assert prefix_count(0, 2**64 - 1) == 1
    assert prefix_count(1, 2**64 - 1) == 64
    assert prefix_count(2**64 - 1, 2**64 - 1) == 1


def test_figure_4_is_reported_row_by_row():
    found = report(compile_texts(RULES, FIG3), FIG3)
    assert [(t["field"], t["kind"], t["rows"]) for t in found["tables"]] == [
        ("add_order.shares", "range", 2),
        ("add_order.shares", "otherwise", 1),
        ("add_order.stock", "exact", 2),
        ("add_order.stock", "otherwise", 2),
        ("leaf", "exact", 3),
    ]
    # 0..59 is 3 prefixes, 101..2^32-1 is 28.
    (ranges,) = (t for t in found["tables"] if t["kind"] == "range")
    assert ranges["memory_rows"] == len(split(0, 59, 32)) + len(split(101, 2**32 - 1, 32))
    assert found["tcam_bits"] == ranges["memory_rows"] * (32 + 32)
    assert found["states"] == 7
    assert found["receiver_sets"] == 1
    # Ways through Fig. 3: two below 60, one between, two above 100; 96 bits each.
    ways = 2 * len(split(0, 59, 32)) + 1 + 2 * len(split(101, 2**32 - 1, 32))
    wide = savings(found)["one table per field instead of a single table"]
    assert wide == (ways * 96, found["tcam_bits"])
    text = render(found)
    assert "10 entries, 7 states, 1 sets of several receivers" in text
    assert json.loads(json.dumps(found)) == found


def test_groups_of_rules_are_reported_with_their_passes_and_every_entry():
    options = ProgramOptions(words=1, conjunctions=2, passes=3)
    texts = [f"port > {n} and dst == 10.0.{n}.0/24 : fwd(1)" for n in (1, 2, 3)]
    texts += ["kind == 7 : fwd(2)"]
    for diagram in ([], ["kind == 5 : fwd(9)"]):
        for keyed in ([], [f"port == {n} and kind == {n} : fwd(1)" for n in range(5)]):
            # Three terms to port 1, of which a pass has room for one.
            groups = grouped(diagram, NETS, options, apart=texts, keyed=keyed)
            program = program_layout(NETS, options)
            found = report(groups.diagram, NETS, program, groups.vectors, groups.conjunctions)
            held = entries_of(diagram, NETS, options, apart=texts, keyed=keyed)
            forms = ["diagram"] * bool(diagram) + ["bit vectors"] * 3
            wanted = [*enumerate(forms, 1), *[(1, "keys")] * bool(keyed)]
            assert sorted((g["pass"], g["form"]) for g in found["groups"]) == sorted(wanted)
            assert found["passes"] == len(forms)
            tables = by_table(held)
            others = len(tables["ingress.subscriptions.start"]) + len(forms) - 1
            assert found["entries"] == len(held.entries) - others
            assert found["entries"] == sum(group["entries"] for group in found["groups"])
            assert sum(group["terms"] for group in found["groups"]) == 4 + len(keyed)
            assert f"pass {len(forms)}: bit vectors, " in render(found)
            if keyed:
                (keys,) = (t for t in found["tables"] if t["kind"] == "keys")
                assert keys["field"] == "h.port, h.kind" and keys["rows"] == 5
                assert (keys["tcam_bits"], keys["key_bits"]) == (0, 32 + 4 * 64)


def test_a_smaller_domain_is_worth_what_using_it_gives():
    """The simulated saving is that of the program which has the resolution."""
    texts = [
        f"port > {p} and kind == {k} : fwd({k})"
        for p, k in itertools.product(range(1, 2000, 97), range(1, 5))
    ]
    compiled = compile_texts(texts, NETS)
    simulated = report(compiled, NETS)
    (advice,) = (s for s in simulated["savings"] if s["what"].startswith("low resolution"))
    bits = int(re.search(r"to (\d+) bits", advice["advice"])[1])
    program = program_layout(NETS, ProgramOptions(resolution={"h.port": bits}))
    used = report(compiled, NETS, program)
    assert used["tcam_bits"] == advice["after"] < advice["before"] == simulated["tcam_bits"]
    held = program_entries(compiled, NETS, {}, options=program.options)
    by_kind = {(t["field"], t["kind"].split(":")[0]): t["rows"] for t in used["tables"]}
    stage = next(stage for stage in program.stages if stage.field == "h.port")
    for kind in ("map", "exact", "range"):
        assert len(by_table(held).get(stage.table(kind), ())) == by_kind.get(("h.port", kind), 0)


def test_nothing_is_advised_for_state_which_no_switch_maps_on_codes():
    specification = parse_specification(
        """header_type t { fields { stock: 64; price: 32; } } header t h;
        @query_field_exact(h.stock) @query_field(h.price) @query_counter(seen, 100)""",
        "stateful",
    )
    texts = [f"stock == S{i} and price > {i} and avg(price) > {7 * i} : fwd({i})" for i in range(9)]
    compiled = compile_texts([*texts, "seen > 6 and seen < 9: fwd(1)"], specification)
    found = report(compiled, specification)
    assert found["cells"] == 10
    about = [saving["what"] for saving in found["savings"] if "resolution" in saving["what"]]
    assert about and all(what.startswith("low resolution of h.price") for what in about)


def test_prefixes_that_nest_are_fewer_than_ranges():
    texts = ["dst == 10.0.0.0/8 : fwd(1)", "dst == 10.1.2.0/24 : fwd(2)"]
    before, after = savings(report(compile_texts(texts, NETS), NETS))[
        "longest prefixes instead of ranges"
    ]
    # 10/8 around the hole of 10.1.2/24: 16 prefixes, and the hole.
    assert (before, after) == (17, 2)


def compiled_with(order, texts) -> CompiledFilter:
    table = table_of_texts(texts, read_table(texts, NETS), NETS)
    return compile_table(table, NETS, order=order)


@pytest.mark.parametrize("seed", range(6))
def test_the_chosen_order_is_never_worse_than_that_of_the_specification(seed):
    generator = random.Random(seed)
    texts = []
    for _ in range(30):
        parts = [
            f"dst == 10.{generator.randrange(9)}.0.0/16",
            f"port > {generator.randrange(40)}",
            f"kind == {generator.randrange(3)}",
        ]
        chosen = generator.sample(parts, generator.randint(1, 3))
        texts.append(f"{' and '.join(chosen)} : fwd({generator.randrange(4)})")
    table = table_of_texts(texts, read_table(texts, NETS), NETS)
    asked: list[tuple[str, ...]] = []

    def count(order, limit):
        asked.append(order)
        rows = len(compile_table(table, NETS, order=order).entries)
        return rows if limit is None or rows <= limit else None

    order = choose_order(table, NETS, count, budget=8)
    assert order == choose_order(table, NETS, count, budget=8)
    assert len(asked) % 2 == 0 and len(asked) <= 16
    assert asked[0] == ("h.dst", "h.port", "h.kind")
    assert len(set(asked)) == len(asked) // 2
    rows = {asked_: len(compiled_with(asked_, texts).entries) for asked_ in set(asked)}
    assert rows[order] == min(rows.values())


@pytest.mark.integration
@pytest.mark.parametrize("count", [10, 300])
@pytest.mark.parametrize(("predicates", "fields"), [(1, 4), (2, 6), (3, 3), (4, 4)])
def test_an_order_chosen_for_a_made_up_market_is_never_worse(count, predicates, fields):
    market = SienaWorkload(
        count, predicates, fields, text_fields=fields // 2, values=20, field_exponent=1.5
    )
    specification = market.specification()
    given_, chosen = (
        len(compile_texts(market.texts(), specification, order=order).entries)
        for order in ("specification", "auto")
    )
    assert chosen <= given_


def test_an_order_chosen_for_the_labs_subscriptions_is_never_worse():
    itch = parse_specification((ROOT / "schemas/messages/itch.spec").read_text(), "itch")
    texts = [row["filter"] for row in subscriptions(["h1", "h2", "h3"])]
    table = [f"{text} : fwd(h{number % 16})" for number, text in enumerate(texts)]
    given_, chosen = (
        len(compile_texts(table, itch, order=order).entries) for order in ("specification", "auto")
    )
    assert chosen <= given_


def test_an_order_that_is_no_better_is_left_alone():
    texts = ["port == 1 and kind == 2 : fwd(1)"]
    table = table_of_texts(texts, read_table(texts, NETS), NETS)
    assert choose_order(table, NETS, lambda order, limit: None if limit else 5) == (
        "h.port",
        "h.kind",
    )
    uses = [(u.field.qualified, u.terms, u.constants) for u in field_uses(table, NETS)]
    assert uses == [("h.port", 1, 1), ("h.kind", 1, 1)]


def test_without_rules_there_is_nothing_to_order_or_to_pay_for():
    table = table_of_texts([], read_table([], NETS), NETS)
    assert choose_order(table, NETS, lambda order, limit: 0) == ()
    compiled = compile_texts([], NETS)
    assert report(compiled, NETS)["entries"] == 0
    assert "start ->" in dot(compiled)


def test_the_drawing_has_every_state_in_its_fields_cluster_and_every_row_on_an_arrow():
    compiled = compile_texts(RULES, FIG3)
    text = dot(compiled)
    assert text == dot(compiled)
    assert 'label="add_order.shares"' in text
    assert 's0 -> s1 [label="shares <= 59", style=solid];' in text
    assert 's0 -> s6 [label="otherwise", style=dashed];' in text
    assert 's4 [label="4: fwd(1, 2)"];' in text
    assert 's6 [label="6: nobody"];' in text
    arrows = re.findall(r"^  s(\d+) -> s(\d+) ", text, re.MULTILINE)
    wanted = {(str(e["state"]), str(e["next"])) for e in compiled.entry_rows()}
    assert set(arrows) == wanted
    assert text.count("{") == text.count("}")


def test_a_name_that_would_end_a_text_of_the_drawing_is_escaped():
    text = dot(compile_texts(["shares > 1 : fwd(1)"], FIG3), 'a "quoted" \\ name')
    assert 'digraph "a \\"quoted\\" \\\\ name" {' in text
