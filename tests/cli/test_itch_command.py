"""``stackcast itch`` as users type it."""

from __future__ import annotations

import json
from collections import Counter
from importlib.metadata import version
from io import BytesIO
from pathlib import Path

import itchcpp.parser
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import CookedLinuxV2, Dot1Q, Ether
from scapy.packet import Packet, Raw
from scapy_captures import write_pcap
from typer.testing import CliRunner

from stackcast.cli import main
from stackcast.cli.captures import CapturedPackets
from stackcast.cli.itch import app
from stackcast.lab.traffic import trading_session
from stackcast.lab.traffic.packets import check_records, open_records, packetize, write_records
from stackcast.lab.traffic.trading_session import TradingSession
from stackcast.udfs.errors import LabError
from stackcast.udfs.messages.reference import build_packet, read_packet
from stackcast.udfs.messages.summaries import Summary

pytestmark = pytest.mark.unit

SESSION = list(TradingSession(3000, seed=4, symbols=40))


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def day(tmp_path):
    write_records(tmp_path / "day.gz", SESSION)
    return tmp_path / "day.gz"


def test_generate_writes_what_the_session_holds(tmp_path):
    out = tmp_path / "day"
    result = run("generate", "--messages", 3000, "--seed", 4, "--symbols", 40, "--out", out)
    assert "3,000 messages" in result.stdout
    write_records(tmp_path / "same", SESSION)
    assert out.read_bytes() == (tmp_path / "same").read_bytes()


def test_a_session_that_cannot_be_leaves_no_file(tmp_path):
    with pytest.raises(LabError, match="fewer symbols"):
        run("generate", "--messages", 5, "--out", tmp_path / "day")
    assert not list(tmp_path.iterdir())


def test_inspect_prints_readable_lines_and_ends_with_counts(day):
    lines = run("inspect", day, "--limit", 3000).stdout.splitlines()
    assert lines[0] == "03:00:00.000000000  S system_event  event_code=O"
    assert any("  A add_order  " in line and " price=" in line for line in lines)
    counts = {line.split()[0]: int(line.split()[-1].replace(",", "")) for line in lines[3000:]}
    assert counts.pop("total") == 3000
    assert counts == Counter(chr(message[0]) for message in SESSION)


def test_inspect_narrows_by_type_and_symbol_and_speaks_json(day):
    result = run("inspect", day, "--type", "AF", "--symbol", "AAPL", "--json", "--limit", 5)
    *rows, summary = map(json.loads, result.stdout.splitlines())
    assert len(rows) == 5
    assert {(row["type"] in "AF", row["stock"]) for row in rows} == {(True, "AAPL")}
    wanted = [m for m in SESSION if m[0] in b"AF" and m[24:32] == b"AAPL    "]
    assert summary["total"] == len(wanted)
    assert float(rows[0]["price"]) * 10_000 == int.from_bytes(wanted[0][32:36], "big")


def test_packets_are_inspected_too(tmp_path):
    file = tmp_path / "packets"
    write_records(file, packetize(SESSION))
    assert "3,000" in run("inspect", "--packets", file).stdout.splitlines()[-1]
    wrong = run("inspect", file)
    assert wrong.exit_code == 1
    assert "--packets" in wrong.stderr


def test_what_a_host_received_is_inspected_without_the_summaries(tmp_path):
    file = tmp_path / "h1.mold"
    summary = Summary(b"ABCDEFGHIJ", 0, 1 << 26, 3, 7, 1).pack()
    write_records(file, [summary, *packetize(SESSION), summary + bytes(20)])
    result = run("inspect", "--packets", file)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "3,000" in result.stdout.splitlines()[-1]


def test_damage_is_told_with_its_place_and_the_rest_is_read(tmp_path):
    file = tmp_path / "damaged"
    write_records(file, [SESSION[0], b"?what", SESSION[1][:-1], SESSION[2]])
    result = run("inspect", file)
    assert result.exit_code == 1
    for place in ("record 2: MESSAGE.UNKNOWN", "record 3: MESSAGE.WRONG"):
        assert place in result.stderr
    assert result.stdout.split()[-4:] == ["total", "2", "damaged", "2"]


@pytest.mark.parametrize("name", ["cut", "cut.gz"])
def test_a_file_that_ends_too_early_is_told(tmp_path, name):
    whole, cut = tmp_path / f"whole{name[3:]}", tmp_path / name
    write_records(whole, SESSION)
    cut.write_bytes(whole.read_bytes()[:-7])
    result = run("inspect", cut)
    assert result.exit_code == 1
    assert result.stdout.split()[-2:] == ["damaged", "1"]


