"""One switch kept in step with what it should hold, over a connection that is kept."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from jobs.adapters.credentials import Credentials
from jobs.adapters.pipeline import Pipeline
from udfs.switches.entry import Difference, SwitchEntry


@dataclass(frozen=True)
class SwitchTarget:
    """Where a switch is, and how much it takes in all (None: as much as its program's tables)."""

    name: str
    address: str
    device_id: int
    max_rules: int | None = None
    max_groups: int | None = None


@dataclass(frozen=True)
class Outcome:
    """How a switch stands after :meth:`SwitchSession.refresh`.

    held: entries that it was last read to hold, groups among them; None if it could not be read.
    in_step: it was read back to hold exactly what it should. errors: what went wrong, refusals in
    the switch's own words. seconds: from the call to the last read. primary: whether we may
    write it; if not, nothing was written after that was known. left: what still differs.
    """

    held: int | None
    in_step: bool
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0
    primary: bool = True
    left: Difference = Difference((), (), ())


class SwitchSession:
    """One switch, connected when first needed and kept so until :meth:`close`.

    Safe to use from several threads; calls for one switch follow each other. ``given_up`` is
    asked before anything is tried again.
    """

    def __init__(
        self,
        target: SwitchTarget,
        credentials: Credentials | None = None,
        election_id: int = 1,
        given_up: Callable[[], bool] = lambda: False,
    ) -> None:
        raise NotImplementedError

    def refresh(self, desired: Collection[SwitchEntry], pipeline: Pipeline) -> Outcome:
        """Make the switch hold exactly ``desired``, make before break; never raises SwitchError."""
        raise NotImplementedError

    def compare(self, desired: Collection[SwitchEntry], pipeline: Pipeline) -> Difference:
        """What a refresh would write, in the reader's role: takes no part in the arbitration.

        Raises SwitchError ``UNREACHABLE``, ``BAD_TLS``, ``READ_FAILED``, ``LIMIT``.
        """
        raise NotImplementedError

    def disturbed(self) -> bool:
        """Whether the switch may hold something else than after the last refresh. Never waits.

        The connection was lost or never made, we became primary since, or nobody is.
        """
        raise NotImplementedError

    def close(self) -> None:
        """End the connection; takes a second at most. A later call connects again."""
        raise NotImplementedError
