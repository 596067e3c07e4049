"""Statements are typed at a terminal, also under spark-submit, which hands a job none."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.integration

# As spark-submit starts a job: pipes for standard input and output.
JOB = """
import sys
from pathlib import Path
from stackcast.jobs import run_sql
if not run_sql.take_terminal():
    sys.exit("no terminal")
for statement in run_sql.typed(Path(sys.argv[1])):
    print("typed", repr(statement))
print("ended")
"""


def at_a_terminal(history: Path, *keys: str) -> str:
    """What the terminal shows while these keys are typed, each when a prompt is there."""
    child, terminal = pty.fork()
    if child == 0:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        job = subprocess.Popen([sys.executable, "-c", JOB, str(history)], **pipes)
        os._exit(job.wait())
    shown = ""
    left = list(keys)
    while True:
        try:
            shown += os.read(terminal, 4096).decode()
        except OSError:
            break
        if left and shown.endswith("> "):
            os.write(terminal, left.pop(0).encode())
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return shown


UP, CTRL_D = "\x1b[A", "\x04"


def test_statements_end_with_a_semicolon_and_are_brought_back_by_the_arrow_keys(tmp_path: Path):
    history = tmp_path / "var" / "history"
    shown = at_a_terminal(history, "SELECT 1\n", "  + 1; \n", "\n", "SELECT 2;\n", CTRL_D)
    assert "typed 'SELECT 1\\n  + 1'" in shown and "typed 'SELECT 2'" in shown
    assert shown.rstrip().endswith("ended")
    # Of another session.
    assert "typed 'SELECT 2'" in at_a_terminal(history, f"{UP}\n", CTRL_D)


def test_words_about_the_prompt_need_no_semicolon_and_a_text_may_have_one(tmp_path: Path):
    shown = at_a_terminal(tmp_path / "history", "help\n", "SELECT ';\n", "'; SELECT 2;\n", CTRL_D)
    assert "typed 'help'" in shown
    assert """typed "SELECT ';\\n'\"""" in shown and "typed 'SELECT 2'" in shown


# As spark-submit starts a job: its standard input is a pipe in which nothing comes.
SUBMIT = """
import os, subprocess, sys
environment = {**os.environ, "PYSPARK_GATEWAY_PORT": "1"}
job = subprocess.Popen(
    [sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE, env=environment
)
sys.exit(job.wait())
"""
INPUT = """
from stackcast.jobs import run_sql
source = run_sql.piped_input()
print(source and source.read_text())
"""


def input_of_the_job(**options: Any) -> str:
    command = [sys.executable, "-c", SUBMIT, INPUT]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, **options)
    return ran.stdout.strip()


def test_statements_come_from_the_standard_input_of_spark_submit(tmp_path: Path):
    file = tmp_path / "statements.sql"
    file.write_text("SELECT 1")
    with file.open() as source:
        assert input_of_the_job(stdin=source) == "SELECT 1"
    assert input_of_the_job(input="SELECT 2") == "SELECT 2"
    assert input_of_the_job(stdin=subprocess.DEVNULL) == "None"


def test_without_a_terminal_nothing_is_asked(tmp_path: Path):
    ran = subprocess.run(
        [sys.executable, "-c", JOB, str(tmp_path / "history")],
        start_new_session=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1 and "no terminal" in ran.stderr
