"""Subscriptions as their table has them, with what became of each; drafts, tried and saved."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

from stackcast.jobs.adapters.app.settings import FORMATS, Settings
from stackcast.jobs.adapters.console.reading import Reading, Row
from stackcast.jobs.adapters.console.records import NewestRecords
from stackcast.jobs.adapters.planning import formats
from stackcast.jobs.adapters.planning.plans import NETWORK
from stackcast.jobs.adapters.planning.rule_edits import (
    EDITED,
    WARNINGS,
    RuleContext,
    check_draft,
    rule_states,
    write_rule,
)
from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock, utc
from stackcast.jobs.adapters.tables.tables import GRANTS, LIVE, REJECTED, SENIORITY
from stackcast.udfs.errors import MAX_NAME, ConsoleError, SubscriptionError
from stackcast.udfs.filters.compiler.compile import Order
from stackcast.udfs.filters.compiler.tables import leaf_row
from stackcast.udfs.filters.grants import Grants
from stackcast.udfs.filters.grouped import Grouped
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.live_rules import LiveRules
from stackcast.udfs.filters.selection import select
from stackcast.udfs.filters.subscriptions import (
    CheckedRule,
    Rejection,
    Subscription,
    check,
)
from stackcast.udfs.messages.attributes.registry import FORMAT as ATTRIBUTES
from stackcast.udfs.messages.readers import Format
from stackcast.udfs.messages.specification import Specification
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.publishers import receiving
from stackcast.udfs.replay.rule_preview import RulePreview

TABLE = "subscriptions"
#: Rows that a page shows; a search finds the others.
SHOWN = 200
#: Records that a preview reads, and at most.
RECORDS = 2_000
MOST_RECORDS = 20_000
#: Rules with which a draft is compiled.
MOST_COMPILED = 20_000
#: Symbols that an editor offers.
MOST_SYMBOLS = 1_000
_SYMBOL = re.compile(r"==?\s*[\"']?([A-Z][A-Z0-9.]{1,11})\b")
#: Errors of rows that are not saved even if they are disabled, because pages show all rows.
_NEVER_SAVED = ("SUBSCRIPTION.BAD_NAME", "SUBSCRIPTION.BAD_CHARACTER", "SUBSCRIPTION.TOO_LONG")
#: Who wrote the row, where nobody says.
AUTHOR = "console"


class LiveRule(NamedTuple):
    """A rule as events meet it: its text, and the hosts that get what it matches."""

    id: str
    filter: str
    receivers: tuple[str, ...]


class SubscriptionsView:
    """Reads subscriptions, tries drafts, and saves them. For any thread."""

    def __init__(
        self,
        reading: Reading,
        settings: Settings,
        network: Callable[[], Network],
        records: NewestRecords,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._reading = reading
        self._settings = settings
        self._records = records
        self._network = network
        # One preview at a time: each may take a core for seconds.
        self._previews = threading.Lock()
        self._saving = threading.Lock()
        self._compiled: tuple[tuple[int, str], LiveRules, Format] | None = None

    def words(self) -> dict[str, list[str]]:
        """Returns what an editor offers: ``fields`` that a rule may ask for, ``hosts``, and
        ``symbols`` that rules compare with."""

        def make() -> dict[str, list[str]]:
            texts = (str(row["filter"]) for row in self._reading.rows(TABLE))
            symbols = {word for text in texts for word in _SYMBOL.findall(text)}
            return {
                "fields": [field.qualified for field in self._format().specification.rule_fields],
                "hosts": sorted(self._network().hosts),
                "symbols": sorted(symbols)[:MOST_SYMBOLS],
            }

        return self._reading.of((TABLE, ATTRIBUTES, *NETWORK), "words", make)

    def versions(self) -> dict[str, int]:
        """Returns versions of what `find` reads: it finds the same while these are the same."""
        return {n: self._reading.tables.version(n) for n in (TABLE, LIVE, REJECTED, WARNINGS)}

    def find(self, words: str = "", most: int = SHOWN) -> dict[str, Any]:
        """Returns ``rows`` with all words in id, subscriber, filter or state, ``most`` at most, how
        many there are ``found`` and in ``total``, and all rejected rows by the same words.

        A row has its ``state``: live (``since_version``, ``since``), rejected or warned of
        (``remarks``), disabled, pending, or of another format.
        """
        rows = self._rows()
        asked = words.lower().split()
        found = [row for row in rows if all(word in row["text"] for word in asked)]
        rejected = [row for row in found if row["state"] == "rejected"]
        counts: dict[str, int] = {}
        for row in rows:
            counts[row["state"]] = counts.get(row["state"], 0) + 1
        return {
            "total": len(rows),
            "counts": counts,
            "found": len(found),
            "rows": [_shown(row) for row in found[:most]],
            "rejected": [_shown(row) for row in rejected[:most]],
        }

    def one(self, name: str) -> dict[str, Any]:
        """Returns the row of an id, as `find`; of several, the live one first.

        Raises ConsoleError NO_SUBSCRIPTION.
        """
        rows = sorted(
            (row for row in self._rows() if row["id"] == name),
            key=lambda row: row["state"] != "live",
        )
        if rows:
            return _shown(rows[0])
        raise _no_subscription(name)

    def check(self, draft: Subscription) -> dict[str, Any]:
        """Returns what the stream would say of a draft: ``error`` (code, line, column, message with
        a caret) or None, and ``warnings`` of the same kind."""
        form = self._format()
        context = RuleContext(form.specification, *self._circumstances(form.specification))
        checked = check_draft(draft, self._reading.rows(TABLE), context, self._live)
        if checked.rejection is not None:
            return {"error": _told(checked.rejection), "warnings": []}
        warnings = [
            {"code": e.code, "line": e.line, "column": e.column, "message": e.message}
            for e in checked.warnings
        ]
        return {"error": None, "warnings": warnings}

    def preview(self, draft: Subscription, count: int = RECORDS) -> dict[str, Any]:
        """Returns `check`, and of the last ``count`` records of the topic how many ``events`` they
        have, how many of these are ``matched``, None for a rule with state, by which ``hosts``, and
        ``also``: who else gets how many of those.

        Raises as `NewestRecords.read`.
        """
        told = self.check(draft)
        if told["error"]:
            return told
        form = self._format()
        (mine,), _ = self._check([draft], form)
        others = [s for s in self._live() if s.id != draft.id]
        rules = self._checked(others, form)
        with self._previews:
            preview = RulePreview(
                form,
                draft.filter,
                [rule.filter for rule in rules],
                [rule.receivers for rule in rules],
            )
            entries = self._entries_changed(draft, form)
            for batch in self._records.read(min(count, MOST_RECORDS)):
                preview.add(batch)
        also = sorted(preview.also.items(), key=lambda pair: (-pair[1], pair[0]))
        return told | {
            "events": preview.events,
            "matched": preview.matched if preview.counted else None,
            "hosts": list(mine.receivers),
            "also": [{"host": host, "events": events} for host, events in also[:SHOWN]],
            "left_out": preview.left_out,
            "entries": entries,
        }

    def _entries_changed(self, draft: Subscription, form: Format) -> dict[str, int] | None:
        """Rows of the compiled filter that come and go with a draft; None for too many rules.

        What is compiled is kept, so that a second draft costs what an edit does.
        """
        rows = list(self._live())
        if len(rows) > MOST_COMPILED:
            return None
        hosts, publisher, granted = self._circumstances(form.specification)
        key = id(form.specification), publisher
        if self._compiled is None or self._compiled[0] != key:
            order = self._settings.filter_order
            live = LiveRules(form.specification, publisher, cast(Order, order))
            self._compiled = key, live, form
        live = self._compiled[1]
        before, after = (
            _entries(live.update(wanted, hosts, granted)[2])
            for wanted in (rows, [*(row for row in rows if row.id != draft.id), draft])
        )
        return {"added": len(after - before), "removed": len(before - after), "all": len(before)}

    def rules(self) -> tuple[Format, list[LiveRule]]:
        """Returns the format of events, and the rules that are enabled and right."""
        tables = (TABLE, SENIORITY, GRANTS, ATTRIBUTES, *NETWORK)

        def make() -> tuple[Format, list[LiveRule]]:
            form = self._format()
            return form, self._checked(list(self._live()), form)

        return self._reading.of(tables, "rules", make)

    def condition_error(self, text: str) -> dict[str, Any] | None:
        """Returns what is wrong with a condition, as `check` has it, or None."""
        try:
            rule = parse_rule(text, self._format().specification)
        except SubscriptionError as error:
            place = {name: error.fields.get(name) for name in ("line", "column")}
            return {"code": error.code, "message": error.message, **place}
        if rule.actions:
            return {
                "code": "SUBSCRIPTION.SYNTAX",
                "message": "actions are not allowed here: enter only a condition",
            }
        return None

    def _checked(self, rows: Sequence[Subscription], form: Format) -> list[LiveRule]:
        texts = {row.id: row.filter for row in rows}
        rules, _ = self._check(rows, form)
        return [LiveRule(rule.id, texts[rule.id], tuple(rule.receivers)) for rule in rules]

    def save(
        self,
        draft: Subscription,
        enabled: bool,
        opened: Sequence[Mapping[str, Any]] | None = None,
        author: str = AUTHOR,
    ) -> dict[str, Any]:
        """Write the row of a draft, a new one or in place of the one of its id.

        Args:
            draft: the row.
            enabled: its column ``enabled``.
            opened: the columns `EDITED` of the row that the user has edited; empty for a new row.
                None if this is unknown.
            author: its column ``updated_by``.

        Returns:
            The ``version`` of the table that has the row, its columns `EDITED` as ``row``, and the
            result of `check`.

        Raises:
            ConsoleError: ``REFUSED``, if the stream would reject the draft, or if the row could not
                be shown safely; ``CONFLICT``, if the row of this id differs from ``opened``, or
                another user has written it since the call. Delta's errors are also possible.
        """
        tables = self._reading.tables
        before = _rows_of(draft.id, self._reading.rows(TABLE))
        conflict = ConsoleError(
            "CONFLICT",
            f"rule {draft.id!r} was not saved, because its row was changed, deleted or created by "
            "another user in the meantime: open the rule to see the current row, or save again to "
            "replace it",
        )
        if opened is not None and not _are_shown(before, opened):
            raise conflict
        told = self.check(draft)
        if told["error"] and (enabled or told["error"]["code"] in _NEVER_SAVED):
            error = told["error"]
            raise ConsoleError(
                "REFUSED",
                f"the rule was not saved: {error['code']}: {error['message']}",
                line=error["line"],
                column=error["column"],
            )
        row = draft._asdict() | {
            "format": self._settings.format,
            "enabled": enabled,
            "updated_by": author,
            "updated_at": utc(self._clock),
        }

        with self._saving:
            version = write_rule(tables, draft.id, before, [row])
        if version is None:
            raise conflict
        return {"version": version, "row": _edited(row)} | told

    def delete(self, name: str, opened: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Delete the row of an id.

        Args:
            name: id of the row.
            opened: the columns `EDITED` of the row that the user has opened. Another row of the
                same id stays. None deletes all rows of the id.

        Returns:
            The ``version`` of the table that no longer has the row.

        Raises:
            ConsoleError: ``NO_SUBSCRIPTION``, if the table has no row of the id; ``CONFLICT``, if
                no row of this id equals ``opened``, or another user has written one since the call.
                Delta's errors are also possible.
        """
        tables = self._reading.tables
        before = _rows_of(name, self._reading.rows(TABLE))
        if not before:
            raise _no_subscription(name)
        deleted = [row for row in before if opened is None or _edited(row) == opened]
        conflict = ConsoleError(
            "CONFLICT",
            f"rule {name[:MAX_NAME]!r} was not deleted, because another user has changed its row: "
            "open the rule to see the current row, and delete it again",
        )
        if not deleted:
            raise conflict

        remaining = [row for row in before if row not in deleted]
        with self._saving:
            version = write_rule(tables, name, before, remaining)
        if version is None:
            raise conflict
        return {"version": version}

    def _rows(self) -> list[Row]:
        tables = (TABLE, LIVE, REJECTED, WARNINGS)
        return self._reading.of(tables, "subscriptions with states", self._read_rows)

    def _read_rows(self) -> list[Row]:
        rows = rule_states(self._reading.rows, self._settings.format)
        for row in rows:
            words = (row[name] for name in ("id", "subscriber", "filter", "state"))
            row["text"] = " ".join(map(str, words)).lower()
        return rows

    def _live(self) -> Iterable[Subscription]:
        return select(
            self._reading.rows(TABLE),
            self._settings.format,
            FORMATS,
            self._format().specification,
            partial(self._reading.rows, SENIORITY),
            self._settings.rule_quota,
        )[0]

    def _format(self) -> Format:
        tables = (ATTRIBUTES,) if self._settings.format == ATTRIBUTES else ()

        def make() -> Format:
            versions = {name: self._reading.tables.version(name) for name in tables}
            return formats.format_of(self._settings, self._reading.tables, versions)

        return self._reading.of(tables, "format", make)

    def _check(
        self, rows: Iterable[Subscription], form: Format
    ) -> tuple[list[CheckedRule], list[Rejection]]:
        hosts, publisher, granted = self._circumstances(form.specification)
        rules, rejections = check(list(rows), form.specification, hosts, publisher, granted)
        return list(rules), rejections

    def _circumstances(self, specification: Specification) -> tuple[set[str], str, Grants | None]:
        """The hosts that may receive, the publisher, and the grants."""
        hosts, publisher = receiving(self._network(), self._settings.publisher)

        def grants() -> Grants | None:
            held = self._reading.rows(GRANTS)
            return Grants.of_table(held, self._settings.format, specification)

        granted = self._reading.of((GRANTS,), f"grants {id(specification)}", grants)
        return set(hosts), publisher, granted


