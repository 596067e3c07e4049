"""The commands of ``stackcast filters``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from stackcast.cli.options import EventFile, Json, RuleFile, RuleFormat

app = typer.Typer(no_args_is_help=True, help="Check, compile, test and explain subscriptions.")

SkipFaulty = Annotated[
    bool, typer.Option("--skip-faulty", help="Ignore faulty rules, and use the others")
]


@app.command()
def check(
    format_: RuleFormat,
    rules: RuleFile,
    strict: Annotated[
        bool, typer.Option("--strict", help="Return exit code 1 for warnings as well")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print faulty rules with the place of each fault, and how to correct it.

    Valid rules that are probably not meant get a warning. The exit code is 1 if a rule is faulty.
    """
    from stackcast.cli.filters import rule_files  # noqa: PLC0415

    file = rule_files.read_rules(format_, rules)
    rule_files.print_faults(file, as_json)
    warnings = rule_files.warnings_in(file)
    rule_files.print_warnings(file, warnings, as_json)
    if as_json:
        counts = {"rules": len(file.texts), "faulty": len(file.faults), "warnings": len(warnings)}
        typer.echo(json.dumps(counts))
    elif not file.texts:
        typer.echo(f"no rules in {file.name}")
    else:
        valid = len(file.texts) - len(file.faults)
        more = f"; warnings: {len(warnings):,}" if warnings else ""
        typer.echo(f"{file.name}: {valid:,} of {len(file.texts):,} rules are valid{more}")
    if file.faults or (strict and warnings):
        raise typer.Exit(1)


@app.command("compile")
def compile_command(
    format_: RuleFormat,
    rules: RuleFile,
    *,
    order: Annotated[
        str,
        typer.Option(
            "--order",
            metavar="ORDER",
            help="Order of tables: specification, auto, or a comma-separated list of fields",
        ),
    ] = "specification",
    partial: Annotated[
        bool,
        typer.Option(
            "--partial",
            help="Also print rows for events without some fields, as match and explain use them",
        ),
    ] = False,
    skip_faulty: SkipFaulty = False,
    dot_file: Annotated[
        Path | None,
        typer.Option("--dot", metavar="FILE", help="Output file for the diagram, for Graphviz"),
    ] = None,
    p4: Annotated[
        Path | None,
        typer.Option(
            "--p4", metavar="FILE", help="Output file for the entries of the generated P4 program"
        ),
    ] = None,
    port: Annotated[
        list[str] | None,
        typer.Option(
            "--port", metavar="HOST=NUMBER", help="Port to a host for --p4; may be repeated"
        ),
    ] = None,
    report: Annotated[
        bool, typer.Option("--report", help="Print the resources on standard error")
    ] = False,
) -> None:
    """Print the compiled tables as JSON lines.

    First the entries, {"field", "state", "low", "high", "kind", "next"}, with low and high as raw
    integers, both included; then the leaves, {"state", "ports", "actions"}, and "updates", each
    [cell, function, field], if there are any; then the cells of state, {"cell", "function",
    "field", "window_us"}, and for changes the raw "band". Tables are printed in their order; the
    initial state is that of the first line. The last lines are the terms of rules that would
    multiply in tables, {"predicates", "ports", "actions"}: an event goes to the leaf that it
    reaches and to each term whose predicates are all true. --dot, --p4 and --report do not change
    this output.

    Without --partial the rows are those of a switch and of the stream, where the only header of a
    format, or a message of a type, is always complete. They do not apply to events without some
    of its fields.
    """
    from stackcast.cli.filters.compilation import print_tables  # noqa: PLC0415
    from stackcast.cli.filters.rule_files import rules_to_use  # noqa: PLC0415

    fits = print_tables(
        rules_to_use(format_, rules, skip_faulty),
        order=order,
        partial=partial,
        dot_file=dot_file,
        p4=p4,
        ports=port or (),
        with_report=report,
    )
    if not fits:
        raise typer.Exit(1)


