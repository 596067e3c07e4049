"""Bring the switches in step with `switch_entries`, and write down how they stand.

Idempotent: a switch is read, the difference to the table is written, and it is read again. So it
does not matter what the switch held before, or whether an earlier refresh was cut off.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.adapters.p4runtime import SwitchConnection
from jobs.adapters.settings import Settings
from jobs.adapters.tables import Tables
from udfs.errors import SwitchError
from udfs.stacks.entries import switch_entries
from udfs.switches.entry import SwitchEntry, difference
from udfs.trees.rows import entry_from_row, entry_to_row, network_from_rows, tree_from_row

log = logging.getLogger(__name__)

PARALLEL = 16
RETRY_SECONDS = 3

#: What `switch_entries` is derived from.
SOURCES = ("switches", "hosts", "links", "virtual_trees")


@dataclass(frozen=True)
class _Switch:
    name: str
    address: str
    device_id: int
    pipeline: str


class Refresher:
    """Refreshes the switches of one deployment.

    derived_from: versions of `SOURCES` that `derive` last read, whether they could be used or not.
    """

    def __init__(
        self, tables: Tables, settings: Settings, given_up: Callable[[], bool] = lambda: False
    ) -> None:
        self._tables = tables
        self._settings = settings
        self._given_up = given_up
        self.derived_from: dict[str, int] = {}
        # What was last read of a table: a first read takes seconds, and is needed twice.
        self._read: dict[str, tuple[int, list[dict[str, Any]]]] = {}

    def stale(self) -> bool:
        """Whether a source of `switch_entries` has changed since `derive` read it."""
        return self._versions() != self.derived_from

    def derive(self) -> int:
        """Work out `switch_entries` from network and trees; returns the table's version.

        Retiring trees stay on the switches until they are removed from `virtual_trees`, so that
        stacks on their way still find them. Raises NetworkError where they do not fit together,
        TableError MISSING.
        """
        # Read at these versions, so that an edit in between is seen as one that came after.
        self.derived_from = versions = self._versions()
        before = self._tables.version("switch_entries")
        wanted = versions | {"switch_entries": before}
        # Most of a read is waiting for one small Spark job after the other.
        with ThreadPoolExecutor(max_workers=len(wanted)) as pool:
            switches, hosts, links, trees, held = pool.map(self._rows, wanted, wanted.values())
        network = network_from_rows(switches, hosts, links)
        rows = [entry_to_row(entry) for entry in switch_entries(network, map(tree_from_row, trees))]
        self._tables.replace_changed("switch_entries", rows, ("switch", "entry_key"), held)
        version = self._tables.version("switch_entries")
        if version == before + 1:  # by us: nobody else wrote in between
            self._read["switch_entries"] = version, rows
        return version

    def refresh(
        self, version: int, only: Collection[str] | None = None, wait: bool = True
    ) -> list[dict[str, Any]]:
        """Write the switches (all, or ``only`` those) as of a version; returns the status rows.

        Switches are refreshed in parallel. One that does not answer is tried again for
        ``waitSeconds`` (not without ``wait``). Whatever fails for one switch, its row says so,
        and the others stand as written.
        """
        patience = self._settings.wait_seconds if wait else 0
        switches = self._switches(only)
        desired: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in self._rows("switch_entries", version):
            desired[row["switch"]].append(row)
        with ThreadPoolExecutor(max_workers=min(PARALLEL, max(1, len(switches)))) as pool:
            statuses = list(
                pool.map(
                    lambda s: self._refresh_one(s, desired.get(s.name, []), version, patience),
                    switches,
                )
            )
        self._tables.append("switch_status", statuses)
        behind = [s for s in statuses if not s["in_step"]]
        for status in behind:
            log.error("switch %s is not in step: %s", status["switch"], "; ".join(status["errors"]))
        log.info(
            "switch_entries@%d: %d of %d switches in step, %d entries",
            version,
            len(statuses) - len(behind),
            len(statuses),
            sum(s["held"] or 0 for s in statuses),
        )
        return statuses

    def _versions(self) -> dict[str, int]:
        return {name: self._tables.version(name) for name in SOURCES}

    def _rows(self, name: str, version: int) -> list[dict[str, Any]]:
        known = self._read.get(name)
        if known is None or known[0] != version:
            known = self._read[name] = version, self._tables.rows(name, version)
        return known[1]

    def _switches(self, only: Collection[str] | None) -> list[_Switch]:
        return [
            _Switch(row["switch"], row["address"], row["device_id"], row["pipeline"])
            for row in self._rows("switches", self._tables.version("switches"))
            if only is None or row["switch"] in only
        ]

    def _refresh_one(
        self, switch: _Switch, rows: list[dict[str, Any]], version: int, patience: float
    ) -> dict[str, Any]:
        clock = time.monotonic()
        held: int | None = None
        in_step = False
        errors: list[str] = []
        try:
            desired: list[SwitchEntry] = [entry_from_row(row) for row in rows]
            p4info = _read_p4info(Path(self._settings.p4_folder), switch.pipeline)
            with self._connect(switch, patience) as connection:
                connection.ensure_pipeline(p4info)
                failed = connection.write(difference(desired, connection.read_entries(switch.name)))
                errors = [f"{entry.key}: {message}" for entry, message in failed]
                now = connection.read_entries(switch.name)
                held, in_step = len(now), set(now) == set(desired)
        except SwitchError as error:
            errors.append(str(error))
        except Exception as error:  # a value in its rows that nobody thought of
            log.exception("switch %s", switch.name)
            errors.append(f"{type(error).__name__}: {error}")
        return {
            "switch": switch.name,
            "entries_version": version,
            "desired": len(rows),
            "held": held,
            "in_step": in_step,
            "errors": errors,
            "seconds": time.monotonic() - clock,
            "checked_at": dt.datetime.now(dt.UTC),
        }

    def _connect(self, switch: _Switch, patience: float) -> SwitchConnection:
        deadline = time.monotonic() + patience
        while True:
            try:
                return SwitchConnection.connect(
                    switch.address, switch.device_id, self._settings.election_id
                )
            except SwitchError as error:
                if time.monotonic() >= deadline or self._given_up():
                    raise
                log.warning("%s; trying again", error)
                time.sleep(RETRY_SECONDS)


def _read_p4info(folder: Path, pipeline: str) -> str:
    path = folder / f"{pipeline}.p4info.txtpb"
    try:
        return path.read_text()
    except OSError as error:
        raise SwitchError(
            "NO_P4INFO",
            f"the P4Info of pipeline {pipeline!r} cannot be read at {path} ({error.strerror}): "
            "point spark.stackcast.p4.folder at the project's p4 folder",
        ) from error
