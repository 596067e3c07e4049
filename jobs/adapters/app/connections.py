"""Connections to an HTTP server of a job: how many there may be, and how long each may take.

uvicorn limits the number of connections, the time between two requests, and the size of a request's
head. `LimitedConnection` adds a limit per address, and time limits for slow clients. Clients
without a token cannot use up either number: a new connection takes the place of one of theirs.
"""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import h11
import uvicorn
from starlette.types import ASGIApp, Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

#: Number of connections; further requests get status 503.
MOST_CONNECTIONS = 512
#: Number of connections without a token. The remaining ones are for clients that have it, and for
#: requests that are still computed after their connection was closed.
MOST_OPEN = 320
#: Bytes of a request's line and headers.
MOST_HEAD_BYTES = 1 << 14
#: Bytes that a client must accept in `Limits.response_seconds`, unless fewer remain.
LEAST_BYTES = 1 << 14
_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Limits:
    """Limits of each connection.

    Attributes:
        per_address: connections from one IPv4 address, or from one /64 of IPv6. Beyond it, the
            oldest one without a token is closed, or the new one if all have a token.
        request_seconds: time for a whole request to arrive, from the first byte or the connection.
        response_seconds: time in which a client must accept `LEAST_BYTES` of an answer.
    """

    per_address: int = 64
    request_seconds: float = 15.0
    response_seconds: float = 30.0


def _without_token(_: Scope) -> bool:
    return False


def configuration(
    application: ASGIApp,
    limits: Limits | None = None,
    end_seconds: int = 3,
    has_token: Callable[[Scope], bool] = _without_token,
) -> uvicorn.Config:
    """Returns the settings of a server.

    Args:
        application: answers requests.
        limits: of each connection; default: those of `Limits`.
        end_seconds: how long open pages may delay the end of the server.
        has_token: whether a request has the token of the server; by default there is no token.
    """
    protocol: Any = partial(LimitedConnection, limits or Limits(), has_token)
    return uvicorn.Config(
        application,
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        h11_max_incomplete_event_size=MOST_HEAD_BYTES,
        timeout_graceful_shutdown=end_seconds,
    )


class LimitedConnection(H11Protocol):
    """A connection that is closed when it breaks a limit.

    One timer runs while a request arrives, for head and body together, and stops while the server
    computes and sends the answer. A silent client and one that sends single bytes are closed alike.
    Another timer runs while bytes of an answer wait for the client.
    """

    def __init__(self, limits: Limits, has_token: Callable[[Scope], bool], **server: Any) -> None:
        super().__init__(**server)
        self._limits = limits
        self._has_token = has_token
        self.peer = ""
        #: Order in which connections were made.
        self.number = next(_NUMBERS)
        #: True if the last request had the token.
        self.trusted = False
        self._arrival: asyncio.TimerHandle | None = None
        self._acceptance: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # The transport then calls `pause_writing` as soon as a byte has to wait for the client.
        transport.set_write_buffer_limits(0)
        self.peer = _peer(self.client[0] if self.client else "")
        others = [c for c in self.connections if isinstance(c, LimitedConnection) and c is not self]
        if self._has_place(others):
            self._time_arrival()
        else:
            self._close()

    def _has_place(self, others: Sequence[LimitedConnection]) -> bool:
        """Closes another connection without a token if the new one exceeds a limit.

        Returns:
            False if the new connection has to be closed.
        """
        neighbours = [other for other in others if other.peer == self.peer]
        open_ones = [other for other in others if not other.trusted]
        if len(neighbours) >= self._limits.per_address:
            replaceable = [other for other in neighbours if not other.trusted]
            if not replaceable:
                return False
        elif len(open_ones) >= MOST_OPEN:
            # A client with few connections keeps them, however many addresses a flood has.
            (peer, _), *_ = Counter(other.peer for other in open_ones).most_common(1)
            replaceable = [other for other in open_ones if other.peer == peer]
        else:
            return True
        min(replaceable, key=lambda other: other.number)._close()
        return True

    def _close(self) -> None:
        # It would count until the event loop has closed it.
        self.connections.discard(self)
        self.transport.abort()

    def handle_events(self) -> None:
        super().handle_events()
        if self.scope is not None:
            self.trusted = self._has_token(cast(Scope, self.scope))

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_arrival()
        self._stop_acceptance()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._time_arrival()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._time_acceptance()

    def resume_writing(self) -> None:
        self._stop_acceptance()
        super().resume_writing()

    def _time_arrival(self) -> None:
        if self.transport.is_closing() or self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._stop_arrival()
        elif self._arrival is None:
            self._arrival = self.loop.call_later(self._limits.request_seconds, self.transport.abort)

    def _stop_arrival(self) -> None:
        if self._arrival is not None:
            self._arrival.cancel()
            self._arrival = None

    def _time_acceptance(self, before: int | None = None) -> None:
        """Closes the connection if fewer than `LEAST_BYTES` left the buffer of ``before`` bytes."""
        waiting = self.transport.get_write_buffer_size()
        if before is not None and before - waiting < LEAST_BYTES:
            self.transport.abort()
        else:
            self._acceptance = self.loop.call_later(
                self._limits.response_seconds, self._time_acceptance, waiting
            )

    def _stop_acceptance(self) -> None:
        if self._acceptance is not None:
            self._acceptance.cancel()
            self._acceptance = None


def _peer(address: str) -> str:
    """Returns an IPv4 address, or the /64 of an IPv6 one, because a host has many addresses."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.version == 4 or parsed.ipv4_mapped:
        return str(parsed if parsed.version == 4 else parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, 64), strict=False))
