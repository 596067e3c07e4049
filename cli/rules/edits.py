"""Reads, checks, writes and follows the rules of a deployment whose tables are in a folder."""

from __future__ import annotations

import dataclasses
import datetime as dt
import getpass
import os
import time
from collections.abc import Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import typer

from stackcast.cli.deployment import lab_properties, read_settings
from stackcast.cli.filters.fault_text import fault_text
from stackcast.cli.standard_streams import standard_input
from stackcast.jobs.adapters.app.settings import FORMATS, Settings
from stackcast.jobs.adapters.planning.rule_edits import (
    DraftCheck,
    EditResultReader,
    RuleContext,
    check_draft,
    rule_states,
    write_rule,
)
from stackcast.jobs.adapters.planning.specifications import specification_of
from stackcast.jobs.adapters.tables import writers
from stackcast.jobs.adapters.tables.changes import committed_at
from stackcast.jobs.adapters.tables.folder_tables import open_folder
from stackcast.jobs.adapters.tables.tables import (
    GRANTS,
    LIVE,
    SENIORITY,
    SUBSCRIPTIONS,
    Tables,
)
from stackcast.udfs.errors import TableError, nearest, printable
from stackcast.udfs.filters.grants import Grants
from stackcast.udfs.filters.selection import select
from stackcast.udfs.filters.subscriptions import Subscription
from stackcast.udfs.messages.attributes.registry import FORMAT as ATTRIBUTES
from stackcast.udfs.messages.specification import Specification
from stackcast.udfs.network.publishers import ALL, several

Row = dict[str, Any]

#: Time between two reads of the tables of a running stream, in seconds.
_PAUSE = 0.02


class Draft(NamedTuple):
    """A rule to write.

    Attributes:
        subscriber: host that receives the events.
        text: text of the rule; ``-`` for standard input.
        name: id; None for a free one.
        format: format of the events; None for the usual one.
        enabled: whether the rule is enabled.
        author: author of the row; None for the user.
    """

    subscriber: str
    text: str
    name: str | None = None
    format: str | None = None
    enabled: bool = True
    author: str | None = None


def open_rules(tables: str | None, properties_file: Path | None) -> DeployedRules:
    """Return the rules of a deployment.

    Args:
        tables: folder of the tables; None for that of the settings.
        properties_file: file with the settings; None for that of the running lab.

    Raises:
        TableError: MISSING, NEEDS_SPARK.
        LabError: NO_ANSWER if the lab is still starting.
        SettingsError: UNREADABLE_FILE, or the file has an invalid setting.
    """
    file = properties_file or (lab_properties() if tables is None else None)
    settings = read_settings(file)
    if tables is not None:
        location = tables if ":" in tables else f"file:{Path(tables).absolute()}"
        settings = dataclasses.replace(settings, tables=location)
    opened = open_folder(settings.tables)
    try:
        opened.version(SUBSCRIPTIONS)
    except TableError as error:
        if error.what != "MISSING" or tables is not None or file is not None:
            raise
        raise TableError(
            "MISSING",
            f"no lab is up, and there are no tables in {opened.location}: name a folder with "
            "--tables, or the properties of a stream with --properties-file",
            table=SUBSCRIPTIONS,
        ) from None
    return DeployedRules(opened, settings)


