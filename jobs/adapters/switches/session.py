"""A session with one switch: keeps a connection, and makes the switch hold the desired entries.

A session relies only on what it has read. A refresh compares the desired entries with those that
the switch was last read to hold, writes the difference step by step, and reads the switch again. If
the entries still differ, it starts over. Calls that fail half-way and switches that lost their
tables therefore need no special handling: the next try starts from what the switch holds then.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import RLock
from typing import Any

from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock
from stackcast.jobs.adapters.switches.credentials import Credentials
from stackcast.jobs.adapters.switches.p4runtime import RefusedUpdate, SwitchConnection
from stackcast.jobs.adapters.switches.program import P4Program
from stackcast.jobs.adapters.switches.results import (
    NOTHING,
    Comparison,
    RefreshResult,
    SwitchTarget,
)
from stackcast.udfs.errors import SwitchError
from stackcast.udfs.switches import election, ordering
from stackcast.udfs.switches.entry import GROUPS, Difference, SwitchEntry, difference

log = logging.getLogger(__name__)

#: Tries of a refresh once the switch has answered.
_TRIES = 6
#: Pause between two tries, in seconds. It doubles up to the longest pause.
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
#: How long a switch may be without a primary client before this session requests mastership: the
#: last primary client may only have lost its connection for a moment.
_STAND_IN_SECONDS = 1.0
_PROBE_SECONDS = 10.0
_CHANGES = {
    "set": "the switch runs no program",
    "reconciled": "the switch runs another build of the program; it keeps its entries if it can",
    "replaced": "the switch runs a program with another P4Info; replacing it deletes all entries",
}
#: Refused updates that a result lists one by one.
_MAX_ERRORS = 20
#: Status code of a switch that has no space for an update.
_FULL = "RESOURCE_EXHAUSTED"


@dataclass(frozen=True)
class _DesiredState:
    pipeline: P4Program
    entries: tuple[SwitchEntry, ...]


class SwitchSession:
    """A session with one switch, as a context manager.

    It connects when it first needs to, and stays connected until :meth:`close`. It is thread-safe:
    calls that write or request mastership run one after the other.

    Args:
        target: the switch.
        credentials: those of all switches; by default the connection is not encrypted.
        election_id: 1 to 2^64 - 1. The connected session with the highest election id writes.
        given_up: called before a refresh tries again; True ends the refresh.
        superseded: called, from any thread, when this session has become primary since its last
            read. It returns whether another refresher has led since the desired entries were
            derived; if so, nothing is written.
        clock: clock of the driver.

    Attributes:
        target: the switch.
        rival: the reason why :meth:`leads` last returned False; otherwise empty.
        trouble: the error because of which :meth:`leads` last did not return True, or None.
    """

    def __init__(
        self,
        target: SwitchTarget,
        credentials: Credentials | None = None,
        election_id: int = 1,
        given_up: Callable[[], bool] = lambda: False,
        superseded: Callable[[], bool] = lambda: False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.target = target
        self.rival = ""
        self.trouble: SwitchError | None = None
        # Highest election id of clients that ended or are suspended, by their rank. The switch may
        # still keep their streams.
        self._dead_ids: dict[int, int] = {}
        # Election id of the client that keeps this session from becoming primary, which may be
        # alive; 0 if there is none.
        self._blocking_id = 0
        self._credentials = credentials or Credentials()
        self._election_id = election_id
        self._given_up = given_up
        self._superseded = superseded
        self._clock = clock
        self._lock = RLock()
        # Updates that were refused alone in this refresh, by status code.
        self._refusals: Counter[str] = Counter()
        self._interrupted = clock.event()
        self._connection: SwitchConnection | None = None
        # The term of this session as primary that the last try belongs to; None before the first
        # try of a connection.
        self._read_in_term: int | None = None
        # The entries that the switch was last read to hold; None if it may hold others by now.
        self._last_read: tuple[SwitchEntry, ...] | None = None
        # The last desired state that did not exceed a limit of the switch.
        self._last_fitting: _DesiredState | None = None
        self._probe: Any = None
        self._probed = 0.0

    def __enter__(self) -> SwitchSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_primary(self) -> bool:
        """Whether this session may write, as far as the switch has reported."""
        connection = self._connection
        return connection is not None and connection.is_primary

    def leads(self, connect: bool = True) -> bool | None:
        """Request mastership unless another client takes precedence. Nothing is written.

        Args:
            connect: connect to the switch if necessary, and wait for its answers. If False, the
                method never waits or requests anything, and relies on what the switch has sent.

        Returns:
            Whether this session is primary; without ``connect``, whether no other client takes
            precedence. None if the switch cannot be asked, or if there is no connection and
            ``connect`` is False. After False, `rival` describes the other client and `in_the_way`
            is its election id. After None, `trouble` is the error, if there was one.
        """
        with self._lock:
            connection, self.rival, self._blocking_id = self._connection, "", 0
            self.trouble = None
            try:
                if connect:
                    self._request_mastership(self._connected())
                elif connection is None or not connection.alive:
                    return None
                elif not connection.is_primary and self._next_election_id(connection) is None:
                    raise self._not_primary(connection)
            except SwitchError as error:
                if error.what == "UNREACHABLE":
                    self._disconnect()
                self.rival, self.trouble = str(error) if error.what == "NOT_PRIMARY" else "", error
                return False if self.rival else None
            return True

    @property
    def in_the_way(self) -> int:
        """Election id, raised or not, of the client that `leads` last found to take precedence.

        0 if there was none.
        """
        return self._blocking_id if self.rival else 0

    def go_past(self, number: int) -> None:
        """Treat the client with this election id as dead, because it ended or is suspended.

        If a machine loses its power, for example, the switch keeps the stream of the client until
        TCP gives up, which may take hours.
        """
        client_id = election.rank(number)
        self._dead_ids[client_id] = max(self._dead_ids.get(client_id, 0), number)

    def forget_past(self) -> None:
        """Treat other clients as alive again, because another refresher has led since.

        Earlier streams with the election id of this session are still treated as dead.
        """
        own_id = self._election_id
        self._dead_ids = {own_id: self._dead_ids[own_id]} if own_id in self._dead_ids else {}

    def refresh(
        self, desired: Collection[SwitchEntry], pipeline: P4Program, patience: float = 0.0
    ) -> RefreshResult:
        """Make the switch hold exactly the desired entries, make before break.

        If the entries exceed a limit of the switch, they are not written. Instead the session
        restores the last entries that did not exceed a limit, unless another client has changed
        them since. The method never raises SwitchError; the result contains the errors.

        Args:
            desired: entries that the switch should hold.
            pipeline: program that the switch should run.
            patience: seconds for which a switch that does not answer at all is tried again. A
                switch that answered once is tried up to `_TRIES` times.
        """
        with self._lock:
            began = self._clock.monotonic()
            desired_state = _DesiredState(pipeline, tuple(desired))
            result = self._refresh(desired_state, began + patience)
            return replace(result, seconds=self._clock.monotonic() - began)

    def _refresh(self, desired: _DesiredState, deadline: float) -> RefreshResult:
        pause, tries, fresh, written = _FIRST_PAUSE, 0, False, 0
        self._refusals.clear()
        while True:
            connected = False
            try:
                connection = self._connected()
                if self._interrupted.is_set():
                    reason = "the refresh was interrupted"
                    return RefreshResult(None, False, [reason], written=written)
                connected = True
                self._request_mastership(connection)
                if self._read_in_term != connection.terms and self._superseded():
                    self._last_fitting = None
                    reason = (
                        f"{self._where}: another refresher became primary after these entries "
                        "were derived, so they were not written"
                    )
                    return RefreshResult(None, False, [reason], primary=False, written=written)
                result, settled = self._try_refresh(connection, desired, fresh)
                written += result.written
                result = replace(result, written=written)
                if settled:
                    return result
                fresh = True
                reason = "the entries that were read back differ from the written ones"
                result = replace(result, errors=[*result.errors, f"{self._where}: {reason}"])
            except ValueError:  # `interrupt` closed the channel during the call
                if not self._interrupted.is_set():
                    raise
                reason = "the refresh was interrupted"
                return RefreshResult(None, False, [reason], written=written)
            except SwitchError as error:
                reason = str(error)
                primary = error.what != "NOT_PRIMARY"
                result = RefreshResult(None, False, [reason], primary=primary, written=written)
                if error.what == "UNREACHABLE":
                    self._disconnect()
                else:
                    return result
            # The deadline applies until the switch answers for the first time. From then on all
            # tries count, whether they connect or not.
            tries += connected or tries > 0
            exhausted = tries >= _TRIES if tries else self._clock.monotonic() >= deadline
            if exhausted or self._given_up() or self._interrupted.is_set():
                return result
            log.warning("switch %s: %s; retrying", self.target.name, reason)
            self._interrupted.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _try_refresh(
        self, connection: SwitchConnection, desired: _DesiredState, fresh: bool
    ) -> tuple[RefreshResult, bool]:
        """Make one try of a refresh.

        Args:
            connection: a connection that is primary.
            desired: what the switch should hold.
            fresh: whether `_last_read` was read in this refresh.

        Returns:
            The result, and whether it is final, because only refused updates remain to be written.
        """
        # Another client may have written between two terms, so the entries must be read again.
        new_term = self._read_in_term != connection.terms
        last_read = None if new_term else self._last_read
        # If this try fails half-way, it is unknown what the switch holds.
        self._read_in_term, self._last_read = connection.terms, None
        limit_error = self._limit_error(desired)
        if limit_error is None:
            self._last_fitting = desired
            return self._write_and_verify(connection, desired, last_read, fresh)
        fallback = self._fallback(connection, desired.pipeline, new_term)
        if fallback is None:
            entries = None
            if connection.change_to(desired.pipeline) is None:
                entries = tuple(connection.read_entries(self.target.name))
            missing = difference(desired.entries, entries) if entries is not None else NOTHING
            count = None if entries is None else len(entries)
            return RefreshResult(count, False, [str(limit_error)], left=missing), True
        result, settled = self._write_and_verify(connection, fallback, last_read, fresh)
        errors = [str(limit_error), *result.errors]
        return replace(result, in_sync=False, errors=errors), settled

    def _fallback(
        self, connection: SwitchConnection, pipeline: P4Program, new_term: bool
    ) -> _DesiredState | None:
        """Return what the switch should hold while the desired entries exceed a limit.

        A switch without a program gets one here.

        Args:
            connection: a connection that is primary.
            pipeline: the desired program.
            new_term: whether this is the first try in a term. Another client may have written
                before it, so the fallback is used only if the switch has merely lost entries.

        Returns:
            The last desired state that did not exceed a limit; None if the switch stays as it is.
        """
        fallback = self._last_fitting or _DesiredState(pipeline, ())
        change = connection.change_to(fallback.pipeline)
        if change == "set":
            connection.ensure_pipeline(fallback.pipeline)
        if new_term and self._last_fitting is not None:
            foreign = change == "replaced"
            if not foreign:
                gap = difference(fallback.entries, connection.read_entries(self.target.name))
                foreign = bool(gap.modify or gap.delete)
            if foreign:
                self._last_fitting = None
        return self._last_fitting

    def _write_and_verify(
        self,
        connection: SwitchConnection,
        desired: _DesiredState,
        last_read: tuple[SwitchEntry, ...] | None,
        fresh: bool,
    ) -> tuple[RefreshResult, bool]:
        """Write the difference to the desired entries, and read the switch again.

        Args:
            connection: a connection that is primary.
            desired: what the switch should hold.
            last_read: entries that the switch is known to hold; None if it must be read first.
            fresh: whether ``last_read`` was read in this refresh.

        Returns:
            The result, with the refused updates as errors, and whether it is final, as in
            `_try_refresh`.
        """
        name, target, sizes = self.target.name, self.target, desired.pipeline.sizes
        if connection.ensure_pipeline(desired.pipeline):
            last_read = None
        entries: Collection[SwitchEntry] = last_read or ()
        change = NOTHING if last_read is None else difference(desired.entries, entries)
        # The read after the write verifies the result. If there is nothing to write, read here.
        if not change:
            entries, fresh = connection.read_entries(name), True
            change = difference(desired.entries, entries)
        missing = change
        refused: list[RefusedUpdate] = []
        if change:
            crowded = ordering.full_tables(
                change, entries, sizes, target.max_rules, target.max_groups
            )
            if crowded:
                log.warning(
                    "switch %s: the old and the new entries of %s do not fit into the table "
                    "together, so the old entries are deleted first",
                    name,
                    ", ".join(sorted(crowded)),
                )
            for step in ordering.write_steps(change, connection.names.tables, crowded, entries):
                refused += self._write_step(connection, step, refused)
            entries = connection.read_entries(name)
            missing = difference(desired.entries, entries)
        self._last_read = tuple(entries) if missing else desired.entries
        missing_keys = _keys(missing)
        final = [update for update in refused if update.entry.key in missing_keys]
        primary = connection.is_primary or not connection.alive
        result = RefreshResult(
            len(entries),
            not missing,
            _errors(final),
            primary=primary,
            left=missing,
            written=len(_keys(change)) - len(refused),
            full=bool(final) and all(update.status == _FULL for update in final),
        )
        # Refusals are final only if the difference is based on a read of this refresh. With an
        # older read, the switch may have refused an update because its entries changed meanwhile.
        settled = not missing or (
            fresh and missing_keys <= {update.entry.key for update in refused}
        )
        return result, settled

    def _write_step(
        self,
        connection: SwitchConnection,
        step: ordering.WriteStep,
        refused: list[RefusedUpdate],
    ) -> list[RefusedUpdate]:
        """Write a step, except for updates that depend on refused ones.

        Args:
            connection: a connection that is primary.
            step: updates to write.
            refused: updates of earlier steps that were refused or withheld.

        Returns:
            The updates of this step that were refused or withheld.
        """
        withheld = ordering.withheld(step, [update.entry for update in refused])
        if withheld:
            entries = tuple(entry for entry in step.entries if entry not in set(withheld))
            step = ordering.WriteStep(step.kind, entries)
        reason = "not deleted, because an update that must precede it failed"
        if step.kind != "delete":
            reason = "not written, because an update that must precede it failed"
        # Withheld updates have the status of those that they depend on, so that a full switch is
        # still reported as full.
        status = _FULL if all(update.status == _FULL for update in refused) else ""
        return [
            *connection.write_step(step, self._refusals),
            *(RefusedUpdate(entry, reason, status) for entry in withheld),
        ]

    def _limit_error(self, desired: _DesiredState) -> SwitchError | None:
        """Return ``LIMIT`` if the desired entries exceed a limit of the switch, otherwise None."""
        target, sizes = self.target, desired.pipeline.sizes
        exceeded = ordering.check_limits(
            target.name, desired.entries, sizes, target.max_rules, target.max_groups
        )
        if not exceeded:
            return None
        return SwitchError(
            "LIMIT",
            f"{'; '.join(exceeded)}: no new entries were written; reduce the number of entries, "
            "or increase the limit",
            switch=target.name,
            limits=exceeded,
        )

    def compare(self, desired: Collection[SwitchEntry], pipeline: P4Program) -> Comparison:
        """Return what a refresh would change, without writing or requesting mastership.

        Args:
            desired: entries that the switch should hold.
            pipeline: program that the switch should run.

        Raises:
            SwitchError: ``UNREACHABLE``, ``BAD_TLS``, ``READ_FAILED`` or ``LIMIT``.
        """
        desired_state = _DesiredState(pipeline, tuple(desired))
        limit_error = self._limit_error(desired_state)
        if limit_error is not None:
            raise limit_error
        # Election id 0 opens no stream, so the connection can only read.
        with self._connect(0) as connection:
            change = connection.change_to(pipeline)
            if change == "set":
                present: set[SwitchEntry] = set()
            else:
                present = connection.read_entries(self.target.name)
        program = f"{change}: {_CHANGES[change]}" if change else None
        if change == "replaced":
            deleted = tuple(sorted(present, key=lambda entry: entry.key))
            return Comparison(desired_state.entries, (), deleted, program)
        entries = difference(desired_state.entries, present)
        return Comparison(entries.insert, entries.modify, entries.delete, program)

    def drops(self) -> Mapping[int, int] | None:
        """Return the number of dropped packets by the index of the reason.

        The method never connects and blocks no other call, but may take long if the switch hangs.

        Returns:
            The counts, or None if they cannot be read.
        """
        connection = self._connection
        if connection is None or not connection.alive:
            return None
        try:
            return connection.read_drops()
        except (SwitchError, ValueError) as error:  # ValueError: the channel was closed meanwhile
            log.debug("%s: the drop counters could not be read: %s", self._where, error)
            return None

    @property
    def entry_count(self) -> int:
        """The number of entries that the switch was last read to hold; 0 if unknown."""
        return len(self._last_read or ())

    def read_back(self, part: int = 0, parts: int = 1) -> Difference | None:
        """Compare a part of the tables with the entries of the last refresh; never connect.

        After a difference the session is `disturbed` until its next refresh. The method does not
        delay a refresh, and ignores what it reads if one runs meanwhile.

        Args:
            part: tables are those whose number modulo ``parts`` is this.
            parts: number of parts.

        Returns:
            Updates that would restore what the switch held after its last refresh; None if it
            cannot be read now, or nothing is known to compare with.
        """
        connection, expected = self._connection, self._last_read
        if connection is None or not connection.alive or expected is None:
            return None
        try:
            tables = frozenset([*connection.names.tables, GROUPS][part::parts])
            entries = connection.read_entries(self.target.name, *tables) if tables else set()
            # Some switches return all tables whatever was asked for.
            entries = {entry for entry in entries if entry.table in tables}
        except (SwitchError, ValueError) as error:  # or the channel was closed during the call
            log.debug("%s: it could not be read back: %s", self._where, error)
            return None
        if self._last_read is not expected:
            return None
        repair = difference([entry for entry in expected if entry.table in tables], entries)
        if repair:
            # The next refresh relies on nothing that was read before.
            self._read_in_term = None
        return repair

    def disturbed(self) -> bool:
        """Return whether the entries of the switch may have changed since the last refresh.

        This is so if there is no connection, if `read_back` found a difference, if this session has
        become primary since, or if it could become primary. The method never waits.
        """
        connection = self._connection
        if connection is None or not connection.alive or not self._answers(connection):
            return True
        if connection.is_primary:
            return self._read_in_term != connection.terms
        return self._next_election_id(connection) is not None

    def interrupt(self) -> None:
        """End a refresh soon that runs now or starts before `close`; from any thread.

        Requests in progress are cancelled, and no others are sent.
        """
        self._interrupted.set()
        connection = self._connection
        if connection is not None:
            connection.abort()

    def close(self) -> None:
        """Close the connection, within a second. A later call connects again."""
        with self._lock:
            self._disconnect(closing=True)
            self._interrupted.clear()

    @property
    def _where(self) -> str:
        return f"switch {self.target.name!r} at {self.target.address}"

    def _connected(self) -> SwitchConnection:
        """Return the connection; open it if there is none that is intact.

        Raises:
            SwitchError: ``NOT_PRIMARY``, if the switch refuses the election id because another
                stream, which is not marked dead, has it; other errors as in
                `SwitchConnection.connect`.
        """
        if self._connection is not None and not self._connection.alive:
            self._disconnect()
        requested_id = self._election_id
        while self._connection is None:
            try:
                self._connection = self._connect(requested_id)
            except SwitchError as error:
                if error.what != "NOT_PRIMARY":
                    raise
                # Another stream has exactly this id.
                self._blocking_id = requested_id
                dead_id = self._dead_ids.get(self._election_id, 0)
                higher_id = election.election_id(self._election_id, requested_id, True, dead_id)
                if higher_id is None:
                    raise
                requested_id = higher_id
            self._read_in_term, self._probed = None, self._clock.monotonic()
        return self._connection

    def _connect(self, election_id: int) -> SwitchConnection:
        target = self.target
        credentials = self._credentials.for_switch(target.name)
        return SwitchConnection.connect(
            target.address, target.device_id, election_id, credentials, name=target.name
        )

    def _disconnect(self, closing: bool = False) -> None:
        """Close the connection, if any, and forget the entries that were read over it.

        Args:
            closing: whether the connection is closed on purpose. Otherwise it broke, and the switch
                may keep the stream and take this client for primary.
        """
        connection, self._connection = self._connection, None
        self._read_in_term = self._last_read = self._probe = None
        if connection is not None:
            if not closing and connection.terms:
                self.go_past(connection.election_id)
            connection.close()

    def _request_mastership(self, connection: SwitchConnection) -> None:
        """Become primary unless another client takes precedence.

        Raises:
            SwitchError: ``NOT_PRIMARY``, if another client takes precedence or the switch does not
                make this session primary in time.
        """
        # Three cases, until this session is primary:
        #   another client is primary and takes precedence           -> raise NOT_PRIMARY
        #   another client is primary, of lower rank or marked dead  -> request
        #   no client is primary                                     -> give the last one time to
        #                                                               return, then request
        began = self._clock.monotonic()
        while not connection.is_primary:
            next_id = self._next_election_id(connection)
            _, has_primary = connection.rivals
            waited = self._clock.monotonic() - began
            if next_id is None or waited > 3 * _STAND_IN_SECONDS:
                raise self._not_primary(connection)
            if has_primary or waited >= _STAND_IN_SECONDS:
                connection.ask_again(next_id)
            else:
                self._clock.sleep(0.05)
        if self._read_in_term != connection.terms:
            # After a connection was opened this is expected. Otherwise another client may have
            # been primary in between.
            level = logging.DEBUG if self._read_in_term is None else logging.INFO
            log.log(level, "%s: this session became its primary client", self._where)

    def _not_primary(self, connection: SwitchConnection) -> SwitchError:
        """Record the client that takes precedence; return the error ``NOT_PRIMARY``."""
        highest, has_primary = connection.rivals
        self._blocking_id = highest if has_primary else 0
        ids = f"{election.describe_id(highest)}; ours is {self._election_id}"
        reason = "did not make us primary; the highest election id it has seen is"
        if has_primary and self._next_election_id(connection) is None:
            reason = "is written by another client, with election id"
        return SwitchError(
            "NOT_PRIMARY", f"{self._where} {reason} {ids}", address=self.target.address
        )

    def _next_election_id(self, connection: SwitchConnection) -> int | None:
        """Return the election id to request mastership with; None if another takes precedence."""
        highest, has_primary = connection.rivals
        dead_id = self._dead_ids.get(election.rank(highest), 0)
        return election.election_id(self._election_id, highest, has_primary, dead_id)

    def _answers(self, connection: SwitchConnection) -> bool:
        """Return False if the switch did not answer a probe; start one every ten seconds.

        Probes are necessary because a switch that lost its power does not end its stream.
        """
        probe = self._probe
        if probe is not None and probe.done():
            self._probe, self._probed = None, self._clock.monotonic()
            code = probe.code().name
            if code in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
                connection.break_off()
                return False
        elif probe is None and self._clock.monotonic() - self._probed > _PROBE_SECONDS:
            try:
                self._probe = connection.probe()
            except ValueError:  # the connection is being closed
                return False
        return True


def _keys(change: Difference) -> set[str]:
    return {entry.key for entry in (*change.insert, *change.modify, *change.delete)}


def _errors(refused: Sequence[RefusedUpdate]) -> list[str]:
    """Return the texts of refused updates; of many, the first and the number of the others."""
    texts = [str(update) for update in refused[:_MAX_ERRORS]]
    others = len(refused) - len(texts)
    return [*texts, f"and {others} more updates"] if others else texts
