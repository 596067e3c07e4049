"""How a deployment is: versions in force and pending, batches, lag, switches in step."""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from stackcast.jobs.adapters.console.alerts import Alert, read_metrics
from stackcast.jobs.adapters.console.reading import Reading
from stackcast.jobs.adapters.planning.versions import LINK_STATES
from stackcast.jobs.adapters.tables.changes import committed_at
from stackcast.jobs.adapters.tables.tables import LEDGER

#: Batches that a page shows.
BATCHES = 120
#: The job's answer is read from memory: one that takes longer hangs.
SECONDS = 1.0
_MOST_BYTES = 1 << 20


class HealthView:
    """Reads what operators look at first. For any thread.

    stream: address of the stream's HTTP server, as ``http://127.0.0.1:9400``, or empty where it
    serves nothing; then what the tables say is all there is. alerts: judged by its metrics.
    """

    def __init__(self, reading: Reading, stream: str, alerts: Sequence[Alert] = ()) -> None:
        self._reading = reading
        self._stream = stream
        self._alerts = alerts

    def read(self) -> dict[str, Any]:
        """Returns all of it as JSON has it: ``stream``, ``versions``, ``batches``,
        ``switches`` and ``alerts``, with ``state`` fires, quiet or not told."""
        batches = self._batches()
        stream = self._health()
        last = batches[-1]["versions"] if batches else {}
        return {
            "stream": stream,
            "versions": self._versions(stream.get("versions") or last),
            "batches": [{k: v for k, v in row.items() if k != "versions"} for row in batches],
            "switches": self._switches(),
            "alerts": self._judged(stream["reached"]),
        }

    def _health(self) -> dict[str, Any]:
        """What /health of the stream says, and ``reached``: True, False with ``problems``, or None
        where there is nobody to ask."""
        if not self._stream:
            return {"reached": None}
        address = f"{self._stream}/health"
        try:
            try:
                answer = urllib.request.urlopen(address, timeout=SECONDS)
            except urllib.error.HTTPError as error:
                # 503 is the answer of a stream that has a problem.
                answer = error
            with answer:
                found = json.loads(answer.read(_MOST_BYTES))
            if not isinstance(found, dict):
                raise ValueError("the answer is not a JSON object")
        except (OSError, ValueError, http.client.HTTPException) as error:
            return {"reached": False, "status": "unhealthy", "problems": [f"{address}: {error}"]}
        return {"reached": True, **found}

    def _judged(self, reached: bool | None) -> list[dict[str, str]]:
        metrics: dict[str, list[float]] = {"up": [float(reached)]} if reached is not None else {}
        if reached:
            with suppress(OSError, ValueError, http.client.HTTPException):
                asked = urllib.request.urlopen(f"{self._stream}/metrics", timeout=SECONDS)
                with asked as answer:
                    metrics |= read_metrics(answer.read(_MOST_BYTES).decode())
        return [{"name": alert.name, "state": alert.state(metrics)} for alert in self._alerts]

    def _batches(self) -> list[dict[str, Any]]:
        rows = self._reading.newest(LEDGER, "batch_id", BATCHES)
        rows.sort(key=lambda row: (row["started_at"], row["batch_id"]))
        return [
            {
                name: row[name]
                for name in (
                    *("batch_id", "topic", "started_at", "seconds", "packets", "messages"),
                    *("matched", "frames", "bytes", "dead_letters", "versions"),
                )
            }
            for row in rows[-BATCHES:]
        ]

    def _versions(self, in_force: dict[str, int]) -> list[dict[str, Any]]:
        """Of each table the version in force, the newest, and when the first of those that wait was
        committed."""
        found = []
        for name, version in sorted(in_force.items()):
            table = "links" if name == LINK_STATES else name
            newest = self._reading.tables.version(table)
            pending = newest > version
            since = committed_at(self._reading.tables, table, version + 1) if pending else None
            found.append({"name": name, "version": version, "newest": newest, "since": since})
        return found

    def _switches(self) -> list[dict[str, Any]]:
        status = {
            row["switch"]: row
            for row in sorted(
                self._reading.rows("switch_status"), key=lambda row: row["checked_at"]
            )
        }
        columns = ("entries_version", "desired", "installed", "in_sync", "errors", "checked_at")
        return [
            {"switch": name} | {c: status[name][c] if name in status else None for c in columns}
            for name in sorted(row["switch"] for row in self._reading.rows("switches"))
        ]


def runbook(path: Path) -> dict[str, str]:
    """Return the sections of the runbook by their names; none if the file does not exist."""
    if not path.is_file():
        return {}
    parts = re.split(r"^## (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {name: text.strip() for name, text in zip(parts[::2], parts[1::2], strict=True)}