@app.command("match")
def match_command(
    format_: RuleFormat,
    rules: RuleFile,
    events: EventFile,
    *,
    with_rules: Annotated[
        bool,
        typer.Option("--with-rules", help="Also print the indexes, from 0, of matching rules"),
    ] = False,
    skip_faulty: SkipFaulty = False,
) -> None:
    """Print ports and actions of each event from the compiled tables, as JSON lines.

    An event is a line such as {"add_order.price": 500000, "stock": "GOOGL"}: raw values without
    scaling, texts without padding, and short names of fields if they are unique. Fields that are
    missing or null are absent. "time_us" is the time of the event if no field is a @clock. Rules
    with state see the events as one source, in the order of the file. An event that cannot be read
    becomes {"error", "code", "line"} and has no effect on the others, and the exit code is 1 then.
    Empty lines are skipped.
    """
    from stackcast.cli.filters.event_matching import match_events  # noqa: PLC0415
    from stackcast.cli.filters.rule_files import rules_to_use  # noqa: PLC0415

    _check_standard_input(rules, "--events", events)
    if not match_events(rules_to_use(format_, rules, skip_faulty), events, with_rules):
        raise typer.Exit(1)


@app.command("explain")
def explain_command(
    format_: RuleFormat,
    rules: RuleFile,
    *,
    event: Annotated[
        str | None,
        typer.Option("--event", metavar="JSON", help="Event as a JSON object, as for match"),
    ] = None,
    after: Annotated[
        str,
        typer.Option("--after", metavar="FILE", help="Earlier events, for rules with state"),
    ] = "",
    rule: Annotated[
        int | None, typer.Option("--rule", help="Index of a rule in the file, from 0")
    ] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Print all rules that do not match, not only 20")
    ] = False,
    skip_faulty: SkipFaulty = False,
    as_json: Json = False,
) -> None:
    """Explain how the tables match an event, or how a rule was compiled.

    For an event, the command prints the state, the value, the matching row and the next state in
    each table. It then prints the rules that match and the first 20 of the other rules, with their
    true, false and unknown predicates; a star marks the decisive ones. For a rule, the command
    prints the normal form and, for each term, the table rows that its events can reach.
    """
    if (event is None) == (rule is None):
        raise typer.BadParameter("give either --event or --rule")
    _check_standard_input(rules, "--after", after)
    from stackcast.cli.filters import views  # noqa: PLC0415
    from stackcast.cli.filters.compilation import explain_rule  # noqa: PLC0415
    from stackcast.cli.filters.events import SHOWN_RULES, explain_event  # noqa: PLC0415
    from stackcast.cli.filters.rule_files import rules_to_use  # noqa: PLC0415

    file = rules_to_use(format_, rules, skip_faulty)
    if event is not None:
        explanation = explain_event(file, event, after, None if all_ else SHOWN_RULES)
        text = views.event_text(explanation)
    else:
        assert rule is not None
        explanation = explain_rule(file, rule)
        text = views.rule_text(explanation)
    typer.echo(json.dumps(explanation) if as_json else text)


@app.command("why-not")
def why_not_command(
    format_: RuleFormat,
    rules: RuleFile,
    events: EventFile,
    host: Annotated[
        str, typer.Option("--host", metavar="NAME", help="Host or port in fwd(...) of a rule")
    ],
    *,
    skip_faulty: SkipFaulty = False,
    as_json: Json = False,
) -> None:
    """Explain why events were not sent to a host.

    For each rule that forwards to the host, the command prints the numbers of events and of
    matches; and for each predicate, on how many of the other events it was false, unknown because
    the event does not have the field, or decisive, as marked by explain.
    """
    _check_standard_input(rules, "--events", events)
    from stackcast.cli.filters.events import why_not  # noqa: PLC0415
    from stackcast.cli.filters.rule_files import rules_to_use  # noqa: PLC0415
    from stackcast.cli.filters.views import why_not_text  # noqa: PLC0415

    file = rules_to_use(format_, rules, skip_faulty)
    counts = why_not(file, host, events)
    if as_json:
        for row in counts:
            typer.echo(json.dumps(row))
    else:
        typer.echo(why_not_text(counts) if counts else f"no rule in {file.name} forwards to {host}")


def _check_standard_input(rules: Path, option: str, source: str) -> None:
    """Raise typer.BadParameter if two options read standard input."""
    if str(rules) == source == "-":
        raise typer.BadParameter(
            f"--rules and {option} cannot both read standard input: give a file for one of them"
        )
