"""One session at a receiver: notifications kept, gaps, and requests. No sockets, no clock.

A session is in one of four states. `TRANSITIONS` holds the next state by trigger; requests and
their times are decided as a state is entered.

=========  ========================================================================================
UNHEARD    no summary came yet, so nobody knows where to begin
EVEN       all that was announced is here
BEHIND     something that was announced is not here; it may still be on its way, so wait a little
ASKING     a request is out
=========  ========================================================================================

Summaries are believed until something contradicts them: a notification of a range that one had
said to be complete without it, or another summary of the same numbers. Then the range is open
again, and the service is asked, whose word stands; so nobody can talk a session out of what comes.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right
from enum import Enum
from typing import Literal

from udfs.messages.recovery.events import (
    Loss,
    Notification,
    Output,
    ReceiverOptions,
    ReceiverStatistics,
)
from udfs.messages.recovery.kept import KeptNotifications
from udfs.messages.summaries import MOST_MESSAGES, Request, Summary

#: Datagrams of an answer, at most.
MOST_ANSWERED = 4096
#: Summaries beyond a gap that are kept until it is closed; the service knows what others said.
MOST_SUMMARIES = 4096
#: Messages that a request asks for at least, however much gets lost.
FEWEST_MESSAGES = 64
#: Sequence numbers that a summary of the stream may be about at most: those of 2^32 records.
LONGEST_RANGE = 1 << 58
#: Summaries from before the beginning after which that is not believed any more.
MOST_BEFORE = 3
_LAST = (1 << 64) - 1


class State(Enum):
    UNHEARD = "unheard"
    EVEN = "even"
    BEHIND = "behind"
    ASKING = "asking"


class Trigger(Enum):
    LEVEL = "all that was announced is here"
    GAP = "something that was announced is not here"
    ANSWERED = "an answer came, and there is more to ask for"
    DUE = "the time to wait is over"


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
        #: All below is complete, reported as lost, or from before the beginning.
        self.covered = 0
        #: The largest number that a summary has announced.
        self.known = 0
        self.kept = KeptNotifications()
        from_start = options.from_start and options.asks
        self.state = State.BEHIND if from_start else State.UNHEARD
        #: When time makes a difference.
        self.due = now if from_start else now + options.silence
        self._options, self._statistics, self._jitter = options, statistics, jitter
        # By range, and whether the service sent it.
        self._summaries: dict[tuple[int, int, bool], Summary] = {}
        # Of what is kept, what the service sent: all that there is, once its summary agrees.
        self._answered = KeptNotifications()
        self._asked = -1
        self._reach = MOST_MESSAGES
        self._tries = 0
        self._in_vain = 0
        self._fresh = False
        self._catching_up = False
        self._since = now
        #: Where it began, and the number below which the service has spoken.
        self._began = self._settled = 0
        #: The number below which losses were told.
        self._lost = 0
        self._before: set[int] = set()
        #: The numbers from which ranges were complete, as far as they may be opened again.
        self._starts: list[int] = []

    def late(
        self, sequence: int, count: int, datagram: bytes, answer: bool, now: float, out: Output
    ) -> None:
        """Takes a notification, ``sequence`` < `covered`: a copy, or a range was not complete."""
        if sequence < self._open_from() or self.kept.took(sequence):
            self._statistics.late += 1
            return
        if sequence < self._lost:
            # It was told to be lost, which stands; whoever takes them in any order has it now.
            if self._options.order == "arrival":
                self.kept.add_past(sequence, count)
                self._statistics.belated += 1
                self._deliver(sequence, count, datagram, out)
            else:
                self._statistics.late += 1
            return
        at = bisect_right(self._starts, sequence) - 1
        self._dispute(self._starts[at] if at >= 0 else sequence, now, out)
        self.keep(sequence, count, datagram, answer, now, out)

    def keep(
        self, sequence: int, count: int, datagram: bytes, answer: bool, now: float, out: Output
    ) -> None:
        """Takes a notification, ``sequence`` >= `covered`, that is not kept yet."""
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
        else:
            self._statistics.late += 1

    def answered(self, sequence: int, count: int, new: bool, now: float) -> None:
        """Notes that the service sent a notification, ``sequence`` >= `covered`."""
        if sequence in self.kept.counts and sequence not in self._answered.counts:
            self._answered.add(sequence, count)
        self._fresh |= new
        if self.state is State.ASKING:
            # An answer that is still coming in is not late.
            self.due = max(self.due, now + self._options.timeout)

    def summary(self, summary: Summary, answer: bool, now: float, out: Output) -> None:
        """Takes a summary, of the stream or of an answer."""
        if not answer and self._implausible(summary):
            self._statistics.suspicious += 1
            return
        replies = answer and self.state is State.ASKING and summary.from_ == self._asked
        if self.state is State.UNHEARD:
            self._begin(max(summary.from_, self.covered), now, out)
            self._began = self.covered
        elif not answer and (disputed := self._disputed_from(summary)) is not None:
            self._dispute(disputed, now, out)
        elif summary.until <= self.covered and not replies:
            if self.state is State.EVEN:
                self._enter(Trigger.LEVEL, now, out)
            return
        self._announce(summary.until, now)
        self._remember(summary, answer)
        before = self.covered
        self._confirm(now, out)
        if not answer:
            self._in_vain = 0
        if replies:
            self._replied(summary, self.covered > before, now, out)
        else:
            level = self.covered >= self.known
            self._enter(Trigger.LEVEL if level else Trigger.GAP, now, out, self._patience())

    def time(self, now: float, out: Output) -> None:
        """Takes the time, ``now``; nothing happens before `due`."""
        if now < self.due:
            return
        if self.state is State.UNHEARD:
            if not self.kept or not self._options.asks:
                self.due = now + self._options.silence
                return
            # Notifications, and no summary: begin with what is here.
            self._begin(min(self.kept.counts), now, out)
            self._began = self.covered
        elif self.covered < self.known:
            self._confirm(now, out)
            if self._hopeless(now):
                self._give_up(now, out)
            if self.covered >= self.known:
                self._enter(Trigger.LEVEL, now, out)
                return
        self._enter(Trigger.DUE, now, out)

    def end(self, now: float, out: Output) -> None:
        """Goes as far as what is here allows, and asks for nothing."""
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
        elif self.state is State.BEHIND and before is not State.BEHIND:
            self.due = now + wait
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
        self._statistics.requests += 1
        out.requests.append(Request(self.name, self.covered, self._reach))

    def _replied(self, summary: Summary, progress: bool, now: float, out: Output) -> None:
        """Ends the answer to the request that is out."""
        self._in_vain = 0 if progress else self._in_vain + 1
        if progress:
            self._reach = min(2 * self._reach, MOST_MESSAGES)
        elif summary.until > summary.from_:
            self._reach = max(self._reach // 2, FEWEST_MESSAGES)
        # An answer may be cut short; where no summary of the stream says so, the next one tells.
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
        self.known = max(self.known, until)

    def _implausible(self, summary: Summary) -> bool:
        """Returns True for what no stream says: that something is gone, or so long a range."""
        heard = max(self.kept.counts, default=summary.from_)
        return (
            summary.gone
            or summary.until - summary.from_ > LONGEST_RANGE
            or (self.state is State.UNHEARD and summary.from_ > heard + LONGEST_RANGE)
        )

    def _disputed_from(self, summary: Summary) -> int | None:
        """Returns the number from which a summary says otherwise than what counts as complete."""
        if summary.until > self.covered:
            return None
        if summary.until <= self._began:
            # A few may come late; a stream that stays there began there.
            self._before.add(summary.from_)
            if len(self._before) < MOST_BEFORE:
                return None
            self._began = self.kept.known_from = min(self._before)
            self._before.clear()
            return self._began
        first = max(self._open_from(), self.kept.known_from)
        agrees = summary.from_ < first or self.kept.matches(summary)
        return None if agrees else summary.from_

    def _open_from(self) -> int:
        """Returns the number from which on the session knows what it had, and alone says so."""
        return max(self._began, self._settled, self.kept.remembered_from)

    def _dispute(self, from_: int, now: float, out: Output) -> None:
        """Opens again what was complete from a number on, until summaries or service agree."""
        self._statistics.disputed += 1
        self.kept.restore(from_)
        self.covered = from_
        del self._starts[bisect_left(self._starts, from_) :]
        self.known = max(self.kept.counts, default=from_) + 1
        self._since = now
        # Where nobody can be asked, the stream's own summary is waited for.
        wait = self._patience() if self._options.asks else self._options.silence
        self._enter(Trigger.GAP, now, out, wait)

    def _remember(self, summary: Summary, answer: bool) -> None:
        key = summary.from_, summary.until, answer
        useful = self.covered < summary.until and self._fits(summary.from_)
        if useful and (key in self._summaries or len(self._summaries) < MOST_SUMMARIES):
            self._summaries[key] = summary

    def _confirm(self, now: float, out: Output) -> None:
        """Goes on as far as summaries and kept notifications agree, or nothing more can be had."""
        while here := self._summaries_here():
            ends = [each for each in here if each[0].from_ == self.covered]
            if both := next((each for each in here if self.kept.matches(each[0])), None):
                self._cover(both[0].until, now, out)
                if both[1]:
                    self._settled = both[0].until
            elif found := next((s for s, a in ends if a and self._answered.matches(s)), None):
                self._discard_unexpected(found.until)
                self._cover(found.until, now, out)
                self._settled = found.until
            elif found := next((s for s, _ in ends if s.gone), None):
                self._lose(found.until, "gone", now, out)
            else:
                return

    def _summaries_here(self) -> list[tuple[Summary, bool]]:
        """Returns summaries of the next range, and True for those of the service; the longest
        first.

        They begin where all is complete, or before: a stream that went on after a crash may say a
        range that ends elsewhere than the one that it had said.
        """
        here = [(s, k[2]) for k, s in self._summaries.items() if k[0] <= self.covered]
        return sorted(here, key=lambda s: -s[0].until)

    def _fits(self, from_: int) -> bool:
        """Returns True if a range that begins there can ever be compared with what came."""
        return from_ >= min(self.covered, self.kept.known_from)

    def _discard_unexpected(self, until: int) -> None:
        """Discards notifications that the service did not send: they are not for this host."""
        mine = self._answered.counts
        for sequence in [s for s in self.kept.counts if s < until and s not in mine]:
            self.kept.remove(sequence)
            self._statistics.unexpected += 1

    def _give_up(self, now: float, out: Output) -> None:
        while self.covered < self.known:
            if here := self._summaries_here():
                until = here[-1][0].until
            else:
                until = min((key[0] for key in self._summaries), default=self.known)
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
        """Counts the notifications that lack below ``until``, if summaries of the stream say it."""
        at, number = self.covered, 0
        for summary in sorted(self._summaries.values(), key=lambda s: (s.from_, s.until)):
            if summary.from_ == at and summary.until <= until and not summary.gone:
                at, number = summary.until, number + summary.notifications
        return max(0, number - self.kept.number(until)) if at == until else None

    def _admits(self, sequence: int, now: float, out: Output) -> bool:
        """Returns True if one more may be kept; if not, the service will be asked for it."""
        if not self._options.asks:
            before = len(self.kept)
            self._begin(self.kept.middle(), now, out)
            self._statistics.unverified += before - len(self.kept)
            return True
        if self.state is State.UNHEARD:
            self._begin(min(sequence, *self.kept.counts), now, out)
            self._began = self.covered
        self._announce(min(sequence + 1, _LAST), now)
        self._enter(Trigger.GAP, now, out, self._patience())
        return False

    def _begin(self, until: int, now: float, out: Output) -> None:
        """Goes on from ``until``, and not all below it came."""
        self._cover(until, now, out)
        self.kept.known_from = until

    def _cover(self, until: int, now: float, out: Output) -> None:
        """Waits for nothing below ``until`` any more."""
        for sequence, count, datagram in self.kept.take(until):
            self._deliver(sequence, count, datagram, out)
        self._answered.take(until)
        if until > self.covered:
            self._starts.append(max(self.covered, self._began))
            del self._starts[:-MOST_SUMMARIES]
        self.covered = until
        self.known = max(self.known, until)
        self._summaries = {
            k: s for k, s in self._summaries.items() if k[1] > until and self._fits(k[0])
        }
        self._tries = 0
        self._since = now

    def _deliver(self, sequence: int, count: int, datagram: bytes, out: Output) -> None:
        self._statistics.delivered += 1
        self._statistics.messages += count
        out.deliveries.append(Notification(self.name, sequence, datagram))
