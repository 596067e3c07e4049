"""Commands reject invalid values with the name of the argument, what is wrong, and a remedy."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stackcast.cli.main import app, main
from stackcast.jobs.adapters.app.session import LateSession
from stackcast.jobs.adapters.states.overview import overview
from stackcast.jobs.adapters.states.replica import Replica
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.udfs.errors import EventError, StackError, StateError, TableError

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
        overview(open_tables(session, str(tmp_path)))
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


RULES = "price > 1 : fwd(h1)"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--p4 {0}/p4 --port 1=99999999", "--port 1=99999999: 99999999 is not a switch port"),
        ("--p4 {0}/p4 --port h1=0", "--port h1=0: 0 is not a switch port: ports are 1 to 64"),
        ("--port h1", "--port 'h1' is not of the form HOST=NUMBER"),
        ("--port h1=1", "--port needs --p4"),
        ("--order bogus", "--order 'bogus': format itch has no field 'bogus': give specification"),
    ],
)
def test_options_of_compile_are_checked(options: str, words: str, tmp_path: Path):
    command = ["filters", "compile", "--format", "itch", "--rules", "-"]
    assert words in refusal(*command, *options.format(tmp_path).split(), text=RULES)


def test_compile_reports_ports_of_hosts_that_no_rule_names(tmp_path: Path):
    command = ["filters", "compile", "--format", "itch", "--rules", "-", "--p4"]
    result = CliRunner().invoke(app, [*command, str(tmp_path / "p4"), "--port", "h9=3"], RULES)
    assert "--port h9=3 is ignored: no rule in" in result.output


@pytest.mark.parametrize(
    "options",
    ["match --events -", "why-not --host h1 --events -", "explain --event {} --after -"],
)
def test_rules_and_events_are_not_both_standard_input(options: str):
    name, *others = options.split()
    message = refusal("filters", name, "--format", "itch", "--rules", "-", *others, text=RULES)
    assert "cannot both read standard input" in message


@pytest.mark.parametrize(
    ("event", "words"),
    [("", "not valid JSON"), ('{"price": %s}' % ("1" * 5_000), "a number has too many digits")],
    ids=["empty", "digits"],
)
def test_events_that_are_not_json_are_reported(event: str, words: str):
    command = ["filters", "explain", "--format", "itch", "--rules", "-", "--event", event]
    result = CliRunner().invoke(app, command, RULES)
    assert isinstance(result.exception, EventError) and words in str(result.exception)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--source-mac zz", "--source-mac 'zz' is not a MAC address"),
        ("--source x", "--source 'x' is not an IPv4 address"),
        ("--group x", "--group 'x' is not an IPv4 address"),
    ],
)
def test_addresses_of_a_frame_are_checked(options: str, words: str):
    assert words in refusal("frames", "send", "tree:1", *options.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            "tree:99999999",
            "type tree and id 99999999 do not form a 16-bit label: types are tree",
        ),
        ("tree:1 --group 10.0.0.1", "10.0.0.1 is not a multicast group"),
    ],
)
def test_stacks_of_a_frame_are_checked(arguments: str, words: str):
    result = CliRunner().invoke(app, ["frames", "send", *arguments.split()])
    assert isinstance(result.exception, StackError) and words in str(result.exception)


def test_dissect_takes_no_folder(tmp_path: Path):
    assert "is a folder: give a capture or hex" in refusal("frames", "dissect", str(tmp_path))


@pytest.mark.parametrize(("name", "fault"), [("file", "is not a folder"), ("no", "does not exist")])
def test_a_network_is_checked_in_a_folder(name: str, fault: str, tmp_path: Path):
    (tmp_path / "file").touch()
    result = CliRunner().invoke(app, ["network", "check", str(tmp_path / name)])
    assert isinstance(result.exception, TableError)
    assert f"{fault}: give a folder with files <table>.jsonl" in str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("receive --port 0", "--port 0 must be 1 to 65535"),
        ("receive --port x", "--port 'x' must be a whole number: 1 to 65535"),
        ("receive --silence 0", "--silence 0 must be 0.01 or more"),
        ("receive --silence x", "--silence 'x' must be a number: 0.01 or more"),
        ("receive --drop 2", "--drop 2 must be 0 to 1"),
        ("receive --seed x", "--seed 'x' must be a whole number"),
        ("receive --order x", "--order 'x' is not one of 'arrival', 'sequence'"),
        ("lab up --pods 0", "--pods 0 must be 1 or more"),
    ],
)
def test_values_of_options_are_refused_with_their_limits(arguments: str, words: str):
    assert refusal(*arguments.split()).endswith(f"Error: Invalid value: {words}")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("filters check --format=itch --rules=no-file", "--rules 'no-file'"),
        ("filters check --format itch --rules ./no-file", "--rules 'no-file'"),
        ("filters check --rules - --format no-file.jsonl", "--format 'no-file.jsonl'"),
        ("receive --listen 127.0.0.1:0 --attributes no-file", "--attributes 'no-file'"),
        ("attributes decode no-file", "'no-file'"),
    ],
)
def test_a_missing_file_is_reported_with_its_option_and_without_the_number_of_the_error(
    arguments: str,
    named: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setattr("sys.argv", ["stackcast", *arguments.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"stackcast: {named}: No such file or directory\n"
