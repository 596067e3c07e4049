"""Table entries over P4Runtime: what may be written, and what a Read gives back."""

from __future__ import annotations

from typing import Any

import pytest
from control_plane import (
    ACTIONS,
    INFO,
    TABLES,
    Remembering,
    WriteRequest,
    entity,
    exact,
    lpm,
    read,
    refusal,
    running,
    table_entry,
    updates,
    write,
)
from examples import examples
from google.rpc import code_pb2
from hypothesis import given
from hypothesis import strategies as st

from stackcast.schemas.p4runtime import p4runtime_pb2
from stackcast.switch.p4runtime.device import Device
from stackcast.udfs.switches.entry import default_entry

pytestmark = pytest.mark.unit

TableEntry = p4runtime_pb2.TableEntry
CounterData = p4runtime_pb2.CounterData


def ternary(match: dict[int, Any], priority: int = 5, action: str = "lose") -> Any:
    return table_entry("ternary_table", {3: ("exact", b"\1"), **match}, action, (), priority)


def ranged(match: dict[int, Any], priority: int = 5) -> Any:
    return table_entry("range_table", match, "NoAction", (), priority)


def bare(table: str, match: dict[int, Any], **action: Any) -> Any:
    """An entry whose action is a member of an action profile, or none."""
    wire = table_entry(table, match)
    if action:
        wire.action.CopyFrom(p4runtime_pb2.TableAction(**action))
    return wire


def called(action: str, *params: bytes) -> Any:
    return table_entry("exact_table", {1: ("exact", b"\1"), 2: ("exact", b"\1")}, action, params)


def matched(**fields: Any) -> Any:
    match = {"one": ("exact", b"\1"), "two": ("exact", b"\1"), **fields}
    numbers = {"one": 1, "two": 2, "seven": 7}
    match = {numbers[name]: value for name, value in match.items() if value}
    return table_entry("exact_table", match, "send", [b"\1"])


METER = p4runtime_pb2.MeterConfig()


@pytest.mark.parametrize(
    ("entry", "code", "words"),
    [
        (TableEntry(table_id=99), "INVALID_ARGUMENT", "table with id 0x63 does not exist"),
        (matched(two=None), "INVALID_ARGUMENT", "'port' is missing"),
        (matched(seven=("exact", b"\1")), "INVALID_ARGUMENT", "id 7"),
        (matched(one=("lpm", b"\1", 3)), "INVALID_ARGUMENT", "must be exact"),
        (exact(b""), "INVALID_ARGUMENT", "one byte"),
        (exact(b"\1\0\0"), "OUT_OF_RANGE", "16 bits"),
        (exact(b"\1", out=b"\2\0"), "OUT_OF_RANGE", "'port': 0x200 does not fit 9 bits"),
        (exact(b"\1", priority=3), "INVALID_ARGUMENT", "priority must be 0"),
        (exact(b"\1", is_const=True), "INVALID_ARGUMENT", "constant"),
        (exact(b"\1", idle_timeout_ns=5), "INVALID_ARGUMENT", "idle timeout"),
        (exact(b"\1", counter_data=CounterData()), "INVALID_ARGUMENT", "no direct counter"),
        (exact(b"\1", meter_config=METER), "INVALID_ARGUMENT", "no direct meter"),
        (called(""), "INVALID_ARGUMENT", "action is required"),
        (called("send"), "INVALID_ARGUMENT", "'port' is missing"),
        (called("send", b"\1", b"\1"), "INVALID_ARGUMENT", "no parameter with id 2"),
        (called("lose"), "INVALID_ARGUMENT", "no action with id"),
        (called("only_default"), "PERMISSION_DENIED", "only for the default action"),
        (bare("lpm_table", {}, action_profile_member_id=1), "INVALID_ARGUMENT", "takes an action"),
        (lpm(b"\x0a\0\0\1"), "INVALID_ARGUMENT", "beyond its prefix"),
        (lpm(b"\x0a\0\0\0", 33), "INVALID_ARGUMENT", "1 to 32 bits"),
        (lpm(b"\x0a\0\0\0", -1), "INVALID_ARGUMENT", "1 to 32 bits"),
        (bare("lpm_table", {1: ("lpm", b"\0", 0)}), "INVALID_ARGUMENT", "omit the field"),
        (ternary({1: ("ternary", b"\0", b"\0")}), "INVALID_ARGUMENT", "omit the field"),
        (ternary({1: ("ternary", b"\3", b"\1")}), "INVALID_ARGUMENT", "hides"),
        (ternary({1: ("ternary", b"", b"\1")}), "INVALID_ARGUMENT", "one byte"),
        (ternary({1: ("ternary", b"\0", b"\1\0\0")}), "OUT_OF_RANGE", "mask"),
        (ternary({2: ("optional", b"")}), "INVALID_ARGUMENT", "one byte"),
        (ternary({2: ("ternary", b"\1", b"\1")}), "INVALID_ARGUMENT", "must be optional"),
        (ternary({}, priority=0), "INVALID_ARGUMENT", "1 or more"),
        (ternary({}, priority=-2), "INVALID_ARGUMENT", "1 or more"),
        (ranged({1: ("range", b"\6", b"\5")}), "INVALID_ARGUMENT", "above"),
        (ranged({1: ("range", b"\0", b"\x0f\xff")}), "INVALID_ARGUMENT", "omit the field"),
        (ranged({1: ("range", b"\0", b"\x10\0")}), "OUT_OF_RANGE", "high end"),
        (bare("keyless", {}), "INVALID_ARGUMENT", "no key"),
        (bare("const_exact", {1: ("exact", b"\5")}), "PERMISSION_DENIED", "constant"),
    ],
)
def test_an_entry_that_breaks_a_rule_is_refused_by_what_is_wrong(
    entry: Any, code: str, words: str
) -> None:
    pipeline = Remembering()
    device = running(pipeline)
    (answer,) = device.write(updates("INSERT", entry), 0, 1)
    assert answer is not None
    assert (code_pb2.Code.Name(answer.code), words in answer.message) == (code, True), str(answer)
    assert not pipeline.entries
    assert read(device, TableEntry(table_id=TABLES["exact_table"].preamble.id)) == []


