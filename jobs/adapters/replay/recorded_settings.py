"""Format and topic of the stream that sent something, as the ledger has them.

A job knows its format, and with it the defaults of its topic and checkpoint, by its own name. Other
programs are given only its properties.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.planning import formats
from stackcast.jobs.adapters.tables.recorded_topics import topic_of_row
from stackcast.jobs.adapters.tables.tables import LEDGER, Tables
from stackcast.udfs.messages.sequence import session_id

_NAMES = frozenset({"format", "topic"})


def with_recorded(settings: Settings, tables: Tables, session: str = "") -> Settings:
    """Return the settings of the stream that sent a session, or that ran last.

    Args:
        settings: settings as they are configured. Those that are given do not change.
        tables: tables of the deployment.
        session: session of MoldUDP64; by default the stream of the newest batch is meant.

    Raises:
        TableError: MISSING.
        SettingsError: BAD_VALUE, as `formats.of_settings`.
    """
    if not settings.given >= _NAMES:
        row = _newest(tables.rows(LEDGER), settings, session)
        if row is not None:
            form = dict(row["settings"] or {}).get("format", settings.format)
            keys = settings.given | _NAMES
            settings = replace(settings, topic=row["topic"], format=form, given=keys)
    return formats.of_settings(settings, settings.format)


def _newest(
    rows: Iterable[Mapping[str, Any]], settings: Settings, session: str
) -> Mapping[str, Any] | None:
    """Returns the newest row that the given settings and the session allow; None without one."""
    candidates = [
        row
        for row in rows
        if ("topic" not in settings.given or row["topic"] == settings.topic)
        and ("format" not in settings.given or _format_of(row) in (None, settings.format))
        and (not session or session in _sessions_of(row))
    ]
    return max(candidates, key=lambda row: row["started_at"], default=None)


def _format_of(row: Mapping[str, Any]) -> str | None:
    return dict(row["settings"] or {}).get("format")


def _sessions_of(row: Mapping[str, Any]) -> set[str]:
    topic = topic_of_row(row)
    return {session_id(topic, p["partition"]).decode() for p in row["partitions"]}
