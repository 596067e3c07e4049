"""Options, outputs and counts of a receiver."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from stackcast.udfs.messages.summaries import Request


class Notification(NamedTuple):
    """One notification for the application: the datagram is a MoldUDP64 packet."""

    session: bytes
    sequence: int
    datagram: bytes


class Loss(NamedTuple):
    """A loss: some notifications with first sequence numbers in [from_, until) are lost for good.

    Attributes:
        session: ten bytes.
        from_: the first number of the range.
        until: the first number after the range.
        missing: how many notifications are lost, or None if that is unknown.
        reason: ``gone`` (the service cannot compute them again) or ``unanswered`` (there is no
            service, or it did not answer in time).
    """

    session: bytes
    from_: int
    until: int
    missing: int | None
    reason: Literal["gone", "unanswered"]


@dataclass
class Output:
    """Collects the results of an input, in order.

    Attributes:
        caught_up: sessions that have everything since their start for the first time, each with
            the number below which it is complete. Only with `ReceiverOptions.from_start`.
    """

    deliveries: list[Notification] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    caught_up: list[tuple[bytes, int]] = field(default_factory=list)


@dataclass
class ReceiverStatistics:
    """Counts since the start, of notifications unless the comment says otherwise."""

    received: int = 0  # from the stream, including copies
    answered: int = 0  # from the service, including copies
    delivered: int = 0
    messages: int = 0  # messages in delivered notifications
    duplicates: int = 0  # copies of kept notifications
    late: int = 0  # below the complete range: copies, or from before the beginning
    belated: int = 0  # that arrived after they had been reported as lost
    repaired: int = 0  # that the service sent first
    unexpected: int = 0  # that are not for this host, according to the service
    overflowed: int = 0  # beyond the limit; the service sends them again
    unverified: int = 0  # forgotten at the limit, without a service
    malformed: int = 0  # datagrams that are neither notification nor summary
    foreign: int = 0  # datagrams of other sessions
    summaries: int = 0  # summaries, including copies
    suspicious: int = 0  # summaries that no stream sends, or that later ones refuted
    forged: int = 0  # summaries without a valid tag, which are ignored by receivers with keys
    disputed: int = 0  # summaries and notifications that contradict an earlier summary
    requests: int = 0  # requests
    losses: int = 0  # ranges
    missing: int = 0  # in these ranges, as far as it is known


@dataclass(frozen=True)
class ReceiverOptions:
    """Options of a receiver. Times are in seconds.

    Attributes:
        order: ``arrival`` delivers a notification when it arrives, ``sequence`` when everything
            before it is complete.
        from_start: whether sessions begin at sequence number 0 instead of where they are heard.
        asks: whether there is a service.
        limit: maximum number of notifications that a session keeps, at least 2; the service sends
            further ones again.
        patience: time to wait for frames that may be on their way.
        timeout: time to wait for the first answer; it doubles with each request up to ``longest``.
        longest: maximum time to wait for an answer.
        silence: time without summaries until the session asks whether there is something; it
            doubles each time up to ``quietest``. Without a service: time without progress of the
            stream until an unconfirmed gap is given up.
        quietest: maximum time between such requests.
        give_up: time without an answer until a range is reported as lost; None: never.

    Example:
        >>> ReceiverOptions(order="sequence", give_up=60).patience
        0.02
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
