"""The tutorial, pasted from its first command to its last, works as it says."""

from __future__ import annotations

import os
import re
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fresh_clone import made
from paths import ROOT
from terminal import Terminal

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
#: What its title says, seconds.
LIMIT_S = 600
#: What the text promises of them.
TOLD = ("|mine|", "|broken|", "|shares >= 900")
#: Of a clone alone: tests/lab/test_embedded.py runs it.
MAIN = "./spark-submit.sh jobs/itch_stream.py"
SQL, PYTHON, CODE = r"(SELECT|INSERT|DELETE) ", "import |from ", r"[A-Z]+\.[A-Z_]+: "


def blocks() -> Iterator[str]:
    """Each block of code, without its indent."""
    for block in re.findall(r"(?:^    .*\n|\n(?=    ))+", TUTORIAL, re.MULTILINE):
        yield textwrap.dedent(block).strip("\n")


@pytest.fixture
def clone(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like a fresh clone; with ``--clone`` one that makes an environment of its own."""
    # Packages, and what is compiled: not of the ten minutes, as the text says.
    return made(tmp_path, monkeypatch, request.config.getoption("--clone"))


class Reader:
    """Somebody who pastes: the stream has a shell, the prompt of SQL another, all else a third."""

    def __init__(self, stream: Terminal, prompt: Terminal, rest: Terminal) -> None:
        self._stream, self._prompt, self._rest = stream, prompt, rest
        self._here = stream
        self.shown = ""

    def paste(self, block: str) -> None:
        """Pastes a block where it belongs, and waits for what it is to bring about."""
        if re.match(SQL, block):
            for statement in re.findall(r"[^;]+;", block):
                self._sql(statement.strip())
        elif re.match(PYTHON, block):
            self._python(block)
        elif re.match(CODE, block):
            code, _, message = block.partition("\n")[0].partition(": ")
            assert code in self.shown and message in self.shown, self.shown
        else:
            for line in block.splitlines():
                self._shell(line)

    def _sql(self, statement: str) -> None:
        self._prompt.type(statement)
        said = self._prompt.until("sql> ")
        assert "ERROR" not in said, said
        self.shown += said
        # Live, or rejected, it is a second or two later.
        waits = re.search("(live|rejected)_subscriptions", statement)
        if waits and not re.search(r"\|(mine|broken) *\|", said):
            time.sleep(0.5)
            self._sql(statement)

    def _shell(self, line: str) -> None:
        if line.endswith("lab.conf jobs/itch_stream.py"):
            self._here.type(line)
            self._here.until("workers ready")
            self._here = self._rest
            self._here.run('eval "$(./spark-submit.sh env)"')
        elif line.endswith("jobs/run_sql.py"):
            self._prompt.type(line)
            self._prompt.until("sql> ")
        else:
            self.shown += self._here.run(line)

    def _python(self, block: str) -> None:
        self._here.type("python")
        self._here.until(">>> ")
        said = ""
        for line in block.splitlines():
            # What is typed while a statement runs may be lost.
            self._here.type(line)
            said += self._here.until(">>> ", "... ")
        assert "Traceback" not in said, said
        self.shown += said
        self._here.press("D")
        self._here.prompt()


def test_every_command_works_as_pasted(
    clone: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
):
    began, times = time.monotonic(), []
    with (
        Terminal(clone, os.environ) as stream,
        Terminal(clone, os.environ) as prompt,
        Terminal(clone, os.environ) as rest,
    ):
        reader = Reader(stream, prompt, rest)
        try:
            for block in blocks():
                if block == MAIN and not request.config.getoption("--clone"):
                    continue
                start = time.monotonic()
                reader.paste(block)
                times.append(f"{time.monotonic() - start:6.1f} s  {block.splitlines()[0]}\n")
        except BaseException:
            rest.type("stackcast lab down")
            rest.until("lab is")
            raise
        finally:
            with capsys.disabled():
                print("\n", *times, sep="", end="")
        stream.press("C")
        stream.prompt()
    for told in TOLD:
        assert told in reader.shown, (told, reader.shown)
    # Of a clone that has the machine alone; beside other tests a start takes as long as it takes.
    if request.config.getoption("--clone"):
        assert time.monotonic() - began < LIMIT_S
