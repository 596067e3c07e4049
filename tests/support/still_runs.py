"""Whether a process, of which only the number is known, runs."""

from __future__ import annotations

from pathlib import Path


def still_runs(pid: int) -> bool:
    """False also where it has ended, and nobody has asked how."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
