"""A shell at a terminal of its own, into which a test pastes what documents show."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

#: On a busy machine a job takes minutes, seconds.
PATIENCE = 600.0
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r")
_PROMPT = "pasted> "


class Terminal:
    """Bash in a folder. A context manager: whatever runs in it ends with it."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._pid, self._file = pty.fork()
        if self._pid == 0:
            os.chdir(folder)
            told = {"PS1": _PROMPT, "TERM": "dumb", "HISTFILE": "", "COLUMNS": "200"}
            os.execvpe("bash", ["bash", "--norc", "--noediting"], {**environment, **told})
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
        """Types lines, and the key that ends the last one."""
        os.write(self._file, f"{text}\n".encode())

    def press(self, key: str) -> None:
        """Presses Ctrl and a key."""
        os.write(self._file, bytes([ord(key) & 31]))

    def run(self, line: str) -> str:
        """Returns what a command prints that must end well."""
        self.type(line)
        said = self.prompt()
        self.type("echo code $?")
        assert "code 0\n" in self.prompt(), f"{line}: {said[-3000:]}"
        return said.partition("\n")[2]

    def prompt(self) -> str:
        """Returns what is shown until the shell asks for a line again."""
        return self.until(_PROMPT).removesuffix(_PROMPT)

    def until(self, *texts: str) -> str:
        """Returns what is shown up to the first of these texts, once it is there."""
        ends = time.monotonic() + PATIENCE
        while not (found := re.search("|".join(map(re.escape, texts)), self._unread)):
            assert time.monotonic() < ends, f"no {texts} in {self._unread[-3000:]!r}"
            if select.select([self._file], [], [], 1.0)[0]:
                try:
                    read = os.read(self._file, 65536)
                except OSError:
                    raise AssertionError(f"the terminal ended: {self._unread[-3000:]}") from None
                self._unread += _COLOURS.sub("", read.decode(errors="replace"))
        shown, self._unread = self._unread[: found.end()], self._unread[found.end() :]
        return shown