class DeployedRules:
    """The rules of a deployment."""

    def __init__(self, tables: Tables, settings: Settings) -> None:
        self._tables = tables
        self._settings = settings

    def add(self, draft: Draft, replace: bool, timeout: float | None) -> int:
        """Write a rule if it is valid, and print whether a stream accepts it.

        Args:
            draft: the rule.
            replace: whether the rule may replace the one with its id.
            timeout: longest wait for a running stream in seconds; None does not wait.

        Returns:
            The exit code.

        Raises:
            typer.BadParameter: id, author or rule is not a text.
            TableError: ROW_EXISTS, ROW_CHANGED, SEVERAL_ROWS, NOT_WRITABLE.
        """
        for option, value in (("--id", draft.name), ("--author", draft.author)):
            if value is not None and not (value.strip() and value.isprintable()):
                raise typer.BadParameter(f"{option} {value!a} must be printable text, not empty")
        text = _standard_input() if draft.text == "-" else _utf_8(draft.text, "the rule")
        rows = self.rows(SUBSCRIPTIONS)
        name = _free_id(draft.subscriber, rows) if draft.name is None else draft.name
        before = [row for row in rows if row["id"] == name]
        other_rows = [row for row in rows if row["id"] != name]
        if len(before) > 1:
            raise _several_rows(name, before)
        if before and not replace:
            raise TableError(
                "ROW_EXISTS",
                f"rule {name!r} of {before[0]['subscriber']} exists: add --replace to write this "
                "rule in its place, or choose another --id",
            )
        form = draft.format or self.usual_format(rows)
        subscription = Subscription(name, draft.subscriber, text)
        check = self.check(subscription, form, other_rows)
        if check.rejection is not None:
            _print_fault("rule", check.rejection.code, check.rejection)
            typer.echo("the rule is not written", err=True)
            return 1
        for warning in check.warnings:
            _print_fault("rule", f"warning: {warning.code}", warning)
        row = {
            **subscription._asdict(),
            "format": form,
            "enabled": draft.enabled,
            "updated_by": draft.author or _user(),
            "updated_at": dt.datetime.now(dt.UTC),
        }
        try:
            version = self.write(name, before, [row])
        except TableError as error:
            if error.what != "ROW_CHANGED" or draft.name is not None:
                raise
            # Another program has used the free id in the meantime.
            return self.add(draft._replace(text=text), replace, timeout)
        action = "replaced" if before else "added"
        _print_edit(f"{action} rule {name} of {draft.subscriber}", version)
        if not draft.enabled and not any(row["enabled"] for row in before):
            return 0
        return self.follow(subscription, version, draft.enabled, timeout)

    def remove(self, name: str, subscriber: str | None, timeout: float | None) -> int:
        """Delete a rule, and print when a running stream no longer uses it.

        Args:
            name: id of the rule.
            subscriber: its subscriber, if several rows have the id.
            timeout: longest wait for a running stream in seconds; None does not wait.

        Returns:
            The exit code.

        Raises:
            TableError: NO_ROW, SEVERAL_ROWS, ROW_CHANGED, NOT_WRITABLE.
        """
        before = self.rows_of(name)
        chosen = [row for row in before if subscriber in (None, row["subscriber"])]
        if not chosen:
            raise TableError("NO_ROW", f"subscriber {subscriber!r} has no rule {name!r}")
        if len(chosen) > 1:
            raise _several_rows(name, chosen)
        (row,) = chosen
        version = self.write(name, before, [row_ for row_ in before if row_ is not row])
        _print_edit(f"removed rule {name} of {row['subscriber']}", version)
        if not row["enabled"]:
            return 0
        rule = Subscription(row["id"], row["subscriber"], row["filter"])
        return self.follow(rule, version, False, timeout)

    def rows(self, table: str) -> list[Row]:
        """Return the rows of a table. Raises TableError MISSING."""
        self._tables.version(table)
        return self._tables.rows(table)

    def rows_of(self, name: str) -> list[Row]:
        """Return the rows of `subscriptions` with an id. Raises TableError NO_ROW."""
        rows = self.rows(SUBSCRIPTIONS)
        named = [row for row in rows if row["id"] == name]
        if not named:
            similar = nearest(name, (str(row["id"]) for row in rows))
            hint = f"; did you mean {similar!r}?" if similar else ""
            raise TableError("NO_ROW", f"table {SUBSCRIPTIONS} has no rule {name!r}{hint}")
        return named

    def states(self) -> list[Row]:
        """Return all rules with their states."""
        return rule_states(self.rows)

    def named(self, names: Sequence[str]) -> list[Row]:
        """Return the rules with these ids and their states, or all. Raises TableError NO_ROW."""
        for name in names:
            self.rows_of(name)
        return [row for row in self.states() if not names or row["id"] in names]

    def details(self, name: str) -> list[Row]:
        """Return the rules with an id, their states and authors. Raises TableError NO_ROW."""
        authors = {row["subscriber"]: row for row in self.rows_of(name)}
        return [
            row | {key: authors[row["subscriber"]][key] for key in ("updated_by", "updated_at")}
            for row in self.named([name])
        ]

    def streams(self) -> list[Row]:
        """Return the claims of the running streams, and whether each stream is starting."""
        try:
            self._tables.version(writers.TABLE)
        except TableError as error:
            if error.what != "MISSING":
                raise
            return []
        # A stream writes the live rules when its first plan is in use.
        plan_at = committed_at(self._tables, LIVE, self._tables.version(LIVE))
        return [
            row | {"starting": plan_at is not None and plan_at < row["since"]}
            for row in writers.running_streams(self._tables)
        ]

    def usual_format(self, rows: Sequence[Row]) -> str:
        """Return the format of the settings, or of all rows, or itch.

        Args:
            rows: rows of `subscriptions`. Without rows, the format is that of attribute/value
                events if there are attributes.
        """
        if "format" in self._settings.given:
            return self._settings.format
        formats = {str(row["format"]) for row in rows}
        if not formats and self.rows(ATTRIBUTES):
            return ATTRIBUTES
        return formats.pop() if len(formats) == 1 else self._settings.format

    def check(self, draft: Subscription, form: str, rows: Sequence[Row]) -> DraftCheck:
        """Check a draft.

        Args:
            draft: the draft.
            form: format of the events.
            rows: the other rows of `subscriptions`.
        """
        settings = dataclasses.replace(self._settings, format=form)
        specification = specification_of(settings, self._tables)
        hosts, publisher = self._receivers()
        grants = Grants.of_table(self.rows(GRANTS), form, specification)
        context = RuleContext(specification, hosts, publisher, grants)
        return check_draft(draft, rows, context, partial(self._live, form, specification))

    def _live(self, form: str, specification: Specification) -> list[Subscription]:
        seniority = partial(self.rows, SENIORITY)
        quota = self._settings.rule_quota
        rows = self.rows(SUBSCRIPTIONS)
        return select(rows, form, FORMATS, specification, seniority, quota)[0]

    def _receivers(self) -> tuple[set[str], str]:
        """Return the hosts that may receive, and the only publisher, empty if there are several.

        If the settings do not name a publisher, the hosts with that role are the publishers.
        """
        hosts = self.rows("hosts")
        publisher = self._settings.publisher
        if "publisher" not in self._settings.given:
            senders = [row["host"] for row in hosts if row["role"] == "publisher"]
            publisher = senders[0] if len(senders) == 1 else ALL
        if several(publisher):
            return {row["host"] for row in hosts}, ""
        return {row["host"] for row in hosts if row["role"] == "subscriber"}, publisher

    def write(self, name: str, before: Sequence[Row], after: Sequence[Row]) -> int:
        """Write rows in place of those with an id, and return the version of `subscriptions`.

        Raises:
            TableError: ROW_CHANGED if another editor has written a row with this id in the
                meantime, NOT_WRITABLE.
        """
        try:
            version = write_rule(self._tables, name, before, after)
        except TableError as error:
            folder = Path(self._tables.location.removeprefix("file:")) / SUBSCRIPTIONS
            if error.what != "NEEDS_SPARK" or os.access(folder / "_delta_log", os.W_OK):
                raise
            raise TableError(
                "NOT_WRITABLE",
                f"this user must not write to {folder}: run the command as a user who may",
                table=SUBSCRIPTIONS,
            ) from error
        if version is None:
            raise TableError(
                "ROW_CHANGED",
                f"nothing is written, because another editor has just changed or deleted rule "
                f"{name!r}: see 'stackcast rules show {name}'",
            )
        return version

    def follow(self, rule: Subscription, version: int, active: bool, timeout: float | None) -> int:
        """Wait until a running stream uses an edit, and print the result.

        Args:
            rule: the rule as it was written or deleted.
            version: version of `subscriptions` with the edit.
            active: whether the rule is to become live.
            timeout: longest wait in seconds; None does not wait.

        Returns:
            The exit code.
        """
        streams = self.streams()
        if not streams:
            typer.echo("no stream runs on these tables: the edit takes effect when one starts")
            return 0
        if timeout is None:
            return 0
        if streams[0]["starting"]:
            typer.echo(f"the {printable(streams[0]['role'])} is starting ...", err=True)
        start = time.monotonic()
        reader = EditResultReader(self._tables, rule, version, active)
        while (result := reader.read()) is None:
            if time.monotonic() > start + timeout:
                _print_no_answer(self.streams() or streams, version, timeout)
                return 1
            time.sleep(_PAUSE)
        seconds = f"{time.monotonic() - start:.1f} s"
        for rejection in result.rejections:
            _print_fault(rule.id, rejection.code, rejection)
        if result.rejections:
            typer.echo("the stream has rejected the rule", err=True)
            return 1
        if not active:
            typer.echo(f"no longer live, after {seconds}")
            return 0
        typer.echo(f"live since version {result.since_version}, after {seconds}")
        return 0