def write_sessions(path: Path, *sessions: list[bytes]) -> None:
    """Write sessions one after the other, each with the record of length 0 that ends it."""
    write_records(path, [record for session in sessions for record in [*session, b""]])


def others_count(path: Path) -> int:
    """Return how many messages of all sessions itchcpp reads.

    Its parser knows no record of length 0, so it gets one session at a time.
    """
    content, session, count = path.read_bytes(), bytearray(), 0
    while content:
        size = 2 + int.from_bytes(content[:2])
        if size > 2:
            session += content[:size]
        if size == 2 or size == len(content):
            count += len(list(itchcpp.parser.MessageParser().parse_stream(bytes(session))))
            session.clear()
        content = content[size:]
    return count


@pytest.mark.parametrize("name", ["days", "days.gz"])
def test_a_file_of_several_sessions_is_read_to_its_last_byte(tmp_path, name):
    days = [list(TradingSession(count, seed=count, symbols=20)) for count in (500, 700)]
    write_sessions(tmp_path / "days", *days)
    assert others_count(tmp_path / "days") == 1200
    write_sessions(tmp_path / name, *days)
    result = run("inspect", tmp_path / name, "--limit", 0)
    assert result.exit_code == 0
    rows = [line.rsplit(maxsplit=1) for line in result.stdout.splitlines()]
    counts = {what.strip(): int(number.replace(",", "")) for what, number in rows}
    assert (counts.pop("total"), counts.pop("ends of session")) == (1200, 2)
    assert sum(counts.values()) == 1200


def test_a_file_that_begins_with_a_record_of_length_0_is_read(tmp_path):
    write_sessions(tmp_path / "day", [], SESSION)
    result = run("inspect", tmp_path / "day", "--json", "--limit", 0)
    summary = json.loads(result.stdout)
    assert (result.exit_code, summary["total"], summary["ends of session"]) == (0, 3000, 2)
    assert others_count(tmp_path / "day") == 3000


def test_a_file_that_is_cut_off_in_its_second_session_is_reported_with_the_place(tmp_path):
    write_sessions(tmp_path / "days", SESSION[:10], SESSION[10:20])
    whole = (tmp_path / "days").read_bytes()
    (tmp_path / "days").write_bytes(whole[:-5])
    last = len(whole) - 2 - 2 - len(SESSION[19])
    result = run("inspect", tmp_path / "days")
    assert result.exit_code == 1
    assert (
        f"MESSAGE.TRUNCATED_FILE: the file ends inside the record at byte {last}" in result.stderr
    )
    assert result.stdout.split()[-8:-6] == ["total", "19"]


def test_all_sessions_of_a_file_are_packed_for_publication(tmp_path):
    write_sessions(tmp_path / "days", SESSION[:500], SESSION[500:])
    with open_records(tmp_path / "days") as records:
        packed = [
            m for packet in packetize(check_records(records, False)) for m in messages(packet)
        ]
    assert packed == SESSION


def messages(packet: bytes) -> list[bytes]:
    return read_packet(packet)[2]


@pytest.mark.parametrize("arguments", [(), ("some.file", "--generate", "10")])
def test_publish_takes_a_file_or_a_session(arguments):
    result = run("publish", *arguments)
    assert result.exit_code == 2
    assert "give either a file or --generate N" in result.stderr


def test_a_packed_file_is_read_without_the_suffix(tmp_path, day):
    named = run("inspect", day).stdout
    assert "3,000" in named.splitlines()[-1]
    assert run("inspect", day.rename(tmp_path / "day")).stdout == named


PACKETS = list(packetize(SESSION[:60]))
ADDRESSES = {"src": "02:00:00:00:00:01", "dst": "01:00:5e:36:0c:01"}
ARP = Ether(**ADDRESSES, type=0x0806) / Raw(bytes(28))


def datagram(payload: bytes) -> Packet:
    return IP(src="10.0.0.1", dst="233.54.12.1") / UDP(sport=26400, dport=26400) / Raw(payload)


def captured(path: Path) -> CapturedPackets:
    return CapturedPackets(BytesIO(path.read_bytes()), path)