@st.composite
def wire_entries(draw: st.DrawFn) -> Any:
    """Entries as the specification allows them, of all kinds of match, with leading zeros."""

    def value(bits: int) -> bytes:
        number = draw(st.integers(0, (1 << bits) - 1))
        length = max(1, (number.bit_length() + 7) // 8) + draw(st.integers(0, 2))
        return number.to_bytes(length, "big")

    kind = draw(st.sampled_from(["exact_table", "lpm_table", "ternary_table", "range_table"]))
    match: dict[int, Any] = {}
    ranked = False
    for field in TABLES[kind].match_fields:
        bits = field.bitwidth
        form = field.MatchType.Name(field.match_type).lower()
        ranked |= form in ("ternary", "range", "optional")
        if form != "exact" and draw(st.booleans()):
            continue
        if form in ("exact", "optional"):
            match[field.id] = (form, value(bits))
        elif form == "lpm":
            length = draw(st.integers(1, bits))
            number = draw(st.integers(0, (1 << length) - 1)) << bits - length
            match[field.id] = (form, number.to_bytes(4, "big"), length)
        elif form == "ternary":
            mask = draw(st.integers(1, (1 << bits) - 1))
            number = draw(st.integers(0, (1 << bits) - 1)) & mask
            match[field.id] = (form, number.to_bytes(2, "big"), mask.to_bytes(3, "big"))
        else:
            ends = st.tuples(st.integers(0, 4095), st.integers(0, 4095)).map(sorted)
            # The range of all is written by leaving the field out.
            low, high = draw(ends.filter(lambda pair: pair != [0, 4095]))
            match[field.id] = (form, low.to_bytes(2, "big"), high.to_bytes(2, "big"))
    action = {"range_table": "count"}.get(kind, "send")
    bits = 32 if action == "count" else 9
    priority = draw(st.integers(1, 2**31 - 1)) if ranked else 0
    metadata = draw(st.binary(max_size=3))
    return table_entry(kind, match, action, [value(bits)], priority, metadata=metadata)


def numbers(wire: Any) -> Any:
    """An entry with each byte string as the number that it stands for."""
    match = {
        field.field_id: (
            field.WhichOneof("field_match_type"),
            *(
                int.from_bytes(part, "big") if isinstance(part, bytes) else part
                for _, part in getattr(field, field.WhichOneof("field_match_type")).ListFields()
            ),
        )
        for field in wire.match
    }
    params = {p.param_id: int.from_bytes(p.value, "big") for p in wire.action.action.params}
    return wire.table_id, match, wire.priority, wire.action.action.action_id, params, wire.metadata


@examples(200)
@given(st.lists(wire_entries(), max_size=6))
def test_what_is_written_is_read_back_in_its_shortest_form(wires: list[Any]) -> None:
    device = running()
    written: dict[str, Any] = {}
    for wire in wires:
        (code,) = write(device, "INSERT", wire)
        assert code in ("OK", "ALREADY_EXISTS", "RESOURCE_EXHAUSTED")
        if code == "OK":
            written[str(numbers(wire)[:3])] = numbers(wire)
    own = {TABLES[name].preamble.id for name in ("const_table", "const_exact", "started_table")}
    found = [wire for wire in read(device, TableEntry()) if wire.table_id not in own]
    assert sorted(map(repr, map(numbers, found))) == sorted(map(repr, written.values()))
    for wire in found:
        for field in wire.match:
            for _, part in getattr(field, field.WhichOneof("field_match_type")).ListFields():
                assert not isinstance(part, bytes) or part == b"\0" or part[0]
        # Read and written again, it is the same message.
        assert write(device, "DELETE", wire) == ["OK"]
        assert write(device, "INSERT", wire) == ["OK"]
        key = TableEntry(table_id=wire.table_id, match=wire.match, priority=wire.priority)
        if wire.match:
            assert read(device, key) == [wire]


def test_a_read_filters_by_all_that_it_is_given() -> None:
    device = running()
    entries = [
        exact(b"\1", metadata=b"a", controller_metadata=5),
        exact(b"\2", metadata=b"b"),
        lpm(),
        lpm(length=0),
        ternary({1: ("ternary", b"\1", b"\1")}, 5),
        ternary({1: ("ternary", b"\1", b"\1")}, 6),
        ternary({2: ("optional", b"\7")}, 6),
    ]
    assert write(device, "INSERT", *entries) == ["OK"] * len(entries)
    assert len(read(device, TableEntry())) == len(entries) + 3 + 2 + 2  # and the program's own
    by_table = {name: TABLES[name].preamble.id for name in TABLES}
    one = by_table["exact_table"]
    assert len(read(device, TableEntry(table_id=one))) == 2
    assert read(device, TableEntry(table_id=one, metadata=b"b"))[0].match[0].exact.value == b"\2"
    assert len(read(device, TableEntry(table_id=one, controller_metadata=5))) == 1
    action = p4runtime_pb2.TableAction()
    action.action.action_id = ACTIONS["spread"].preamble.id
    assert read(device, TableEntry(table_id=one, action=action)) == []
    action.action.action_id = ACTIONS["send"].preamble.id
    assert len(read(device, TableEntry(table_id=one, action=action))) == 2
    # An entry that matches all cannot be asked for alone: an empty match asks for all.
    assert len(read(device, TableEntry(table_id=by_table["lpm_table"]))) == 2
    third = by_table["ternary_table"]
    assert len(read(device, TableEntry(table_id=third, priority=6))) == 2
    both = ternary({1: ("ternary", b"\1", b"\1")}, 0)
    both.ClearField("action")
    assert sorted(wire.priority for wire in read(device, both)) == [5, 6]
    both.priority = 6
    assert [wire.priority for wire in read(device, both)] == [6]
    missing = exact(b"\x77")
    assert read(device, missing) == []
    assert refusal(device, TableEntry(table_id=99)) == "INVALID_ARGUMENT"
    assert refusal(device, TableEntry(priority=3)) == "INVALID_ARGUMENT"
    assert (
        refusal(device, TableEntry(table_id=one, counter_data=CounterData())) == "INVALID_ARGUMENT"
    )


def test_one_bad_part_of_a_read_leaves_the_others_answered() -> None:
    device = running()
    write(device, "INSERT", exact(b"\1"))
    found, answers = device.read(
        [entity(TableEntry(table_id=99)), entity(exact(b"\1")), p4runtime_pb2.Entity()]
    )
    assert len(found) == 1
    assert [answer and code_pb2.Code.Name(answer.code) for answer in answers] == [
        "INVALID_ARGUMENT",
        None,
        "INVALID_ARGUMENT",
    ]


def default(table: str, action: str = "", params: Any = (), **options: Any) -> Any:
    return table_entry(table, {}, action, params, is_default_action=True, **options)


def test_a_default_action_is_modified_and_reset_and_never_confused_with_an_entry_for_all() -> None:
    pipeline = Remembering()
    device = running(pipeline)
    key = default_entry("s1", "ingress.lpm_table", "").key
    assert write(device, "INSERT", lpm(length=0, out=b"\2")) == ["OK"]
    assert write(device, "MODIFY", default("lpm_table", "send", [b"\5"], metadata=b"m")) == ["OK"]
    assert pipeline.entries[key].params == (("port", b"\5"),)
    assert pipeline.entries["ingress.lpm_table|"].params == (("port", b"\2"),)
    (now,) = read(device, default("lpm_table"))
    assert now.action.action.params[0].value == b"\5" and now.metadata == b"m"
    assert len(read(device, TableEntry(table_id=TABLES["lpm_table"].preamble.id))) == 1
    assert write(device, "MODIFY", default("lpm_table")) == ["OK"]
    assert key not in pipeline.entries
    (now,) = read(device, default("lpm_table"))
    assert now.action.action.action_id == ACTIONS["lose"].preamble.id and not now.metadata
    assert write(device, "MODIFY", default("keyless", "send", [b"\1"])) == ["OK"]


def test_the_programs_own_default_actions_are_read_with_their_parameters() -> None:
    device = running()
    found = {wire.table_id: wire for wire in read(device, TableEntry(is_default_action=True))}
    assert found.keys() == {table.preamble.id for table in INFO.tables}
    for table in INFO.tables:
        wire = found[table.preamble.id].action.action
        assert wire.action_id == table.initial_default_action.action_id
        for param, initial in zip(wire.params, table.initial_default_action.arguments, strict=True):
            assert int.from_bytes(param.value, "big") == int.from_bytes(initial.value, "big")


@pytest.mark.parametrize(
    ("kind", "entry", "code"),
    [
        ("INSERT", default("lpm_table", "send", [b"\1"]), "INVALID_ARGUMENT"),
        ("DELETE", default("lpm_table"), "INVALID_ARGUMENT"),
        ("MODIFY", default("ternary_table", "lose"), "PERMISSION_DENIED"),
        ("MODIFY", default("ternary_table"), "PERMISSION_DENIED"),
        ("MODIFY", default("exact_table", "only_entries"), "PERMISSION_DENIED"),
        ("MODIFY", default("exact_table", "count", [b"\1"]), "INVALID_ARGUMENT"),
        ("MODIFY", default("lpm_table", "send", [b"\1"], priority=2), "INVALID_ARGUMENT"),
        ("MODIFY", default("lpm_table", "send", [b"\2\0"]), "OUT_OF_RANGE"),
        ("MODIFY", default("lpm_table", counter_data=CounterData()), "UNIMPLEMENTED"),
    ],
)
def test_a_default_action_takes_nothing_that_it_may_not(kind: str, entry: Any, code: str) -> None:
    device = running()
    before = read(device, TableEntry(is_default_action=True))
    assert write(device, kind, entry) == [code]
    assert read(device, TableEntry(is_default_action=True)) == before


def test_entries_of_the_program_itself_are_read_and_stay() -> None:
    pipeline = Remembering()
    device = running(pipeline)
    ranges = read(device, TableEntry(table_id=TABLES["const_table"].preamble.id))
    # First in the program is first in the table.
    assert [wire.priority for wire in ranges] == [3, 2, 1]
    assert all(wire.is_const for wire in ranges)
    first, second, last = ranges
    assert [(f.field_id, f.ternary.value, f.ternary.mask) for f in first.match] == [
        (1, b"\1", b"\x0f")
    ]
    assert (second.match[1].range.low, second.match[1].range.high) == (b"\5", b"\x09")
    assert not last.match and last.action.action.action_id == ACTIONS["lose"].preamble.id
    exacts = read(device, TableEntry(table_id=TABLES["const_exact"].preamble.id))
    assert [(len(wire.match), wire.priority) for wire in exacts] == [(2, 0), (1, 0)]
    changed = TableEntry(match=exacts[0].match, table_id=exacts[0].table_id)
    assert write(device, "DELETE", changed) == ["PERMISSION_DENIED"]
    changed.action.CopyFrom(exacts[1].action)
    assert write(device, "MODIFY", changed) == ["PERMISSION_DENIED"]
    assert write(device, "INSERT", changed) == ["PERMISSION_DENIED"]
    assert write(device, "MODIFY", default("const_exact", "lose")) == ["OK"]  # that is free
    assert read(device, TableEntry(table_id=exacts[0].table_id)) == exacts


def test_entries_that_a_program_only_begins_with_stay_as_in_bmv2() -> None:
    device = running()
    table = TableEntry(table_id=TABLES["started_table"].preamble.id)
    held = read(device, table)
    assert len(held) == 2
    one = table_entry("started_table", {1: ("exact", b"\x10")}, "lose")
    for kind in ("INSERT", "MODIFY", "DELETE"):
        assert write(device, kind, one) == ["UNIMPLEMENTED"]
    assert read(device, table) == held


def test_a_full_table_refuses_more_and_takes_more_after_a_delete() -> None:
    device = running()  # its exact table holds 4
    answers = write(device, "INSERT", *(exact(bytes([number])) for number in range(1, 7)))
    assert answers == ["OK"] * 4 + ["RESOURCE_EXHAUSTED"] * 2
    assert write(device, "MODIFY", exact(b"\1", out=b"\7")) == ["OK"]
    swap = updates("DELETE", exact(b"\1")) + updates("INSERT", exact(b"\6"), exact(b"\7"))
    answers = device.write(swap, 0, 1)
    assert [answer and answer.code for answer in answers] == [
        None,
        None,
        code_pb2.RESOURCE_EXHAUSTED,
    ]


def test_a_modify_without_an_action_keeps_it_and_a_delete_looks_at_the_key_alone() -> None:
    pipeline = Remembering()
    device = running(pipeline)
    write(device, "INSERT", exact(b"\1", out=b"\5", metadata=b"old"))
    bare = exact(b"\1", metadata=b"new")
    bare.ClearField("action")
    assert write(device, "MODIFY", bare) == ["OK"]
    (held,) = read(device, exact(b"\1"))
    assert held.metadata == b"new" and held.action.action.params[0].value == b"\5"
    nonsense = exact(
        b"\1", idle_timeout_ns=7, is_const=True, meter_config=p4runtime_pb2.MeterConfig()
    )
    nonsense.action.action_profile_member_id = 3
    assert write(device, "DELETE", nonsense) == ["OK"]
    assert not pipeline.entries
    assert write(device, "DELETE", nonsense) == ["NOT_FOUND"]
    assert write(device, "MODIFY", exact(b"\1")) == ["NOT_FOUND"]


@pytest.mark.parametrize("mode", ["ROLLBACK_ON_ERROR", "DATAPLANE_ATOMIC"])
def test_a_batch_that_must_be_whole_leaves_no_trace_when_one_update_fails(mode: str) -> None:
    pipeline = Remembering()
    device = running(pipeline)
    number = WriteRequest.Atomicity.Value(mode)
    batch = updates("INSERT", exact(b"\1")) + updates("DELETE", exact(b"\x09"))
    answers = device.write(batch, number, 1)
    assert [answer and code_pb2.Code.Name(answer.code) for answer in answers] == [
        "ABORTED",
        "NOT_FOUND",
    ]
    assert not pipeline.entries and read(device, exact(b"\1")) == []
    assert device.write(batch[:1], number, 1) == [None]
    assert len(pipeline.entries) == 1


def test_updates_of_one_batch_follow_each_other_and_frames_see_the_last_state_only() -> None:
    pipeline = Remembering()
    device = running(pipeline)
    before = len(pipeline.history)
    batch = [
        update
        for number, kind in enumerate(["INSERT", "MODIFY", "DELETE", "INSERT", "INSERT"])
        for update in updates(kind, exact(b"\1", out=bytes([number + 1])))
    ]
    answers = device.write(batch, 0, 1)
    assert answers[:4] == [None] * 4
    assert answers[4] is not None and answers[4].code == code_pb2.ALREADY_EXISTS
    (held,) = read(device, exact(b"\1"))
    assert held.action.action.params[0].value == b"\4"
    assert len(pipeline.history) == before + 1


def test_an_entry_that_the_pipeline_refuses_is_refused_in_its_words() -> None:
    pipeline = Remembering()
    device = running(pipeline)
    pipeline.bad = {"ingress.exact_table"}
    first, second = device.write(updates("INSERT", exact(b"\1"), lpm()), 0, 1)
    assert first is not None and "not here" in first.message and second is None
    assert list(pipeline.entries) == ["ingress.lpm_table|address=0a00000008"]


def test_direct_counters_are_written_and_read_with_their_entries_or_alone() -> None:
    pipeline = Remembering()
    device = running(pipeline)
    counted = p4runtime_pb2.DirectCounterEntry
    data = CounterData(packet_count=3, byte_count=99)
    assert write(device, "INSERT", lpm(counter_data=data), lpm(b"\x0b\0\0\0")) == ["OK"] * 2
    table = TableEntry(table_id=TABLES["lpm_table"].preamble.id)
    assert [wire.HasField("counter_data") for wire in read(device, table)] == [False, False]
    table.counter_data.SetInParent()
    assert [wire.counter_data.byte_count for wire in read(device, table)] == [99, 0]
    assert all(wire.HasField("counter_data") for wire in read(device, table))
    write(device, "MODIFY", lpm(out=b"\2"))  # says nothing of the counter
    assert [each.data.packet_count for each in read(device, counted(table_entry=table))] == [3, 0]
    assert [e.data.packet_count for e in read(device, counted(table_entry=TableEntry()))] == [3, 0]
    key = TableEntry(table_id=table.table_id, match=lpm(b"\x0b\0\0\0").match)
    new = counted(table_entry=key, data=CounterData(packet_count=7))
    assert write(device, "MODIFY", new) == ["OK"]
    assert [each.data.packet_count for each in read(device, counted(table_entry=key))] == [7]
    assert write(device, "INSERT", new) == ["INVALID_ARGUMENT"]
    missing = counted(table_entry=TableEntry(table_id=table.table_id, match=lpm(b"\0", 3).match))
    assert refusal(device, missing) == "NOT_FOUND"
    assert write(device, "MODIFY", missing) == ["NOT_FOUND"]
    assert refusal(device, counted()) == "INVALID_ARGUMENT"
    assert refusal(device, counted(table_entry=exact(b"\1"))) == "INVALID_ARGUMENT"
    assert refusal(device, counted(table_entry=default("lpm_table"))) == "UNIMPLEMENTED"
    # Deleted and inserted in one Write, an entry counts from 0 again.
    device.write(updates("DELETE", key) + updates("INSERT", lpm(b"\x0b\0\0\0")), 0, 1)
    assert [each.data.packet_count for each in read(device, counted(table_entry=key))] == [0]


@examples(150)
@given(st.data())
def test_random_writes_leave_server_and_pipeline_with_what_a_dictionary_would_hold(
    data: st.DataObject,
) -> None:
    pipeline = Remembering()
    device: Device = running(pipeline)
    model: dict[bytes, bytes] = {}
    for _ in range(data.draw(st.integers(1, 6))):
        mode = data.draw(st.sampled_from([0, 1, 2]))
        steps = data.draw(
            st.lists(
                st.tuples(
                    st.sampled_from(["INSERT", "MODIFY", "DELETE"]),
                    st.integers(1, 6).map(lambda n: bytes([n])),
                    st.integers(1, 9).map(lambda n: bytes([n])),
                ),
                max_size=8,
            )
        )
        trial, expected = dict(model), []
        for kind, tag, out in steps:
            code = "OK"
            if kind == "INSERT" and tag in trial:
                code = "ALREADY_EXISTS"
            elif kind == "INSERT" and len(trial) >= 4:
                code = "RESOURCE_EXHAUSTED"
            elif kind != "INSERT" and tag not in trial:
                code = "NOT_FOUND"
            elif kind == "DELETE":
                del trial[tag]
            else:
                trial[tag] = out
            expected.append(code)
        if mode and set(expected) - {"OK"}:
            expected = [code if code != "OK" else "ABORTED" for code in expected]
        else:
            model = trial
        batch = [update for k, tag, out in steps for update in updates(k, exact(tag, out=out))]
        answers = device.write(batch, mode, 1)
        assert [code_pb2.Code.Name(a.code) if a else "OK" for a in answers] == expected
    held = read(device, TableEntry(table_id=TABLES["exact_table"].preamble.id))
    assert {w.match[0].exact.value: w.action.action.params[0].value for w in held} == model
    assert {e.match[0][2]: e.params[0][1] for e in pipeline.entries.values()} == model
