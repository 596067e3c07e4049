"""BMv2's simple_switch: what it does with frames around the pipelines of a v1model program.

After ingress: clone, digest, then the first of resubmit, multicast, drop, unicast. After egress:
clone, then the first of drop, recirculate, send. What a copy keeps of its metadata, and how its
fields are set, is what BMv2's documentation of simple_switch says; where that is silent, what
BMv2 does.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

from stackcast.switch.bmv2.flow_cache import CachedRun, FlowCache
from stackcast.switch.bmv2.packet import Packet
from stackcast.switch.bmv2.passes import Passes
from stackcast.switch.bmv2.program import Program, load_program, shared_program
from stackcast.switch.bmv2.state import Replication, SwitchState
from stackcast.switch.data_plane import CPU_PORT
from stackcast.udfs.errors import SwitchError
from stackcast.udfs.switches.entry import DEFAULT, GROUPS, SESSIONS, SwitchEntry, is_default

log = logging.getLogger(__name__)

_DEFAULT_KEY = f"{DEFAULT}="


class SimpleSwitch:
    """One switch that runs a compiled P4 program; implements
    `stackcast.switch.data_plane.DataPlane`.

    Parameters
    ----------
    cached: whether frames that the program cannot tell apart go through it once only. Results and
        counters are the same with and without.
    coverage: whether `program` notes which of its statements ran.
    clock: microseconds since the switch was started.
    digest: called with the number of a learn list and the packet, for each digest.

    Figures: ``frames``, ``passes`` (runs of ingress), ``copies`` (frames out), ``digests``, and
    ``drops``, frames of which no copy left, by reason: ``no_program``; ``program_failed``: an error
    of the switch itself, the first of which is in the log; ``pass_limit``: given up as it went
    round too often (counted even if copies had left before); ``no_controller``: a copy for the
    switch's controller that nobody took; ``<counter>[<index>]``: the indexed
    counter with "drop" in its name that the program raised last; ``dropped_by_program``.
    """

    def __init__(
        self,
        *,
        cached: bool = True,
        coverage: bool = False,
        clock: Callable[[], int] | None = None,
        digest: Callable[[int, Packet], None] | None = None,
    ) -> None:
        self.drops: Counter[str] = Counter()
        self.punt: Callable[[bytes], bool] | None = None
        self.frames = self.passes = self.copies = self.digests = 0
        self.cache = FlowCache() if cached else None
        self._coverage = coverage
        started = time.monotonic_ns()
        self._clock = clock or (lambda: (time.monotonic_ns() - started) // 1000)
        self._digest = digest
        self._lock = threading.Lock()
        self._replication = Replication()
        self._program: Program | None = None
        self._state: SwitchState | None = None
        self._passes: Passes | None = None

    @property
    def program(self) -> Program | None:
        return self._program

    def load(self, config: bytes) -> None:
        program = self._compiled(config)
        state = program.new_state()
        with self._lock:
            self._program, self._state = program, state
            self._replication.clear()
            self._passes = Passes(program, state, self._replication, self._clock, self._learn)
            self._forget()

    def verify(self, config: bytes) -> None:
        self._compiled(config)

    def check(self, entry: SwitchEntry) -> None:
        if entry.table in (GROUPS, SESSIONS):
            self._replication.check(entry)
        elif is_default(entry):
            with self._lock:
                state = self._running()
                held = state.defaults[:]
                _set_default(state, entry)
                state.defaults[:] = held
        else:
            self._running().check(entry)

    def apply(self, changes: Mapping[str, SwitchEntry | None]) -> None:
        tables: dict[str, SwitchEntry | None] = {}
        defaults: dict[str, SwitchEntry | None] = {}
        copies: dict[str, SwitchEntry | None] = {}
        for key, entry in changes.items():
            table, _, match = key.partition("|")
            if table in (GROUPS, SESSIONS):
                copies[key] = entry
                if entry is not None:
                    self._replication.check(entry)
            elif match == _DEFAULT_KEY:
                defaults[table] = entry
            else:
                tables[key] = entry
        with self._lock:
            state = self._running()
            held = state.defaults[:]
            try:
                for table, entry in defaults.items():
                    if entry is None:
                        state.reset_default(table)
                    else:
                        _set_default(state, entry)
                state.apply(tables)
            except SwitchError:
                state.defaults[:] = held
                raise
            for key, entry in copies.items():
                self._replication.set(key, entry)
            self._forget()

    def process(self, ingress_port: int, frame: bytes) -> list[tuple[int, bytes]]:
        with self._lock:
            self.frames += 1
            if self._passes is None:
                self.drops["no_program"] += 1
                return []
            try:
                copies = self._forward(self._passes, ingress_port, frame)
            except Exception:
                # It must not cost the frames that come after it.
                if not self.drops["program_failed"]:
                    log.exception("the program failed on a frame of port %d", ingress_port)
                self.drops["program_failed"] += 1
                return []
        # Not under the lock, which whoever is told may wait for.
        return copies if self.punt is None else self._links(copies, self.punt)

    def _links(
        self, copies: list[tuple[int, bytes]], punt: Callable[[bytes], bool]
    ) -> list[tuple[int, bytes]]:
        """Returns the copies for links, after the others have gone to the controller."""
        for port, copy in copies:
            if port == CPU_PORT and not punt(copy):
                self.drops["no_controller"] += 1
        return [each for each in copies if each[0] != CPU_PORT]

    def _forward(self, passes: Passes, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        cache = self.cache
        run: CachedRun | None = None
        if cache is not None:
            run = cache.find(port, frame)
        if run is None:
            walk = passes.walk(port, frame)
            run = walk.run
            if cache is not None and not walk.impure:
                cache.keep(port, frame, walk.span, walk.by_length, run)
        else:
            run.count(frame)
        self.passes += run.passes
        self.copies += len(run.copies)
        if run.dropped:
            self.drops[run.dropped] += 1
        return run.outcome(frame)

    def counter_size(self, name: str) -> int:
        return self._running().counter_size(name)

    def counters(self) -> dict[str, dict[int, tuple[int, int]]]:
        """Returns ``(packets, bytes)`` of the cells that are not 0, of each indexed counter, by
        index.
        """
        with self._lock:
            found = {} if self._state is None else self._state.counters
            return {
                name: {
                    index: (cell[0], cell[1]) for index, cell in sorted(cells.items()) if any(cell)
                }
                for name, cells in found.items()
            }

    def counter(self, name: str, index: int) -> tuple[int, int]:
        with self._lock:
            return self._running().counter(name, index)

    def write_counter(self, name: str, index: int, packets: int, size: int) -> None:
        with self._lock:
            self._running().write_counter(name, index, packets, size)

    def direct_counter(self, table: str, key: str) -> tuple[int, int]:
        with self._lock:
            return self._running().direct_counter(table, key)

    def write_direct_counter(self, table: str, key: str, packets: int, size: int) -> None:
        with self._lock:
            self._running().write_direct_counter(table, key, packets, size)

    def register(self, name: str) -> list[int]:
        with self._lock:
            cells = self._running().registers.get(name)
            if cells is None:
                raise SwitchError("BAD_ENTRY", f"the program has no register {name!r}", key=name)
            return cells[:]

    def write_register(self, name: str, index: int, value: int) -> None:
        with self._lock:
            self._running().write_register(name, index, value)

    def _compiled(self, config: bytes) -> Program:
        # What a program notes of its coverage must be this switch's alone.
        return load_program(config, coverage=True) if self._coverage else shared_program(config)

    def _running(self) -> SwitchState:
        if self._state is None:
            raise SwitchError(
                "BAD_ENTRY", "the switch does not have a program yet: load one first", key=""
            )
        return self._state

    def _forget(self) -> None:
        if self.cache is not None:
            self.cache.clear()

    def _learn(self, learn_list: int, packet: Packet) -> None:
        self.digests += 1
        if self._digest is not None:
            self._digest(learn_list, packet)


def _set_default(state: SwitchState, entry: SwitchEntry) -> None:
    params = {name: int.from_bytes(value, "big") for name, value in entry.params}
    state.set_default(entry.table, entry.action, params)
