"""The command line lists all commands, and imports a command only when it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from stackcast.cli.main import COMMANDS, app

pytestmark = pytest.mark.unit

#: Libraries that take a tenth of a second or more to import.
SLOW = {"grpc", "kafka", "networkx", "numba", "pandas", "pyarrow"}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help(name: str):
    result = CliRunner().invoke(app, [name, "--help"])
    assert result.exit_code == 0 and f"stackcast {name}" in result.output


def test_the_help_lists_all_commands():
    lines = CliRunner().invoke(app, ["--help"]).output.splitlines()
    listed = [line.split()[0] for line in lines[lines.index("Commands:") + 1 :]]
    assert listed == list(COMMANDS)


def test_no_slow_library_is_imported_before_a_command_is_known():
    code = "import sys, stackcast.cli.main; print(*sys.modules)"
    modules = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert not SLOW & set(modules)
