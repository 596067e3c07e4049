"""``stackcast explain``: why a notification was sent, to whom, and which way."""

from __future__ import annotations

import datetime as dt
import json
from typing import Annotated, Any

import typer

from stackcast.cli.deployment import LabOrDeploymentFile, lab_properties
from stackcast.cli.spark_properties import start_with
from stackcast.jobs.adapters.app.logs import named
from stackcast.udfs.errors import printable

Row = dict[str, Any]

#: Rules that do not match, the nearest to it, that are told at most.
_NEAREST = 10
#: Bytes of a line of hex.
_WIDTH = 32


def explain(
    sequence: Annotated[
        int, typer.Option("--sequence", min=0, help="Sequence number of the message.")
    ],
    session_: Annotated[
        str,
        typer.Option("--session", help="MoldUDP64 session of 10 characters, as hosts receive it."),
    ] = "",
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition",
            min=0,
            help="Partition whose newest session is used, in place of --session.",
        ),
    ] = None,
    properties_file: LabOrDeploymentFile = None,
    host: Annotated[
        str, typer.Option("--host", help="Print only the rules that decided about this host.")
    ] = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print everything as one JSON object.")
    ] = False,
) -> None:
    """Explain why a notification was sent: event, rules, versions, batch, stack and path.

    Format and topic are those of the stream that sent the session, as the ledger has them, unless
    the properties name others. The command computes everything again from the topic and the table
    versions of that time, with Spark on this machine. If that is not possible, it prints what is
    missing, and the exit code is 2.
    """
    if (not session_) == (partition is None):
        raise typer.BadParameter("give --session or --partition, and not both")
    # No other command needs Spark, or should wait for it.
    from stackcast.jobs.adapters.app import session  # noqa: PLC0415
    from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS, quiet, table_error  # noqa: PLC0415
    from stackcast.jobs.adapters.app.settings import Settings  # noqa: PLC0415
    from stackcast.jobs.adapters.replay.explanation import SentExplanation  # noqa: PLC0415
    from stackcast.jobs.adapters.replay.recorded_settings import with_recorded  # noqa: PLC0415
    from stackcast.jobs.adapters.tables.tables import Tables  # noqa: PLC0415

    start_with(properties_file or lab_properties())
    settings = Settings.read(session.properties())
    spark = session.start("stackcast explain")
    quiet(spark)
    try:
        tables = Tables(spark, settings.tables)
        settings = with_recorded(settings, tables, session_)
        explanation = SentExplanation(spark, settings, tables)
        if partition is not None:
            session_ = explanation.session_of(partition)
        found = explanation.explain(session_, sequence, host)
    except SQL_ERRORS as error:
        typer.echo(str(table_error(error)), err=True)
        raise typer.Exit(2) from None
    finally:
        spark.stop()
    typer.echo(json.dumps(found) if as_json else text_of(found))


def text_of(found: Row) -> str:
    """Returns the explanation for people."""
    started = dt.datetime.fromtimestamp(found["started_us"] / 1e6, dt.UTC)
    lines = [
        f"notification  session {found['session']}  sequence {found['sequence']}",
        f"record        topic {found['topic']}, partition {found['partition']}, "
        f"offset {found['offset']}, message {found['message_index']}",
        f"batch         {found['batch']}, begun {started:%Y-%m-%d %H:%M:%S} UTC",
        f"versions      {named(found['versions'])}",
        f"receivers     {', '.join(found['receivers'])}",
    ]
    if "host" in found:
        got = "is one of them" if found["received"] else "is none of them"
        lines.append(f"host          {found['host']} {got}")
    for number, event in enumerate(found["events"]):
        lines += ["", f"event {number}"]
        lines += [f"  {name} = {value}" for name, value in event.items()]
    lines += ["", "subscriptions"]
    matching = [rule for rule in found["rules"] if rule["matches"]]
    others = sorted((rule for rule in found["rules"] if not rule["matches"]), key=_distance)
    for rule in [*matching, *others[:_NEAREST]]:
        lines += _rule(rule)
    if len(others) > _NEAREST:
        lines.append(f"  {len(others) - _NEAREST} more do not match; --json has them")
    for frame in found["frames"]:
        what = "packet" if found["settings"].get("match") == "network" else "frame"
        way = f"{what} from {frame['publisher']}"
        if frame["entry"] != frame["publisher"]:
            way += f", by the link of {frame['entry']},"
        lines += ["", f"{way} to {', '.join(frame['receivers'])}, {frame['bytes']} bytes"]
        lines += [f"  {label}" for label in frame["labels"]]
        lines += [f"  {host}: {' > '.join(path)}" for host, path in frame["paths"].items()]
        digits = frame["hex"]
        lines += [
            f"  {at:04x}  {bytes.fromhex(digits[2 * at : 2 * (at + _WIDTH)]).hex(' ')}"
            for at in range(0, frame["bytes"], _WIDTH)
        ]
    return "\n".join(map(printable, lines))


def _distance(rule: Row) -> int:
    """How many predicates keep a rule from matching the event that it comes nearest to."""
    decisive = [sum(p["decided"] for p in said["predicates"]) for said in rule["verdicts"]]
    return min(decisive, default=0)


def _rule(rule: Row) -> list[str]:
    matches = "" if rule["matches"] else "  (does not match)"
    lines = [
        f"  {rule['id']} of {rule.get('subscriber', '?')}: "
        f"{' '.join(rule.get('filter', '').split())}{matches}"
    ]
    for said in rule["verdicts"]:
        if said["truth"] == "by state":
            lines.append(f"    event {said['message']}: compares with state, as of the batch")
            continue
        for predicate in said["predicates"]:
            if not (rule["matches"] or predicate["decided"]):
                continue
            star = "*" if predicate["decided"] else " "
            lines.append(
                f"    event {said['message']} {star} {predicate['truth']:<7}  {predicate['text']}"
            )
    return lines
