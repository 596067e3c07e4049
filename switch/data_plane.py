"""The seam between a switch's outside (ports, links, P4Runtime) and what it does with a frame."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol

from stackcast.switch.bmv2.program import Program
from stackcast.udfs.switches.entry import SwitchEntry

CPU_PORT = 510
"""The port of a switch's controller: no link, where the program has headers for one."""


class DataPlane(Protocol):
    """The data plane of a switch: a program, and the tables and groups by which it handles frames.

    ``drops`` counts frames of which no copy left, by reason. ``program`` is None before one is
    loaded; until then every frame is dropped.

    ``process`` is called by one thread. The others may be called by any; they take effect between
    two frames, whole or not at all. Names are those of the program's JSON, which are those of its
    P4Info. Methods that name what the program lacks raise SwitchError ``BAD_ENTRY``.
    """

    drops: Counter[str]
    punt: Callable[[bytes], bool] | None
    """Called with each copy for `CPU_PORT` in place of its being returned; False: nobody takes it,
    which is counted as ``no_controller``. None: that port is like any other."""

    @property
    def program(self) -> Program | None:
        """The program that runs."""

    def load(self, config: bytes) -> None:
        """Run a BMv2 JSON from now on, with empty tables, groups, registers and counters.

        Raises SwitchError ``WRONG_PROGRAM``, naming the part that cannot run; then nothing changes.
        """

    def verify(self, config: bytes) -> None:
        """Raise SwitchError ``WRONG_PROGRAM`` if `load` would; nothing changes."""

    def check(self, entry: SwitchEntry) -> None:
        """Raise SwitchError ``BAD_ENTRY`` if ``entry`` could never be held."""

    def apply(self, changes: Mapping[str, SwitchEntry | None]) -> None:
        """Make each key (`SwitchEntry.key`) hold its entry, or nothing if None.

        Entries of tables, default actions, multicast groups and clone sessions. Raises like
        `check`; then nothing changes.
        """

    def process(self, ingress_port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Returns the copies of ``frame`` to send: ``(egress port, frame)``."""

    def counters(self) -> dict[str, dict[int, tuple[int, int]]]:
        """Returns ``(packets, bytes)`` of the cells that are not 0, of each indexed counter, by
        index.
        """

    def counter_size(self, name: str) -> int:
        """Returns cells of an indexed counter."""

    def counter(self, name: str, index: int) -> tuple[int, int]:
        """Returns ``(packets, bytes)`` of one cell of an indexed counter."""

    def direct_counter(self, table: str, key: str) -> tuple[int, int]:
        """Returns ``(packets, bytes)`` of the entry of a key, in a table with a direct counter."""

    def register(self, name: str) -> list[int]:
        """Returns the cells of a register array."""

    def write_register(self, name: str, index: int, value: int) -> None:
        """Set one cell of a register array, cut to its width."""

    def write_counter(self, name: str, index: int, packets: int, size: int) -> None:
        """Set one cell of an indexed counter."""

    def write_direct_counter(self, table: str, key: str, packets: int, size: int) -> None:
        """Set the counter of an entry."""
