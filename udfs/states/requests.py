"""What a host asks of its switch: SUB-register and SUB-remove, again until acknowledged, and again
before the lease of a subscription runs out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stackcast.udfs.states.messages import MessageKind, StateHeader, group_of
from stackcast.udfs.states.outputs import Join, Leave, Output, ToNetwork
from stackcast.udfs.states.segments import after

FIRST_WAIT = 0.25
LONGEST_WAIT = 8.0
LEASE = 90.0
REFRESH = 30.0
"""Seconds; a lease outlives two lost refreshes."""
_GOLDEN = 0.6180339887498949


def next_refresh(state: int, now: float) -> float:
    """Return when a state is registered again.

    Hosts whose clocks agree register a state at the same time, so that switches forward one of
    their messages and recognize the others as repetitions. The times of states are spread evenly.

    Args:
        state: number of the state.
        now: time of day, in seconds.
    """
    phase = REFRESH * (state * _GOLDEN % 1)
    return now + REFRESH - (now - phase) % REFRESH


@dataclass
class _Request:
    kind: MessageKind
    vnf: int
    number: int
    since: float
    due: float
    wait: float = FIRST_WAIT
    acknowledged: bool = False


class Requests:
    """Subscribe one host to states, as its switch sees it. All times are seconds of one clock.

    Args:
        number: of the first request. A host that starts anew takes another, so that it does not
            mistake an ack from before for a current one.
        time_of_day: returns the time of day that belongs to a time of the clock.
    """

    def __init__(
        self, number: int = 1, time_of_day: Callable[[float], float] = lambda now: now
    ) -> None:
        self._number = number
        self._time_of_day = time_of_day
        self._open: dict[int, _Request] = {}
        self._live: dict[int, float] = {}
        #: Nothing is due before.
        self._next_due = 0.0

    def want(self, state: int, vnf: int, now: float) -> list[Output]:
        """Subscribes to a state, by its first program."""
        held = self._open.get(state)
        if held is not None and held.kind is MessageKind.REGISTER:
            return []
        joins: list[Output] = [Join(group_of(MessageKind.PUBLISH, state))]
        if held is None:
            joins.append(Join(group_of(MessageKind.ACK, state)))
        self._open[state] = self._request(MessageKind.REGISTER, vnf, now)
        return [*joins, self._message(state, now)]

    def forgo(self, state: int, now: float) -> list[Output]:
        """Ends a subscription, with its last program."""
        held = self._open.get(state)
        if held is None or held.kind is MessageKind.REMOVE:
            return []
        self._live.pop(state, None)
        self._open[state] = self._request(MessageKind.REMOVE, held.vnf, now)
        return [Leave(group_of(MessageKind.PUBLISH, state)), self._message(state, now)]

    def acknowledge(self, state: int, header: StateHeader, now: float) -> list[Output] | None:
        """Takes an ack. None: it answers no request that is open."""
        held = self._open.get(state)
        if held is None or (held.vnf, held.number) != (header.vnf, header.update):
            return None
        if held.acknowledged:
            return None
        held.acknowledged = True
        if held.kind is MessageKind.REMOVE:
            del self._open[state]
            return [Leave(group_of(MessageKind.ACK, state))]
        today = self._time_of_day(now)
        held.due = now + next_refresh(state, today) - today
        self._next_due = min(self._next_due, held.due)
        self._live.setdefault(state, now)
        return []

    def live_since(self, state: int) -> float | None:
        """Returns when the switch first acknowledged a subscription, None if it has not."""
        return self._live.get(state)

    def due(self, now: float) -> list[Output]:
        """Returns the messages whose time has come."""
        found: list[Output] = []
        if now < self._next_due:
            return found
        self._next_due = now + LEASE
        for state, held in list(self._open.items()):
            self._next_due = min(self._next_due, held.due)
            if now < held.due:
                continue
            if held.kind is MessageKind.REMOVE and now >= held.since + LEASE:
                # The switch forgets it by itself, and nobody answers.
                del self._open[state]
                found.append(Leave(group_of(MessageKind.ACK, state)))
                continue
            if held.acknowledged:
                self._open[state] = self._request(held.kind, held.vnf, now)
            found.append(self._message(state, now))
        return found

    def _message(self, state: int, now: float) -> Output:
        """Sends what is open of a state, and notes when that is due again."""
        held = self._open[state]
        held.due = now + held.wait
        held.wait = min(2 * held.wait, LONGEST_WAIT)
        self._next_due = min(self._next_due, held.due)
        return ToNetwork(group_of(held.kind, state), StateHeader(held.vnf, held.number).pack())

    def _request(self, kind: MessageKind, vnf: int, now: float) -> _Request:
        self._number = after(self._number)
        return _Request(kind, vnf, self._number, now, now)
