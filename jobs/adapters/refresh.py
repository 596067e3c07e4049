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
from udfs.stacks.entries import SwitchEntry, difference, switch_entries
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
    p4info: str


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
        switches, hosts, links, trees = (
            self._tables.rows(name, versions[name]) for name in SOURCES
        )
        network = network_from_rows(switches, hosts, links)
        rows = [entry_to_row(entry) for entry in switch_entries(network, map(tree_from_row, trees))]
        self._tables.replace_changed("switch_entries", rows, ("switch", "entry_key"))
        return self._tables.version("switch_entries")

    def refresh(
        self, version: int, only: Collection[str] | None = None, wait: bool = True
    ) -> list[dict[str, Any]]:
        """Write the switches (all, or ``only`` those) as of a version; returns the status rows.

        Switches are refreshed in parallel. One that does not answer is tried again for
        ``waitSeconds`` (not without ``wait``); then its row says so, and the others stand as
        written.
        """
        patience = self._settings.wait_seconds if wait else 0
        switches = self._switches(only)
        desired: dict[str, list[SwitchEntry]] = defaultdict(list)
        for row in self._tables.rows("switch_entries", version):
            desired[row["switch"]].append(entry_from_row(row))
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

    def _switches(self, only: Collection[str] | None) -> list[_Switch]:
        folder = Path(self._settings.p4_folder)
        texts: dict[str, str] = {}
        result = []
        for row in self._tables.rows("switches"):
            if only is not None and row["switch"] not in only:
                continue
            pipeline = row["pipeline"]
            if pipeline not in texts:
                texts[pipeline] = _read_p4info(folder, pipeline)
            result.append(_Switch(row["switch"], row["address"], row["device_id"], texts[pipeline]))
        return result

    def _refresh_one(
        self, switch: _Switch, desired: list[SwitchEntry], version: int, patience: float
    ) -> dict[str, Any]:
        clock = time.monotonic()
        held: int | None = None
        in_step = False
        errors: list[str] = []
        try:
            with self._connect(switch, patience) as connection:
                connection.ensure_pipeline(switch.p4info)
                failed = connection.write(difference(desired, connection.read_entries(switch.name)))
                errors = [f"{entry.key}: {message}" for entry, message in failed]
                now = connection.read_entries(switch.name)
                held, in_step = len(now), set(now) == set(desired)
        except SwitchError as error:
            errors.append(str(error))
        return {
            "switch": switch.name,
            "entries_version": version,
            "desired": len(desired),
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
