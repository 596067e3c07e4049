"""The packet replication engine: multicast groups and clone sessions."""

from __future__ import annotations

from typing import NamedTuple

from udfs.errors import SwitchError
from udfs.switches.entry import GROUPS, SwitchEntry, group_id, replicas, session_length

_MAX_GROUP = 0xFFFF
_MAX_SESSION = 0x7FFF
_MAX_PORT = 511
_MAX_INSTANCE = 0xFFFF


class Session(NamedTuple):
    """Where clones go: ``(egress port, instance)`` of each, and their most bytes, None for all."""

    replicas: tuple[tuple[int, int], ...]
    length: int | None


class Replication:
    """Groups and sessions by number, kept as entries (`udfs.switches.entry`).

    ``groups``: ``(egress port, instance)`` of each copy, by instance, then by port.
    """

    def __init__(self) -> None:
        self.groups: dict[int, tuple[tuple[int, int], ...]] = {}
        self.sessions: dict[int, Session] = {}

    def check(self, entry: SwitchEntry) -> None:
        """Raise SwitchError ``BAD_ENTRY`` for numbers out of range, and for a copy named twice."""
        group = entry.table == GROUPS
        number, copies = group_id(entry), replicas(entry)
        lowest, highest = (1, _MAX_GROUP) if group else (0, _MAX_SESSION)
        if not lowest <= number <= highest:
            what = "groups" if group else "clone sessions"
            raise _bad(entry, f"{what} are numbered {lowest}..{highest}")
        for port, instance in copies:
            if port > _MAX_PORT or instance > _MAX_INSTANCE:
                raise _bad(entry, f"ports are 0..{_MAX_PORT}, instances 0..{_MAX_INSTANCE}")
        if len(set(copies)) < len(copies):
            raise _bad(entry, "the same port and instance are there twice")

    def set(self, key: str, entry: SwitchEntry | None) -> None:
        """Make the group or session of a key be that of ``entry``, or none."""
        table, _, number = key.partition("|")
        index = int(number.rpartition("=")[2], 16)
        if table == GROUPS:
            if entry is None:
                self.groups.pop(index, None)
            else:
                self.groups[index] = tuple(replicas(entry))
        elif entry is None:
            self.sessions.pop(index, None)
        else:
            self.sessions[index] = Session(tuple(replicas(entry)), session_length(entry) or None)

    def clear(self) -> None:
        """Forget all groups and sessions."""
        self.groups.clear()
        self.sessions.clear()


def _bad(entry: SwitchEntry, why: str) -> SwitchError:
    return SwitchError("BAD_ENTRY", f"{entry.key}: {why}", key=entry.key)
