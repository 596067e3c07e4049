"""``stackcast attributes``: what people type, and what they get."""

from __future__ import annotations

import json
import signal
import socket
import struct
import sys
import threading
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from subprocess import PIPE, Popen
from tempfile import TemporaryDirectory

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT
from scapy.layers.inet import IP, UDP
from scapy.packet import Raw
from typer.testing import CliRunner, Result

from stackcast.cli.attributes.files import RecordBatch
from stackcast.cli.attributes.publishing import paced
from stackcast.cli.main import app
from stackcast.lab.traffic.sensors import events
from stackcast.udfs.errors import AttributeTableError, StackcastError
from stackcast.udfs.messages.reference import build_packet

pytestmark = pytest.mark.unit

ENCODINGS = ("id_pairs", "bitmask")
REGISTRY = """\
{"id": 0, "name": "timestamp", "type": "timestamp", "scale": 1, "offset": 0}
{"id": 1, "name": "temp", "type": "decimal", "scale": 0.500000000000000000, "offset": -100}
{"id": 2, "name": "hum", "type": "unsigned", "scale": 1, "offset": 0, "registered_by": "me"}
{"id": 31, "name": "level", "type": "signed", "scale": 1, "offset": -2147483648}
"""


@pytest.fixture
def registry(tmp_path: Path) -> str:
    file = tmp_path / "attributes.jsonl"
    file.write_text(REGISTRY)
    return str(file)


def run(command: str, *arguments: object, stdin: str | bytes = "") -> Result:
    result = CliRunner().invoke(app, ["attributes", command, *map(str, arguments)], input=stdin)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def by_hand(encoding: str, values: dict[int, int]) -> bytes:
    """A header as KUNDEL III-B has it, raw values by id."""
    ids = sorted(values)
    if encoding == "bitmask":
        mask = sum(1 << number for number in ids)
        return struct.pack(f">I{len(ids)}I", mask, *(values[number] for number in ids))
    chain = b"".join(
        struct.pack(">IB", values[number], following)
        for number, following in zip(ids, [*ids[1:], 0], strict=True)
    )
    return bytes([ids[0]]) + chain


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_an_event_is_written_as_the_text_has_it(encoding: str, registry: str):
    line = '{"hum": 30, "timestamp": "1970-01-01T00:01:00Z", "temp": 25.5}\n'
    result = run("encode", "--encoding", encoding, "--attributes", registry, stdin=line)
    assert result.stdout == by_hand(encoding, {0: 60, 1: 251, 2: 30}).hex() + "\n"
    assert "1 events encoded" in result.stderr
    assert result.exit_code == 0


def test_bad_lines_are_told_with_number_and_reason_and_the_rest_goes_on(registry: str):
    lines = b'{"hum": 1}\n\n{"hum": "wet"}\nnot json\n{"hum": 2}\n{"wind": 3}\n{"hum": 3}'
    result = run("encode", "--attributes", registry, stdin=lines)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [by_hand("id_pairs", {2: n}).hex() for n in (1, 2, 3)]
    *told, summary = result.stderr.splitlines()
    assert told == [
        "line 3: not_a_number: hum",
        "line 4: malformed_json",
        "line 6: unknown_attribute: wind",
    ]
    assert summary == ("3 events encoded, 1 not_a_number, 1 malformed_json, 1 unknown_attribute")


def test_values_that_an_encoding_rounds_are_counted_and_the_first_is_shown(registry: str):
    lines = (
        '{"hum": 30, "temp": 25.5, "wind": 0.5}\n'
        '{"timestamp": 1.5, "hum": 31.4}\n'
        '{"temp": -3.25, "hum": "wet"}\n'
        '{"temp": -3.26, "timestamp": "1970-01-01T00:01:00.5Z"}\n'
    )
    result = run("encode", "--attributes", registry, stdin=lines)
    *_, rounded, summary = result.stderr.splitlines()
    assert rounded == (
        "3 values are rounded to steps of the attribute, as in line 2: timestamp 1.5 is 2"
    )
    assert summary.startswith("2 events encoded, ")
    # A line that is no event has no values.
    assert "rounded" not in run("encode", "--attributes", registry, stdin='{"wind": 1.5}').stderr


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("form", ["hex", "file", "packed", "pcap", "hex file"])
def test_what_is_decoded_is_what_was_encoded(encoding: str, form: str, tmp_path: Path):
    lines = list(events(300, seed=3))
    out: list[object] = {
        "hex": [],
        "file": ["--out", tmp_path / "x"],
        "packed": ["--out", tmp_path / "x.gz"],
        "pcap": ["--frames", "--out", tmp_path / "{x}.pcap"],
        "hex file": ["--hex", "--out", tmp_path / "x"],
    }[form]
    made = run("encode", "--encoding", encoding, *out, stdin=b"\n".join(lines))
    assert made.exit_code == 0, made.stderr
    # The frames' destination says their encoding.
    told = [] if form == "pcap" else ["--encoding", encoding]
    result = run("decode", out[-1] if out else "-", *told, stdin=made.stdout)
    assert result.exit_code == 0, result.stderr
    assert "300 events decoded" in result.stderr
    for line, found in zip(lines, result.stdout.splitlines(), strict=True):
        assert plain(found) == plain(line)


