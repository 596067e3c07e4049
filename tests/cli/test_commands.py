"""The command line lists all commands, and imports a command only when it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer.main
from typer.testing import CliRunner

from stackcast.cli.main import COMMANDS, SUMMARIES, app

pytestmark = pytest.mark.unit

#: Libraries that take a tenth of a second or more to import.
SLOW = {"grpc", "kafka", "networkx", "numba", "pandas", "pyarrow"}


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


def test_no_slow_library_is_imported_before_a_command_is_known():
    code = (
        "import sys, stackcast.cli.main\n"
        "try: stackcast.cli.main.app(['--help'])\n"
        "finally: print(*sys.modules)"
    )
    output = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert "Commands:" in output and not SLOW & set(output.splitlines()[-1].split())
