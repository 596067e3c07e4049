"""Sessions with the switches of a deployment, side by side and kept from refresh to refresh."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from stackcast.jobs.adapters.runtime.threads import (
    SYSTEM_THREADS,
    Threads,
    parallel_map,
    wait_for_all,
)
from stackcast.jobs.adapters.switches.background import PARALLEL
from stackcast.jobs.adapters.switches.program import Programs
from stackcast.jobs.adapters.switches.results import RefreshResult, SwitchTarget
from stackcast.jobs.adapters.switches.session import SwitchSession
from stackcast.udfs.errors import SwitchError
from stackcast.udfs.switches import election
from stackcast.udfs.switches.entry import Difference, SwitchEntry, entry_from_row

log = logging.getLogger(__name__)

Rows = Sequence[Mapping[str, Any]]
OpenSession = Callable[[SwitchTarget], SwitchSession]
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class _Switch:
    target: SwitchTarget
    pipeline: str


class SwitchSessions:
    """Keeps a session with each switch of table ``switches``, by name.

    Each switch is refreshed on a thread of its own, so that none waits for another. Not for several
    threads at once.

    programs: the compiled programs. open_session: makes the session of a switch. foreign: switches
    that another client writes, as `leads` last found. threads: threads of the driver.
    """

    def __init__(
        self,
        programs: Programs,
        open_session: OpenSession,
        threads: Threads = SYSTEM_THREADS,
    ) -> None:
        self._threads = threads
        self._programs = programs
        self._open = open_session
        self._standing: dict[str, tuple[_Switch, SwitchSession]] = {}
        self._worker = threads.worker("switch-refresh", PARALLEL)
        self._running: dict[str, Future[RefreshResult]] = {}
        self.foreign: set[str] = set()

    @property
    def names(self) -> set[str]:
        return set(self._standing)

    @property
    def running(self) -> set[str]:
        """Returns the switches that are refreshed, or were and it was not asked how that ended."""
        return set(self._running)

    def follow(self, rows: Rows) -> set[str]:
        """Takes the switches from rows of ``switches``; returns those that are new or moved.

        Sessions of others stay; those of switches that are gone are closed.
        """
        wanted = {}
        for row in rows:
            limits = row["max_rules"], row["max_groups"]
            target = SwitchTarget(row["switch"], row["address"], row["device_id"], *limits)
            wanted[row["switch"]] = _Switch(target, row["pipeline"])
        gone = [name for name, (switch, _) in self._standing.items() if wanted.get(name) != switch]
        self._end(gone)
        for name in gone:
            del self._standing[name]
        new = wanted.keys() - self._standing.keys()
        for name in sorted(new):
            self._standing[name] = wanted[name], self._open(wanted[name].target)
        return set(new)

    def close(self) -> None:
        """End all connections; a few seconds at most."""
        self._end(self._standing)
        self._standing.clear()
        self._worker.close(wait=False)

    def end_refreshes(self) -> None:
        """Ends the refreshes that run, and their connections: nothing of them is written later."""
        self._end(self._busy())
        self._running.clear()

    def _busy(self) -> set[str]:
        return {name for name, future in self._running.items() if not future.done()}

    def _end(self, names: Iterable[str]) -> None:
        sessions = {name: self._standing[name][1] for name in names}
        for name in sessions.keys() & self._running.keys():
            sessions[name].interrupt()
        refreshes = [self._running.pop(name) for name in sessions.keys() & self._running.keys()]
        wait_for_all(self._threads, refreshes)
        self._for_each(lambda session: session.close(), sessions.values())

    def leads(self, connect: bool) -> dict[str, bool]:
        """Tells of each switch that answers whether we write it, as no other client goes before us.

        Those that are being refreshed are not asked. Without ``connect`` only those are that there
        is a connection to, and none is waited for.
        """
        names = sorted(self._standing.keys() - self._busy())
        found = self._for_each(lambda name: self._standing[name][1].leads(connect), names)
        answers = {name: ours for name, ours in zip(names, found, strict=True) if ours is not None}
        self.foreign = {name for name, ours in answers.items() if not ours}
        return answers

    def rivals(self) -> str:
        """Names the clients that write switches in our place, as `leads` last found."""
        return "; ".join(
            self._standing[name][1].rival for name in sorted(self.foreign & self.names)
        )

    def trouble(self) -> SwitchError | None:
        """Returns why a switch could not be asked, as `leads` last found: the first by name, but
        rather one that answered and refused us than one that is away."""
        found = [self._standing[name][1].trouble for name in sorted(self.names)]
        told = [error for error in found if error is not None and error.what != "NOT_PRIMARY"]
        return min(told, key=lambda error: error.what == "UNREACHABLE", default=None)

    def in_the_way(self) -> list[int]:
        """Returns, a switch each, the election ids of the client that writes most of the switches
        that we do not, raised as they are, as `leads` last found."""
        written: dict[int, list[int]] = defaultdict(list)
        for name in self.foreign & self.names:
            if number := self._standing[name][1].in_the_way:
                written[election.rank(number)].append(number)
        return max(written.values(), key=len, default=[])

    def go_past(self, number: int) -> None:
        """Takes the client of that election id for one that ended or stands still, on any switch,
        also one that does not answer now."""
        for _, session in self._standing.values():
            session.go_past(number)

    def forget_past(self) -> None:
        """Takes nobody for gone any more, as another has led since."""
        for _, session in self._standing.values():
            session.forget_past()

    def disturbed(self) -> set[str]:
        """Switches that may hold something else than they were read to hold. Never waits."""
        return {
            name
            for name, (_, session) in self._standing.items()
            if name in self._running or session.disturbed()
        }

    def drop_reads(self) -> dict[str, Callable[[], Mapping[str, int] | None]]:
        """Return, by switch, the call that reads its dropped packets by reason.

        The call returns None for a switch that cannot be read now.
        """

        def read(switch: _Switch, session: SwitchSession) -> Mapping[str, int] | None:
            packets = session.drops()
            if packets is None:
                return None
            reasons = self._programs.reasons(switch.pipeline)
            return {reasons.get(index, str(index)): count for index, count in packets.items()}

        return {name: partial(read, *standing) for name, standing in self._standing.items()}

    def read_backs(
        self, names: Collection[str], part: int = 0, parts: int = 1
    ) -> dict[str, Callable[[], Difference | None]]:
        """Return, by switch, the call that compares a part of it with its last refresh.

        Args:
            names: switches; unknown names are ignored.
            part: number of the part, see `SwitchSession.read_back`.
            parts: number of parts.
        """
        return {
            name: partial(self._standing[name][1].read_back, part, parts)
            for name in names
            if name in self._standing
        }

    def entry_count(self, name: str) -> int:
        """Return the number of entries that a switch was last read to hold; 0 if unknown."""
        return self._standing[name][1].entry_count if name in self._standing else 0

    def start(self, desired: Mapping[str, Rows], patience: float) -> None:
        """Begins to refresh the switches that ``desired`` names with its rows of
        ``switch_entries``; none of them may be running.

        One that does not answer is tried again for ``patience`` seconds.
        """
        for name in sorted(desired):
            work = self._standing[name], desired[name], patience
            self._running[name] = self._worker.submit(self._refresh, name, *work)

    def ended(self, awaited: Iterable[str], seconds: float | None) -> dict[str, RefreshResult]:
        """Returns how refreshes ended, each once; waits for those ``awaited``, so long at most."""
        wait_for_all(self._threads, [self._running[name] for name in awaited], seconds)
        done = sorted(name for name, future in self._running.items() if future.done())
        return {name: self._running.pop(name).result() for name in done}

    def _refresh(
        self, name: str, standing: tuple[_Switch, SwitchSession], rows: Rows, patience: float
    ) -> RefreshResult:
        switch, session = standing
        try:
            program = self._programs.program(switch.pipeline)
            return session.refresh([entry_from_row(row) for row in rows], program, patience)
        except SwitchError as error:
            return RefreshResult(None, False, [str(error)])
        except Exception as error:  # a value in its rows that nobody thought of
            log.exception("refreshing switch %s failed", name)
            return RefreshResult(None, False, [f"{type(error).__name__}: {error}"])

    def compare(
        self, desired: Mapping[str, Sequence[SwitchEntry]]
    ) -> dict[str, Difference | SwitchError]:
        """Tells what a refresh would change on each switch, as a Comparison; only reads."""

        def one(name: str) -> Difference | SwitchError:
            switch, session = self._standing[name]
            try:
                program = self._programs.program(switch.pipeline)
                return session.compare(desired.get(name, ()), program)
            except SwitchError as error:
                return error

        names = sorted(self._standing)
        return dict(zip(names, self._for_each(one, names), strict=True))

    def _for_each(self, call: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
        """Return the results of calls that run at the same time, in the order of the items."""
        return parallel_map(self._threads, "switches", call, items, PARALLEL)