def plain(line: str | bytes) -> dict[str, Decimal]:
    """Names and values of an event, times as seconds since 1970."""
    found = json.loads(line, parse_float=Decimal)
    if isinstance(time := found.get("timestamp"), str):
        found["timestamp"] = datetime.fromisoformat(time).timestamp()
    return found


VALUES = st.dictionaries(st.sampled_from((0, 1, 2, 31)), st.integers(0, (1 << 32) - 1), min_size=1)


@pytest.mark.parametrize("encoding", ENCODINGS)
@examples(25)
@given(st.lists(VALUES, min_size=1, max_size=20))
def test_any_record_comes_back_out_of_its_json(encoding: str, several: list[dict[int, int]]):
    with TemporaryDirectory() as folder:
        registry = Path(folder) / "attributes.jsonl"
        registry.write_text(REGISTRY)
        told = ("--encoding", encoding, "--attributes", registry)
        records = "".join(by_hand(encoding, values).hex() + "\n" for values in several)
        decoded = run("decode", *told, stdin=records)
        assert decoded.exit_code == 0, decoded.stderr
        assert run("encode", *told, stdin=decoded.stdout).stdout == records


def test_records_that_are_no_events_are_told_and_the_rest_is_decoded(registry: str):
    good = by_hand("id_pairs", {1: 240, 2: 7}).hex()
    bad = ["zz", "05 00000001 00", "01 000000", "02 00000001 02 00000001 00", ""]
    stdin = "\n".join([good, *bad, f"0x{good}"])
    result = run("decode", "--attributes", registry, stdin=stdin)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == ['{"temp": 20.0, "hum": 7}'] * 2
    assert result.stderr.splitlines()[:-1] == [
        "line 2: not_hex",
        "line 3: unknown_attribute: id 5",
        "line 4: truncated_event: temp",
        "line 5: id_twice: hum",
    ]


def test_frames_of_both_encodings_and_of_others_may_share_a_file(registry: str, tmp_path: Path):
    event = {0: 5, 2: 9}
    frames = [
        bytes.fromhex("035343000001 020000000001 9001") + by_hand("id_pairs", event),
        bytes.fromhex("ffffffffffff 020000000001 0806") + bytes(28),
        bytes.fromhex("035343000002 020000000001 9001") + by_hand("bitmask", event) + b"more",
        bytes.fromhex("035343000002 020000000001 9001") + by_hand("bitmask", event)[:-1],
    ]
    file = tmp_path / "x.pcap"
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    packed = [struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame for frame in frames]
    file.write_bytes(head + b"".join(packed))
    result = run("decode", file, "--attributes", registry)
    assert result.stdout.splitlines() == ['{"timestamp": "1970-01-01T00:00:05Z", "hum": 9}'] * 2
    assert result.stderr.splitlines() == [
        "frame 4: truncated_event: hum",
        "2 events decoded, 1 truncated_event, 1 other frames skipped",
    ]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_an_encoding_is_not_asked_for_where_frames_say_theirs(
    encoding: str, registry: str, tmp_path: Path
):
    """Bitmasks to another destination would be read as id pairs, and values come out wrong."""
    file = tmp_path / "x.pcap"
    told = ("--attributes", registry)
    run("encode", "--frames", "--encoding", encoding, "--out", file, *told, stdin='{"hum": 9}')
    result = run("decode", file, "--encoding", encoding, *told)
    assert result.exit_code == 2 and not result.stdout
    assert "frames name their encoding" in " ".join(result.stderr.replace("│", " ").split())
    assert run("decode", file, *told).stdout == '{"hum": 9}\n'


