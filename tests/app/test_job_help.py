"""The help of jobs: paragraphs as wide as the terminal, and defaults in one style."""

from __future__ import annotations

import importlib

import pytest
from paths import ROOT

from stackcast.command_line import ArgumentParser

pytestmark = pytest.mark.unit

JOBS = sorted(file.stem for file in (ROOT / "jobs").glob("[!_]*.py"))


def test_paragraphs_are_filled_and_commands_stay_as_they_are(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "60")
    words = "word " * 30
    parser = ArgumentParser(description=f"Title.\n\n    command  {words}\n\n{words}\n{words}\n")
    lines = parser.format_help().splitlines()
    assert f"    command  {words.rstrip()}" in [line.rstrip() for line in lines]
    filled = [line for line in lines if line.startswith("word")]
    assert len(filled) == 6 and max(map(len, filled)) <= 60


def test_help_is_a_sentence_with_the_default():
    parser = ArgumentParser()
    parser.add_argument("--bits", type=int, choices=(16, 32), default=16, help="width in bits")
    parser.add_argument("--seed", metavar="NUMBER", default=1, help="seed (default: %(default)s)")
    parser.add_argument("--window", metavar="TIME", help="time (default: all)")
    parser.add_argument("--replace", action="store_true", help="replace it")
    lines = [" ".join(line.split()) for line in parser.format_help().splitlines()]
    assert "--bits 16|32 Width in bits (default: 16)." in lines
    assert "--seed NUMBER Seed (default: 1)." in lines
    assert "--window TIME Time (default: all)." in lines
    assert "--replace Replace it." in lines
    assert "-h, --help Show this help message and exit." in lines


@pytest.mark.parametrize("name", JOBS)
def test_each_job_has_help_and_refuses_other_options(name: str, capsys: pytest.CaptureFixture[str]):
    main = importlib.import_module(f"stackcast.jobs.{name}").main
    for words, code in ((["-h"], 0), (["--unknown"], 2)):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == code
    output = capsys.readouterr()
    assert f"jobs/{name}.py" in output.out and "--help" in output.out
    assert output.err.startswith(f"usage: {name}.py") or name.endswith("_stream")
