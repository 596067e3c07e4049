"""Compiled rules of a file as JSON lines, diagrams, and entries of a switch program."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from operator import itemgetter
from pathlib import Path

import typer

from stackcast.cli.filters.rule_files import RuleFile
from stackcast.cli.filters.views import (
    Json,
    cell_json,
    groups_text,
    index_term_json,
    leaf_json,
    p4_json,
    rule_place,
    term_json,
)
from stackcast.udfs.errors import SpecificationError
from stackcast.udfs.filters.compiler.tables import KINDS
from stackcast.udfs.filters.compiler.term_table import TermTable
from stackcast.udfs.filters.explanation.dot import dot
from stackcast.udfs.filters.explanation.explain import Explainer
from stackcast.udfs.filters.nodes import Call
from stackcast.udfs.messages.specification import Specification
from stackcast.udfs.network_match.fitting import Fitted, fit
from stackcast.udfs.network_match.groups import Groups
from stackcast.udfs.network_match.layout import (
    MASK_BITS,
    NamedAction,
    ProgramOptions,
    program_layout,
)
from stackcast.udfs.network_match.resources import render, report


def print_tables(
    file: RuleFile,
    *,
    order: str,
    partial: bool,
    dot_file: Path | None,
    p4: Path | None,
    ports: Iterable[str],
    with_report: bool,
) -> bool:
    """Print the compiled tables of rules as JSON lines.

    Args:
        file: the rules.
        order: order of the tables.
        partial: print rows for events without some of the fields as well.
        dot_file: file for the diagram.
        p4: file for the entries of the generated P4 program.
        ports: ports to hosts, as ``HOST=NUMBER``.
        with_report: print the resources on standard error.

    Returns:
        Whether all rules fit into the P4 program.

    Raises:
        typer.BadParameter: the order or a port is invalid.
        OSError: a file cannot be written.
    """
    specification = file.specification
    compiled = file.compile(partial or None, _order(order, specification))
    diagram = compiled.grouped.diagram
    # Errors are raised before the first line is printed.
    switch_ports = _ports(ports)
    if switch_ports and not p4:
        raise typer.BadParameter("--port needs --p4")
    switch = _on_switch(file, switch_ports, p4) if p4 else None
    if dot_file:
        _write(dot_file, [dot(diagram)])
    for table, state, low, high, kind, following in diagram.entries.tolist():
        line = {"field": diagram.fields[table], "state": state, "low": low, "high": high}
        typer.echo(json.dumps({**line, "kind": KINDS[kind], "next": following}))
    for state in sorted(diagram.outcomes):
        typer.echo(json.dumps(leaf_json(state, diagram.outcomes[state])))
    for cell in compiled.grouped.cells:
        typer.echo(json.dumps(cell_json(cell)))
    for index in compiled.grouped.indexes:
        for predicates, outcome in index.described():
            typer.echo(json.dumps(index_term_json(predicates, outcome)))
    if with_report:
        typer.echo(groups_text(compiled), err=True)
        groups = switch.groups if switch else Groups(diagram)
        resources = report(
            groups.diagram,
            specification,
            vectors=groups.vectors,
            conjunctions=groups.conjunctions,
        )
        typer.echo(render(resources), err=True, nl=False)
    return not (switch and switch.refused)


def explain_rule(file: RuleFile, index: int) -> Json:
    """Return the normal form of a rule, and the rows of the tables for each of its terms.

    Args:
        file: the rules.
        index: index of the rule in the file, from 0.

    Raises:
        typer.BadParameter: there is no such rule, or it is faulty.
    """
    if not 0 <= index < len(file.texts):
        numbers = f"rules 0 to {len(file.texts) - 1}" if file.texts else "no rules"
        raise typer.BadParameter(f"there is no rule {index}: {file.name} has {numbers}")
    if index not in set(file.valid):
        raise typer.BadParameter(f"rule {index} is faulty")
    compiled = file.compile(None)
    diagram, is_indexed = compiled.grouped.diagram, index in compiled.indexed
    terms = Explainer(compiled.grouped, file.specification).rule(file.rule(index))
    return {
        "rule": index,
        **rule_place(file, index),
        "in_index": is_indexed,
        "terms": [term_json(term, diagram, is_indexed) for term in terms],
    }


def _order(text: str, specification: Specification) -> str | tuple[str, ...]:
    if text in ("specification", "auto"):
        return text
    try:
        names = tuple(specification.field(name.strip()).qualified for name in text.split(","))
    except SpecificationError as error:
        raise typer.BadParameter(
            f"--order {text!r}: {error.message}: give specification, auto, or a comma-separated "
            "list of fields"
        ) from None
    for index, name in enumerate(names):
        if name in names[:index]:
            raise typer.BadParameter(f"--order names {name} twice")
    return names


def _ports(pairs: Iterable[str]) -> dict[str, int]:
    ports = {}
    for pair in pairs:
        host, _, number = pair.partition("=")
        if not host or not number.isascii() or not number.isdigit():
            raise typer.BadParameter(f"--port {pair!r} is not of the form HOST=NUMBER")
        if len(number) > 5 or not 1 <= int(number) <= MASK_BITS:
            raise typer.BadParameter(
                f"--port {pair}: {number} is not a switch port: ports are 1 to {MASK_BITS}"
            )
        ports[host] = int(number)
    return ports


def _on_switch(file: RuleFile, ports: Mapping[str, int], path: Path) -> Fitted:
    """Write the entries of the generated program, and report the rules that do not fit into it."""
    specification, table = file.specification, file.terms(None)
    options = _options(specification, table)
    receivers = {token for tokens in table.outcomes for token in tokens if isinstance(token, str)}
    for host in sorted(ports.keys() - receivers):
        typer.echo(
            f"--port {host}={ports[host]} is ignored: no rule in {file.name} forwards to {host}",
            err=True,
        )
    program = program_layout(specification, options)
    fitted = fit(table, len(file.valid), specification, program, ports)
    _write(path, (json.dumps(line) + "\n" for line in p4_json(fitted.entries)))
    for number, error in sorted(fitted.refused.items(), key=itemgetter(0)):
        place = f"{file.name}:{file.lines[file.valid[number]]}"
        typer.echo(f"{place}: the switch has no room for this rule: {error.message}", err=True)
    return fitted


def _options(specification: Specification, table: TermTable) -> ProgramOptions | None:
    """Return options of a program with the actions of the rules, each argument having 32 bits."""
    calls = {token for tokens in table.outcomes for token in tokens if isinstance(token, Call)}
    widths = {call.name: (32,) * len(call.args) for call in sorted(calls)}
    default = (specification.default_action or "").partition("(")[0].strip()
    actions = [NamedAction(name, bits) for name, bits in sorted(widths.items()) if name != default]
    return ProgramOptions(actions=tuple(actions)) if actions else None


def _write(path: Path, parts: Iterable[str]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(parts)