def _standard_input() -> str:
    try:
        return standard_input().read().decode().strip()
    except UnicodeDecodeError:
        raise typer.BadParameter("the rule on standard input is not UTF-8 text") from None


def _utf_8(text: str, noun: str) -> str:
    """Return a text from the command line. Raises typer.BadParameter if it is not UTF-8."""
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise typer.BadParameter(f"{noun} is not UTF-8 text")
    return text


def _several_rows(name: str, rows: Sequence[Row]) -> TableError:
    owners = ", ".join(str(row["subscriber"]) for row in rows)
    return TableError(
        "SEVERAL_ROWS",
        f"{len(rows)} rows have the id {name!r}, of {owners}: remove one with 'stackcast rules "
        "remove' and --subscriber, or delete them with jobs/run_sql.py",
    )


def _print_edit(text: str, version: int) -> None:
    typer.echo(printable(f"{text}: version {version} of {SUBSCRIPTIONS}"))


def _print_no_answer(streams: Sequence[Row], version: int, timeout: float) -> None:
    stream = streams[0]
    place = f"process {stream['pid']} on {printable(stream['host'])}"
    if stream["starting"]:
        reason = (
            f"the {stream['role']} is still starting, and uses the edit when it is ready: see its "
            f"log ({place})"
        )
    else:
        reason = (
            f"no plan of the {stream['role']} includes version {version} of {SUBSCRIPTIONS}: see "
            f"its log ({place})"
        )
    typer.echo(
        f"after {timeout:g} s, {reason}, and check again with 'stackcast rules status'", err=True
    )


def _print_fault(name: str, code: str, fault: Any) -> None:
    text = fault_text(name, code, fault.message, line=fault.line, column=fault.column)
    typer.echo("\n".join(map(printable, text.split("\n"))), err=True)


def _free_id(host: str, rows: Sequence[Row]) -> str:
    """Return HOST-1, or the first such name with a higher number that no row has."""
    used_ids = {row["id"] for row in rows}
    return next(name for number in count(1) if (name := f"{host}-{number}") not in used_ids)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container may have no name for its user.
        return "stackcast rules"
