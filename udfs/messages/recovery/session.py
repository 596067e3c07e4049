"""One session at a receiver: notifications kept, gaps, and requests. No sockets, no clock.

A session is in one of four states. `TRANSITIONS` holds the next state by trigger; requests and
their times are decided as a state is entered.

=========  ========================================================================================
UNHEARD    no summary has arrived, so it is unknown where the session begins
EVEN       everything that was announced has arrived
BEHIND     something that was announced is missing; it may still be on its way, so wait a little
ASKING     a request was sent
=========  ========================================================================================

No single datagram makes a session drop what arrives later:

- A summary that agrees with what has arrived is accepted. If a notification or another summary
  contradicts it, its range is open again until a summary or the service settles it.
- The first summary is where the session begins. If the stream continues below it, and nothing has
  confirmed it, the session begins there instead.
- Missing notifications are reported as lost only up to the confirmed position, which two datagrams
  of the session have reached (`stackcast.udfs.messages.recovery.confirmation`).
- The service must repeat, in the answer to another request, that a range is gone, that a
  notification is not for this host, or that a summary of the stream is wrong.
- An announcement that only one summary makes is forgotten when three summaries end below it that
  arrive later by `ReceiverOptions.silence`.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from enum import Enum
from typing import Literal

from stackcast.udfs.messages.recovery.confirmation import ConfirmedPosition
from stackcast.udfs.messages.recovery.events import (
    Loss,
    Notification,
    Output,
    ReceiverOptions,
    ReceiverStatistics,
)
from stackcast.udfs.messages.recovery.kept import KeptNotifications
from stackcast.udfs.messages.summaries import MOST_MESSAGES, Request, Summary

#: Maximum datagrams in an answer.
MOST_ANSWERED = 4096
#: Maximum summaries beyond a gap that are kept until it is closed; the service replaces others.
MOST_SUMMARIES = 4096
#: Fewest messages that a request asks for, no matter how many frames the network loses.
FEWEST_MESSAGES = 64
#: Longest range of a summary of the stream, in sequence numbers: 2^32 records.
LONGEST_RANGE = 1 << 58
#: Summaries below the beginning, or below an unconfirmed announcement, that refute it.
MOST_BEFORE = 3
_LAST = (1 << 64) - 1


class State(Enum):
    UNHEARD = "unheard"
    EVEN = "even"
    BEHIND = "behind"
    ASKING = "asking"


class Trigger(Enum):
    LEVEL = "all announced notifications have arrived"
    GAP = "an announced notification is missing"
    ANSWERED = "an answer has arrived, and more notifications are missing"
    DUE = "the waiting time has elapsed"
    WITHDRAWN = "the stream continues at a lower number than its unconfirmed beginning"


TRANSITIONS = {
    (State.UNHEARD, Trigger.LEVEL): State.EVEN,
    (State.UNHEARD, Trigger.GAP): State.BEHIND,
    (State.UNHEARD, Trigger.ANSWERED): State.BEHIND,
    (State.UNHEARD, Trigger.DUE): State.ASKING,
    (State.EVEN, Trigger.LEVEL): State.EVEN,
    (State.EVEN, Trigger.GAP): State.BEHIND,
    (State.EVEN, Trigger.ANSWERED): State.BEHIND,
    (State.EVEN, Trigger.DUE): State.ASKING,
    (State.BEHIND, Trigger.LEVEL): State.EVEN,
    (State.BEHIND, Trigger.GAP): State.BEHIND,
    (State.BEHIND, Trigger.ANSWERED): State.BEHIND,
    (State.BEHIND, Trigger.DUE): State.ASKING,
    (State.ASKING, Trigger.LEVEL): State.EVEN,
    (State.ASKING, Trigger.GAP): State.ASKING,
    (State.ASKING, Trigger.ANSWERED): State.BEHIND,
    (State.ASKING, Trigger.DUE): State.ASKING,
    **{(state, Trigger.WITHDRAWN): State.UNHEARD for state in State},
}


class Session:
    """The state machine of one session; see the module."""

    def __init__(
        self,
        name: bytes,
        options: ReceiverOptions,
        statistics: ReceiverStatistics,
        jitter: random.Random,
        now: float,
    ) -> None:
        self.name = name
        #: Everything below is complete, reported as lost, or precedes the beginning.
        self.covered = 0
        #: The largest number that a summary has announced.
        self.known = 0
        self.kept = KeptNotifications()
        from_start = options.from_start and options.asks
        #: Whether notifications since the start of the session may still be missing.
        self.is_catching_up = from_start
        self.state = State.BEHIND if from_start else State.UNHEARD
        #: When `time` has something to do.
        self.due = now if from_start else now + options.silence
        self._options, self._statistics, self._jitter = options, statistics, jitter
        # Summaries that are not settled, in order of arrival, and True for those of the service.
        self._summaries: dict[tuple[Summary, bool], None] = {}
        # The kept notifications that the service sent.
        self._answered = KeptNotifications()
        # How far the stream has come.
        self._position = ConfirmedPosition()
        # Summaries of the service from `covered` on, by the number of the request.
        self._replies: dict[int, Summary] = {}
        self._confirmed_at = now
        # From `_doomed_at` on, everything missing below `_doomed` is lost.
        self._doomed = 0
        self._doomed_at = now
        # When `known` was announced, and ends of later summaries below it until it is confirmed.
        self._announced_at = now
        self._lower: set[int] = set()
        self._asked = -1
        self._requests = 0
        self._reach = MOST_MESSAGES
        self._tries = 0
        self._in_vain = 0
        self._fresh = False
        self._catching_up = False
        self._since = now
        #: Where the session began, and the number below which the service has confirmed it.
        self._began = self._settled = 0
        #: The number below which losses were reported.
        self._lost = 0
        self._before: set[int] = set()
        #: Where accepted ranges began, ascending, for as long as they may be opened again.
        self._starts: list[int] = []

    def late(
        self, sequence: int, count: int, datagram: bytes, answer: bool, now: float, out: Output
    ) -> None:
        """Takes a notification below `covered`: a copy, or an accepted range is incomplete."""
        if sequence < self.kept.remembered_from or self.kept.took(sequence):
            self._statistics.late += 1
            return
        if sequence < self._began and not self._has_begun():
            self._withdraw_beginning(sequence, now, out)
            self.keep(sequence, count, datagram, answer, now, out)
            return
        if sequence < self._open_from():
            self._statistics.late += 1
            return
        if sequence < self._lost:
            # It was reported as lost. In order of arrival it can still be delivered.
            if self._options.order == "arrival":
                self.kept.add_past(sequence, count)
                self._statistics.belated += 1
                self._deliver(sequence, count, datagram, out)
            else:
                self._statistics.late += 1
            return
        if self._position.add(sequence + 1, sequence):
            self._confirmed_at = now
        at = bisect_right(self._starts, sequence) - 1
        self._dispute(self._starts[at] if at >= 0 else sequence, now, out)
        self.keep(sequence, count, datagram, answer, now, out)

    def keep(
        self, sequence: int, count: int, datagram: bytes, answer: bool, now: float, out: Output
    ) -> None:
        """Takes a new notification, not below `covered`."""
        if self._position.add(sequence + 1, sequence):
            self._confirmed_at = now
        if self.state is State.UNHEARD and not self.kept:
            self.due = now + self._options.silence
        capacity = self._options.limit + (2 * MOST_ANSWERED if answer else 0)
        if len(self.kept) >= capacity and not self._admits(sequence, now, out):
            self._statistics.overflowed += 1
        elif sequence >= self.covered:
            self._statistics.repaired += answer
            if self._options.order == "arrival":
                self.kept.add(sequence, count)
                self._deliver(sequence, count, datagram, out)
            else:
                self.kept.add(sequence, count, datagram)
            if self.state is State.BEHIND and not self._options.asks:
                self._plan_loss(now, self._patience())
        else:
            self._statistics.late += 1

    def answered(self, sequence: int, count: int, new: bool, now: float) -> None:
        """Records that the service sent a notification, not below `covered`."""
        if sequence in self.kept.counts and sequence not in self._answered.counts:
            self._answered.add(sequence, count)
        self._fresh |= new
        if self.state is State.ASKING:
            # An answer that is still arriving is not late.
            self.due = max(self.due, now + self._options.timeout)

    def summary(self, summary: Summary, answer: bool, now: float, out: Output) -> None:
        """Takes a summary of the stream or of an answer."""
        if answer and (self.state is not State.ASKING or summary.from_ != self._asked):
            return  # It replies to no request, or to an earlier one.
        if not answer and self._implausible(summary):
            self._statistics.suspicious += 1
            return
        begun = self._has_begun()
        # The service answers with an empty range if it has nothing: that only repeats the request.
        repeats = answer and summary.until == summary.from_
        if not repeats and self._position.add(summary.until, (summary, answer)):
            self._confirmed_at = now
        if answer:
            self._replies[self._requests] = summary
        if self.state is State.UNHEARD:
            self._begin(max(self._first(summary), self.covered), now, out)
            self._began = self.covered
        elif not answer and (disputed := self._disputed_from(summary, begun)) is not None:
            self._dispute(disputed, now, out)
        elif summary.until <= self.covered and not answer:
            if self.state is State.EVEN:
                self._enter(Trigger.LEVEL, now, out)
            return
        self._announce(summary.until, now)
        self._remember(summary, answer)
        before = self.covered
        self._confirm(now, out)
        if not answer:
            self._in_vain = 0
            self._weigh_announcement(summary, now)
        if answer:
            self._replied(summary, self.covered > before, now, out)
        else:
            level = self.covered >= self.known
            wait = self._patience()
            self._enter(Trigger.LEVEL if level else Trigger.GAP, now, out, wait)
            self._plan_loss(now, wait)

    def time(self, now: float, out: Output) -> None:
        """Performs the actions that are due at the time ``now``; there are none before `due`."""
        if now < self.due:
            return
        if self.state is State.UNHEARD:
            if not self.kept or not self._options.asks:
                self.due = now + self._options.silence
                return
            # Notifications have arrived, but no summary: begin with the first of them.
            self._begin(min(self.kept.counts), now, out)
            self._began = self.covered
        elif self.covered < self.known:
            self._confirm(now, out)
            if self._hopeless(now):
                self._give_up(now, out)
            if self.covered >= self.known:
                self._enter(Trigger.LEVEL, now, out)
                return
            if not self._options.asks:
                self._plan_loss(now)
                return
        self._enter(Trigger.DUE, now, out)

    def end(self, now: float, out: Output) -> None:
        """Compares the kept notifications with summaries once more, and sends no request."""
        if self.state is not State.UNHEARD and self.covered < self.known:
            self._confirm(now, out)
            if self.covered >= self.known:
                self._enter(Trigger.LEVEL, now, out)

    def _enter(self, trigger: Trigger, now: float, out: Output, wait: float = 0.0) -> None:
        before, self.state = self.state, TRANSITIONS[self.state, trigger]
        if self.state is State.EVEN:
            self._tries = 0
            self._reach = MOST_MESSAGES
            self.due = now + self._silence() if self._options.asks else math.inf
            if self.is_catching_up:
                self.is_catching_up = False
                out.caught_up.append((self.name, self.covered))
        elif self.state is State.BEHIND and before is not State.BEHIND:
            self.due = now + wait
        elif self.state is State.UNHEARD:
            self.due = now + self._options.silence
        elif trigger is Trigger.DUE:
            if before is State.ASKING:
                self._reach = max(self._reach // 2, FEWEST_MESSAGES)
            self._ask(now, out)

    def _ask(self, now: float, out: Output) -> None:
        self._catching_up = self.covered >= self.known
        self._asked = self.covered
        self._fresh = False
        self.due = now + self._backoff()
        self._tries += 1
        self._requests += 1
        self._statistics.requests += 1
        out.requests.append(Request(self.name, self.covered, self._reach))

    def _replied(self, summary: Summary, progress: bool, now: float, out: Output) -> None:
        """Ends the answer to the last request."""
        self._in_vain = 0 if progress else self._in_vain + 1
        if progress:
            self._reach = min(2 * self._reach, MOST_MESSAGES)
        elif summary.until > summary.from_:
            self._reach = max(self._reach // 2, FEWEST_MESSAGES)
        # An answer may be cut short: without a summary of the stream, the next answer shows that.
        if self.covered < self.known or (self._catching_up and progress):
            wait = self._patience() if self._fresh else self._backoff()
            self._enter(Trigger.ANSWERED, now, out, 0.0 if progress else wait)
        else:
            self._enter(Trigger.LEVEL, now, out)

    def _patience(self) -> float:
        # Hosts that miss the same frame must not ask at the same moment.
        return self._options.patience * (1 + self._jitter.random())

    def _backoff(self) -> float:
        wait = self._options.timeout * 2.0 ** min(self._tries, 30)
        return min(wait, self._options.longest) * (1 + self._jitter.random() / 4)

    def _silence(self) -> float:
        wait = self._options.silence * 2.0 ** min(self._in_vain, 30)
        return min(wait, self._options.quietest) * (1 + self._jitter.random() / 4)

    def _hopeless(self, now: float) -> bool:
        limit = self._options.give_up
        return not self._options.asks or (limit is not None and now - self._since >= limit)

    def _announce(self, until: int, now: float) -> None:
        if self.covered >= self.known:
            self._since = now
        if until > self.known:
            self.known, self._announced_at = until, now

    def _implausible(self, summary: Summary) -> bool:
        """Returns True if no stream sends this: it reports a loss, or its range is too long."""
        return summary.gone or summary.until - summary.from_ > LONGEST_RANGE

    def _weigh_announcement(self, summary: Summary, now: float) -> None:
        """Forgets what a single datagram announced if later summaries end below it."""
        confirmed = self._position.confirmed
        # Those that arrive soon may have been sent before it.
        later = now - self._announced_at >= self._options.silence
        if self.known <= confirmed:
            self._lower.clear()
        elif later and summary.until < self.known:
            self._lower.add(summary.until)
        if len(self._lower) < MOST_BEFORE:
            return
        self._lower.clear()
        self._statistics.suspicious += 1
        self._position.discard_unconfirmed()
        self._summaries = {k: None for k in self._summaries if k[0].until <= confirmed}
        self.known = max([self.covered, *(s.until for s, _ in self._summaries)])

    def _disputed_from(self, summary: Summary, begun: bool) -> int | None:
        """Returns the number from which a summary contradicts an accepted range, or None.

        Args:
            summary: a summary of the stream.
            begun: whether the beginning was confirmed before this summary.
        """
        if summary.from_ < self._began and not begun:
            self._began = self.kept.known_from = summary.from_
            return self._began
        if summary.until > self.covered:
            return None
        if summary.until <= self._began:
            # A few may be late; if the stream stays there, it began there.
            self._before.add(summary.from_)
            if len(self._before) < MOST_BEFORE:
                return None
            self._began = self.kept.known_from = min(self._before)
            self._before.clear()
            return self._began
        first = max(self._open_from(), self.kept.known_from)
        if summary.from_ >= first and not self.kept.matches(summary):
            return summary.from_
        # Two summaries agree up to its end, so a later dispute need not go further back.
        at = bisect_left(self._starts, summary.until)
        is_new = self._starts[at : at + 1] != [summary.until]
        if is_new and at and self._starts[at - 1] >= summary.from_:
            self._starts.insert(at, summary.until)
        return None

    def _first(self, summary: Summary) -> int:
        """Returns the number at which a session begins whose first summary this is.

        If a service can be asked for what precedes the summary, that is the first notification.
        """
        arrived: Iterable[int] = self.kept.counts if self._options.asks else ()
        return min([summary.from_, *(s.from_ for s, _ in self._summaries), *arrived])

    def _has_begun(self) -> bool:
        """Returns True if two datagrams have reached the number at which the session began."""
        return self._began <= self._position.confirmed

    def _withdraw_beginning(self, sequence: int, now: float, out: Output) -> None:
        """Moves the beginning down to a notification, or waits for a summary to begin with."""
        if self._options.asks:
            self._began = self.kept.known_from = sequence
            self._dispute(sequence, now, out)
            return
        self._statistics.disputed += 1
        self.covered = self.kept.known_from = self.kept.remembered_from
        self.kept.restore(self.covered)
        self._began = 0
        self._starts.clear()
        self.known = max([self.covered, *(s.until for s, _ in self._summaries)])
        self._enter(Trigger.WITHDRAWN, now, out)

    def _open_from(self) -> int:
        """Returns the number from which a contradiction opens accepted ranges."""
        return max(self._began, self._settled, self.kept.remembered_from)

    def _dispute(self, from_: int, now: float, out: Output) -> None:
        """Opens accepted ranges from a number on, until summaries or the service agree."""
        self._statistics.disputed += 1
        self.kept.restore(from_)
        self.covered = from_
        del self._starts[bisect_left(self._starts, from_) :]
        largest = min(max(self.kept.counts, default=from_), self._position.confirmed - 1)
        self.known = max(from_, largest) + 1
        self._replies.clear()
        self._since = now
        self._enter(Trigger.GAP, now, out, self._patience())

    def _remember(self, summary: Summary, answer: bool) -> None:
        if self.covered < summary.until and len(self._summaries) < MOST_SUMMARIES:
            self._summaries[summary, answer] = None

    def _confirm(self, now: float, out: Output) -> None:
        """Covers ranges whose summaries agree with the kept notifications, or that are gone."""
        while here := self._summaries_here():
            ends = [each for each in here if each[0].from_ == self.covered]
            if match := next((s for s, a in here if not a and self.kept.matches(s)), None):
                self._cover(match.until, now, out)
            elif found := next((s for s, a in here if a and self._is_complete(s)), None):
                self._cover(found.until, now, out)
                self._settle(found.until)
            elif found := next((s for s, a in ends if a and self._is_answered(s)), None):
                self._discard_unexpected(found.until)
                self._cover(found.until, now, out)
                self._settle(found.until)
            elif found := next((s for s, _ in ends if s.gone and self._is_repeated(s)), None):
                self._lose(found.until, "gone", now, out)
            else:
                return

    def _is_complete(self, summary: Summary) -> bool:
        """Returns True if the kept notifications agree with a summary of the service.

        If a summary of the stream contradicts it, the service must repeat it.
        """
        if not self.kept.matches(summary):
            return False
        return self._is_repeated(summary) or all(
            answer or stream.until > summary.until or self.kept.matches(stream)
            for stream, answer in self._summaries
        )

    def _is_answered(self, summary: Summary) -> bool:
        """Returns True if the answers alone agree with a summary of the service.

        A summary of the stream must agree with them, too, or the service must repeat it.
        """
        if not self._answered.matches(summary):
            return False
        return self._is_repeated(summary) or any(
            not answer and stream.until >= summary.until and self._answered.matches(stream)
            for stream, answer in self._summaries_here()
        )

    def _is_repeated(self, summary: Summary) -> bool:
        """Returns True if answers to two requests say the same as a summary of the service."""
        agreeing = [
            reply
            for reply in self._replies.values()
            if reply.until >= summary.until
            and (reply.gone if summary.gone else self._answered.matches(reply))
        ]
        return len(agreeing) > 1

    def _settle(self, until: int) -> None:
        """Prevents summaries of the stream from opening a range that the service confirmed."""
        self._settled = max(self._settled, min(until, self._position.confirmed))

    def _summaries_here(self) -> list[tuple[Summary, bool]]:
        """Returns summaries of the next range, and True for those of the service; the longest
        first.

        They begin at `covered` or before it: a stream that continues after a crash may announce a
        range again that ends at another number.
        """
        here = [each for each in self._summaries if each[0].from_ <= self.covered]
        return sorted(here, key=lambda each: -each[0].until)

    def _discard_unexpected(self, until: int) -> None:
        """Discards notifications that the service did not send: they are not for this host."""
        mine = self._answered.counts
        for sequence in [s for s in self.kept.counts if s < until and s not in mine]:
            self.kept.remove(sequence)
            self._statistics.unexpected += 1

    def _end_of_missing(self) -> int:
        """Returns where the next range ends in which something is missing.

        A summary of the range ends there, or the next one begins; `_LAST` without summaries.
        """
        covered = self.covered
        ends = (s.until if s.from_ <= covered else s.from_ for s, _ in self._summaries)
        return min(ends, default=_LAST)

    def _plan_loss(self, now: float, wait: float = math.inf) -> None:
        """Sets `due` for a session without a service that could send missing notifications.

        A range whose end is confirmed is lost after a little patience. Otherwise the receiver waits
        for more of the stream, and if nothing comes, for as long as `ReceiverOptions.silence`.

        Args:
            now: the time.
            wait: seconds until what has arrived is compared with summaries again.
        """
        if self._options.asks or self.state is not State.BEHIND:
            return
        end = self._end_of_missing()
        if end > self._position.confirmed:
            due = self._confirmed_at + self._options.silence
            due = due if due > now else math.inf
        else:
            if end > self._doomed:
                self._doomed = self._position.confirmed
                self._doomed_at = now + self._patience()
            due = max(self._doomed_at, now)
        # Otherwise notifications in quick succession would postpone it forever.
        self.due = due if math.isinf(wait) else min(self.due, due, now + wait)

    def _give_up(self, now: float, out: Output) -> None:
        """Reports missing notifications as lost, up to the confirmed position."""
        if self._options.asks:
            self._doomed, self._doomed_at = self._position.confirmed, now
        while self.covered < self.known:
            until = self._end_of_missing()
            if until > self._doomed or now < self._doomed_at:
                # Nothing follows that could confirm more: go as far as two datagrams have come.
                until = min(until, self.known, self._position.confirmed)
                silent = now - self._confirmed_at >= self._options.silence
                if until <= self.covered or not silent:
                    return
            self._lose(until, "unanswered", now, out)
            self._confirm(now, out)

    def _lose(
        self, until: int, reason: Literal["gone", "unanswered"], now: float, out: Output
    ) -> None:
        missing = self._missing(until)
        loss = Loss(self.name, self.covered, until, missing, reason)
        self._statistics.losses += 1
        self._statistics.missing += missing or 0
        self._begin(until, now, out)
        self._lost = until
        out.losses.append(loss)

    def _missing(self, until: int) -> int | None:
        """Counts missing notifications below ``until``; None if no summaries announce them."""
        at, number = self.covered, 0
        for summary in sorted((s for s, _ in self._summaries), key=lambda s: (s.from_, s.until)):
            within = summary.until <= until or summary.last < until
            if summary.from_ == at and within and not summary.gone:
                at, number = min(summary.until, until), number + summary.notifications
        return max(0, number - self.kept.number(until)) if at == until else None

    def _admits(self, sequence: int, now: float, out: Output) -> bool:
        """Makes room for a notification; False if the service must be asked for it later."""
        if not self._options.asks:
            before = len(self.kept)
            self._begin(self.kept.middle(), now, out)
            self._statistics.unverified += before - len(self.kept)
            return True
        if self.state is State.UNHEARD:
            self._begin(min(sequence, *self.kept.counts), now, out)
            self._began = self.covered
        self._announce(self._position.confirmed, now)
        self._enter(Trigger.GAP, now, out, self._patience())
        return False

    def _begin(self, until: int, now: float, out: Output) -> None:
        """Continues from ``until``, although something below it may be missing."""
        self._cover(until, now, out)
        self.kept.known_from = until

    def _cover(self, until: int, now: float, out: Output) -> None:
        """Delivers and forgets kept notifications below ``until``."""
        for sequence, count, datagram in self.kept.take(until):
            self._deliver(sequence, count, datagram, out)
        self._answered.take(until)
        if until > self.covered:
            self._starts.append(max(self.covered, self._began))
            del self._starts[:-MOST_SUMMARIES]
        self.covered = until
        self.known = max(self.known, until)
        self._summaries = {each: None for each in self._summaries if each[0].until > until}
        self._replies.clear()
        self._tries = 0
        self._since = now

    def _deliver(self, sequence: int, count: int, datagram: bytes, out: Output) -> None:
        self._statistics.delivered += 1
        self._statistics.messages += count
        out.deliveries.append(Notification(self.name, sequence, datagram))
