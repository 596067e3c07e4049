"""A host that asks a re-request service: its socket, and the cookie that it was sent."""

from __future__ import annotations

import socket

from jobs.adapters.replay.service import Rerequests
from udfs.messages.summaries import Summary, cookie_of, is_summary, request, unpack

PATIENCE = 120.0


class AskingHost:
    def __init__(self, service: Rerequests, address: str = "127.0.0.1") -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self.socket.bind((address, 0))
        self.socket.settimeout(PATIENCE)
        self.service = service.address
        self.cookie = self._last = b""

    def send(self, datagram: bytes) -> None:
        """With the cookie, once there is one."""
        self._last = datagram
        behind = b"\0" + self.cookie if self.cookie else b""
        self.socket.sendto(datagram + behind, self.service)

    def answer(self) -> tuple[list[bytes], Summary]:
        """What comes up to a summary; a cookie is taken, and what was sent last sent again."""
        datagrams = []
        while not is_summary(found := self.socket.recv(65536)):
            if not self.takes_cookie(found):
                datagrams.append(found)
        return datagrams, unpack(found)

    def takes_cookie(self, datagram: bytes) -> bool:
        """Whether that is a cookie: it is kept, and what was sent last is sent again."""
        cookie = cookie_of(datagram)
        if cookie:
            self.cookie = cookie
            self.send(self._last)
        return bool(cookie)

    def ask(
        self, host: str, session: bytes, sequence: int, count: int = 65535
    ) -> tuple[list[bytes], Summary]:
        self.send(request(session, sequence, count, host))
        return self.answer()
