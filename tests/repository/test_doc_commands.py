"""Commands in documents exist, with their options, jobs and benchmarks."""

from __future__ import annotations

import re
import shlex

import click
import pytest
import typer.main
from documents import DOOR, Command, commands
from paths import ROOT

from stackcast.cli.main import app

pytestmark = pytest.mark.unit

SHOWN = [c for c in commands() if c.line.startswith((f"{DOOR} ", "stackcast "))]


def words(line: str) -> list[str]:
    """Split a line of shell, up to a pipe or redirection. An SQL statement is a single word."""
    split = shlex.split(line, comments=True)
    ends = [n for n, word in enumerate(split) if word in ("|", ">", "<", "&", "&&")]
    return split[: min(ends, default=len(split))]


@pytest.mark.parametrize("command", SHOWN, ids=lambda c: f"{c.document}: {c.line}")
def test_a_command_in_a_document_exists(command: Command):
    program, *arguments = words(command.line)
    if program == DOOR:
        check_script(arguments)
    else:
        check_stackcast(arguments)


def check_script(arguments: list[str]) -> None:
    """Check the arguments of spark-submit.sh."""
    jobs = [word for word in arguments if re.fullmatch(r"jobs/\w+\.py", word)]
    if jobs:
        assert all((ROOT / job).is_file() for job in jobs)
    elif arguments[0] == "bench":
        names = (f"{arguments[1]}.py", f"{arguments[1]}/__main__.py")
        assert any((ROOT / "benchmarks" / name).is_file() for name in names)
    elif arguments[0] == "make":
        assert (ROOT / "tests" / "make" / f"{arguments[1]}.py").is_file()
    else:
        is_command = arguments[0] in ("test", "env", "--help") or arguments[0].startswith("-")
        assert is_command or (ROOT / arguments[0]).is_file()


def check_stackcast(arguments: list[str]) -> None:
    """Check the subcommands and options of ``stackcast``."""
    command: click.Command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        name = arguments.pop(0)
        assert name in command.commands, f"there is no command {name!r}"
        command = command.commands[name]
    options = {name for option in command.params for name in option.opts + option.secondary_opts}
    shown = {word.partition("=")[0].strip("[]") for word in arguments if re.match(r"\[?--\w", word)}
    assert shown <= options | {"--help"}


def test_documents_show_commands_of_both_programs():
    programs = [command.line.split()[0] for command in SHOWN]
    assert programs.count(DOOR) > 20 and programs.count("stackcast") > 10
