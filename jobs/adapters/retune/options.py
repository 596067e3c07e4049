"""What a retuning is asked to do."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from stackcast.udfs.errors import SettingsError
from stackcast.udfs.network.labels import NARROW, LabelFormat
from stackcast.udfs.retuning.change import MIN_SAVING
from stackcast.udfs.retuning.comparison import Objective
from stackcast.udfs.trees.strategies.registry import strategies_for


@dataclass(frozen=True)
class RetuneOptions:
    """Options of a run. objective: the cost to save. rules: trees a switch at most.
    max_changed_rules: None for any number. most: publications that are replayed. strategies: names;
    empty for all. seconds: that a strategy may take, and the search for a mixture. quarantine: that
    the id of a retired tree waits before another may have it."""

    rules: int = 40
    max_changed_rules: int | None = None
    min_saving: float = MIN_SAVING
    window: dt.timedelta | None = None
    as_of: int | None = None
    most: int = 5_000
    strategies: tuple[str, ...] = ()
    seed: int = 0
    seconds: float = 600.0
    quarantine: dt.timedelta = dt.timedelta(days=1)
    objective: Objective = "bytes"

    def names(self, labels: LabelFormat = NARROW) -> list[str]:
        """Strategies to compare, for an encoding: none where its stacks name no trees. Raises
        SettingsError BAD_VALUE for one that is not known."""
        known = strategies_for(labels)
        for name in self.strategies:
            if name not in known:
                raise SettingsError(
                    "BAD_VALUE",
                    f"there is no strategy {name!r} for encoding {labels.encoding}; available: "
                    f"{', '.join(known) or 'none, because its stacks contain no tree ids'}",
                )
        return list(dict.fromkeys(self.strategies)) or list(known)
