"""Leads: of several refreshers one at a time writes tables and switches, in terms.

A term begins when no other refresher goes before us, and ends when one does. In it, entries are
derived from the tables, applied to the switches, and their versions published once all switches
hold them; then again.
"""

from __future__ import annotations

import logging
from collections import defaultdict

from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.runtime.threads import SYSTEM_THREADS, Threads
from stackcast.jobs.adapters.switches.apply import Applied, Applier
from stackcast.jobs.adapters.switches.credentials import Credentials
from stackcast.jobs.adapters.switches.derive import Derived, Deriver
from stackcast.jobs.adapters.switches.drops import SwitchDrops
from stackcast.jobs.adapters.switches.filters import NetworkMatch
from stackcast.jobs.adapters.switches.leader_watch import LeaderWatch
from stackcast.jobs.adapters.switches.metrics import SwitchMetrics
from stackcast.jobs.adapters.switches.program import Programs
from stackcast.jobs.adapters.switches.publish import Publisher
from stackcast.jobs.adapters.switches.read_back import ReadBack
from stackcast.jobs.adapters.switches.session import SwitchSession
from stackcast.jobs.adapters.switches.sessions import OpenSession, SwitchSessions
from stackcast.jobs.adapters.switches.wanted import WantedEntries
from stackcast.jobs.adapters.tables.network_tables import NetworkTables
from stackcast.jobs.adapters.tables.network_versions import SOURCES, NetworkVersions
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.udfs.errors import SwitchError
from stackcast.udfs.stop_request import StopRequest
from stackcast.udfs.switches import election
from stackcast.udfs.switches.entry import Difference, SwitchEntry

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5
STANDBY_SECONDS = 1.0
#: Pause after an error of Spark or Delta.
ERROR_SECONDS = 10.0
#: Rounds of a first pass at most, after the first: each state of a tree that moves on takes one.
ROUNDS = 5