@examples(50)
@given(
    st.lists(st.sampled_from([*PACKETS, build_packet(b"SESSION001", 7, [])]), min_size=1),
    st.lists(st.integers(0, 4095), max_size=3),
    st.booleans(),
)
def test_packets_are_taken_out_of_a_capture_unchanged(tmp_path_factory, packets, vlans, cooked):
    path = tmp_path_factory.mktemp("captures") / "feed.pcap"
    frames = []
    for packet in packets:
        content, ethertype = datagram(packet), 0x0800
        for vlan in vlans:
            content, ethertype = Dot1Q(vlan=vlan, type=ethertype) / content, 0x8100
        head = CookedLinuxV2(proto=ethertype) if cooked else Ether(**ADDRESSES, type=ethertype)
        frames.append(bytes(head / content))
    write_pcap(path, frames, 276 if cooked else 1)
    source = captured(path)
    assert list(source.packets()) == packets
    assert (source.frames, source.left_out) == (len(packets), 0)


def test_other_frames_of_a_capture_are_left_out_and_counted(tmp_path):
    path = tmp_path / "mixed.pcap"
    summary = Summary(b"ABCDEFGHIJ", 0, 1 << 26, 3, 7, 1).pack()
    contents = [datagram(payload) for payload in (PACKETS[0], b"no packet", summary)]
    # A card completes this checksum, or a tool has rewritten the address.
    contents.append(IP(src="10.0.0.1", dst="10.0.0.2") / UDP(chksum=0x1234) / Raw(PACKETS[1]))
    frames = [Ether(**ADDRESSES, type=0x0800) / content for content in contents]
    write_pcap(path, map(bytes, [ARP, *frames]))
    source = captured(path)
    assert list(source.packets()) == PACKETS[:2]
    assert (source.frames, source.left_out) == (5, 3)
    assert source.first_left_out.startswith("frame 1: STACK.UNKNOWN_ETHERTYPE")


def test_a_capture_without_packets_is_one_clear_error(tmp_path):
    write_pcap(tmp_path / "arp", [bytes(ARP)] * 2)
    # Nothing listens there: the error comes before the connection.
    with pytest.raises(LabError, match=r"none of the 2 frames .* contains a MoldUDP64") as caught:
        run("publish", tmp_path / "arp", "--bootstrap-servers", "127.0.0.1:1")
    assert caught.value.code == "LAB.WRONG_RECORDS"


def test_the_module_writes_the_same_file(tmp_path):
    run("generate", "--messages", 500, "--symbols", 20, "--out", tmp_path / "one", "--packets")
    rest = ["--messages", "500", "--symbols", "20", "--seed", "1", "--packets"]
    assert trading_session.main(["--out", str(tmp_path / "two"), *rest]) == 0
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert trading_session.main(["--out", str(tmp_path / "no" / "folder"), *rest]) == 2


@pytest.mark.parametrize(
    ("packets", "option", "hint"),
    [(True, [], "add --packets"), (False, ["--packets"], "omit --packets")],
)
def test_publish_says_when_records_are_of_the_other_kind(tmp_path, packets, option, hint):
    write_records(tmp_path / "file", packetize(SESSION[:50]) if packets else SESSION[:50])
    # Nothing listens there: the error comes before the connection.
    with pytest.raises(LabError, match=hint):
        run("publish", tmp_path / "file", "--bootstrap-servers", "127.0.0.1:1", *option)


def test_the_version_is_told():
    result = CliRunner().invoke(main.app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"stackcast {version('stackcast')}\n")


def test_a_file_that_cannot_be_read_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["stackcast", "itch", "inspect", str(tmp_path / "none")])
    monkeypatch.setattr("stackcast.cli.itch_sessions.open_records", lambda path, **_: path.open())
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_what_a_message_says_reaches_no_terminal_as_an_escape_sequence(tmp_path):
    index = next(n for n, message in enumerate(SESSION) if chr(message[0]) == "A")
    order = bytearray(SESSION[index])
    order[24:32] = b"\x1b[2JA\r\nB"
    write_records(tmp_path / "day", [bytes(order)])
    line = run("inspect", tmp_path / "day").stdout.splitlines()[0]
    assert line.isprintable() and r"stock=\x1b[2JA\r\nB" in line
    write_records(tmp_path / "noise", [b"\x1b[2J"])
    assert "\x1b" not in run("inspect", tmp_path / "noise").output
    assert json.loads(run("inspect", tmp_path / "day", "--json").stdout.splitlines()[0])
