"""P4Runtime's arbitration among the clients that want to write a switch, without any I/O.

The client with the highest election id ever seen is primary, as long as its stream lives; all
others are backups and are told of every change. Nobody inherits: after a primary has left, a client
must ask again, with an id that is high enough.
"""

from __future__ import annotations

from typing import Any, Protocol

from google.rpc import code_pb2

from stackcast.schemas.p4runtime import p4runtime_pb2
from stackcast.switch.p4runtime.refusal import Refusal


class Client(Protocol):
    """A client as arbitration knows and tells it: a queue of what it is told."""

    def put(self, message: p4runtime_pb2.StreamMessageResponse, /) -> Any: ...

    def qsize(self) -> int: ...


class Arbitration:
    """The clients of one role of a switch. Not thread-safe: call it under the switch's lock.

    An election id is a number of 128 bits, 0 among them, or None: a client without one is never
    primary. ``most``: clients at once; more are refused.
    """

    def __init__(self, device_id: int, most: int = 16, role: str = "") -> None:
        self.device_id = device_id
        self.role = role
        self.most = most
        self._clients: dict[Client, int | None] = {}
        self._highest: int | None = None
        self._primary: Client | None = None

    def join(self, client: Client, election_id: int | None) -> None:
        """A client's arbitration message: its first one, or one with another election id.

        Raises `Refusal` INVALID_ARGUMENT if another client has the id, RESOURCE_EXHAUSTED if there
        are too many clients.
        """
        for other, taken in self._clients.items():
            if other is not client and election_id is not None and taken == election_id:
                raise Refusal(
                    code_pb2.INVALID_ARGUMENT,
                    f"election id {election_id} is in use by another client of device "
                    f"{self.device_id}",
                )
        if client not in self._clients and len(self._clients) >= self.most:
            raise Refusal(
                code_pb2.RESOURCE_EXHAUSTED,
                f"device {self.device_id} already has {self.most} clients",
            )
        before = self._primary
        self._clients[client] = election_id
        if election_id is not None and (self._highest is None or election_id >= self._highest):
            self._primary, self._highest = client, election_id
            self._tell_all()
        elif before is client:
            self._primary = None
            self._tell_all()
        else:
            client.put(self._notice(client))

    def leave(self, client: Client) -> None:
        """The client's stream has ended."""
        self._clients.pop(client, None)
        if self._primary is client:
            self._primary = None
            self._tell_all()

    @property
    def primary(self) -> Client | None:
        """Returns the client that may write; any thread may ask."""
        return self._primary

    def is_primary(self, election_id: int | None) -> bool:
        """True if the client of this election id may write now."""
        return self._primary is not None and self._clients[self._primary] == election_id

    def _tell_all(self) -> None:
        # The primary comes last: when it knows that it may write, the others were told already.
        for client in sorted(self._clients, key=lambda each: each is self._primary):
            client.put(self._notice(client))

    def _notice(self, client: Client) -> p4runtime_pb2.StreamMessageResponse:
        notice = p4runtime_pb2.StreamMessageResponse()
        arbitration = notice.arbitration
        arbitration.device_id = self.device_id
        if self.role:
            arbitration.role.name = self.role
        if self._highest is not None:
            arbitration.election_id.SetInParent()
            arbitration.election_id.high = self._highest >> 64
            arbitration.election_id.low = self._highest & ((1 << 64) - 1)
        if client is self._primary:
            arbitration.status.code = code_pb2.OK
        elif self._primary is not None:
            arbitration.status.code = code_pb2.ALREADY_EXISTS
            arbitration.status.message = "another client is primary"
        else:
            arbitration.status.code = code_pb2.NOT_FOUND
            arbitration.status.message = "no client is primary"
        return notice