class Refresher:
    """Keeps the switches of one deployment in step with its tables. A context manager.

    Where the switches match (``spark.stackcast.match``), subscriptions are a source, too, and so
    are attributes where events are of these.

    Not for several threads at once, but for `wake`: set it, from any thread, to have the next
    `poll` find everything due. stopping: ends what waits. election_id: that of the settings by
    default. open_session, programs: in place of those of real switches. threads: threads of the
    driver.
    """

    def __init__(
        self,
        tables: Tables,
        settings: Settings,
        stopping: StopRequest | None = None,
        election_id: int | None = None,
        open_session: OpenSession | None = None,
        programs: Programs | None = None,
        threads: Threads = SYSTEM_THREADS,
    ) -> None:
        self._clock = clock = threads.clock
        self.wake = clock.event()
        self.metrics = SwitchMetrics(clock)
        self._tables = tables
        self._stopping = StopRequest() if stopping is None else stopping
        self._patience = float(settings.wait_seconds)
        self._versions = versions = NetworkVersions(tables)
        match = NetworkMatch(settings, clock) if settings.match == "network" else None
        sources = SOURCES if match is None else (*SOURCES, *match.sources)
        self._network = network = NetworkTables(tables, sources, settings.labels)
        programs = Programs(settings.p4_folder) if programs is None else programs
        self._own = own = settings.election_id if election_id is None else election_id
        credentials = Credentials(
            settings.tls_ca, settings.tls_certificate, settings.tls_key, settings.role
        )
        self._sessions = SwitchSessions(
            programs,
            open_session
            or (
                lambda target: SwitchSession(
                    target, credentials, own, self._stopping.is_set, versions.superseded, clock
                )
            ),
            threads,
        )
        self._wanted = WantedEntries(tables, network, versions, match, programs)
        self._deriver = Deriver(tables, network, versions, match, self._wanted, self.metrics, clock)
        self._applier = Applier(tables, self._sessions, self.metrics, self._still_leads, clock)
        self._read_back = ReadBack(
            self._sessions, self.metrics, settings.read_back_seconds, threads
        )
        self._drops = SwitchDrops(
            tables, self._sessions, self.metrics, self._read_back.suspect, threads
        )
        self._publisher = Publisher(tables, network, versions, self.metrics, clock)
        #: Our term, while we lead, and what was last derived in it.
        self._term: int | None = None
        self._derived: Derived | None = None
        self._standby = False
        self._due = 0.0
        #: How many switches answered when we last wanted to lead.
        self._answered = 0
        self._watch = LeaderWatch(tables, versions, clock)

    def __enter__(self) -> Refresher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all connections; takes a few seconds at most."""
        self._drops.close()
        self._read_back.close()
        self._sessions.close()

    def poll(self) -> None:
        """Does what is due; to be called often, and returns at once where nothing is.

        Tables that cannot be used, switches that do not answer and errors of Spark go to the log
        and are tried again. While another refresher goes before us, nothing is written.
        """
        now = self._clock.monotonic()
        if now < self._due and not self.wake.is_set():
            return
        self.wake.clear()
        self._due = now + (STANDBY_SECONDS if self._term is None else POLL_SECONDS)
        try:
            applied = self._keep_up() if self._take_lead() else None
            if self._term is not None:
                self._drops.follow()
                self._read_back.follow()
        except SQL_ERRORS as error:
            # Two have written one table at once, or its storage does not answer.
            log.error(
                "a table could not be read or written, retrying in %g s: %s",
                ERROR_SECONDS,
                one_line(error),
            )
            self._due = now + ERROR_SECONDS
            return
        leads, names = self._term is not None, self._sessions.names
        self.metrics.polled(leads)
        self.metrics.behind(
            () if not leads else names if applied is None else applied.behind, names
        )

    def once(self) -> dict[str, str]:
        """Brings all switches in step; returns those that are not, and why.

        While another refresher goes before us it waits for ``waitSeconds``, and so it does for a
        switch that does not answer. Trees that all switches hold become active on the way.

        Raises SwitchError ``NOT_PRIMARY`` if another leads, or comes to lead, ``UNREACHABLE`` if no
        switch answers, ``NO_SWITCHES`` if there are none; NetworkError, FilterError,
        AttributeTableError and SwitchError for tables that cannot be used.
        """
        # Side by side, as each first read takes long: most of it is needed further on.
        self._network.prefetch(self._network.current().items())
        self._wait_to_lead()
        self._begin_term()
        wrong: dict[str, str] = {}
        for _ in range(1 + ROUNDS):
            before, derived = self._derived, self._derive()
            if derived is before:
                break
            if derived.refused is not None:
                raise derived.refused
            applied = self._apply(derived, self._patience)
            wrong = {name: str(error) for name, error in derived.over_capacity.items()}
            wrong |= applied.behind
            if applied.behind:
                break
        return wrong

    def compare(self) -> dict[str, Difference | SwitchError]:
        """Tells what `once` would change on each switch, or why nothing, as it is over capacity.

        Only reads, tables and switches alike. Raises what makes tables unusable, as `once`.
        """
        current = self._network.consistent()
        wanted = self._wanted.at(current, current)
        self._sessions.follow(wanted.switches)
        desired: dict[str, list[SwitchEntry]] = defaultdict(list)
        for entry in wanted.entries.entries:
            desired[entry.switch].append(entry)
        return {**self._sessions.compare(desired), **wanted.over_capacity}

    def _keep_up(self) -> Applied | None:
        """Does one round; returns None where there is nothing to apply, or no term any more."""
        try:
            self._derive()
        except SwitchError as error:
            log.warning("switch_entries could not be derived: %s", error)
            self._still_leads()
        if self._term is None or self._derived is None:
            return None
        return self._apply(self._derived)

    def _derive(self) -> Derived:
        """Raises SwitchError ``NOT_PRIMARY`` if another has come to lead meanwhile."""
        assert self._term is not None
        derived = self._deriver.derive(self._term)
        if derived is not self._derived and not self._still_leads():
            raise SwitchError(
                "NOT_PRIMARY",
                "another refresher became primary: it now writes the switches",
            )
        self._derived = derived
        return derived

    def _apply(self, derived: Derived, patience: float | None = None) -> Applied:
        applied = self._applier.apply(derived, patience)
        if applied.ready:
            self._publisher.publish(derived)
        return applied

    def _take_lead(self) -> bool:
        """Begins a term where no other refresher goes before us; returns whether we lead."""
        if not self._leads():
            if not self._standby:
                log.warning("%s", self._why_not().message)
            self._term, self._standby = None, True
            return False
        if self._standby:
            log.warning("no other refresher is primary any longer: taking over")
            self._standby = False
        if self._term is None or self._versions.superseded():
            self._begin_term()
        return True

    def _wait_to_lead(self) -> None:
        deadline = self._clock.monotonic() + self._patience
        self._term = None
        while not self._leads():
            if self._clock.monotonic() >= deadline or self._stopping.is_set():
                raise self._why_not()
            self._stopping.wait(STANDBY_SECONDS)

    def _why_not(self) -> SwitchError:
        """Makes the error that says why we do not lead, as `_leads` last found."""
        count = len(self._sessions.names)
        if not count:
            return SwitchError(
                "NO_SWITCHES", "nothing was written, because table switches is empty"
            )
        if not self._answered:
            trouble = self._sessions.trouble()
            return SwitchError(
                "UNREACHABLE" if trouble is None else trouble.what,
                f"nothing was written, because none of {count} switches answers"
                + ("" if trouble is None else f": {trouble.message}"),
            )
        who = self._sessions.rivals() or (
            f"most of {count} switches have another primary, and another refresher was primary a "
            "moment ago"
        )
        return SwitchError(
            "NOT_PRIMARY",
            "another refresher or another client writes the switches, so nothing was written; "
            f"waiting until it ends: {who}. --dry-run only compares the switches, --reconcile "
            "takes over",
        )

    def _begin_term(self) -> None:
        """From now on nothing counts that was said by those who led before, or is being written."""
        self._sessions.end_refreshes()
        self._term, self._derived = self._versions.begin_term(), None

    def _leads(self) -> bool:
        """Tells whether no other refresher goes before us.

        A client that writes single switches is no reason to leave the others alone: in a term, one
        that answers must be ours, if any does, as long as nobody else has begun a term. Those alone
        are asked then that there is a connection to, so that none is waited for.
        """
        if self._term is None or self._versions.superseded():
            return self._may_begin()
        answers = self._sessions.leads(connect=False)
        return not answers or any(answers.values())

    def _may_begin(self) -> bool:
        """Tells whether we may begin a term: most of the switches must be ours.

        Of those that answer, that is, where nobody else leads: two that reach other switches each
        would take the lead from each other for ever.
        """
        if self._versions.led_by_another():
            self._sessions.forget_past()
        self._sessions.follow(self._deriver.switches())
        answers = self._sessions.leads(connect=True)
        own, count = sum(answers.values()), len(self._sessions.names)
        quiet, self._answered = self._watch.quiet(), len(answers)
        if 2 * own > count or (2 * own > len(answers) and quiet):
            return True
        self._go_past_the_dead(own, count)
        return False

    def _go_past_the_dead(self, own: int, count: int) -> None:
        """Goes past who writes most of the ``count`` switches, of which ``own`` are ours, if it is
        gone or stands still."""
        written = self._sessions.in_the_way()
        who = 0
        if written and 2 * (own + len(written)) > count:
            who = election.rank(written[0])
        if self._watch.is_gone(who == self._own, self._undone(own) if who else None):
            log.warning(
                "the primary with election id %d does not answer: taking over its switches", who
            )
            self._sessions.go_past(max(written))

    def _undone(self, own: int) -> tuple[object, ...] | None:
        """Names what who leads would have done if it were alive and able; None: nothing.

        Edits of the tables, that is, and switches that are ours, as it lost them.
        """
        current = self._network.current()
        if not own and self._versions.newest(current) == current:
            return None
        return own, *current.items()

    def _still_leads(self) -> bool:
        """Ends our term if another has begun one, or goes before us; returns whether we lead."""
        if self._term is not None and (self._versions.superseded() or not self._leads()):
            self._term = None
        return self._term is not None
