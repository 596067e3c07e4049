"""The commands that documents show, with their output."""

from __future__ import annotations

import re
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jvm
import pytest
from paths import ROOT

DOCS = ROOT / "docs"
DOCUMENTS = [ROOT / "README.md", *sorted(DOCS.rglob("*.md")), ROOT / "CONTRIBUTING.md"]
DOOR = "./spark-submit.sh"
#: The first word of a command, after a prompt, a parenthesis or a variable.
_PROGRAM = re.compile(
    r"(\$ |\(umask 077; |[A-Z_]+=\S+ )?"
    r"(\./spark-submit\.sh|stackcast|spark-submit|spark-class|java -cp|tshark|sudo|head|echo|eval"
    r"|for \w+ in .*; do|useradd|install|cp|systemctl|python3|ruff|/opt/stackcast/bin/python3)( |$)"
)


class Command(NamedTuple):
    """A command of a document.

    Attributes:
        document: path below docs/, or the file name of another document.
        line: the command without its prompt and remark.
        shown: lines of output below a command with a prompt.
    """

    document: str
    line: str
    shown: tuple[str, ...] = ()


def commands() -> Iterator[Command]:
    """Yield each command in a block of code or in README's table of tasks, from top to bottom."""
    for document in DOCUMENTS:
        name = document.name if document.parent == ROOT else document.relative_to(DOCS).as_posix()
        text = document.read_text()
        for block in re.findall(r"(?:^ {4}.*\n|\n(?= {4}))+", text, re.MULTILINE):
            yield from _of_block(name, textwrap.dedent(block).strip("\n"))
        for row in re.findall(r"^\| [^|]+ \| ([^|]*`[^|]*) \|.*\|$", text, re.MULTILINE):
            if name == "README.md":
                for line in re.findall(r"`((?:\./spark-submit\.sh|stackcast) [^`]+)`", row):
                    yield Command(name, line)


def _of_block(document: str, block: str) -> Iterator[Command]:
    lines = re.sub(r" *\\\n *", " ", block).split("\n")
    number = 0
    while number < len(lines):
        match = _PROGRAM.match(lines[number])
        line = lines[number].removeprefix("$ ")
        number += 1
        if not match:
            continue
        while len(re.findall(r"; do\b", line)) > len(re.findall(r"\bdone\b", line)):
            line += f"\n{lines[number]}"
            number += 1
        shown = []
        while number < len(lines) and not _PROGRAM.match(lines[number]):
            shown.append(lines[number])
            number += 1
        # Without a prompt, the lines may belong to another command or file.
        output = tuple(shown) if match[1] == "$ " else ()
        yield Command(document, _without_remark(line), output)


def _without_remark(line: str) -> str:
    """Remove a remark, which begins with two blanks or more, and # or words."""
    return re.sub(r"( {2,}#| {3,}[a-z]).*$", "", line) if "\n" not in line else line


#: The environment exists already; tests/repository/test_spark_submit_script.py tests how the real
#: script creates it.
_SCRIPT = """#!/bin/sh
case "$1" in
  env) ;;
  make) shift; PYTHONPATH=.:tests/support exec python -m "tests.make.$@" ;;
  *) exec spark-submit "$@" ;;
esac
"""


def fill(folder: Path, environment: pytest.MonkeyPatch) -> None:
    """Fill a folder with the files of a clone, and make commands that run in it use its ``var``.

    The entries are links. ``conf`` is a folder of links, because readers add files of their own
    to it.
    """
    environment.setenv("STACKCAST_VAR", str(folder / "var"))
    # Otherwise workers would import modules of the current folder, and compile kernels again that
    # are compiled under another path.
    environment.setenv("PYTHONSAFEPATH", "1")
    for name, value in jvm.as_shipped().items():
        environment.setenv(name, value)
    files = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    for name in {file.partition("/")[0] for file in files} - {"conf", "spark-submit.sh"}:
        (folder / name).symlink_to(ROOT / name)
    (folder / ".git").symlink_to(ROOT / ".git")
    (folder / "conf").mkdir()
    for path in (ROOT / "conf").iterdir():
        (folder / "conf" / path.name).symlink_to(path)
    (folder / "var").mkdir()
    (folder / "var" / "jars").symlink_to(ROOT / "var" / "jars")
    script = folder / "spark-submit.sh"
    script.write_text(_SCRIPT)
    script.chmod(0o755)
