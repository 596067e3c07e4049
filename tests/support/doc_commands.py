"""The commands that documents show, each with what it is shown to print."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

from paths import ROOT

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md"]
DOOR = "./spark-submit.sh"
#: What a command begins with, or has behind a pipe or in parentheses.
_PROGRAM = re.compile(
    r"(\$ |\(umask 077; |[A-Z_]+=\S+ )?"
    r"(\./spark-submit\.sh|stackcast|spark-submit|spark-class|java -cp|tshark|sudo|head|echo|eval"
    r"|for \w+ in .*; do|useradd|install|cp|systemctl|python3|ruff|/opt/stackcast/bin/python3)( |$)"
)


class Command(NamedTuple):
    """A command of a document, without prompt and remark. shown: lines that stand below it."""

    document: str
    line: str
    shown: tuple[str, ...] = ()


def commands() -> Iterator[Command]:
    """Yields each command in a block of code or in README's table of tasks, from top to bottom."""
    for document in DOCUMENTS:
        text = document.read_text()
        for block in re.findall(r"(?:^ {4}.*\n|\n(?= {4}))+", text, re.MULTILINE):
            yield from _of_block(document.name, textwrap.dedent(block).strip("\n"))
        for row in re.findall(r"^\| [^|]+ \| ([^|]*`[^|]*) \|.*\|$", text, re.MULTILINE):
            if document.name == "README.md":
                for line in re.findall(r"`((?:\./spark-submit\.sh|stackcast) [^`]+)`", row):
                    yield Command(document.name, line)


def _of_block(document: str, block: str) -> Iterator[Command]:
    lines = re.sub(r" *\\\n *", " ", block).split("\n")
    at = 0
    while at < len(lines):
        found = _PROGRAM.match(lines[at])
        line = lines[at].removeprefix("$ ")
        at += 1
        if not found:
            continue
        while len(re.findall(r"; do\b", line)) > len(re.findall(r"\bdone\b", line)):
            line += f"\n{lines[at]}"
            at += 1
        shown = []
        while at < len(lines) and not _PROGRAM.match(lines[at]):
            shown.append(lines[at])
            at += 1
        # What is told without a prompt may be of another command, or another file.
        told = tuple(shown) if found[1] == "$ " else ()
        yield Command(document, _without_remark(line), told)


def _without_remark(line: str) -> str:
    """A remark begins with two blanks or more, and # or words."""
    return re.sub(r"( {2,}#| {3,}[a-z]).*$", "", line) if "\n" not in line else line
