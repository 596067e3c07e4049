"""Log lines of the jobs: time, level, where, what."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping


def set_up() -> None:
    """Send the log to standard error; libraries speak from WARNING on."""
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.WARNING,
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        force=True,
    )
    for name in ("stackcast", "jobs", "lab", "udfs"):
        logging.getLogger(name).setLevel(logging.INFO)
    # It warns of every moment in which this machine is busy with something else.
    logging.getLogger("kafka").setLevel(logging.ERROR)


def named(versions: Mapping[str, int]) -> str:
    """Versions of tables as a log line has them: ``links@3, subscriptions@17``."""
    return ", ".join(f"{name}@{version}" for name, version in versions.items())