def _entries(grouped: Grouped) -> set[bytes]:
    """Each row of the filter as bytes: entries, leaves, and terms of the indexes."""
    diagram = grouped.diagram
    found = {row.tobytes() for row in diagram.entries}
    found |= {repr(leaf_row(*each)).encode() for each in diagram.outcomes.items()}
    numbered = {"state", "leaf"}
    found |= {
        repr([value for key, value in row.items() if key not in numbered]).encode()
        for row in grouped.term_rows()
    }
    return found


def _no_subscription(name: str) -> ConsoleError:
    return ConsoleError(
        "NO_SUBSCRIPTION", f"table {TABLE} has no rule with id {name[:MAX_NAME]!r}", id=name
    )


def _rows_of(name: str, rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row["id"] == name]


def _edited(row: Mapping[str, Any]) -> Row:
    return {name: row[name] for name in EDITED}


def _are_shown(rows: Sequence[Row], opened: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a page that has opened a row shows the rows of its id; ids should be unique."""
    return any(_edited(row) in opened for row in rows) if rows else not opened


def _shown(row: Row) -> Row:
    return {key: value for key, value in row.items() if key != "text"}


def _told(rejection: Rejection) -> dict[str, Any]:
    return {name: getattr(rejection, name) for name in ("code", "line", "column", "message")}
