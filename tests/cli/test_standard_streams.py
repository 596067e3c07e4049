"""Commands where a standard stream is closed, as service managers start them."""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

pytestmark = pytest.mark.integration

RULES = "price > 3 : fwd(h1)"


def run(command: str, closed: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f"{shlex.quote(sys.executable)} -m stackcast.cli.main {command} {closed}"],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.fixture
def events(tmp_path: Path) -> Path:
    path = tmp_path / "events.jsonl"
    path.write_text('{"humidity": 30}\n' * 3)
    return path


@pytest.mark.parametrize("closed", ["<&-", "<&- >&-", "<&- 2>&-"])
def test_a_file_is_published_though_standard_streams_are_closed(closed, events):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as far:
        far.bind(("127.0.0.1", 0))
        far.settimeout(600)
        tunnel = "{}:{}".format(*far.getsockname())
        done = run(f"attributes publish {events} --tunnel {tunnel}", closed)
        assert done.returncode == 0, done.stderr
        assert [far.recv(2048)[-8:] for _ in range(3)] == [bytes(7) + bytes([n]) for n in (1, 2, 3)]


@pytest.mark.parametrize(
    "command",
    [
        "attributes encode -",
        "attributes publish - --tunnel 127.0.0.1:9",
        "frames dissect -",
        "filters check --format itch --rules -",
        "filters match --format itch --rules RULES --events -",
    ],
)
def test_a_closed_standard_input_that_is_to_be_read_is_told_in_one_line(command, tmp_path):
    rules = tmp_path / "rules"
    rules.write_text(RULES)
    done = run(command.replace("RULES", str(rules)), "<&-")
    assert done.returncode == 2
    assert done.stderr == "stackcast: standard input is closed: give the name of a file\n"


@pytest.mark.parametrize(
    "command",
    [
        "receive --listen 127.0.0.1:PORT --summary-port 0 --seconds 0.2",
        "attributes publish --sensors 5 --tunnel 127.0.0.1:PORT",
    ],
)
def test_nobody_who_listens_is_no_error(command):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        command = command.replace("PORT", str(free.getsockname()[1]))
    assert run(command, "<&- >&- 2>&-").returncode == 0
