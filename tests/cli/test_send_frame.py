"""``stackcast frames send``: what is sent is what was written, and goes where its stack says."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ports import free_port
from tunnels import in_tunnel
from typer.testing import CliRunner

from stackcast.cli.main import app
from stackcast.lab.fabric.ports import read_ports
from stackcast.lab.fabric.standalone import open_ports
from stackcast.udfs.errors import LabError, SinkError, StackcastError
from stackcast.udfs.network.encodings import ROUTES
from stackcast.udfs.network.labels import FORMATS, KINDS
from stackcast.udfs.network.tunnel import Tunnel, TunnelEnd
from stackcast.udfs.stacks.dissect import dissect

pytestmark = pytest.mark.unit

WIDTHS = st.sampled_from([16, 32])


def sent(*arguments: str) -> bytes:
    """The frame that a command prints; raises what it ends with."""
    found = CliRunner().invoke(app, ["frames", "send", *arguments], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return bytes.fromhex(found.output)


@given(data=st.data(), bits=WIDTHS, sequence=st.integers(0, (1 << 64) - 1), message=st.binary())
def test_a_frame_that_is_sent_by_hand_is_read_as_it_was_written(data, bits, sequence, message):
    form = FORMATS[bits]
    pairs = data.draw(
        st.lists(
            st.tuples(st.sampled_from(sorted(KINDS)), st.integers(1, form.max_id)),
            min_size=1,
            max_size=64,
        )
    )
    words = [f"{KINDS[kind]}:{number}" for kind, number in pairs]
    frame = sent(
        *words,
        f"--label-bits={bits}",
        "--source-mac=02:00:0a:40:00:01",
        "--source=10.64.0.1",
        "--group=239.1.2.3",
        "--port=9",
        f"--sequence={sequence}",
        f"--message={message.hex()}",
    )
    parts = dissect(frame)
    assert [form.split(label) for label in parts.labels] == pairs
    assert parts.label_format is form
    assert (parts.source_mac, parts.destination_mac) == (0x02000A400001, 0x01005E010203)
    assert (parts.ipv4.source, parts.ipv4.destination) == (0x0A400001, 0xEF010203)
    assert (parts.udp.source_port, parts.udp.destination_port) == (9, 9)
    assert (parts.session, parts.sequence) == (b"BYHAND    ", sequence)
    assert list(parts.messages) == ([message] if message else [])


def test_a_frame_in_a_tunnel_between_switches_is_read_as_it_went_in():
    frame = sent("tree:1", "--message=53")
    tunnel = Tunnel(TunnelEnd(0x0A090001, 1, 2), 0x0A090002, sends=True)
    shown = CliRunner().invoke(app, ["frames", "dissect", in_tunnel(tunnel, frame).hex()])
    alone = CliRunner().invoke(app, ["frames", "dissect", frame.hex()])
    first, *rest = alone.stdout.splitlines()
    length = first.replace(f"{len(frame)} bytes", f"{len(frame) + 42} bytes")
    way = "  tunnel     10.9.0.1:26403 > 10.9.0.2:26403"
    assert shown.stdout.splitlines() == [length, way, *rest]
    damaged = bytearray(in_tunnel(tunnel, frame))
    damaged[25] ^= 1
    shown = CliRunner().invoke(app, ["frames", "dissect", damaged.hex()])
    assert "STACK.IPV4_CHECKSUM at byte 24" in shown.stdout and shown.exit_code == 1


@pytest.mark.integration
def test_it_leaves_by_the_tunnel_as_one_datagram():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as far:
        far.bind(("127.0.0.1", 0))
        far.settimeout(600)
        # Port 0 stands for any free port.
        tunnel = f"127.0.0.1:{far.getsockname()[1]}/127.0.0.1:0"
        frame = sent("tree:1", "stop:3", "--tunnel", tunnel)
        assert far.recv(65_536) == frame


@pytest.mark.integration
@pytest.mark.parametrize("prefix", ["", "udp:"])
def test_a_frame_enters_the_port_of_a_switch_by_the_tunnel_that_its_option_names(prefix):
    text = f"127.0.0.1:{free_port()}/127.0.0.1:{free_port()}"
    (port,) = open_ports(read_ports([f"1=udp:{text}"]))
    try:
        frame = sent("hop:2", "--tunnel", f"{prefix}{text}")
        assert port.receive() == frame
        assert port.counters.frames_in == 1 and not port.drops
        # From any other address it is counted, and not received.
        near, _, _ = text.partition("/")
        sent("hop:2", "--tunnel", f"{near}/127.0.0.1:0")
        assert port.receive() is None
        assert port.drops == {"unknown_sender": 1}
    finally:
        port.close()


def test_a_single_address_is_refused_with_what_to_write():
    with pytest.raises(LabError) as refused:
        sent("hop:2", "--tunnel", "127.0.0.1:5001")
    assert refused.value.code == "LAB.BAD_PORT"
    assert "for example --tunnel 127.0.0.1:5001/127.0.0.1:5002" in refused.value.message


@pytest.mark.integration
def test_a_frame_that_nothing_receives_is_an_error():
    near, far = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    with pytest.raises(SinkError, match=f"Connection refused.*its end of the tunnel at {near}"):
        sent("hop:2", "--tunnel", f"{near}/{far}")


@pytest.mark.integration
def test_ends_in_the_wrong_order_are_an_error_that_names_the_order():
    near, far = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    (port,) = open_ports(read_ports([f"1=udp:{near}/{far}"]))
    try:
        with pytest.raises(LabError, match=f"another program uses {near}.*end of the switch first"):
            sent("hop:2", "--tunnel", f"{far}/{near}")
    finally:
        port.close()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["branch:1"], "STACK.BAD_LABEL"),
        (["hop:0"], "STACK.BAD_LABEL"),
        (["hop:16384"], "STACK.BAD_LABEL"),
        (["hop:" + "\u0663"], "STACK.BAD_LABEL"),
        (["hop:1"] * 65, "STACK.TOO_MANY_LABELS"),
        (["hop:1", "--group=10.0.0.1"], "STACK.NOT_MULTICAST"),
        (["hop:1", "--message=no"], "STACK.NOT_HEX"),
        (["hop:1", f"--sequence={1 << 64}"], "MESSAGE.BAD_SEQUENCE"),
        (["hop:1", "--tunnel=here"], "LAB.BAD_PORT"),
        (["hop:1", "--tunnel=here/there"], "LAB.BAD_PORT"),
        (["hop:1", "--tunnel=127.0.0.1:0/127.0.0.1:1"], "LAB.BAD_PORT"),
        (["hop:1", "--tunnel=224.0.0.1:1/127.0.0.1:0"], "LAB.BAD_ADDRESS"),
        pytest.param(
            ["hop:1", "--interface=no-such-one"],
            "SINK.(INTERFACE_NOT_FOUND|PERMISSION)",
            marks=pytest.mark.integration,
        ),
    ],
)
def test_what_is_no_frame_is_not_sent_and_says_why(arguments, error):
    with pytest.raises(StackcastError, match=error):
        sent(*arguments)


@pytest.mark.parametrize(
    "wrong", ["--source-mac=02:00", "--source-mac=zz:00:00:00:00:00", "--source=10.0.0"]
)
def test_an_address_that_is_none_is_refused(wrong):
    found = CliRunner().invoke(app, ["frames", "send", "hop:1", wrong])
    assert found.exit_code == 2 and "is not a" in found.output


#: A stack of each encoding but virtual trees.
STACKS = {
    "port": ["switch:3:port:2", "switch:255:port:63"],
    "port_reactive": ["switch:3:port:2", "switch:255:port:63"],
    "bitmask": ["switch:3:bitmask:0x6", "switch:255:bitmask:0x8001"],
    "mc_group": ["switch:3:mc_group:0x103"],
    "mixed": ["switch:3:port:2", "switch:4:bitmask:0x6", "switch:5:mc_group:0x103"],
    "hops": ["hop:17", "hop:65535"],
    "destinations": ["host:17", "host:65535"],
    "tree": ["tree:1"],
    "hybrid": ["tree:1", "root:3", "hop:17"],
    "port_bitmaps": ["host:17", "switch:3", "ports:2,5"],
}


@pytest.mark.parametrize("encoding", ROUTES)
def test_a_stack_of_any_encoding_can_be_sent(encoding):
    words = STACKS[encoding]
    parts = dissect(sent(f"--encoding={encoding}", *words))
    form = parts.label_format
    assert form.encoding == encoding
    assert [form.describe(label).replace(" ", ":") for label in parts.labels] == words
    refused = CliRunner().invoke(app, ["frames", "send", f"--encoding={encoding}", "stop:1"])
    assert refused.exit_code != 0
