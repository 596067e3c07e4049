"""One switch kept in step with what it should hold, over a connection that is kept.

Nothing is believed that was not read: a refresh writes the difference to what the switch was last
read to hold, step by step, and reads it again; if it then holds something else, once more. A call
that dies half-way, or a switch that forgot its tables, is therefore no case of its own: the next
try begins with what the switch holds then.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jobs.adapters.switches.credentials import Credentials
from jobs.adapters.switches.p4runtime import Failure, SwitchConnection
from jobs.adapters.switches.program import P4Program
from udfs.errors import SwitchError
from udfs.switches import election, ordering
from udfs.switches.entry import Difference, SwitchEntry, difference

log = logging.getLogger(__name__)

_TRIES = 6
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
# So long a switch may be without a primary client until we stand in for it: it may only have
# lost its connection for a moment.
_STAND_IN_SECONDS = 1.0
_PROBE_SECONDS = 10.0
_CHANGES = {
    "set": "the switch runs no program",
    "reconciled": "it runs another build of the program; entries stay if the switch can keep them",
    "replaced": "it runs a program of other tables; all that it holds goes with that",
}
_NOTHING = Difference((), (), ())


@dataclass(frozen=True)
class SwitchTarget:
    """Names a switch, its address, and how much it takes in all (None: what its tables take)."""

    name: str
    address: str
    device_id: int
    max_rules: int | None = None
    max_groups: int | None = None


@dataclass(frozen=True)
class RefreshResult:
    """Tells how a switch stands after :meth:`SwitchSession.refresh`.

    held: entries that it was last read to hold, groups among them; None if it could not be read.
    in_step: it was read back to hold exactly what it should. errors: what went wrong, refusals in
    the switch's own words. seconds: from the call to the last read. primary: whether we may
    write it; if not, nothing was written after that was known. left: what still differs. written:
    updates that the switch took.
    """

    held: int | None
    in_step: bool
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0
    primary: bool = True
    left: Difference = field(default_factory=lambda: _NOTHING)
    written: int = 0


@dataclass(frozen=True)
class Comparison(Difference):
    """Tells what a refresh would change: entries, and the program if it is not None.

    program: what would happen to the program, in words that begin with ``set`` (there is none),
    ``reconciled`` (same tables, entries stay where the switch can keep them) or ``replaced``
    (all entries that there are go, and are in ``delete``). True if anything would change.
    """

    program: str | None = None

    def __bool__(self) -> bool:
        return self.program is not None or super().__bool__()


@dataclass(frozen=True)
class _Wanted:
    pipeline: P4Program
    entries: tuple[SwitchEntry, ...]


class SwitchSession:
    """One switch, connected when first needed and kept so until :meth:`close`.

    Safe to use from several threads; calls for one switch follow each other. ``election_id`` is
    from 1 to 2^64 - 1: of several sessions that live, the one with the highest writes. ``given_up``
    is asked before anything is tried again. ``superseded``, from any thread, is asked whenever we
    became primary anew: whether another has led since what is to be written was worked out. If
    so, nothing is written.
    """

    def __init__(
        self,
        target: SwitchTarget,
        credentials: Credentials | None = None,
        election_id: int = 1,
        given_up: Callable[[], bool] = lambda: False,
        superseded: Callable[[], bool] = lambda: False,
    ) -> None:
        self.target = target
        self.rival = ""
        self.trouble: SwitchError | None = None
        # By rank, the highest election id of streams that ended or stand still, but not for the
        # switch; and one that was in our way, of which that is not known.
        self._past: dict[int, int] = {}
        self._in_the_way = 0
        self._credentials = credentials or Credentials()
        self._election_id = election_id
        self._given_up = given_up
        self._superseded = superseded
        self._lock = threading.RLock()
        self._interrupted = threading.Event()
        self._connection: SwitchConnection | None = None
        # The term of ours that the last good read belongs to; None: there was none.
        self._read_in_term: int | None = None
        # What it was last read to hold, if nothing was written since.
        self._held: tuple[SwitchEntry, ...] | None = None
        # What was last asked for that is within its limits.
        self._fitting: _Wanted | None = None
        self._probe: Any = None
        self._probed = 0.0

    def __enter__(self) -> SwitchSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_primary(self) -> bool:
        """Says whether we may write the switch, as far as it has told."""
        connection = self._connection
        return connection is not None and connection.is_primary

    def leads(self, connect: bool = True) -> bool | None:
        """Stands for primary where nobody goes before us; returns whether we are primary.

        Writes nothing. None for a switch that cannot be asked. With ``connect`` false it never
        waits: it tells whether nobody goes before us, and None where there is no connection. After
        False, ``rival`` says who goes before us, and ``in_the_way`` its election id; after None,
        ``trouble`` why it cannot be asked.
        """
        with self._lock:
            connection, self.rival, self._in_the_way = self._connection, "", 0
            self.trouble = None
            try:
                if connect:
                    self._stand_for_primary(self._connected())
                elif connection is None or not connection.alive:
                    return None
                elif not connection.is_primary and self._next_id(connection) is None:
                    raise self._not_primary(connection)
            except SwitchError as error:
                if error.what == "UNREACHABLE":
                    self._disconnect()
                self.rival, self.trouble = str(error) if error.what == "NOT_PRIMARY" else "", error
                return False if self.rival else None
            return True

    @property
    def in_the_way(self) -> int:
        """Returns the election id, raised or not, of who goes before us, as `leads` last found.

        0 if nobody does.
        """
        return self._in_the_way if self.rival else 0

    def go_past(self, number: int) -> None:
        """Takes the client of that election id for one that ended, or stands still.

        As of a machine that lost its power: the switch keeps it until its TCP gives up, for hours.
        """
        whose = election.rank(number)
        self._past[whose] = max(self._past.get(whose, 0), number)

    def forget_past(self) -> None:
        """Takes no client but of our own election id for one that ended: another has led since."""
        own = self._election_id
        self._past = {own: self._past[own]} if own in self._past else {}

    def refresh(
        self, desired: Collection[SwitchEntry], pipeline: P4Program, patience: float = 0.0
    ) -> RefreshResult:
        """Make the switch hold exactly ``desired``, make before break; never raises SwitchError.

        A switch that does not answer at all is tried again for ``patience`` seconds, one that
        stops answering a few times. Where ``desired`` is beyond a limit of the switch, nothing of
        it is written; what was asked for before it, and was not, is mended.
        """
        with self._lock:
            began = time.monotonic()
            wanted = _Wanted(pipeline, tuple(desired))
            result = self._refresh(wanted, began + patience)
            return replace(result, seconds=time.monotonic() - began)

    def _refresh(self, wanted: _Wanted, deadline: float) -> RefreshResult:
        pause, batch, tries, seen, taken = _FIRST_PAUSE, 0, 0, False, 0
        while True:
            connected = False
            try:
                connection = self._connected()
                if self._interrupted.is_set():
                    return RefreshResult(None, False, ["it was interrupted"], written=taken)
                connected = True
                self._stand_for_primary(connection)
                if self._read_in_term != connection.terms and self._superseded():
                    self._fitting = None
                    why = f"{self._where}: another has led since this was worked out; not written"
                    return RefreshResult(None, False, [why], primary=False)
                result, settled = self._once(connection, wanted, batch, seen)
                taken += result.written
                result = replace(result, written=taken)
                if settled:
                    return result
                seen = True
                why = "it was read back to hold something else than what was written"
                result = replace(result, errors=[*result.errors, f"{self._where}: {why}"])
            except ValueError:  # the channel was closed under it
                if not self._interrupted.is_set():
                    raise
                return RefreshResult(None, False, ["it was interrupted"], written=taken)
            except SwitchError as error:
                why = str(error)
                ours = error.what != "NOT_PRIMARY"
                result = RefreshResult(None, False, [why], primary=ours, written=taken)
                if error.what == "UNREACHABLE":
                    self._disconnect()
                elif error.what == "WRITE_FAILED" and batch != 1:
                    # A whole request was refused without a word on its updates: ask one by one.
                    batch = 1
                else:
                    return result
            # One that never answered has all of its patience, one that did a few tries.
            tries += connected or tries > 0
            spent = tries >= _TRIES if tries else time.monotonic() >= deadline
            if spent or self._given_up() or self._interrupted.is_set():
                return result
            log.warning("switch %s: %s; trying again", self.target.name, why)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _once(
        self, connection: SwitchConnection, wanted: _Wanted, batch: int, seen: bool
    ) -> tuple[RefreshResult, bool]:
        """One try; also returns whether nothing is left to be written but what was refused.

        ``seen``: what the switch is known to hold was read in this refresh.
        """
        anew = self._read_in_term != connection.terms
        held = None if anew else self._held
        self._read_in_term, self._held = connection.terms, None
        limit = self._limit(wanted)
        if limit is None:
            self._fitting = wanted
            return self._make_hold(connection, wanted, held, batch, seen)
        older = self._held_before(connection, wanted.pipeline, anew)
        if older is None:
            held = None
            if connection.change_to(wanted.pipeline) is None:
                held = tuple(connection.read_entries(self.target.name))
            left = difference(wanted.entries, held) if held is not None else _NOTHING
            count = None if held is None else len(held)
            return RefreshResult(count, False, [str(limit)], left=left), True
        result, settled = self._make_hold(connection, older, held, batch, seen)
        errors = [str(limit), *result.errors]
        return replace(result, in_step=False, errors=errors), settled

    def _held_before(
        self, connection: SwitchConnection, pipeline: P4Program, anew: bool
    ) -> _Wanted | None:
        """Returns what to mend while more is asked for than fits; None: the switch stays.

        A switch without a program is given it. Where another may have written since, only a
        switch that lost entries is mended.
        """
        older = self._fitting or _Wanted(pipeline, ())
        change = connection.change_to(older.pipeline)
        if change == "set":
            connection.ensure_pipeline(older.pipeline)
        if anew and self._fitting is not None:
            foreign = change == "replaced"
            if not foreign:
                gap = difference(older.entries, connection.read_entries(self.target.name))
                foreign = bool(gap.modify or gap.delete)
            if foreign:
                self._fitting = None
        return self._fitting

    def _make_hold(
        self,
        connection: SwitchConnection,
        wanted: _Wanted,
        known: tuple[SwitchEntry, ...] | None,
        batch: int,
        seen: bool,
    ) -> tuple[RefreshResult, bool]:
        """Write the difference, and read. Errors are updates that were refused.

        known: what it was last read to hold, if that may be built on.
        """
        name, target, sizes = self.target.name, self.target, wanted.pipeline.sizes
        if connection.ensure_pipeline(wanted.pipeline):
            known = None
        held: Collection[SwitchEntry] = known or ()
        change = difference(wanted.entries, held)
        if known is None or not change:
            held, seen = connection.read_entries(name), True
            change = difference(wanted.entries, held)
        failures: list[Failure] = []
        if change:
            crowded = ordering.full_tables(change, held, sizes, target.max_rules, target.max_groups)
            if crowded:
                log.warning(
                    "switch %s: no capacity for old beside new in %s: the old goes first",
                    name,
                    ", ".join(sorted(crowded)),
                )
            for step in ordering.write_steps(change, connection.names.tables, crowded, held):
                failures += self._write(connection, step, failures, batch)
            held = connection.read_entries(name)
        left = difference(wanted.entries, held)
        self._held = tuple(held) if left else wanted.entries
        errors = [f"{entry.key}: {words}" for entry, words in failures] if left else []
        primary = connection.is_primary or not connection.alive
        taken = len(_all_of(change)) - len(failures)
        result = RefreshResult(
            len(held), not left, errors, primary=primary, left=left, written=taken
        )
        # An update may be refused because the switch no longer held what it was read to hold.
        settled = not left or (seen and _all_of(left) <= {entry.key for entry, _ in failures})
        return result, settled

    def _write(
        self,
        connection: SwitchConnection,
        step: ordering.WriteStep,
        failed: list[Failure],
        batch: int,
    ) -> list[Failure]:
        kept = ordering.withheld(step, [entry for entry, _ in failed])
        if kept:
            others = tuple(entry for entry in step.entries if entry not in set(kept))
            step = ordering.WriteStep(step.kind, others)
        why = "left in place, as an update that must come before its removal failed"
        if step.kind != "delete":
            why = "not written, as an update that must come before it failed"
        written = connection.write_step(step, batch) if batch else connection.write_step(step)
        return [*written, *((entry, why) for entry in kept)]

    def _limit(self, wanted: _Wanted) -> SwitchError | None:
        target, sizes = self.target, wanted.pipeline.sizes
        beyond = ordering.check_limits(
            target.name, wanted.entries, sizes, target.max_rules, target.max_groups
        )
        if not beyond:
            return None
        return SwitchError(
            "LIMIT",
            f"{'; '.join(beyond)}: nothing new was written; ask less of it, or raise the limit",
            switch=target.name,
            limits=beyond,
        )

    def compare(self, desired: Collection[SwitchEntry], pipeline: P4Program) -> Comparison:
        """Returns what a refresh would change; only reads, and takes no part in the arbitration.

        Raises SwitchError ``UNREACHABLE``, ``BAD_TLS``, ``READ_FAILED``, ``LIMIT``.
        """
        wanted = _Wanted(pipeline, tuple(desired))
        limit = self._limit(wanted)
        if limit is not None:
            raise limit
        with self._connect(0) as connection:
            change = connection.change_to(pipeline)
            if change == "set":
                held: set[SwitchEntry] = set()
            else:
                held = connection.read_entries(self.target.name)
        program = f"{change}: {_CHANGES[change]}" if change else None
        if change == "replaced":
            gone = tuple(sorted(held, key=lambda entry: entry.key))
            return Comparison(wanted.entries, (), gone, program)
        entries = difference(wanted.entries, held)
        return Comparison(entries.insert, entries.modify, entries.delete, program)

    def drops(self) -> Mapping[int, int] | None:
        """Returns packets dropped by the index of the reason, or None where that cannot be read.

        Never connects, and holds up no other call: a switch that hangs may take long to not answer.
        """
        connection = self._connection
        if connection is None or not connection.alive:
            return None
        try:
            return connection.read_drops()
        except (SwitchError, ValueError) as error:  # or the channel was closed under it
            log.debug("%s: its counters were not read: %s", self._where, error)
            return None

    def disturbed(self) -> bool:
        """Tells whether the switch may hold something else than after the last refresh.

        The connection was lost or never made, we became primary since, or could become it. Never
        waits.
        """
        connection = self._connection
        if connection is None or not connection.alive or not self._answers(connection):
            return True
        if connection.is_primary:
            return self._read_in_term != connection.terms
        return self._next_id(connection) is not None

    def interrupt(self) -> None:
        """Has a refresh that runs, or comes before `close`, end soon; from any thread.

        Requests under way are cancelled, and no other is made.
        """
        self._interrupted.set()
        connection = self._connection
        if connection is not None:
            connection.abort()

    def close(self) -> None:
        """End the connection; takes a second at most. A later call connects again."""
        with self._lock:
            self._disconnect(closing=True)
            self._interrupted.clear()

    @property
    def _where(self) -> str:
        return f"switch {self.target.name!r} at {self.target.address}"

    def _connected(self) -> SwitchConnection:
        if self._connection is not None and not self._connection.alive:
            self._disconnect()
        asked = self._election_id
        while self._connection is None:
            try:
                self._connection = self._connect(asked)
            except SwitchError as error:
                if error.what != "NOT_PRIMARY":
                    raise
                # A stream has this very id.
                self._in_the_way = asked
                past = self._past.get(self._election_id, 0)
                higher = election.election_id(self._election_id, asked, True, past)
                if higher is None:
                    raise
                asked = higher
            self._read_in_term, self._probed = None, time.monotonic()
        return self._connection

    def _connect(self, election_id: int) -> SwitchConnection:
        target = self.target
        credentials = self._credentials.for_switch(target.name)
        return SwitchConnection.connect(
            target.address, target.device_id, election_id, credentials, name=target.name
        )

    def _disconnect(self, closing: bool = False) -> None:
        connection, self._connection = self._connection, None
        self._read_in_term = self._held = self._probe = None
        if connection is not None:
            if not closing and connection.terms:
                self.go_past(connection.election_id)
            connection.close()

    def _stand_for_primary(self, connection: SwitchConnection) -> None:
        """Become primary if nobody goes before us. Raises SwitchError ``NOT_PRIMARY``."""
        began = time.monotonic()
        while not connection.is_primary:
            wanted = self._next_id(connection)
            _, taken = connection.rivals
            waited = time.monotonic() - began
            if wanted is None or waited > 3 * _STAND_IN_SECONDS:
                raise self._not_primary(connection)
            if taken or waited >= _STAND_IN_SECONDS:
                connection.ask_again(wanted)
            else:
                time.sleep(0.05)
        if self._read_in_term != connection.terms:
            # That a session begins is no news; that another client was primary meanwhile is.
            level = logging.DEBUG if self._read_in_term is None else logging.INFO
            log.log(level, "%s: we are its primary client", self._where)

    def _not_primary(self, connection: SwitchConnection) -> SwitchError:
        highest, taken = connection.rivals
        self._in_the_way = highest if taken else 0
        seen = f"{election.describe_id(highest)}; ours is {self._election_id}"
        why = "did not let us write; the highest election id it has seen is"
        if taken and self._next_id(connection) is None:
            why = "is written by another client, with election id"
        return SwitchError(
            "NOT_PRIMARY", f"{self._where} {why} {seen}", address=self.target.address
        )

    def _next_id(self, connection: SwitchConnection) -> int | None:
        highest, taken = connection.rivals
        past = self._past.get(election.rank(highest), 0)
        return election.election_id(self._election_id, highest, taken, past)

    def _answers(self, connection: SwitchConnection) -> bool:
        """False once the switch has let a question go unanswered; asks every ten seconds.

        A switch that lost its power does not end its stream.
        """
        probe = self._probe
        if probe is not None and probe.done():
            self._probe, self._probed = None, time.monotonic()
            code = probe.code().name
            if code in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
                connection.break_off()
                return False
        elif probe is None and time.monotonic() - self._probed > _PROBE_SECONDS:
            try:
                self._probe = connection.probe()
            except ValueError:  # it is being closed
                return False
        return True


def _all_of(change: Difference) -> set[str]:
    return {entry.key for entry in (*change.insert, *change.modify, *change.delete)}
