"""Commands of the documentation, run as a reader pastes them into a shell."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import command_line
import documents
import pytest
from documents import commands
from paths import ROOT
from waiting import until

#: Limit against hangs, in seconds: a job takes minutes on a busy machine.
PATIENCE = 600.0


@dataclass(frozen=True)
class Step:
    """A command of the documentation.

    Attributes:
        line: the command as the document shows it.
        values: placeholders of the line, with the text that a reader would put in their place.
        prints: text that its output contains.
        ready: text that the output of a command contains which runs until Ctrl-C.
        folder: folder in which the document runs it.
        code: its exit code.
        after: commands that must succeed first.
    """

    line: str
    values: Mapping[str, str] = field(default_factory=dict)
    prints: str = ""
    ready: str = ""
    folder: str = "."
    code: int = 0
    after: tuple[Step, ...] = ()

    @property
    def pasted(self) -> str:
        line = self.line
        for placeholder, value in self.values.items():
            assert placeholder in line, (placeholder, line)
            line = line.replace(placeholder, value)
        return line

    def with_values(self, values: Mapping[str, str]) -> Step:
        """Returns this command with those of the placeholders that it contains."""
        return replace(
            self,
            values={key: text for key, text in values.items() if key in self.line},
            after=tuple(step.with_values(values) for step in self.after),
        )


def parameters(steps: Iterable[Step], *marks: pytest.MarkDecorator) -> list[Any]:
    """Returns a parameter for each command, whose id is the command."""
    return [pytest.param(step, id=step.line[:90], marks=marks) for step in steps]


class Program:
    """A command that runs in a shell.

    Args:
        step: the command.
        process: its process, which leads a process group.
        log: file of its output.
    """

    def __init__(self, step: Step, process: subprocess.Popen[bytes], log: Path) -> None:
        self._step = step
        self._log = log
        self.process = process

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_until_ready(self) -> None:
        """Wait until the output contains the text by which a running command is ready."""
        until(lambda: self._step.ready in self.output, self, seconds=PATIENCE)

    def wait(self) -> None:
        """Wait until the command has ended, and check its exit code and output."""
        self.process.wait(PATIENCE)
        check_result(self._step, self.process.returncode, self.output)

    def interrupt(self) -> None:
        """Press Ctrl-C, and check that the command ends for that reason."""
        assert self.process.poll() is None, self.output[-4000:]
        self.kill(signal.SIGINT)
        assert self.process.returncode in (0, 130, -signal.SIGINT), self.output[-4000:]

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the whole group, and wait until the command has ended."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()
                raise


def check_result(step: Step, code: int, output: str) -> None:
    """Check the exit code and the output of a command that has ended."""
    assert code == step.code, f"exit code {code}, expected {step.code}:\n{output[-4000:]}"
    assert step.prints in output, f"{step.prints!r} is missing in:\n{output[-4000:]}"


class Shell:
    """Bash in a folder, which runs each command once.

    Args:
        folder: a folder like a fresh clone.
        prefix: words before each command.
        in_process: run a command ``stackcast`` in this process, if its line needs no shell.
    """

    def __init__(
        self, folder: Path, prefix: Iterable[str] = (), *, in_process: bool = False
    ) -> None:
        self.folder = folder
        self._prefix = tuple(prefix)
        self._in_process = in_process
        self._shown = {command.line: command.shown for command in commands() if command.shown}
        #: Failures of the commands that ran, empty texts if they succeeded.
        self._failures: dict[str, str] = {}
        self._logs = 0

    def check(self, step: Step) -> None:
        """Run a command, after those that it needs, and check what it prints."""
        if failure := self._failure(step):
            pytest.fail(f"{step.pasted}\n{failure}", pytrace=False)

    def _failure(self, step: Step) -> str:
        if step.line not in self._failures:
            needed = next((earlier for earlier in step.after if self._failure(earlier)), None)
            try:
                assert needed is None, f"not run, because this command failed: {needed.pasted}"
                self._run(step)
            except AssertionError as error:
                self._failures[step.line] = str(error)
            else:
                self._failures[step.line] = ""
        return self._failures[step.line]

    def _run(self, step: Step) -> None:
        if self._in_process and re.fullmatch(r"stackcast [^|<>&;()$`]+", step.pasted):
            with contextlib.chdir(self.folder / step.folder):
                result = command_line.stackcast(*shlex.split(step.pasted)[1:])
            output = result.stdout + result.stderr
            check_result(step, result.code, output)
            self._compare(step, output)
            return
        program = self.start(step)
        try:
            if step.ready:
                program.wait_until_ready()
                program.interrupt()
            else:
                program.wait()
                self._compare(step, program.output)
        finally:
            program.kill()

    def start(self, step: Step) -> Program:
        """Start a command in the background."""
        self._logs += 1
        log = self.folder / "var" / f"output-{self._logs}"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*self._prefix, "bash", "-c", f'sudo() {{ "$@"; }}; {step.pasted}'],
                cwd=self.folder / step.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return Program(step, process, log)

    def _compare(self, step: Step, output: str) -> None:
        """Check that the output has each line that the document shows, except for dots."""
        lines = {without_time(line) for line in output.splitlines()}
        for line in map(without_time, self._shown.get(step.line, ())):
            if line.strip() not in ("", "..."):
                assert line in lines, f"{line!r} is missing in:\n{output[-4000:]}"


def without_time(line: str) -> str:
    return re.sub(r"\d+\.\d+ s$", "", line.rstrip())


class Background:
    """Commands that run until the tests of a class have ended.

    If one of them does not become ready, each test of the class fails with its name.
    """

    def __init__(self, shell: Shell, *steps: Step) -> None:
        self._programs = {step.line: shell.start(step) for step in steps}

    def __enter__(self) -> Background:
        try:
            for line, program in self._programs.items():
                try:
                    program.wait_until_ready()
                except AssertionError as error:
                    pytest.fail(f"{line}\n{error}", pytrace=False)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def interrupt(self, step: Step) -> None:
        """Press Ctrl-C in the shell of a command."""
        self._programs[step.line].interrupt()

    def end(self) -> None:
        """End the commands that still run."""
        for program in self._programs.values():
            program.kill(signal.SIGINT)


@contextmanager
def clone(path: Path) -> Iterator[Path]:
    """Yield a folder like a fresh clone, with the files that the documents mention."""
    with pytest.MonkeyPatch.context() as environment:
        documents.fill(path, environment)
        for name in ("attributes.jsonl", "events.jsonl", "my.rules"):
            (path / name).write_text(shown_file(name))
        (path / "mine.graphml").write_text(GRAPHML)
        yield path


GRAPHML = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<graph edgedefault="undirected"><node id="a"/><node id="b"/><node id="c"/>
<edge source="a" target="b"/><edge source="b" target="c"/></graph></graphml>
"""


def shown_file(name: str) -> str:
    """Returns a file that docs/tutorials/attributes.md shows."""
    text = (ROOT / "docs" / "tutorials" / "attributes.md").read_text()
    if name == "my.rules":
        rule = re.search(r"the\s+file\s+`my\.rules`\s+with\s+one\s+rule,\s+`([^`]+)`", text)
        assert rule
        return f"{rule[1]}\n"
    _, _, text_after_name = text.partition(f"`{name}`")
    block = re.search(r"(?:^    \{.*\n)+", text_after_name, re.MULTILINE)
    assert block
    return textwrap.dedent(block[0])
