"""The commands ``stackcast filters`` as people type them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from paths import ROOT
from typer.testing import CliRunner, Result

from stackcast.cli.main import app

EXAMPLES = ROOT / "docs" / "examples"
CAMUS = ["--format", str(EXAMPLES / "camus.spec"), "--rules", str(EXAMPLES / "camus.rules")]


def run(command: str, *arguments: str, stdin: str | bytes = "") -> Result:
    """Runs a command."""
    return CliRunner().invoke(app, ["filters", command, *map(str, arguments)], input=stdin)


def lines(result: Result) -> list[dict[str, Any]]:
    """The objects that it printed, one a line."""
    return [json.loads(line) for line in result.stdout.splitlines()]


def write(folder: Path, rules: str, specification: str | None = None) -> list[str]:
    """Writes rules, and a specification if it is not that of CAMUS; options that name them."""
    (folder / "x.rules").write_text(rules)
    given = str(EXAMPLES / "camus.spec")
    if specification is not None:
        given = str(folder / "x.spec")
        Path(given).write_text(specification)
    return ["--format", given, "--rules", str(folder / "x.rules")]


def match(folder: Path, rules: str, events: str, *more: str, spec: str | None = None) -> Result:
    """Matches events by rules."""
    return run("match", *write(folder, rules, spec), "--events", "-", *more, stdin=events)
