"""What a session with a switch is told of it, and what it tells."""

from __future__ import annotations

from dataclasses import dataclass, field

from udfs.switches.entry import Difference

NOTHING = Difference((), (), ())


@dataclass(frozen=True)
class SwitchTarget:
    """Where a switch is, and how much it takes in all (None: as much as its program's tables)."""

    name: str
    address: str
    device_id: int
    max_rules: int | None = None
    max_groups: int | None = None


@dataclass(frozen=True)
class Comparison(Difference):
    """What a refresh would change: entries, and the program if it is not None.

    program: what would happen to the program, in words that begin with ``set`` (there is none),
    ``reconciled`` (same tables, entries stay where the switch can keep them) or ``replaced``
    (all entries that there are go, and are in ``delete``). True if anything would change.
    """

    program: str | None = None

    def __bool__(self) -> bool:
        return self.program is not None or super().__bool__()


@dataclass(frozen=True)
class Outcome:
    """How a switch stands after :meth:`SwitchSession.refresh`.

    held: entries that it was last read to hold, groups among them; None if it could not be read.
    in_step: it was read back to hold exactly what it should. errors: what went wrong, refusals in
    the switch's own words. seconds: from the call to the last read. primary: whether we may
    write it; if not, nothing was written after that was known. left: what still differs. written:
    updates that the switch took.
    """

    held: int | None
    in_step: bool
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0
    primary: bool = True
    left: Difference = field(default_factory=lambda: NOTHING)
    written: int = 0
