"""Folders that one process of a test run makes for all of them."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest


def folder(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Returns a folder that ``make`` has filled, once a run: whom it is for copies it."""
    run = factory.getbasetemp()
    if run.name.startswith("popen-"):
        # Each process of pytest-xdist has one of its own in that of the run.
        run = run.parent
    place = run / f"shared-{name}"
    with (run / f"shared-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            made = factory.mktemp(name)
            make(made)
            made.rename(place)
    return place