def test_a_huge_line_harms_nobody_around_it(registry: str):
    good = b'{"hum": 1}\n'
    huge = b'{"hum": ' + b"1" * (10 << 20) + b"}\n"
    result = run("encode", "--attributes", registry, stdin=good + huge + good)
    assert len(result.stdout.splitlines()) == 2
    assert result.stderr.startswith("line 2: event_too_large\n")


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("[1]", "EVENT.NOT_JSON"),
        ("{", "EVENT.NOT_JSON"),
        ('{"id": 32, "name": "x", "type": "unsigned", "scale": 1, "offset": 0}', "BAD_ROW"),
        (REGISTRY.splitlines()[1], "DUPLICATE"),
    ],
)
def test_a_registry_that_is_none_is_refused(row: str, told: str, tmp_path: Path):
    file = tmp_path / "attributes.jsonl"
    file.write_text(REGISTRY + row)
    with pytest.raises(StackcastError) as raised:
        run("encode", "--attributes", file, stdin="{}")
    assert told in raised.value.code
    assert "\n" not in str(raised.value)


@pytest.mark.integration
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_events_go_onto_a_wire_each_with_its_key(encoding: str):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as far:
        far.bind(("127.0.0.1", 0))
        far.settimeout(600)
        tunnel = "{}:{}".format(*far.getsockname())
        told = ["--encoding", encoding, "--session", "SENSORS001", "--source", "02:00:00:00:00:09"]
        result = run("publish", "--sensors", 20, "--seed", 5, "--tunnel", tunnel, *told)
        frames = [far.recv(2048) for _ in range(20)]
    assert result.exit_code == 0, result.stderr
    assert result.stderr.startswith(f"{tunnel}: 20 events, ")
    plain_ = run("encode", "--encoding", encoding, stdin=b"\n".join(events(20, seed=5)))
    group = {"id_pairs": "035343000001", "bitmask": "035343000002"}[encoding]
    for number, (frame, record) in enumerate(
        zip(frames, plain_.stdout.splitlines(), strict=True), start=1
    ):
        key = b"SENSORS001" + number.to_bytes(8)
        assert frame.hex() == f"{group}0200000000099001{record}{key.hex()}"


@pytest.mark.integration
def test_faulty_events_take_no_number_on_a_wire():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as far:
        far.bind(("127.0.0.1", 0))
        far.settimeout(600)
        tunnel = "{}:{}".format(*far.getsockname())
        result = run("publish", "--sensors", 60, "--faults", 0.5, "--tunnel", tunnel)
        sent = int(result.stderr.splitlines()[-1].split(" events")[0].split()[-1])
        numbers = [int.from_bytes(far.recv(2048)[-8:]) for _ in range(sent)]
    assert result.exit_code == 1
    assert 0 < sent < 60
    assert sent + len(result.stderr.splitlines()) - 1 == 60
    assert numbers == list(range(1, sent + 1))


@pytest.mark.integration
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_publisher_says_what_it_sent(number: int):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as far:
        far.bind(("127.0.0.1", 0))
        far.settimeout(600)
        tunnel = "{}:{}".format(*far.getsockname())
        command = [sys.executable, "-m", "stackcast.cli.main", "attributes", "publish", "-"]
        with Popen([*command, "--tunnel", tunnel], stdin=PIPE, stderr=PIPE, cwd=ROOT) as publisher:
            assert publisher.stdin
            publisher.stdin.write(b'{"humidity": 30}\n' * 2)
            publisher.stdin.flush()
            assert [far.recv(2048)[-8:] for _ in range(2)] == [bytes(7) + b"\1", bytes(7) + b"\2"]
            publisher.send_signal(number)
            assert publisher.stderr
            assert publisher.wait(600) == 0
            told = publisher.stderr.read().decode()
    assert told.startswith(f"{tunnel}: 2 events, ")
    assert told.endswith("s, stopped\n")


def test_a_rate_is_kept_without_losing_any_event():
    stop = threading.Event()
    batches = [
        RecordBatch([1, 2, 3], [b"a", b"b", b"c"]),
        RecordBatch([4], [b"d"], [(5, "not_hex")]),
    ]
    found = list(paced(batches, 1000.0, stop))
    assert b"".join(record for batch in found for record in batch.records) == b"abcd"
    assert [place for batch in found for place in batch.places] == [1, 2, 3, 4]
    assert [fault for batch in found for fault in batch.faults] == [(5, "not_hex")]
    stop.set()
    assert not list(paced(batches, 0.0, stop))


