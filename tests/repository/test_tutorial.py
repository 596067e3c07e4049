"""The tutorial of the lab, pasted from its first command to its last, works as its text says."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import textwrap
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType

import documents
import pytest
from paths import ROOT

pytestmark = pytest.mark.long

TUTORIAL = (ROOT / "docs" / "tutorials" / "lab.md").read_text()
#: Limit against hangs, in seconds: a job takes minutes on a busy machine.
PATIENCE = 600.0
#: Parts of the output that the text promises.
PROMISED = ("|mine|", "|broken|", "|shares >= 900")
#: tests/lab/test_embedded.py runs the first command.
MAIN = "./spark-submit.sh jobs/itch_stream.py"
SQL, PYTHON, CODE = r"(SELECT|INSERT|DELETE) ", "import |from ", r"[A-Z]+\.[A-Z_]+: "
CONTROL_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r")
PROMPT = "pasted> "


class Terminal:
    """Bash at a terminal of its own. A context manager that ends it, and its programs."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._pid, self._file = pty.fork()
        if self._pid == 0:
            os.chdir(folder)
            settings = {"PS1": PROMPT, "TERM": "dumb", "HISTFILE": "", "COLUMNS": "200"}
            command = ["bash", "--norc", "--noediting"]
            os.execvpe(command[0], command, {**environment, **settings})
        self._unread = ""
        self.prompt()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._file)
        os.kill(self._pid, signal.SIGHUP)
        os.waitpid(self._pid, 0)

    def type(self, text: str) -> None:
        """Type lines, and Enter after the last one."""
        os.write(self._file, f"{text}\n".encode())

    def press(self, key: str) -> None:
        """Press Ctrl and a key."""
        os.write(self._file, bytes([ord(key) & 31]))

    def run(self, line: str) -> str:
        """Return the output of a command, which must succeed."""
        self.type(line)
        output = self.prompt()
        self.type("echo code $?")
        assert "code 0\n" in self.prompt(), f"{line}: {output[-3000:]}"
        return output.partition("\n")[2]

    def prompt(self) -> str:
        """Return the output up to the next prompt of the shell, without it."""
        return self.until(PROMPT).removesuffix(PROMPT)

    def until(self, *texts: str) -> str:
        """Return the output up to the first of these texts, once it appears."""
        deadline = time.monotonic() + PATIENCE
        while not (match := re.search("|".join(map(re.escape, texts)), self._unread)):
            assert time.monotonic() < deadline, f"no {texts} in {self._unread[-3000:]!r}"
            if select.select([self._file], [], [], 1.0)[0]:
                try:
                    data = os.read(self._file, 65536)
                except OSError:
                    raise AssertionError(f"the terminal ended: {self._unread[-3000:]}") from None
                self._unread += CONTROL_SEQUENCE.sub("", data.decode(errors="replace"))
        output, self._unread = self._unread[: match.end()], self._unread[match.end() :]
        return output


class Reader:
    """A reader with three shells: one for the stream, one for the SQL prompt, one for the rest."""

    def __init__(self, stream: Terminal, prompt: Terminal, commands: Terminal) -> None:
        self._stream, self._prompt, self._commands = stream, prompt, commands
        self._active = stream
        self.output = ""

    def paste(self, block: str) -> None:
        """Paste a block into the shell that it is for, and wait for its result."""
        if re.match(SQL, block):
            for statement in re.findall(r"[^;]+;", block):
                self._sql(statement.strip())
        elif re.match(PYTHON, block):
            self._python(block)
        elif re.match(CODE, block):
            code, _, message = block.partition("\n")[0].partition(": ")
            assert code in self.output and message in self.output, self.output
        else:
            for line in block.splitlines():
                self._shell(line)

    def _sql(self, statement: str) -> None:
        output = self._query(statement)
        # A row is live, or rejected, a second or two later.
        if re.search("(live|rejected)_subscriptions", statement):
            deadline = time.monotonic() + PATIENCE
            while not re.search(r"\|(mine|broken) *\|", output):
                assert time.monotonic() < deadline, output
                time.sleep(0.5)
                output = self._query(statement)
        self.output += output

    def _query(self, statement: str) -> str:
        self._prompt.type(statement)
        output = self._prompt.until("sql> ")
        assert "ERROR" not in output, output
        return output

    def _shell(self, line: str) -> None:
        if line.endswith("lab.conf jobs/itch_stream.py"):
            self._active.type(line)
            self._active.until("stream ready")
            self._active = self._commands
            self._active.run('eval "$(./spark-submit.sh env)"')
        elif line.endswith("jobs/run_sql.py"):
            self._prompt.type(line)
            self._prompt.until("sql> ")
        else:
            self.output += self._active.run(line)

    def _python(self, block: str) -> None:
        self._active.type("python")
        self._active.until(">>> ")
        output = ""
        for line in block.splitlines():
            # Python may lose what a reader types while a statement runs.
            self._active.type(line)
            output += self._active.until(">>> ", "... ")
        assert "Traceback" not in output, output
        self.output += output
        self._active.press("D")
        self._active.prompt()


def blocks() -> Iterator[str]:
    """Yield each block of code without its indent."""
    for block in re.findall(r"(?:^    .*\n|\n(?=    ))+", TUTORIAL, re.MULTILINE):
        yield textwrap.dedent(block).strip("\n")


def test_every_command_works_as_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    documents.fill(tmp_path, monkeypatch)
    with (
        Terminal(tmp_path, os.environ) as stream,
        Terminal(tmp_path, os.environ) as prompt,
        Terminal(tmp_path, os.environ) as commands,
    ):
        reader = Reader(stream, prompt, commands)
        try:
            for block in blocks():
                if block != MAIN:
                    reader.paste(block)
        except BaseException:
            commands.type("stackcast lab down")
            commands.until("lab is")
            raise
        stream.press("C")
        stream.prompt()
    for text in PROMISED:
        assert text in reader.output, (text, reader.output)
