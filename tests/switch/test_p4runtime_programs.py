"""SetForwardingPipelineConfig: which programs are taken, what becomes of what a switch holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import p4_products
import pytest
from control_plane import (
    INFO,
    INFO_TEXT,
    JSON,
    TABLES,
    Inbox,
    Remembering,
    Set,
    config,
    exact,
    group,
    lpm,
    read,
    running,
    session,
    table_entry,
    updates,
    write,
)
from examples import examples
from google.protobuf import text_format
from google.rpc import code_pb2
from hypothesis import given
from hypothesis import strategies as st

from stackcast.schemas.p4runtime import p4info_pb2, p4runtime_pb2
from stackcast.switch.p4runtime.device import MOST_UPDATES, Device
from stackcast.switch.p4runtime.program import read_program
from stackcast.switch.p4runtime.refusal import Refusal
from stackcast.udfs.errors import SwitchError

pytestmark = pytest.mark.unit

ACTIONS = ("VERIFY", "VERIFY_AND_SAVE", "VERIFY_AND_COMMIT", "RECONCILE_AND_COMMIT")
TableEntry = p4runtime_pb2.TableEntry


def fresh(pipeline: Any = None) -> Device:
    """A device without a program; election id 1 may write it."""
    device = Device("s1", 1, pipeline or Remembering())
    device.arbitration.join(Inbox(), 1)
    return device


def refused(device: Device, action: str, made: Any) -> tuple[str, str]:
    """Code and words of a config that must be refused."""
    with pytest.raises(Refusal) as answer:
        device.set_config(Set.Action.Value(action), made, 1)
    return code_pb2.Code.Name(answer.value.code), answer.value.message


def table(info: Any, name: str = "lpm_table") -> Any:
    return next(each for each in info.tables if each.preamble.alias == name)


def action(info: Any, name: str = "send") -> Any:
    return next(each for each in info.actions if each.preamble.alias == name)


def renamed(part: Any, name: str = "ingress.other") -> None:
    part.preamble.name = name


MISFITS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda i: renamed(table(i)), "table 'ingress.other' is missing in the JSON"),
    (
        lambda i: i.tables.remove(table(i, "exact_table")),
        "table 'ingress.exact_table' is missing in the P4Info",
    ),
    (lambda i: setattr(table(i).match_fields[0], "name", "x"), "match field 'x'"),
    (
        lambda i: setattr(table(i).match_fields[0], "bitwidth", 31),
        "'address' is 31 bits in the P4Info, but 32",
    ),
    (
        lambda i: setattr(table(i).match_fields[0], "match_type", 2),
        "'address' is exact in the P4Info, but lpm",
    ),
    (
        lambda i: table(i).match_fields.add(id=9, name="more", bitwidth=1, match_type=2),
        "match field 'more'",
    ),
    (lambda i: table(i, "exact_table").match_fields.reverse(), "['port', 'tag']"),
    (lambda i: table(i).match_fields.pop(), "match field 'address' is missing in the P4Info"),
    (
        lambda i: table(i).action_refs.pop(),
        "table 'ingress.lpm_table': action 'ingress.lose' is missing in the P4Info",
    ),
    (
        lambda i: table(i).action_refs.add(id=action(i, "count").preamble.id),
        "action 'ingress.count'",
    ),
    (lambda i: renamed(action(i)), "action 'ingress.other'"),
    (
        lambda i: setattr(action(i).params[0], "bitwidth", 8),
        "'ingress.send' is called with (port: 8 bits)",
    ),
    (
        lambda i: setattr(action(i).params[0], "name", "x"),
        "(x: 9 bits) in the P4Info, but with (port: 9",
    ),
    (lambda i: action(i, "lose").params.add(id=1, name="y", bitwidth=3), "(y: 3 bits)"),
    (
        lambda i: setattr(table(i), "size", 65),
        "'ingress.lpm_table' is of 65 entries in the P4Info, but of 64",
    ),
    (
        lambda i: setattr(table(i), "size", 5),
        "'ingress.lpm_table' is of 5 entries in the P4Info, but of 64",
    ),
    (lambda i: setattr(i.pkg_info, "arch", "psa"), "architecture 'psa'"),
    (
        lambda i: setattr(table(i), "const_default_action_id", 3),
        "the default action of table 'ingress.lpm_table' is constant",
    ),
    (lambda i: setattr(table(i, "ternary_table"), "const_default_action_id", 0), "free to change"),
    (lambda i: setattr(table(i, "exact_table"), "has_initial_entries", True), "entries of its own"),
    (
        lambda i: setattr(table(i, "const_table"), "has_initial_entries", False),
        "'ingress.const_table' is without",
    ),
    (lambda i: renamed(i.counters[0]), "counter 'ingress.other'"),
    (lambda i: i.counters.pop(), "counter 'ingress.seen' is missing in the P4Info"),
    (
        lambda i: setattr(i.counters[0], "size", 7),
        "counter 'ingress.seen' is of 7 cells in the P4Info, but of 8",
    ),
    (lambda i: i.direct_counters.pop(), "with"),
    (lambda i: renamed(i.direct_counters[0]), "direct counter 'ingress.other'"),
    (lambda i: renamed(i.registers[0]), "register 'ingress.cells' is missing in the P4Info"),
    (lambda i: i.registers.pop(), "register 'ingress.cells' is missing in the P4Info"),
    (lambda i: setattr(i.registers[0], "size", 17), "register 'ingress.cells' is of 17 cells"),
    (
        lambda i: setattr(i.registers[0].type_spec.bitstring.bit, "bitwidth", 32),
        "register 'ingress.cells' is 32 bits",
    ),
    (
        lambda i: i.meters.add().preamble.MergeFrom(p4info_pb2.Preamble(id=5, name="m")),
        "meter 'm' is missing in the JSON",
    ),
    (
        lambda i: i.digests.add().preamble.MergeFrom(p4info_pb2.Preamble(id=5, name="d")),
        "digest 'd' is missing",
    ),
    (lambda i: setattr(table(i).action_refs[0], "id", 77), "refers to action 0x4d"),
    (lambda i: setattr(i.tables[1].preamble, "id", i.tables[0].preamble.id), "has the id of"),
    (
        lambda i: setattr(i.tables[1].preamble, "name", i.tables[0].preamble.name),
        "occurs twice",
    ),
]


@pytest.mark.parametrize(("change", "words"), MISFITS)
@pytest.mark.parametrize("kind", ["VERIFY", "VERIFY_AND_COMMIT"])
def test_a_p4info_that_does_not_fit_the_json_is_refused_by_the_name_that_does_not(
    kind: str, change: Any, words: str
) -> None:
    pipeline = Remembering()
    device = fresh(pipeline)
    info = text_format.Parse(INFO_TEXT, p4info_pb2.P4Info())
    change(info)
    code, message = refused(device, kind, config(info))
    assert (code, words in message) == ("INVALID_ARGUMENT", True), message
    assert pipeline.program is None


def translate(info: Any) -> None:
    table(info).match_fields[0].type_name.name = "port_t"
    info.type_info.new_types["port_t"].translated_type.sdn_bitwidth = 32


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda i: setattr(table(i), "implementation_id", 5), "action profile"),
        (lambda i: setattr(table(i).match_fields[0], "other_match_type", "fuzzy"), "match kind"),
        (lambda i: i.registers[0].type_spec.struct.SetInParent(), "register 'ingress.cells'"),
        (translate, "translated type 'port_t'"),
    ],
)
def test_what_this_switch_cannot_serve_is_unimplemented_by_name(change: Any, words: str) -> None:
    info = text_format.Parse(INFO_TEXT, p4info_pb2.P4Info())
    change(info)
    code, message = refused(fresh(), "VERIFY", config(info))
    assert (code, words in message) == ("UNIMPLEMENTED", True), message


@pytest.mark.parametrize("kind", ACTIONS)
@pytest.mark.parametrize(
    ("made", "words"),
    [
        (None, "a config is required"),
        (p4runtime_pb2.ForwardingPipelineConfig(p4_device_config=JSON), "no P4Info"),
        (config(program=b""), "no device config"),
        (config(program=b"garbage"), "not valid JSON"),
        (config(program=b"\xff\xfe\x00"), "not valid JSON"),
        (config(program=b"[" * 100_000), "not valid JSON"),
        (config(program=b"[]"), "not BMv2 JSON"),
        (config(program=b"{}"), "not BMv2 JSON"),
        (config(program=b'{"tables": 5}'), "not BMv2 JSON"),
        (
            config(program=json.dumps({**json.loads(JSON), "program": "cannot run"}).encode()),
            "primitive 'fly' is unknown",
        ),
    ],
)
def test_a_config_that_is_none_is_refused_and_the_program_that_runs_stays(
    kind: str, made: Any, words: str
) -> None:
    pipeline = Remembering()
    device = running(pipeline)
    write(device, "INSERT", exact(b"\1"))
    code, message = refused(device, kind, made)
    assert (code, words in message) == ("INVALID_ARGUMENT", True), message
    assert pipeline.loads == 1 and len(read(device, exact(b"\1"))) == 1


@examples(150)
@given(st.data())
def test_no_damage_to_a_json_is_more_than_a_refusal(data: st.DataObject) -> None:
    program: Any = json.loads(JSON)
    for _ in range(data.draw(st.integers(1, 4))):
        part, key = None, None
        inner: Any = program
        while (
            isinstance(inner, (dict, list)) and inner and (part is None or data.draw(st.booleans()))
        ):
            keys = sorted(inner) if isinstance(inner, dict) else range(len(inner))
            part, key = inner, data.draw(st.sampled_from(list(keys)))
            inner = part[key]
        assert part is not None
        junk = st.sampled_from(
            [None, -1, 1 << 70, "", "0xzz", [], {}, True, 1.5, [[]], {"name": 3}]
        )
        if data.draw(st.booleans()):
            del part[key]
        else:
            part[key] = data.draw(junk)
    device = fresh()
    try:
        device.set_config(Set.VERIFY_AND_COMMIT, config(program=json.dumps(program).encode()), 1)
    except Refusal as refusal:
        assert refusal.code == code_pb2.INVALID_ARGUMENT
    else:
        assert read(device, TableEntry()) is not None


def test_the_forms_in_a_json_are_those_that_its_source_has() -> None:
    program = read_program(JSON)
    assert program.counters == {"ingress.seen": 8} and program.meters == {}
    assert program.direct_counters == {"ingress.used": "ingress.lpm_table"}
    assert program.registers == {"ingress.cells": (16, 48)}
    keys = program.tables["ingress.range_table"].keys
    assert keys == (("wide", "range", 12), ("tag", "lpm", 16))
    assert program.tables["ingress.range_table"].default == ("ingress.count", (7,))


def test_verify_changes_nothing() -> None:
    pipeline = Remembering()
    device = fresh(pipeline)
    device.set_config(Set.VERIFY, config(), 1)
    assert pipeline.program is None
    with pytest.raises(Refusal):
        device.config()


def test_what_is_saved_is_written_for_and_runs_once_it_is_committed() -> None:
    pipeline = Remembering()
    device = running(pipeline)
    write(device, "INSERT", exact(b"\1"), group(1, (1, 0)))
    device.set_config(Set.VERIFY_AND_SAVE, config(cookie=9), 1)
    # Frames are still forwarded by what runs; Write and Read are about the saved program.
    assert pipeline.loads == 1 and len(pipeline.entries) == 2
    assert device.config().cookie.cookie == 7
    assert read(device, exact(b"\1")) == []
    assert write(device, "INSERT", exact(b"\2")) == ["OK"]
    counter = p4runtime_pb2.CounterEntry(counter_id=INFO.counters[0].preamble.id)
    assert write(device, "MODIFY", counter) == ["FAILED_PRECONDITION"]
    assert list(pipeline.entries) == [
        "ingress.exact_table|port=01|tag=01",
        "multicast_group|group=01",
    ]
    assert refused(device, "COMMIT", config())[0] == "INVALID_ARGUMENT"
    device.set_config(Set.COMMIT, None, 1)
    assert pipeline.loads == 2 and device.config().cookie.cookie == 9
    assert list(pipeline.entries) == ["ingress.exact_table|port=01|tag=02"]
    assert refused(device, "COMMIT", None)[0] == "NOT_FOUND"


def test_a_committed_program_begins_empty() -> None:
    pipeline = Remembering()
    device = running(pipeline)
    write(device, "INSERT", exact(b"\1"), group(1, (1, 0)), session(5, (1, 0)))
    device.set_config(Set.VERIFY_AND_COMMIT, config(), 1)
    assert not pipeline.entries and read(device, exact(b"\1"), group(0), session(0)) == []


def test_reconciling_with_the_same_program_does_not_even_load_it() -> None:
    pipeline = Remembering()
    device = running(pipeline)
    write(device, "INSERT", exact(b"\1"))
    device.set_config(Set.RECONCILE_AND_COMMIT, config(cookie=11), 1)
    assert pipeline.loads == 1 and device.config().cookie.cookie == 11
    assert len(read(device, exact(b"\1"))) == 1


def changed(change: Callable[[Any, Any], None]) -> Any:
    """A config with P4Info and JSON changed alike."""
    info = text_format.Parse(INFO_TEXT, p4info_pb2.P4Info())
    program = json.loads(JSON)
    change(info, program)
    return config(info, json.dumps(program).encode(), cookie=12)


def json_table(program: Any, name: str = "ingress.lpm_table") -> Any:
    return next(t for p in program["pipelines"] for t in p["tables"] if t["name"] == name)


def full_device(pipeline: Remembering) -> Device:
    device = running(pipeline)
    counts = p4runtime_pb2.CounterData(packet_count=4, byte_count=8)
    parts = [
        exact(b"\1", metadata=b"m"),
        lpm(counter_data=counts),
        group(1, (1, 0)),
        session(5, (1, 0)),
    ]
    assert write(device, "INSERT", *parts) == ["OK"] * 4
    default = table_entry("keyless", {}, "send", [b"\5"], is_default_action=True)
    register = p4runtime_pb2.RegisterEntry(register_id=INFO.registers[0].preamble.id)
    register.index.index = 3
    register.data.bitstring = b"\x55"
    counter = p4runtime_pb2.CounterEntry(counter_id=INFO.counters[0].preamble.id, data=counts)
    assert write(device, "MODIFY", default, register, counter) == ["OK"] * 3
    return device


def test_reconciling_keeps_all_that_the_new_program_can_hold_under_its_own_ids() -> None:
    pipeline = Remembering()
    device = full_device(pipeline)
    held = dict(pipeline.entries)

    def change(info: Any, program: Any) -> None:
        for each in info.tables:
            each.preamble.id ^= 0x10_0000
        table(info).match_fields[0].id = 4
        info.direct_counters[0].direct_table_id ^= 0x10_0000
        table(info, "ternary_table").size = 9
        json_table(program, "ingress.ternary_table")["max_size"] = 9

    device.set_config(Set.RECONCILE_AND_COMMIT, changed(change), 1)
    assert pipeline.loads == 2 and pipeline.entries == held
    assert pipeline.register("ingress.cells")[3] == 0x55
    assert pipeline.counter("ingress.seen", 2) == (4, 8)
    assert pipeline.direct_counter("ingress.lpm_table", "ingress.lpm_table|address=0a00000008") == (
        4,
        8,
    )
    lookup = TableEntry(table_id=TABLES["lpm_table"].preamble.id ^ 0x10_0000)
    (entry,) = read(device, lookup)
    assert entry.match[0].field_id == 4
    (entry,) = read(device, TableEntry(table_id=TABLES["exact_table"].preamble.id ^ 0x10_0000))
    assert entry.metadata == b"m"


def drop_table(info: Any, program: Any) -> None:
    info.tables.remove(table(info))
    info.direct_counters.pop()
    program["pipelines"][0]["tables"].remove(json_table(program))
    program["counter_arrays"].pop()


def rename_field(info: Any, program: Any) -> None:
    table(info).match_fields[0].name = json_table(program)["key"][0]["name"] = "other"


def widen(info: Any, program: Any) -> None:
    table(info).match_fields[0].bitwidth = 12
    json_table(program)["key"][0]["target"] = ["label", "wide"]


def take_action(info: Any, program: Any) -> None:
    for name in ("exact_table", "lpm_table"):
        one, other = table(info, name), json_table(program, f"ingress.{name}")
        number = action(info).preamble.id
        one.action_refs.remove(next(each for each in one.action_refs if each.id == number))
        other["action_ids"].pop(0)


def shrink(info: Any, program: Any) -> None:
    table(info).size = json_table(program, "ingress.lpm_table")["max_size"] = 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (drop_table, "ingress.lpm_table"),
        (rename_field, "'address'"),
        (widen, "'address'"),
        (take_action, "'ingress.send'"),
        (shrink, "2 entries of table 'ingress.lpm_table'"),
    ],
)
def test_reconciling_refuses_a_program_without_room_for_an_entry_and_names_it(
    change: Any, words: str
) -> None:
    pipeline = Remembering()
    device = full_device(pipeline)
    write(device, "INSERT", lpm(b"\x0b\0\0\0"))
    held, before = dict(pipeline.entries), read(device, TableEntry())
    code, message = refused(device, "RECONCILE_AND_COMMIT", changed(change))
    assert (code, words in message, "cannot be kept" in message) == ("INVALID_ARGUMENT", True, True)
    assert pipeline.loads == 1 and pipeline.entries == held and read(device, TableEntry()) == before


def test_a_pipeline_that_refuses_an_entry_of_a_new_program_gets_the_old_one_back() -> None:
    pipeline = Remembering()
    device = full_device(pipeline)
    held = dict(pipeline.entries)
    made = changed(lambda info, _: setattr(table(info).match_fields[0], "id", 4))

    real = pipeline.check

    def check(entry: Any) -> None:
        if pipeline.loads == 2:
            raise SwitchError("BAD_ENTRY", "not with this one")
        real(entry)

    pipeline.check = check  # type: ignore[method-assign]
    code, message = refused(device, "RECONCILE_AND_COMMIT", made)
    assert code == "INVALID_ARGUMENT" and "not with this one" in message
    assert pipeline.entries == held and device.config().cookie.cookie == 7


def test_only_the_primary_sets_a_program_and_only_a_known_action() -> None:
    device = fresh()
    with pytest.raises(Refusal) as answer:
        device.set_config(Set.VERIFY, config(), 2)
    assert answer.value.code == code_pb2.PERMISSION_DENIED
    with pytest.raises(Refusal) as answer:
        device.set_config(Set.VERIFY, config(), None)
    assert answer.value.code == code_pb2.PERMISSION_DENIED
    assert refused(device, "UNSPECIFIED", config())[0] == "INVALID_ARGUMENT"


def test_a_device_can_begin_with_a_program_of_files() -> None:
    pipeline = Remembering()
    device = Device("s1", 1, pipeline)
    device.install(INFO_TEXT, JSON)
    assert pipeline.loads == 1 and device.config().p4info == INFO
    for info, program in (("no text format", JSON), (INFO_TEXT, b"{}"), ("", JSON)):
        with pytest.raises(SwitchError) as answer:
            device.install(info, program)
        assert answer.value.code == "SWITCH.WRONG_PROGRAM"
    assert device.config().p4info == INFO


@pytest.mark.parametrize(
    ("info", "words"),
    [
        ("pkg_info {\n  arch: 5\n}", r"P4Info:2:9: not a P4Info in text format: "),
        (JSON.decode(), r"P4Info:1:1: .*; it starts with '\{' like JSON"),
    ],
)
def test_a_p4info_that_cannot_be_read_is_told_by_line_and_column_in_few_words(
    info: str, words: str
) -> None:
    with pytest.raises(SwitchError, match=words) as answer:
        fresh().install(info, JSON)
    assert len(answer.value.message) < 240


def test_a_write_of_too_many_updates_or_for_nobody_changes_nothing() -> None:
    pipeline = Remembering()
    device = full_device(pipeline)
    held = dict(pipeline.entries)
    (update,) = updates("INSERT", lpm(b"\x0b\0\0\0"))
    with pytest.raises(Refusal, match=f"10001 updates .* {MOST_UPDATES} at most") as answer:
        device.write([update] * (MOST_UPDATES + 1), 0, 1)
    assert answer.value.code == code_pb2.RESOURCE_EXHAUSTED
    waits = iter([True, False])
    with pytest.raises(Refusal) as answer:
        device.write([update] * 1000, 0, 1, lambda: next(waits))
    assert answer.value.code == code_pb2.CANCELLED
    assert pipeline.entries == held
    assert device.write([update], 0, 1) == [None]


def test_before_there_is_a_program_nothing_is_written_or_read() -> None:
    device = fresh()
    for call in (
        lambda: device.write(updates("INSERT", exact(b"\1")), 0, 1),
        lambda: device.read([]),
        device.config,
    ):
        with pytest.raises(Refusal, match="does not have a program") as answer:
            call()
        assert answer.value.code == code_pb2.FAILED_PRECONDITION


@pytest.mark.parametrize("name", ["virtual_trees", "packet_subscriptions"])
def test_the_products_of_each_program_fit_each_other_and_not_those_of_the_other(name: str) -> None:
    info, program = p4_products.products(name)
    device = fresh()
    made = p4runtime_pb2.ForwardingPipelineConfig(p4_device_config=program.read_bytes())
    text_format.Parse(info.read_text(), made.p4info)
    device.set_config(Set.VERIFY, made, 1)
    code, message = refused(device, "VERIFY", config(program=program.read_bytes()))
    assert code == "INVALID_ARGUMENT" and "is missing in the JSON" in message
