"""Tables of switches, as the job that refreshes them writes them."""

from __future__ import annotations

from collections.abc import Iterable

from paths import P4

from jobs.adapters.switches.credentials import Credentials
from jobs.adapters.switches.program import P4Program
from jobs.adapters.switches.session import SwitchSession, SwitchTarget
from udfs.network.network import Switch
from udfs.switches.entry import SwitchEntry


def fill(
    address: str,
    switch: Switch,
    entries: Iterable[SwitchEntry],
    program: str = "virtual_trees",
    credentials: Credentials | None = None,
) -> None:
    """Set a switch's program if it runs another, and make it hold those ``entries`` that are its
    own."""
    desired = [entry for entry in entries if entry.switch == switch.name]
    target = SwitchTarget(switch.name, address, switch.device_id)
    with SwitchSession(target, credentials) as session:
        outcome = session.refresh(desired, P4Program.read(P4, program))
    assert outcome.in_step, outcome.errors
    assert outcome.held == len(desired) > 0
