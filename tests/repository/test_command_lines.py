"""Programs take options by their whole names."""

from __future__ import annotations

import re
import subprocess

import pytest
from paths import ROOT

from stackcast.command_line import ArgumentParser

pytestmark = pytest.mark.unit


def test_an_abbreviation_of_an_option_is_refused(capsys: pytest.CaptureFixture[str]):
    parser = ArgumentParser("program", description="A program.")
    assert parser.prog == "program"
    parser.add_argument("--messages", type=int)
    assert parser.parse_args(["--messages", "5"]).messages == 5
    with pytest.raises(SystemExit):
        parser.parse_args(["--mess", "5"])
    assert "unrecognized arguments: --mess 5" in capsys.readouterr().err


def test_no_program_has_a_parser_that_takes_abbreviations():
    files = subprocess.check_output(
        ["git", "ls-files", "benchmarks", "cli", "examples", "jobs", "lab", "switch", "tests/make"],
        cwd=ROOT,
        text=True,
    ).splitlines()
    python = [name for name in files if name.endswith(".py")]
    texts = {name: (ROOT / name).read_text() for name in python}
    usual = re.compile(r"argparse\.ArgumentParser\(|from argparse import .*\bArgumentParser\b")
    assert [name for name, text in texts.items() if usual.search(text)] == []