@pytest.mark.parametrize(
    "arguments",
    [
        ["publish", "--topic", "x"],
        ["publish", "-", "--sensors", "3", "--topic", "x"],
        ["publish", "--sensors", "3"],
        ["publish", "--sensors", "3", "--topic", "x", "--tunnel", "h:1"],
        ["publish", "--sensors", "3", "--tunnel", "h:1", "--encoding", "json"],
        ["publish", "--sensors", "3", "--tunnel", "h:1", "--session", "short"],
        ["publish", "--sensors", "3", "--tunnel", "h:1", "--source", "nobody"],
        ["encode", "--frames", "--out", "x.bin"],
        ["encode", "--encoding", "morse"],
        ["encode", "--widths", "4/32"],
        ["decode", "--widths", "16"],
    ],
)
def test_orders_that_make_no_sense_are_refused(arguments: list[str]):
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Error" in result.stderr


def test_dissect_shows_events_of_frames_and_of_messages(registry: str):
    event = {0: 5, 2: 9, 7: 1}
    frame = bytes.fromhex("035343000002 020000000001 9001") + by_hand("bitmask", event)
    key = b"SENSORS001" + (77).to_bytes(8)
    shown = dissect(frame + key, "--attributes", registry, "--json")
    row = json.loads(shown.stdout)
    assert row["encoding"] == "bitmask"
    assert row["attributes"] == {"timestamp": "1970-01-01T00:00:05Z", "hum": "9", "id 7": "1"}
    assert (row["session"], row["sequence"]) == ("SENSORS001", 77)
    text = dissect(frame + key, "--attributes", registry).stdout
    assert "hum=9" in text
    assert "session SENSORS001  sequence 77" in text
    cut = dissect(frame[:-1], "--json")
    assert cut.exit_code == 1
    [error] = json.loads(cut.stdout)["errors"]
    assert (error["code"], error["offset"]) == ("STACK.TRUNCATED_EVENT", 26)

    messages = [by_hand("id_pairs", {2: 1}), by_hand("id_pairs", {1: 0}) + b"x", b"\x05"]
    mold = build_packet(b"SENSORS001", 9, messages)
    datagram = bytes(IP(src="10.0.0.1", dst="239.0.0.1") / UDP(sport=1, dport=2) / Raw(mold))
    plain_ = bytes.fromhex("01005e000001 020000000001 0800") + datagram
    shown = dissect(plain_, "--attributes", registry, "--encoding", "id_pairs", "--json")
    row = json.loads(shown.stdout)
    assert [message.get("attributes") for message in row["messages"]] == [
        {"hum": "1"},
        {"temp": "-100.0"},
        None,
    ]
    assert row["messages"][1]["payload"] == "78"
    assert [error["code"] for error in row["errors"]] == ["MESSAGE.TRUNCATED_EVENT"]
    assert (
        "temp=-100.0 payload=78"
        in dissect(plain_, "--attributes", registry, "--encoding", "id_pairs").stdout
    )


def dissect(frame: bytes, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["frames", "dissect", frame.hex(), *arguments])


def test_headers_of_other_widths_are_written_read_and_shown(tmp_path: Path):
    file = tmp_path / "wide.jsonl"
    file.write_text('{"id": 63, "name": "hum", "type": "unsigned", "scale": 1, "offset": 0}\n')
    known = ("--attributes", file, "--widths", "16/64")
    line = '{"hum": 30}\n'
    for encoding, header in (
        ("id_pairs", "003f 0000001e 0000"),
        ("bitmask", "8000000000000000 0000001e"),
    ):
        written = run("encode", "--encoding", encoding, *known, stdin=line)
        assert written.stdout == header.replace(" ", "") + "\n", written.stderr
        assert run("decode", "--encoding", encoding, *known, stdin=written.stdout).stdout == line
        group = {"id_pairs": "01", "bitmask": "02"}[encoding]
        frame = bytes.fromhex(f"0353430000{group} 020000000001 9001" + header)
        assert "hum=30" in dissect(frame, *map(str, known)).stdout
    with pytest.raises(AttributeTableError, match="needs an id from 0 to 31"):
        run("encode", "--attributes", file, stdin=line)
