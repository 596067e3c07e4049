"""The switch of a session, and the results of its refreshes and comparisons."""

from __future__ import annotations

from dataclasses import dataclass, field

from stackcast.udfs.switches.entry import Difference

NOTHING = Difference((), (), ())


@dataclass(frozen=True)
class SwitchTarget:
    """The address and the limits of a switch.

    Attributes:
        name: name of the switch.
        address: ``host:port``.
        device_id: P4Runtime's number of the switch at that address.
        max_rules: maximum number of entries in all tables together; None if only the sizes of the
            tables limit it.
        max_groups: maximum number of multicast groups; None for no limit.
    """

    name: str
    address: str
    device_id: int
    max_rules: int | None = None
    max_groups: int | None = None


@dataclass(frozen=True)
class RefreshResult:
    """The state of a switch after :meth:`SwitchSession.refresh`.

    Attributes:
        installed: number of entries that the switch held when it was last read, including groups;
            None if it could not be read.
        in_sync: whether the switch was read back and holds exactly the desired entries.
        errors: what went wrong. Refused updates are reported in the words of the switch.
        seconds: duration of the refresh, from the call to the last read.
        primary: False if the session must not write the switch, because of another client or
            refresher. Nothing was written after the session learned that.
        left: updates that would still be necessary.
        written: number of updates that the switch accepted.
        full: whether the switch has no space for the updates that it refused.
    """

    installed: int | None
    in_sync: bool
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0
    primary: bool = True
    left: Difference = field(default_factory=lambda: NOTHING)
    written: int = 0
    full: bool = False


@dataclass(frozen=True)
class Comparison(Difference):
    """The changes that a refresh would make. It is true if there are any.

    Attributes:
        program: None if the program would stay. Otherwise a text that starts with ``set`` (the
            switch runs no program), ``reconciled`` (the tables are the same, and their entries stay
            if the switch supports that) or ``replaced`` (all entries of the switch are deleted, and
            ``delete`` contains them).
    """

    program: str | None = None

    def __bool__(self) -> bool:
        return self.program is not None or super().__bool__()
