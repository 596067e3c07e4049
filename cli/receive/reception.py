"""The loop of ``stackcast receive`` between sockets, receiver and outlet."""

from __future__ import annotations

import time
from collections.abc import Sequence

from stackcast.cli.receive.failures import tell
from stackcast.cli.receive.host_watch import HostWatch
from stackcast.cli.receive.key_file import KeyFile
from stackcast.cli.receive.outlets import Outlet
from stackcast.cli.receive.sockets import Wires
from stackcast.udfs.messages.recovery.receiver import Output, Receiver
from stackcast.udfs.messages.summaries import Request, cookie_of, request
from stackcast.udfs.stop_request import StopRequest

#: Largest number of reads of notifications before summaries are read.
_ROUNDS = 64
#: Longest wait for datagrams, in seconds, so that signals are noticed.
_SIGNALS = 0.2


class Reception:
    """Carries datagrams from sockets to a receiver, and its output to an outlet and the service.

    Args:
        receiver: state machine of the host.
        wires: sockets.
        outlet: destination of notifications.
        watch: reports why nothing is received.
        name: name of the host in requests; empty if the service identifies hosts by address.
        keys: keys of the host; None accepts all summaries.
    """

    def __init__(
        self,
        receiver: Receiver,
        wires: Wires,
        outlet: Outlet,
        watch: HostWatch,
        name: str = "",
        keys: KeyFile | None = None,
    ) -> None:
        self._receiver = receiver
        self._wires = wires
        self._outlet = outlet
        self._watch = watch
        self._name = name
        self._keys = keys
        self._cookie = b""
        self._last_requests: Sequence[Request] = ()

    def run(self, stop: StopRequest, seconds: float = 0.0) -> None:
        """Receive until ``stop``, or for a time in seconds; 0 sets no limit."""
        end = time.monotonic() + seconds if seconds else float("inf")
        receiver, more = self._receiver, False
        while not stop.is_set() and (moment := time.monotonic()) < end:
            if self._keys is not None:
                receiver.keys = self._keys.keys(moment)
            if not more:
                self._wires.wait(min(receiver.due() - moment, end - moment, _SIGNALS))
            more = self._read_sockets()
            if not more:
                self._follow(receiver.time(time.monotonic()))
            self._watch.check(time.monotonic())
        # Datagrams that have arrived before the end count.
        self._read_sockets()
        self._follow(receiver.end(time.monotonic()))

    def _read_sockets(self) -> bool:
        """Read all sockets, and return whether they may hold more."""
        wires = self._wires
        # A summary must be read after all notifications that were sent before it.
        for _ in range(_ROUNDS):
            datagrams, more = wires.read(wires.stream)
            self._receive(datagrams)
            if not more:
                break
        answers, more_answers = wires.read(wires.service)
        self._receive(self._without_cookies(answers), answer=True)
        summaries, _ = wires.read(wires.summaries)
        self._receive(summaries)
        return more or more_answers

    def _receive(self, datagrams: Sequence[bytes], answer: bool = False) -> None:
        if datagrams:
            self._follow(self._receiver.receive(datagrams, time.monotonic(), answer))

    def _without_cookies(self, answers: list[bytes]) -> list[bytes]:
        """Return answers other than cookies; on a new cookie, repeat the last requests."""
        cookies = [cookie_of(answer) for answer in answers]
        if new := next((c for c in cookies if c and c != self._cookie), b""):
            self._cookie = new
            self._request(self._last_requests)
        return [answer for c, answer in zip(cookies, answers, strict=True) if not c]

    def _request(self, requests: Sequence[Request]) -> None:
        self._last_requests = requests
        self._wires.ask(
            request(r.session, r.sequence, r.count, self._name, self._cookie) for r in requests
        )

    def _follow(self, output: Output) -> None:
        """Deliver, request and report what the receiver asks for."""
        if output.deliveries:
            self._outlet.put(output.deliveries)
        if output.requests:
            self._request(output.requests)
        for session, complete in output.caught_up:
            tell(f"session {session.decode('latin-1')}: caught up, complete up to {complete}")
        for loss in output.losses:
            missing = "some" if loss.missing is None else f"{loss.missing:,}"
            tell(
                f"session {loss.session.decode('latin-1')}: {missing} notifications lost from "
                f"{loss.from_} up to {loss.until}: {loss.reason}"
            )
