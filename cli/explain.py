"""``stackcast explain``: why a notification was sent, to which hosts, and on which path."""

from __future__ import annotations

import datetime as dt
import json
from typing import Annotated, Any

import typer

from stackcast.cli.options import Json, PropertiesFile
from stackcast.udfs.errors import printable

Row = dict[str, Any]

#: Number of rules that do not match which are printed, those with the fewest decisive predicates.
_MAX_OTHERS = 10
#: Number of bytes in a line of hex.
_BYTES_PER_LINE = 32


def explain(
    sequence: Annotated[
        int, typer.Option("--sequence", min=0, help="Sequence number of the message")
    ],
    session_: Annotated[
        str,
        typer.Option(
            "--session",
            metavar="ID",
            help="MoldUDP64 session, the 10 characters that hosts receive",
        ),
    ] = "",
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition", min=0, help="Use the newest session of this partition, not --session"
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            "--host", metavar="NAME", help="Print only the rules that decided about this host"
        ),
    ] = "",
    properties_file: PropertiesFile = None,
    as_json: Json = False,
) -> None:
    """Explain why a notification was sent: event, rules, versions, batch, stack and path.

    Format and topic are those in the ledger of the stream that sent the session, unless the
    properties name others. The command computes everything again from the topic and the table
    versions of that time, with Spark on this machine. If that is not possible, it prints what is
    missing, and the exit code is 2.
    """
    if (not session_) == (partition is None):
        raise typer.BadParameter("give either --session or --partition")
    # Only this command and a few others need Spark.
    from stackcast.cli.deployment import lab_properties  # noqa: PLC0415
    from stackcast.cli.spark_properties import start_with  # noqa: PLC0415
    from stackcast.jobs.adapters.app import session  # noqa: PLC0415
    from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS, quiet, table_error  # noqa: PLC0415
    from stackcast.jobs.adapters.app.settings import Settings  # noqa: PLC0415
    from stackcast.jobs.adapters.replay.explanation import SentExplanation  # noqa: PLC0415
    from stackcast.jobs.adapters.replay.recorded_settings import with_recorded  # noqa: PLC0415
    from stackcast.jobs.adapters.tables.open_tables import open_tables  # noqa: PLC0415

    start_with(properties_file or lab_properties())
    settings = Settings.read(session.properties())
    spark = session.start("stackcast explain")
    quiet(spark)
    try:
        tables = open_tables(spark, settings.tables)
        settings = with_recorded(settings, tables, session_)
        explanation = SentExplanation(spark, settings, tables)
        if partition is not None:
            session_ = explanation.session_of(partition)
        result = explanation.explain(session_, sequence, host)
    except SQL_ERRORS as error:
        typer.echo(str(table_error(error)), err=True)
        raise typer.Exit(2) from None
    finally:
        spark.stop()
    typer.echo(json.dumps(result) if as_json else text_of(result))


def text_of(result: Row) -> str:
    """Return an explanation as text."""
    from stackcast.jobs.adapters.app.logs import named  # noqa: PLC0415

    started = dt.datetime.fromtimestamp(result["started_us"] / 1e6, dt.UTC)
    lines = [
        f"notification  session {result['session']}  sequence {result['sequence']}",
        f"record        topic {result['topic']}, partition {result['partition']}, "
        f"offset {result['offset']}, message {result['message_index']}",
        f"batch         {result['batch']}, started {started:%Y-%m-%d %H:%M:%S} UTC",
        f"versions      {named(result['versions'])}",
        f"receivers     {', '.join(result['receivers'])}",
    ]
    if "host" in result:
        received = "is one of them" if result["received"] else "is not one of them"
        lines.append(f"host          {result['host']} {received}")
    for number, event in enumerate(result["events"]):
        lines += ["", f"event {number}"]
        lines += [f"  {name} = {value}" for name, value in event.items()]
    lines += ["", "subscriptions"]
    matching = [rule for rule in result["rules"] if rule["matches"]]
    nearest = sorted((rule for rule in result["rules"] if not rule["matches"]), key=_distance)
    for rule in [*matching, *nearest[:_MAX_OTHERS]]:
        lines += _rule(rule)
    if len(nearest) > _MAX_OTHERS:
        lines.append(f"  {len(nearest) - _MAX_OTHERS} more do not match; --json prints them")
    for frame in result["frames"]:
        kind = "packet" if result["settings"].get("match") == "network" else "frame"
        source = f"{kind} from {frame['publisher']}"
        if frame["entry"] != frame["publisher"]:
            source += f", by the link of {frame['entry']},"
        lines += ["", f"{source} to {', '.join(frame['receivers'])}, {frame['bytes']} bytes"]
        lines += [f"  {label}" for label in frame["labels"]]
        lines += [f"  {host}: {' > '.join(path)}" for host, path in frame["paths"].items()]
        content = bytes.fromhex(frame["hex"])
        lines += [
            f"  {start:04x}  {content[start : start + _BYTES_PER_LINE].hex(' ')}"
            for start in range(0, len(content), _BYTES_PER_LINE)
        ]
    return "\n".join(map(printable, lines))


def _distance(rule: Row) -> int:
    """Return the smallest number of decisive predicates of a rule, over all events."""
    return min(
        (sum(p["decided"] for p in verdict["predicates"]) for verdict in rule["verdicts"]),
        default=0,
    )


def _rule(rule: Row) -> list[str]:
    """Return a rule and its predicates as lines; a star marks the decisive ones."""
    matches = "" if rule["matches"] else "  (does not match)"
    lines = [
        f"  {rule['id']} of {rule.get('subscriber', '?')}: "
        f"{' '.join(rule.get('filter', '').split())}{matches}"
    ]
    for verdict in rule["verdicts"]:
        if verdict["truth"] == "by state":
            lines.append(f"    event {verdict['message']}: compares with the state at the batch")
            continue
        for predicate in verdict["predicates"]:
            if not (rule["matches"] or predicate["decided"]):
                continue
            star = "*" if predicate["decided"] else " "
            place = f"event {verdict['message']}"
            lines.append(f"    {place} {star} {predicate['truth']:<7}  {predicate['text']}")
    return lines
