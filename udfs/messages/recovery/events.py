"""Options, outputs and counts of a receiver."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from udfs.messages.summaries import Request


class Notification(NamedTuple):
    """One notification for the application: the datagram is a MoldUDP64 packet."""

    session: bytes
    sequence: int
    datagram: bytes


class Loss(NamedTuple):
    """One loss: first sequence numbers in [from_, until) of which some are lost for good.

    missing: how many notifications, None where nobody can say. reason: ``gone`` (the service cannot
    compute them again) or ``unanswered`` (no service, or no answer in the time given).
    """

    session: bytes
    from_: int
    until: int
    missing: int | None
    reason: Literal["gone", "unanswered"]


@dataclass
class Output:
    """Collects the results of an input, in order."""

    deliveries: list[Notification] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)


@dataclass
class ReceiverStatistics:
    """Counts since the start, of notifications unless it says otherwise."""

    received: int = 0  # from the stream, copies and all
    answered: int = 0  # from the service, copies and all
    delivered: int = 0
    messages: int = 0  # messages in those delivered
    duplicates: int = 0  # copies of what is kept
    late: int = 0  # below what is complete: copies, or from before the beginning
    belated: int = 0  # that came after they had been told to be lost
    repaired: int = 0  # that the service sent first
    unexpected: int = 0  # that are not this host's, by what the service says
    overflowed: int = 0  # beyond the limit, and left to the service
    unverified: int = 0  # forgotten at the limit where no service is
    malformed: int = 0  # datagrams that are neither notification nor summary
    foreign: int = 0  # datagrams of sessions that are not listened to
    summaries: int = 0  # summaries, copies and all
    suspicious: int = 0  # summaries that no stream sends, which are left alone
    forged: int = 0  # summaries without a right tag, which are left alone where keys are held
    disputed: int = 0  # summaries and notifications that contradict what a summary had said
    requests: int = 0  # requests
    losses: int = 0  # ranges
    missing: int = 0  # in these ranges, where it is known


@dataclass(frozen=True)
class ReceiverOptions:
    """Options of a receiver. Times are in seconds.

    order: ``arrival`` delivers at once, ``sequence`` when all before it is complete. from_start:
    sessions begin at sequence number 0, not where they are heard first. asks: there is a service.
    limit: notifications that a session keeps, 2 at least; beyond it they are left to the service.
    patience: wait for frames that may be on their way. timeout: wait for an answer the first time,
    then twice as long each time, up to ``longest``. silence: without summaries, ask whether there
    is something, then after twice as long each time, up to ``quietest``. give_up: report as lost
    after so long in vain; None: never.
    """

    order: Literal["arrival", "sequence"] = "arrival"
    from_start: bool = False
    asks: bool = True
    limit: int = 1 << 17
    patience: float = 0.02
    timeout: float = 0.25
    longest: float = 8.0
    silence: float = 5.0
    quietest: float = 80.0
    give_up: float | None = None
