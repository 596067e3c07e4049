"""What middleware and replica controller ask of whoever runs them, in this order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stackcast.udfs.states.messages import Signal


@dataclass(frozen=True, slots=True)
class ToNetwork:
    """A datagram for an address of `messages.group_of`, UDP port `STATES_PORT`."""

    address: int
    datagram: bytes


@dataclass(frozen=True, slots=True)
class Join:
    """From now on datagrams to this address are wanted."""

    address: int


@dataclass(frozen=True, slots=True)
class Leave:
    """They are no longer."""

    address: int


@dataclass(frozen=True, slots=True)
class Send:
    """A signal for a connection; `CONTROLLER` is the middleware's to the replica controller."""

    connection: int
    signal: Signal


@dataclass(frozen=True, slots=True)
class Close:
    """A connection is to be closed."""

    connection: int


@dataclass(frozen=True, slots=True)
class Record:
    """A fact that must be durable before any output behind it leaves. ``key``: what it is about;
    the last of a key counts. Without value, one that ends."""

    key: str
    value: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Keep:
    """A segment for the backlog, durable before any output behind it; without datagram, one that
    leaves it."""

    state: int
    vnf: int
    update: int
    segment: int
    datagram: bytes | None


Output = ToNetwork | Join | Leave | Send | Close | Record | Keep

CONTROLLER = 0
