"""Files of rules, specifications and events."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, BinaryIO

import numpy as np
import typer

from stackcast import schemas
from stackcast.cli.attributes.files import read_registry
from stackcast.cli.filters.fault_text import fault_text, without_place
from stackcast.cli.standard_streams import standard_input
from stackcast.udfs.errors import EventError, SubscriptionError, printable
from stackcast.udfs.filters.compiler.compile import (
    CheckedRule,
    actions_of,
    table_of_rules,
    table_of_texts,
)
from stackcast.udfs.filters.compiler.term_table import TermTable
from stackcast.udfs.filters.grouped import Grouped, GroupedCompiler
from stackcast.udfs.filters.language.rule import in_file, parse_rule
from stackcast.udfs.filters.language.rule_file import split_rules
from stackcast.udfs.filters.language.shapes import RuleTable, read_table
from stackcast.udfs.filters.meaning.normal_form import lane_terms
from stackcast.udfs.filters.meaning.state import add_updates, split
from stackcast.udfs.filters.nodes import Rule, Update
from stackcast.udfs.filters.rule_warnings import warnings_of
from stackcast.udfs.filters.variable_warnings import VariableWarnings
from stackcast.udfs.messages.attributes.events import Widths
from stackcast.udfs.messages.specification import Specification, parse_specification

#: Number of rules that are compiled to load the compiled loops.
_FEW = 64
#: Largest size of an event in bytes.
MAX_LINE = 1 << 20

Faults = Sequence[tuple[int, SubscriptionError]]


@dataclass(frozen=True)
class RuleFile:
    """Rules of a file.

    Attributes:
        name: name of the file.
        specification: format of the events.
        framing: whether the format has headers around messages.
        texts: text of each rule.
        lines: line of each rule, from 1.
        faults: index and error of each faulty rule; the errors have lines of the file.
    """

    name: str
    specification: Specification
    framing: bool
    texts: list[str]
    lines: list[int]
    faults: list[tuple[int, SubscriptionError]]

    @property
    def valid(self) -> list[int]:
        """Indexes of the rules that are not faulty."""
        faulty = {index for index, _ in self.faults}
        return [index for index in range(len(self.texts)) if index not in faulty]

    def rule(self, index: int) -> Rule:
        """Return the syntax tree of a valid rule."""
        return parse_rule(self.texts[index], self.specification, framing=self.framing)

    def terms(self, optional: bool | None) -> TermTable:
        """Return the terms of the valid rules, numbered as in `valid`."""
        if not self.framing:
            texts = [self.texts[index] for index in self.valid]
            read = read_table(texts, self.specification)
            return table_of_texts(texts, read, self.specification, optional)
        rules = []
        for index in self.valid:
            rule = self.rule(index)
            rules.append(CheckedRule(str(index), rule.condition, *actions_of(rule.actions)))
        return table_of_rules(rules, self.specification, optional)

    def compile(
        self, optional: bool | None, order: str | tuple[str, ...] = "specification"
    ) -> Compiled:
        """Return the valid rules compiled as in the stream: a diagram, and indexes."""
        valid = self.valid
        table = self.terms(optional)
        # Loading the compiled loops takes a second, which does not belong to the measured time.
        few = table.select(np.arange(min(len(valid), _FEW)))
        GroupedCompiler(self.specification, order, optional).update_table(
            valid[:_FEW], few, (), lambda: (valid[:_FEW], few)
        )
        start = monotonic()
        compiler = GroupedCompiler(self.specification, order, optional)
        grouped = compiler.update_table(valid, table, (), lambda: (valid, table))
        return Compiled(grouped, frozenset(compiler.indexed), len(valid), monotonic() - start)


@dataclass(frozen=True)
class Compiled:
    """Compiled rules.

    Attributes:
        grouped: diagram and indexes.
        indexed: indexes of the rules that are in an index instead of the diagram.
        rules: number of rules.
        seconds: time that compiling took.
    """

    grouped: Grouped
    indexed: frozenset[Hashable]
    rules: int
    seconds: float


def read_rules(format_: str, path: Path) -> RuleFile:
    """Read and check the rules of a file.

    Args:
        format_: value of ``--format``.
        path: the file; ``-`` for standard input.

    Raises:
        SpecificationError: the specification is invalid.
        OSError: a file cannot be read.
    """
    specification, is_file = _specification(format_)
    name, text = (
        ("<stdin>", standard_input().read()) if str(path) == "-" else (str(path), path.read_bytes())
    )
    rules = split_rules(text.decode("utf-8-sig", "replace").replace("\r\n", "\n"))
    texts, lines = [rule for rule, _ in rules], [line for _, line in rules]
    typed = {header.message_type is not None for header in specification.headers}
    # Messages of a shipped format have no framing; a file may define any headers.
    framing = is_file and len(typed) > 1
    faults = _faults(texts, specification, framing)
    in_lines = [(index, in_file(error, lines[index])) for index, error in faults]
    return RuleFile(printable(name), specification, framing, texts, lines, in_lines)


def _faults(
    texts: Sequence[str], specification: Specification, framing: bool
) -> list[tuple[int, SubscriptionError]]:
    faults: dict[int, SubscriptionError] = {}
    valid: list[tuple[int, Rule]] = []
    if framing:
        for index, text in enumerate(texts):
            try:
                valid.append((index, parse_rule(text, specification, framing=True)))
            except SubscriptionError as error:
                faults[index] = error
    else:
        read: RuleTable = read_table(texts, specification)
        faults.update(read.errors)
        valid = list(read.rules)
        updating = {
            number
            for number, actions in enumerate(read.outcomes)
            if any(isinstance(action, Update) for action in actions)
        }
        if updating:
            parsed = {index for index, _ in valid}
            valid += [
                (index, parse_rule(texts[index], specification))
                for index, number in enumerate(read.outcome.tolist())
                if number in updating and index not in parsed
            ]
    functions: dict[str, Any] = {}
    for index, rule in sorted(valid, key=lambda pair: pair[0]):
        try:
            updates = actions_of(rule.actions)[2]
            for term in split(rule.condition, specification, updates, functions, True).terms:
                lane_terms(term.term, specification)
            add_updates(functions, updates)
        except SubscriptionError as error:
            faults[index] = error
    return sorted(faults.items())


def rules_to_use(format_: str, path: Path, skip_faulty: bool) -> RuleFile:
    """Read rules for a command that uses them, and report their faults.

    Raises:
        typer.Exit: there are faults, and they are not skipped.
    """
    file = read_rules(format_, path)
    if file.faults:
        print_faults(file, as_json=False, err=True)
        if not skip_faulty:
            raise typer.Exit(1)
    return file


def warnings_in(file: RuleFile) -> list[tuple[int, SubscriptionError]]:
    """Return the warnings of the valid rules by index, with lines of the file."""
    valid = file.valid
    texts = [file.texts[index] for index in valid]
    warnings = list(warnings_of(texts, file.specification, framing=file.framing))
    variables = VariableWarnings(file.specification, framing=file.framing)
    warnings += variables.of([("", text) for text in texts])
    warnings.sort(key=lambda pair: pair[0])
    return [
        (valid[number], in_file(error, file.lines[valid[number]])) for number, error in warnings
    ]


def print_faults(file: RuleFile, as_json: bool, err: bool = False) -> None:
    """Print each fault with its place, caret and suggestion, or as JSON."""
    _print(file, file.faults, as_json, err, "error")


def print_warnings(file: RuleFile, warnings: Faults, as_json: bool) -> None:
    """Print each warning like a fault."""
    _print(file, warnings, as_json, False, "warning")


def _print(file: RuleFile, faults: Faults, as_json: bool, err: bool, severity: str) -> None:
    for index, error in faults:
        place = {"line": error.fields.get("line", 1), "column": error.fields.get("column", 1)}
        if as_json:
            suggestion = error.fields.get("suggestion")
            row = {"rule": index, **place, "severity": severity, "code": error.code}
            row |= {"message": without_place(error.message).partition("\n")[0]}
            typer.echo(json.dumps({"file": file.name, **row, "suggestion": suggestion}))
            continue
        mark = "warning: " if severity == "warning" else ""
        typer.echo(
            fault_text(file.name, f"{mark}{error.code}", error.message, **place),
            err=err,
        )


def _specification(format_: str) -> tuple[Specification, bool]:
    """Return a specification by path or shipped name, and whether it comes from a file."""
    path = Path(format_)
    if path.suffix == ".jsonl":
        return read_registry(path, Widths(bitmask=64)).specification(), False
    if re.fullmatch(r"[a-z][a-z0-9_]*", format_) and not path.is_file():
        try:
            return parse_specification(
                schemas.read_text(f"messages/{format_}.spec"), format_
            ), False
        except FileNotFoundError:
            raise typer.BadParameter(
                f"--format {format_!r} is neither a file nor a shipped format: give itch, a file "
                "with a specification, or a file of attributes whose name ends in .jsonl"
            ) from None
    text = path.read_bytes().decode("utf-8-sig", "replace")
    return parse_specification(text, path.name.removesuffix(".spec"), format_), True


def open_source(source: str) -> Any:
    """Open a file, or return standard input for "-"."""
    return nullcontext(standard_input()) if source == "-" else Path(source).open("rb")


def lines_of(stream: BinaryIO) -> Iterator[tuple[int, str | EventError]]:
    """Yield number and text, or the error, of each line of a file that is not blank."""
    number = 0
    while line := stream.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = stream.readline(MAX_LINE)
            yield number, EventError("TOO_LONG", f"the line has more than {MAX_LINE:,} bytes")
            continue
        line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if not line.strip():
            continue
        try:
            yield number, line.decode()
        except UnicodeDecodeError:
            yield number, EventError("NOT_JSON", "the line is not UTF-8")
