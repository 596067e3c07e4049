"""The commands that documents show are there, with these options, jobs and benchmarks."""

from __future__ import annotations

import re
import shlex

import click
import pytest
import typer.main
from doc_commands import DOOR, Command, commands
from paths import ROOT

from cli.main import app

pytestmark = pytest.mark.unit

SHOWN = [c for c in commands() if c.line.startswith((f"{DOOR} ", "stackcast "))]


def words(line: str) -> list[str]:
    """Its words up to a pipe or the like; statements of SQL and placeholders are words, too."""
    found = shlex.split(line, comments=True)
    ends = [n for n, word in enumerate(found) if word in ("|", ">", "<", "&", "&&")]
    return found[: min(ends, default=len(found))]


@pytest.mark.parametrize("command", SHOWN, ids=lambda c: f"{c.document}: {c.line}")
def test_a_command_of_a_document_is_one(command: Command):
    program, *rest = words(command.line)
    if program == DOOR:
        check_door(rest)
    else:
        check_stackcast(rest)


def check_door(rest: list[str]) -> None:
    jobs = [word for word in rest if re.fullmatch(r"jobs/\w+\.py", word)]
    if jobs:
        assert all((ROOT / job).is_file() for job in jobs)
    elif rest[0] == "bench":
        places = (f"{rest[1]}.py", f"{rest[1]}/__main__.py")
        assert any((ROOT / "benchmarks" / place).is_file() for place in places)
    elif rest[0] == "make":
        assert (ROOT / "tests" / "make" / f"{rest[1]}.py").is_file()
    else:
        known = rest[0] in ("test", "env", "--help") or rest[0].startswith("-")
        assert known or (ROOT / rest[0]).is_file()


def check_stackcast(rest: list[str]) -> None:
    command: click.Command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        name = rest.pop(0)
        assert name in command.commands, f"there is no command {name!r}"
        command = command.commands[name]
    known = {name for option in command.params for name in option.opts + option.secondary_opts}
    asked = {word.partition("=")[0].strip("[]") for word in rest if re.match(r"\[?--\w", word)}
    assert asked <= known | {"--help"}


def test_there_are_commands_of_either_program():
    shown = [command.line.split()[0] for command in SHOWN]
    assert shown.count(DOOR) > 20 and shown.count("stackcast") > 10
