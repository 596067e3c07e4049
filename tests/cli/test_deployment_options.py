"""Commands read the settings of a deployment from its properties, and print events as JSON."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from command_line import stackcast

from stackcast.cli import deployment as deployment_module
from stackcast.cli.attributes.event_lines import EventReader
from stackcast.cli.deployment import read_deployment
from stackcast.cli.receive.outlets import LineOutlet
from stackcast.cli.receive.receiving import _service
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.tables.folder_tables import FolderTables
from stackcast.lab.traffic.packets import write_records
from stackcast.udfs.messages.attributes.events import Widths
from stackcast.udfs.messages.attributes.reference import write_event
from stackcast.udfs.messages.attributes.registry import Registry, attribute
from stackcast.udfs.messages.recovery.receiver import Notification
from stackcast.udfs.messages.reference import build_packet

pytestmark = pytest.mark.unit

ATTRIBUTES = """\
{"id": 0, "name": "time", "type": "timestamp", "scale": 1, "offset": 0}
{"id": 1, "name": "temp", "type": "decimal", "scale": 0.1, "offset": -100}
{"id": 2, "name": "place", "type": "text", "scale": 1, "offset": 0}
"""
EVENT = {1: 1255, 2: int.from_bytes(b"EDDF")}
EVENT_JSON = '{"temp": 25.5, "place": "EDDF"}'
SESSION = b"EVENTS0000"


@pytest.fixture
def attributes(tmp_path: Path) -> Path:
    path = tmp_path / "attributes.jsonl"
    path.write_text(ATTRIBUTES)
    return path


@pytest.fixture
def no_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment_module, "read_state", lambda _: None)


def properties(folder: Path, **values: object) -> Path:
    """Write a file of properties; a dot is written as ``_`` in a name."""
    path = folder / "mine.conf"
    lines = (f"spark.stackcast.{key.replace('_', '.')} {value}" for key, value in values.items())
    path.write_text("\n".join(lines) + "\n")
    return path


def test_format_encoding_and_widths_are_those_of_the_file(tmp_path: Path, attributes: Path):
    none = read_deployment(None)
    assert not none.has_events and none.settings == Settings.read([])
    assert not read_deployment(properties(tmp_path, topic="trades")).has_events
    file = properties(
        tmp_path, attributes_encoding="id_pairs", attributes_idBits=16, attributes_bitmaskBits=64
    )
    deployment = read_deployment(file, attributes)
    reader = deployment.events()
    assert deployment.has_events and reader is not None
    assert (reader.encoding, reader.registry.widths) == ("id_pairs", Widths(16, 64))
    # Options on the command line come first.
    reader = read_deployment(file, attributes, "bitmask", "8/32").events()
    assert reader is not None
    assert (reader.encoding, reader.registry.widths) == ("bitmask", Widths(8, 32))
    assert read_deployment(file).has_events and read_deployment(file).events() is None
    itch = properties(tmp_path, format="itch", attributes_encoding="id_pairs")
    assert not read_deployment(itch).has_events


def table_of_attributes(folder: Path) -> Path:
    """Write a table of attributes as a deployment has it."""
    number = pa.decimal128(38, 18)
    tables = FolderTables(str(folder / "tables"))
    tables.create("attributes")
    tables.append(
        "attributes",
        pa.table(
            {
                "id": pa.array([1, 0], pa.int32()),
                "name": ["temp", "time"],
                "type": ["decimal", "timestamp"],
                "scale": pa.array([Decimal("0.1"), Decimal(1)], number),
                "offset": pa.array([Decimal(-100), Decimal(0)], number),
            }
        ),
    )
    return folder / "tables"


def test_attributes_are_exported_as_commands_read_them(tmp_path: Path, no_lab: None):
    tables = table_of_attributes(tmp_path)
    expected = "".join(ATTRIBUTES.splitlines(keepends=True)[:2])
    assert stackcast("attributes", "export", "--tables", tables).stdout == expected
    file = properties(tmp_path, tables=tables)
    out = tmp_path / "exported.jsonl"
    result = stackcast("attributes", "export", "--out", out, "--properties-file", file)
    assert (result.code, result.stdout, result.stderr) == (0, "", "")
    assert out.read_text() == expected
    # A command on the machine of the tables needs no file of attributes.
    deployment = read_deployment(properties(tmp_path, tables=tables, format="attributes"))
    assert deployment.registry is not None and set(deployment.registry.by_name) == {"time", "temp"}


def test_an_export_without_a_deployment_says_what_to_give(no_lab: None):
    result = stackcast("attributes", "export")
    assert result.code == 2 and "give --properties-file or --tables" in result.stderr


def receiver(events: bool, as_json: bool) -> LineOutlet:
    registry = Registry((attribute(1, "temp", "decimal", "0.1", "-100"), attribute(2, "p", "text")))
    reader = EventReader("bitmask", registry) if events else None
    return LineOutlet(as_json, False, itch=not events, events=reader)


def test_events_are_received_as_json(capsys: pytest.CaptureFixture[str]):
    header, new = write_event(EVENT, "bitmask"), write_event({1: 0, 9: 5}, "bitmask", b"\7\xff")
    packet = build_packet(SESSION, 64, [header, new, b"\0"])
    deliveries = [Notification(SESSION, 64, packet)]
    receiver(events=True, as_json=False).put(deliveries)
    assert capsys.readouterr().out.splitlines() == [
        'EVENTS0000 64  {"temp": 25.5, "p": "EDDF"}',
        'EVENTS0000 65  {"temp": -100.0, "id 9": 5}  payload 07ff',
        "EVENTS0000 66  00",
    ]
    receiver(events=True, as_json=True).put(deliveries)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    place = {"session": "EVENTS0000"}
    assert rows == [
        place | {"sequence": 64, "attributes": {"temp": 25.5, "p": "EDDF"}},
        place | {"sequence": 65, "attributes": {"temp": -100.0, "id 9": 5}, "payload": "07ff"},
        place | {"sequence": 66, "hex": "00"},
    ]


def test_a_receiver_of_itch_says_once_how_events_are_read(capsys: pytest.CaptureFixture[str]):
    packet = build_packet(SESSION, 0, [write_event(EVENT, "bitmask")] * 3)
    receiver(events=False, as_json=False).put([Notification(SESSION, 0, packet)])
    printed = capsys.readouterr()
    assert printed.out.count("EVENTS0000 ") == 3
    assert printed.err.count("give --attributes") == 1


@pytest.mark.parametrize(
    ("listen", "service"),
    [("", ""), ("10.64.0.9:26402", "10.64.0.9:26402"), ("0.0.0.0:26402", "")],
)
def test_the_re_request_service_is_that_of_the_file(
    tmp_path: Path, listen: str, service: str, capsys: pytest.CaptureFixture[str]
):
    file = properties(tmp_path, **({"rerequest_listen": listen} if listen else {}))
    assert _service(read_deployment(file).settings) == service
    assert ("give --rerequest" in capsys.readouterr().err) == listen.startswith("0.0.0.0")


def test_a_file_of_events_is_inspected(tmp_path: Path, attributes: Path):
    messages = [write_event(EVENT, "bitmask"), write_event({0: 60}, "bitmask"), b"\0\0"]
    write_records(tmp_path / "plain", messages)
    write_records(tmp_path / "packets", [build_packet(SESSION, 0, messages)])
    for file in (["plain"], ["packets", "--packets"]):
        result = stackcast(
            "itch", "inspect", tmp_path / file[0], *file[1:], "--attributes", attributes
        )
        assert result.stdout.splitlines()[:2] == [EVENT_JSON, '{"time": "1970-01-01T00:01:00Z"}']
        assert result.code == 1 and "TRUNCATED_EVENT" in result.stderr
    result = stackcast("itch", "inspect", tmp_path / "plain", "--attributes", attributes, "--json")
    first, *_, last = map(json.loads, result.stdout.splitlines())
    assert first == {"attributes": {"temp": 25.5, "place": "EDDF"}}
    assert (last["counts"], last["damaged"]) == ({"event bitmask": 2}, 1)
    result = stackcast("itch", "inspect", tmp_path / "plain")
    assert result.code == 1 and "attribute/value events, give --attributes" in result.stderr


def test_frames_are_sent_and_dissected_by_the_file(tmp_path: Path, attributes: Path):
    file = properties(
        tmp_path,
        encoding="port_bitmaps",
        multicast_group="233.54.12.9",
        multicast_port=26500,
        attributes_encoding="id_pairs",
    )
    options = ("--properties-file", file, "--attributes", attributes)
    sent = stackcast("frames", "send", "host:17", *options, "--event", EVENT_JSON)
    assert sent.code == 0, sent.stderr
    dissected = stackcast("frames", "dissect", sent.stdout.strip(), *options, "--json")
    row = json.loads(dissected.stdout)
    assert row["destination"] == "233.54.12.9:26500"
    (message,) = row["messages"]
    assert message["name"] == "id_pairs"
    assert message["attributes"] == {"temp": "25.5", "place": "EDDF"}


def test_an_event_that_is_none_is_not_sent(attributes: Path):
    result = stackcast(
        "frames", "send", "hop:2", "--attributes", attributes, "--event", '{"hum": 1}'
    )
    assert result.code == 2 and "unknown_attribute: hum" in result.stderr
