"""The health of a job, which ``/health`` reports."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Health:
    """Health of a job.

    Attributes:
        problems: why the job does not do its work.
        remarks: what it does less well than it should.
        facts: further values of the answer, which JSON can hold.
    """

    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """``unhealthy``, ``degraded`` or ``ok``."""
        return "unhealthy" if self.problems else "degraded" if self.remarks else "ok"

    def as_json(self) -> str:
        """Return the body of ``/health``: status, problems, remarks and facts."""
        answer = {"status": self.status, "problems": self.problems, "remarks": self.remarks}
        return json.dumps(answer | self.facts, indent=1) + "\n"
