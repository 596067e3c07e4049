"""Commands reject invalid values with the name of the argument, what is wrong, and a remedy."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stackcast.cli.main import app
from stackcast.jobs.adapters.app.session import LateSession
from stackcast.jobs.adapters.states.overview import overview
from stackcast.jobs.adapters.states.replica import Replica
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.udfs.errors import StateError, TableError

pytestmark = pytest.mark.unit


def refusal(*arguments: str, text: str = "") -> str:
    """Return the message of a command that is refused with exit code 2."""
    result = CliRunner().invoke(app, list(arguments), input=text)
    assert result.exit_code == 2, result.output
    return " ".join(result.output.split())


@pytest.mark.parametrize("command", ["publish", "subscribe"])
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("\udcff", "contains the non-printable character"),
        ("", "is empty"),
        ("a\nb", "contains the non-printable character"),
    ],
)
def test_names_of_states_are_checked(command: str, name: str, fault: str):
    assert f"STATE {fault}" in refusal("states", command, name)


@pytest.mark.parametrize(("name", "fault"), [("\udcff", "contains"), ("", "is empty")])
def test_host_key_checks_the_name_of_the_host(name: str, fault: str):
    assert f"HOST {fault}" in refusal("host-key", "keys", name)


def test_a_missing_table_of_states_is_an_error_with_a_remedy(tmp_path: Path):
    session = LateSession("test")
    with pytest.raises(TableError, match=r"table vnfs does not exist .*: run jobs/create_tables"):
        overview(Tables(session, str(tmp_path)))
    assert not session.started


def test_a_program_reports_an_unreachable_middleware_once(caplog: pytest.LogCaptureFixture):
    # No program listens on this privileged port.
    address = ("127.0.0.1", 1)
    with caplog.at_level(logging.WARNING), Replica("s", "program", address) as replica:
        replica.publish(b"1")
        with pytest.raises(StateError, match=r"confirmed 1 update of program in .* a middleware"):
            replica.flush(0.8)
    (line,) = caplog.messages
    assert line.endswith(f":{address[1]} is not reachable (Connection refused); trying again")


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("filters", "check", "--format", "itch", "--rules", ""), "--rules ''"),
        (("filters", "check", "--format", "itch", "--rules", "/"), "--rules '/' is a folder"),
        (("filters", "compile", "--format=itch", "--rules=x", "--p4="), "--p4 ''"),
        (("filters", "match", "--format=itch", "--rules=x", "--events", "/"), "--events '/'"),
        (("frames", "send", "tree:1", "--attributes", ""), "--attributes ''"),
        (("host-key", "", "h1"), "FILE ''"),
    ],
)
def test_a_file_is_neither_empty_nor_a_folder(arguments: tuple[str, ...], option: str):
    message = refusal(*arguments)
    assert option in message and "give a file" in message
