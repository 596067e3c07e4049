"""The switches of a deployment side by side: a session each, kept from refresh to refresh."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from jobs.adapters.switches.program import Pipeline
from jobs.adapters.switches.session import RefreshResult, SwitchSession, SwitchTarget
from udfs.errors import SwitchError
from udfs.switches.derivation import DERIVATIONS
from udfs.switches.entry import Difference, SwitchEntry, entry_from_row

log = logging.getLogger(__name__)

PARALLEL = 16

Rows = Sequence[Mapping[str, Any]]
OpenSession = Callable[[SwitchTarget], SwitchSession]
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class _Switch:
    target: SwitchTarget
    pipeline: str


class SwitchSessions:
    """Sessions with the switches of table ``switches``, by name.

    p4_folder: where the compiled programs are. open_session: makes the session of a switch.
    """

    def __init__(self, p4_folder: str, open_session: OpenSession) -> None:
        self._p4_folder = p4_folder
        self._open = open_session
        self._standing: dict[str, tuple[_Switch, SwitchSession]] = {}
        self._pipelines: dict[str, Pipeline] = {}

    @property
    def names(self) -> set[str]:
        return set(self._standing)

    def follow(self, rows: Rows) -> set[str]:
        """Take the switches from rows of ``switches``; returns those that are new or moved.

        Sessions of others stay; those of switches that are gone are closed.
        """
        wanted = {}
        for row in rows:
            limits = row["max_rules"], row["max_groups"]
            target = SwitchTarget(row["switch"], row["address"], row["device_id"], *limits)
            wanted[row["switch"]] = _Switch(target, row["pipeline"])
        for name, (switch, session) in list(self._standing.items()):
            if wanted.get(name) != switch:
                session.close()
                del self._standing[name]
        new = wanted.keys() - self._standing.keys()
        for name in sorted(new):
            self._standing[name] = wanted[name], self._open(wanted[name].target)
        return set(new)

    def close(self) -> None:
        """End all connections; a second at most."""
        sessions = [session for _, session in self._standing.values()]
        self._standing.clear()
        side_by_side(lambda session: session.close(), sessions)

    def leads(self, connect: bool) -> dict[str, bool]:
        """Of each switch that answers whether we write it, and no other client goes before us.

        Without ``connect`` only those are asked that there is a connection to.
        """
        names = sorted(self._standing)
        found = side_by_side(lambda name: self._standing[name][1].leads(connect), names)
        return {name: leads for name, leads in zip(names, found, strict=True) if leads is not None}

    def rival(self, name: str) -> str:
        """Who writes the switch in our place, as `leads` last found: its address and id."""
        return self._standing[name][1].rival

    def disturbed(self) -> set[str]:
        """Switches that may hold something else than they were read to hold. Never waits."""
        return {name for name, (_, session) in self._standing.items() if session.disturbed()}

    def refresh(self, desired: Mapping[str, Rows], patience: float) -> dict[str, RefreshResult]:
        """Refresh the switches that ``desired`` names with its rows of ``switch_entries``."""
        names = sorted(desired.keys() & self._standing.keys())
        results = side_by_side(lambda n: self._refresh(n, desired[n], patience), names)
        return dict(zip(names, results, strict=True))

    def _refresh(self, name: str, rows: Rows, patience: float) -> RefreshResult:
        switch, session = self._standing[name]
        try:
            pipeline = self.pipeline(switch.pipeline)
            return session.refresh([entry_from_row(row) for row in rows], pipeline, patience)
        except SwitchError as error:
            return RefreshResult(None, False, [str(error)])
        except Exception as error:  # a value in its rows that nobody thought of
            log.exception("switch %s", name)
            return RefreshResult(None, False, [f"{type(error).__name__}: {error}"])

    def compare(
        self, desired: Mapping[str, Sequence[SwitchEntry]]
    ) -> dict[str, Difference | SwitchError]:
        """What a refresh would change on each switch, as a Comparison; it only reads."""

        def one(name: str) -> Difference | SwitchError:
            switch, session = self._standing[name]
            try:
                return session.compare(desired.get(name, ()), self.pipeline(switch.pipeline))
            except SwitchError as error:
                return error

        names = sorted(self._standing)
        return dict(zip(names, side_by_side(one, names), strict=True))

    def pipeline(self, name: str) -> Pipeline:
        """A compiled program. Raises SwitchError ``NO_P4INFO``, ``UNKNOWN_PIPELINE``."""
        known = self._pipelines.get(name)
        if known is None:
            known = Pipeline.read(self._p4_folder, name)
            if name not in DERIVATIONS:
                raise SwitchError(
                    "UNKNOWN_PIPELINE",
                    f"nothing says what a switch with pipeline {name!r} should hold, so it stays "
                    f"as it is: column pipeline of switches knows {', '.join(DERIVATIONS)}",
                    pipeline=name,
                )
            self._pipelines[name] = known
        return known

    def sizes_of(self, pipeline: str) -> dict[str, int]:
        """Most entries of the tables of a program that was read; none of one that was not."""
        known = self._pipelines.get(pipeline)
        try:
            return {} if known is None else known.sizes
        except SwitchError:
            return {}

    def tables_of(self, pipeline: str) -> list[str]:
        """Names of a program's tables; none where it cannot be read: its switches will tell."""
        try:
            p4info = self.pipeline(pipeline).p4info
        except SwitchError:
            return []
        return [table.preamble.name for table in p4info.tables]


def side_by_side(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """The results in the order of the items."""
    waiting = list(items)
    with ThreadPoolExecutor(max_workers=min(PARALLEL, max(1, len(waiting)))) as pool:
        return list(pool.map(work, waiting))
