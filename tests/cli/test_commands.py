"""The help of all commands and jobs has one style, and imports no slow library."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import redirect_stdout, suppress
from unittest import mock

import pytest
import typer.main
from paths import ROOT
from typer.testing import CliRunner

from stackcast.cli import states
from stackcast.cli.main import COMMANDS, SUMMARIES, app
from stackcast.jobs.adapters.app.connections import Limits
from stackcast.jobs.adapters.stream.truncation import OPTION
from stackcast.jobs.command_lines import (
    check_delivery,
    console,
    itch_stream,
    load_topology,
    retune_trees,
)
from stackcast.lab.proof import checking
from stackcast.udfs.network import labels
from stackcast.udfs.retuning import comparison
from stackcast.udfs.retuning.change import MIN_SAVING
from stackcast.udfs.states.messages import CONTROLLER_PORT, MIDDLEWARE_PORT

pytestmark = pytest.mark.unit

JOBS = [path.stem for path in (ROOT / "jobs").glob("[!_]*.py")]
#: Libraries that take a tenth of a second or more to import.
SLOW = {"deltalake", "grpc", "kafka", "networkx", "numba", "numpy", "pandas", "pyarrow", "pyspark"}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help(name: str):
    result = CliRunner().invoke(app, [name, "--help"])
    assert result.exit_code == 0 and f"stackcast {name}" in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_shows_the_first_sentence_of_a_commands_help(name: str):
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    assert SUMMARIES[name] == command.get_short_help_str(limit=1000)


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_a_list_of_commands_shows_whole_summaries(name: str):
    text = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "200"}).output
    _, _, listed = text.partition("Commands:\n")
    assert "..." not in listed


@pytest.mark.parametrize(("columns", "shortest"), [(60, 50), (100, 85), (200, 120)])
def test_help_is_as_wide_as_the_terminal(
    columns: int,
    shortest: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit):
        app(["explain", "--help"])
    assert shortest < max(map(len, capsys.readouterr().out.splitlines())) < columns


@pytest.mark.parametrize("words", ["", "network", "network check", "jobs path", "host-key"])
def test_h_is_short_for_help(words: str):
    runner = CliRunner()
    short, full = (runner.invoke(app, [*words.split(), option]) for option in ("-h", "--help"))
    assert (short.exit_code, short.output) == (0, full.output)
    assert "-h, --help" in short.output


def test_the_help_lists_all_commands():
    lines = CliRunner().invoke(app, ["--help"]).output.splitlines()
    listed = [line.split()[0] for line in lines[lines.index("Commands:") + 1 :] if line[2] != " "]
    assert listed == list(COMMANDS)


def wide_help(words: str) -> list[str]:
    """Return the lines of a command's help in a wide terminal, without repeated blanks."""
    wide = mock.patch.dict(os.environ, {"COLUMNS": "400"})
    with wide, redirect_stdout(io.StringIO()) as output, suppress(SystemExit):
        app([*words.split(), "--help"])
    return [" ".join(line.split()) for line in output.getvalue().splitlines()]


STYLE = """
itch inspect | FILE Nasdaq BinaryFILE, .gz or not (required).
itch inspect | --limit NUMBER Largest number of messages to print (default: 20).
filters compile | --port HOST=NUMBER Port to a host for --p4; may be repeated.
receive | --port NUMBER UDP port of the stream (default: that of the properties file, or 26400).
receive | --silence SECONDS Time in seconds without summaries before a request (default: 5).
lab up | --pods NUMBER Number of pods in the fabric (default: 4).
lab up | --subscriptions NUMBER Number of generated subscriptions (default: 1,000).
lab up | --folder FOLDER Folder of the lab (default: var/lab).
rules add | --id ID Id of the rule (default: HOST-1 or the next free number).
"""


@pytest.mark.parametrize("line", STYLE.strip().splitlines())
def test_values_and_defaults_of_options_are_shown_in_one_style(line: str):
    words, _, expected = line.partition(" | ")
    assert expected in wide_help(words)


def test_an_option_of_several_commands_has_one_help():
    """Options that differ in meaning are not among these."""
    shared = ("--json", "--properties-file", "--bootstrap-servers")
    shown: dict[str, set[str]] = {name: set() for name in shared}
    for words in ("itch publish", "rules list", "lab status", "states show", "dead-letters"):
        for line in wide_help(words):
            if (name := line.partition(" ")[0]) in shown:
                shown[name].add(line)
    assert [len(helps) for helps in shown.values()] == [1, 1, 1]


@pytest.mark.parametrize(
    "words",
    [
        *("", "lab up", "states controller", "filters match", "attributes publish", "receive"),
        *("itch publish", "frames dissect", "frames send", "rules add", "dead-letters", "explain"),
    ],
)
def test_no_slow_library_is_imported_for_help(words: str):
    call = f"stackcast.cli.main.app({[*words.split(), '--help']})"
    assert not SLOW & imported_for_help("import stackcast.cli.main", call)


@pytest.mark.parametrize("name", JOBS)
def test_no_slow_library_is_imported_for_help_of_a_job(name: str):
    path = str(ROOT / "jobs" / f"{name}.py")
    call = f"sys.argv = {[path, '--help']}; runpy.run_path({path!r}, run_name='__main__')"
    assert not SLOW & imported_for_help("import runpy", call)


def imported_for_help(imports: str, call: str) -> set[str]:
    """Return the modules that a program has imported when it has printed its help."""
    code = f"import sys\n{imports}\ntry: {call}\nfinally: print(*sys.modules)"
    output = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert "usage:" in output.lower()
    return set(output.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("default", "value"),
    [
        (console.PER_ADDRESS, Limits.per_address),
        (check_delivery.WINDOW, checking.WINDOW),
        (retune_trees.parser().get_default("min_saving"), MIN_SAVING),
        (retune_trees.OBJECTIVES, comparison.OBJECTIVES),
        (load_topology.LABEL_BITS, tuple(sorted(labels.FORMATS))),
    ],
)
def test_defaults_of_jobs_are_those_of_the_modules_that_help_does_not_import(
    default: object, value: object
):
    assert default == value


def test_the_option_that_an_error_names_is_one_of_streams():
    assert itch_stream.parser().parse_args([OPTION]).accept_truncation


def test_the_default_ports_of_states_are_those_of_the_protocol():
    ports = [int(place.partition(":")[2]) for place in (states._CONTROLLER, states._MIDDLEWARE)]
    assert ports == [CONTROLLER_PORT, MIDDLEWARE_PORT]


@pytest.mark.parametrize("words", ["itch publish", "lab feed"])
def test_speeds_are_described_in_one_wording(words: str):
    described = (
        "Publishing speed: full (no limit), recorded (by timestamps), or messages per second"
    )
    assert f"--speed SPEED {described} (default: full)." in wide_help(words)


def test_the_sample_command_of_a_job_is_a_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "60")
    lines = CliRunner().invoke(app, ["jobs", "path", "--help"]).output.splitlines()
    assert any(line.strip().startswith("spark-submit") and "itch_stream" in line for line in lines)
