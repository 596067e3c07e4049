"""The controller of a switch that keeps ports of states in a table, over P4Runtime.

It has a role of its own, so it writes that table while the refresher writes all others. What it
does is `stackcast.udfs.states.switch_controller`'s; here it is connected.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock
from stackcast.jobs.adapters.switches.credentials import Credentials
from stackcast.jobs.adapters.switches.p4runtime import SwitchConnection
from stackcast.udfs.errors import SwitchError
from stackcast.udfs.states.switch_controller import Effect, SetPorts, SwitchController
from stackcast.udfs.switches.entry import Difference
from stackcast.udfs.switches.state_entries import STATE, STATES_ROLE, TREE, state_row

log = logging.getLogger(__name__)

_STEP_SECONDS = 0.05
_LOOK_SECONDS = 2.0
"""How often the tree is read: the refresher may have changed it."""
_AGAIN_SECONDS = 1.0


class StateController:
    """One switch's controller, from :meth:`run` until it is told to stop.

    Parameters
    ----------
    address, device_id: of the switch. election_id: the highest of the role's clients writes.
    """

    def __init__(
        self,
        address: str,
        device_id: int,
        election_id: int = 1,
        credentials: Credentials | None = None,
        name: str = "",
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._address, self._device, self._election = address, device_id, election_id
        self._credentials = replace(credentials or Credentials(), role=STATES_ROLE)
        self._name = name

    def run(self, stopping: Callable[[], bool]) -> None:
        """Control the switch. One that does not answer, or has no tree yet, is tried again."""
        told = ""
        while not stopping():
            try:
                with SwitchConnection.connect(
                    self._address,
                    self._device,
                    self._election,
                    self._credentials,
                    name=self._name,
                ) as connection:
                    _Connected(connection, self._name, self._clock).run(stopping)
            except SwitchError as error:
                if str(error) != told:
                    log.warning("%s", error)
                told = str(error)
                end = self._clock.monotonic() + _AGAIN_SECONDS
                while self._clock.monotonic() < end and not stopping():
                    self._clock.sleep(_STEP_SECONDS)


class _Connected:
    """The controller while its connection lives."""

    def __init__(self, connection: SwitchConnection, name: str, clock: Clock) -> None:
        self._connection, self._name, self._clock = connection, name, clock
        links, hosts, lease = self._span()
        rows = {
            _number(entry.match[0][2]): _number(entry.params[0][1])
            for entry in connection.read_entries(name)
            if entry.table == STATE
        }
        self._held = set(rows)
        self._controller = SwitchController(links, hosts, lease, rows, self._microseconds())

    def run(self, stopping: Callable[[], bool]) -> None:
        look = self._clock.monotonic() + _LOOK_SECONDS
        while not stopping():
            came = self._connection.packet_in(_STEP_SECONDS)
            if came is not None:
                metadata, frame = came
                self._do(self._controller.packet_in(metadata["port"], frame, self._microseconds()))
            self._do(self._controller.tick(self._microseconds()))
            if self._clock.monotonic() >= look:
                links, hosts, _ = self._span()
                self._do(self._controller.span(links, hosts, self._microseconds()))
                look = self._clock.monotonic() + _LOOK_SECONDS

    def _microseconds(self) -> int:
        return int(self._clock.monotonic() * 1e6)

    def _span(self) -> tuple[int, int, int]:
        for entry in self._connection.read_entries(self._name, TREE):
            params = {name: _number(value) for name, value in entry.params}
            return params["links"], params["hosts"], params["lease"]
        raise SwitchError(
            "READ_FAILED", f"switch {self._name!r} has no tree yet: it waits for the refresher"
        )

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SetPorts):
                self._write(effect)
            else:
                self._connection.packet_out({"ports": effect.ports}, effect.frame)

    def _write(self, effect: SetPorts) -> None:
        row = state_row(self._name, effect.state, effect.ports)
        if effect.state not in self._held:
            change = Difference((row,), (), ())
        elif effect.ports:
            change = Difference((), (row,), ())
        else:
            change = Difference((), (), (row,))
        for refused in self._connection.write(change):
            raise SwitchError(
                "WRITE_FAILED",
                f"switch {self._name!r} rejected the entry of state {effect.state}: "
                f"{refused.status}: {refused.message}",
            )
        (self._held.add if effect.ports else self._held.discard)(effect.state)


def _number(value: bytes) -> int:
    return int.from_bytes(value)
