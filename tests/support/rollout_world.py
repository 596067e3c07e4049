"""A small world in which the real refresher meets streams, people and switches, step by step.

Tables, switches and time are small models; what runs between two of the refresher's steps is drawn
at random. So what a test finds to hold, holds however these programs interleave.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future

import pytest
from memory_tables import MemoryTables

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.planning.versions import BatchVersions, network_part
from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK
from stackcast.jobs.adapters.switches.lead import Refresher
from stackcast.jobs.adapters.switches.program import Programs
from stackcast.jobs.adapters.switches.results import RefreshResult
from stackcast.jobs.adapters.tables.network_tables import NetworkTables
from stackcast.lab.proof.verification import Key, Receipt
from stackcast.udfs.network.network import Network
from stackcast.udfs.switches.entry import GROUPS, difference, replicas
from stackcast.udfs.switches.ordering import write_steps
from stackcast.udfs.switches.routes import ROUTE
from stackcast.udfs.switches.stack_entries import switch_entries

#: Positions of labels: they are alike, and one is enough here.
POSITIONS = 1


class Killed(BaseException):
    """The program ends here, as by SIGKILL: nothing that catches errors catches this."""


class HastyClock:
    """A clock on which every pause has ended when the time is next read."""

    def __init__(self):
        self._seconds = itertools.count(0, 1000)

    def monotonic(self):
        return float(next(self._seconds))

    wall_time = SYSTEM_CLOCK.wall_time
    event = SYSTEM_CLOCK.event

    def sleep(self, seconds):
        pass


class InOrder:
    """Threads that run each call when it is submitted, so that a seed determines a run."""

    def __init__(self, clock):
        self.clock = clock

    def worker(self, name, parallel=1):
        return self

    def submit(self, call, /, *args, **kwargs):
        future = Future()
        future.set_result(call(*args, **kwargs))
        return future

    def wait(self, futures, seconds=None):
        return any(future.done() for future in futures)

    def close(self, wait=True):
        pass


def _read_in_order(tables, wanted):
    for item in wanted:
        tables.rows(*item)


def in_order(patch):
    """Make tables be read in sequence, so that a seed determines a run."""
    patch.setattr(NetworkTables, "prefetch", _read_in_order)


@contextlib.contextmanager
def hasty():
    """Make tables be read in sequence, so that a seed determines a run."""
    with pytest.MonkeyPatch.context() as patch:
        in_order(patch)
        yield


class Later(InOrder):
    """Threads that run a refresh of a switch when it is submitted, or later.

    Args:
        delays: returns whether a refresh runs later.
    """

    def __init__(self, delays):
        super().__init__(HastyClock())
        self._delays = delays
        self._waiting = []

    def worker(self, name, parallel=1):
        return self if name == "switch-refresh" else InOrder(self.clock)

    def submit(self, call, /, *args, **kwargs):
        if not self._delays():
            return super().submit(call, *args, **kwargs)
        future = Future()
        self._waiting.append((future, call, args, kwargs))
        return future

    def work(self):
        """Run the call that has waited longest, if there is one."""
        if self._waiting:
            future, call, args, kwargs = self._waiting.pop(0)
            future.set_result(call(*args, **kwargs))

    def drain(self):
        while self._waiting:
            self.work()


class SteppedTables:
    """Tables in memory; ``between`` is called before every step."""

    def __init__(self, between=lambda: None, tables=None):
        self._tables = tables or MemoryTables()
        self._between = between
        self._tables.create()

    def through(self, between):
        """The same tables for another program."""
        return SteppedTables(between, self._tables)

    def recreate(self, name, *versions):
        """Delete the table and create it again, with these rows as versions 1, 2, ..."""
        self._tables.drop(name)
        self._tables.create(name)
        for rows in versions:
            self._tables.overwrite(name, rows)

    def __getattr__(self, name):
        member = getattr(self._tables, name)
        if not callable(member):
            return member

        def step(*arguments, **options):
            self._between()
            return member(*arguments, **options)

        return step


class World:
    """Switches that hold entries, tables, and which refresher the switches obey.

    held: by switch, entries by key. programs: by switch, the one that it runs. leader: the
    refresher that is primary wherever it reaches a switch, in its ``term``; elsewhere another is.
    disturbed: pairs of refresher and switch; cut: those with no way between.
    """

    def __init__(self):
        self.tables = SteppedTables()
        self.held = defaultdict(dict)
        self.programs = {}
        self.drops = {}
        self.leader = "a"
        self.term = 0
        self.disturbed = set()
        self.cut = set()
        self.owners = set()
        self._named = {}

    def primary(self, switch):
        """The refresher that may write the switch, if one reaches it."""
        others = sorted(self.owners - {self.leader})
        return next((o for o in (self.leader, *others) if (o, switch) not in self.cut), None)

    def set_cut(self, *pairs):
        """Only these do not reach each other from now on."""
        for owner, switch in self.cut ^ set(pairs):
            self.disturbed |= {(other, switch) for other in (owner, *self.owners)}
        self.cut = set(pairs)

    def named(self, versions):
        """Returns entries without routes: at least those that stacks of these versions name."""
        key = tuple(sorted(versions.items()))
        if key not in self._named:
            source = NetworkTables(self.tables).source(versions)
            entries = switch_entries(source.network, source.named, POSITIONS)
            self._named[key] = [entry for entry in entries if entry.table != ROUTE]
        return self._named[key]


class FakeSession:
    """A session that writes the world's switch update by update, in the real order of steps.

    superseded: as for a real session. interrupted: called by `interrupt`.
    """

    rival, in_the_way, trouble = "", 0, None

    def __init__(self, world, owner, target, between):
        self._world, self._owner, self._name, self._between = world, owner, target.name, between
        self._read_in_term = self._last_read = None
        self.superseded = lambda: False
        self.interrupted = lambda: None
        self._ends = False
        world.owners.add(owner)

    @property
    def _reached(self):
        return (self._owner, self._name) not in self._world.cut

    @property
    def _primary(self):
        return self._world.primary(self._name) == self._owner

    def _away(self):
        if self._reached:
            return RefreshResult(None, False, ["not primary"], primary=False)
        return RefreshResult(None, False, ["no answer"])

    def leads(self, connect=True):
        self._between()
        return self._primary if self._reached else None

    def disturbed(self):
        if (self._owner, self._name) in self._world.disturbed or not self._reached:
            return True
        return self._primary and self._read_in_term != self._world.term

    def refresh(self, desired, pipeline, _patience=0.0):
        held = self._world.held[self._name]
        new_term, self._read_in_term = self._read_in_term != self._world.term, None
        if self._ends or not self._primary or (new_term and self.superseded()):
            return self._away()
        self._world.programs[self._name] = pipeline
        for step in write_steps(difference(desired, list(held.values()))):
            for entry in step.entries:
                self._between()
                if not self._primary:
                    return self._away()
                if step.kind == "delete":
                    del held[entry.key]
                else:
                    held[entry.key] = entry
        self._between()
        if not self._primary:
            return self._away()
        self._read_in_term = self._world.term
        self._last_read = list(held.values())
        self._world.disturbed.discard((self._owner, self._name))
        in_sync = set(held.values()) == set(desired)
        return RefreshResult(len(held), in_sync)

    @property
    def entry_count(self):
        return len(self._last_read or ())

    def read_back(self, part=0, parts=1):
        if not self._reached or self._last_read is None:
            return None
        entries = list(self._world.held[self._name].values())
        tables = sorted({entry.table for entry in (*self._last_read, *entries)})[part::parts]
        entries = [entry for entry in entries if entry.table in tables]
        expected = [entry for entry in self._last_read if entry.table in tables]
        repair = difference(expected, entries)
        if repair:
            self._read_in_term = None
        return repair

    def compare(self, desired, _pipeline):
        return difference(desired, list(self._world.held[self._name].values()))

    def forget_past(self):
        pass

    def drops(self):
        return self._world.drops.get(self._name) if self._reached else None

    def interrupt(self):
        self._ends = True
        self.interrupted()

    def close(self):
        self._ends = False


class OneProgram(Programs):
    """One program of labels, not read from a file."""

    def reasons(self, name):
        return {}

    def __init__(self):
        pass

    def program(self, name):
        return name

    def tables(self, _name):
        return ["ingress.label_1.look_up"]

    def sizes(self, _name):
        return {}


def refresher(world, owner="a", between=lambda: None, open_session=None, **options):
    """Return the real refresher in a world, under the name of ``owner``.

    By default its calls run in sequence, and its pauses end when the time is next read.
    """
    return Refresher(
        world.tables.through(between),
        options.pop("settings", Settings()),
        open_session=open_session or (lambda target: FakeSession(world, owner, target, between)),
        **{"programs": OneProgram(), "threads": InOrder(HastyClock())} | options,
    )


class Stream:
    """A stream of one topic, as a generator of steps; what it sends is held against the switches.

    pinned: versions of the batch in progress, by number. wrong: what a frame needed, and found
    otherwise.
    """

    def __init__(self, world, topic):
        self._world, self._topic = world, topic
        self._clock = itertools.count(1)
        self.pinned = {}
        self.done = 0
        self.wrong = []

    def run(self):
        tables = self._world.tables
        versions = BatchVersions(tables, self._topic)
        if not self.pinned:
            begun = versions.current()
            yield
            versions.announce(begun)
            yield
        while True:
            number = self.done + 1
            if number not in self.pinned:
                current = versions.current()
                yield
                self.pinned[number] = current
            pinned = network_part(self.pinned[number])
            for _ in range(3):
                self._send(pinned)
                yield
            now = dt.datetime.fromtimestamp(1000 * next(self._clock), dt.UTC)
            row = {"topic": self._topic, "versions": self.pinned[number], "started_at": now}
            tables.append("egress_ledger", [row])
            yield
            self.done = number

    def _send(self, versions):
        """Check that the switches have each entry that stacks of these versions may name."""
        for entry in self._world.named(versions):
            found = self._world.held[entry.switch].get(entry.key)
            if found is not None and entry.table == GROUPS:
                right = _instances(entry) <= _instances(found)
            else:
                right = found == entry
            if not right:
                self.wrong.append((dict(versions), entry, found))


def _instances(group):
    """Replicas, those with an instance by it alone: any port of theirs does."""
    return {instance or (port,) for port, instance in replicas(group)}


def by_old_or_new(
    network: Network,
    received: Mapping[str, Sequence[Receipt]],
    old: Mapping[str, Mapping[Key, int]],
    new: Mapping[str, Mapping[Key, int]],
    settled: int,
) -> Counter[str]:
    """Hold what hosts received against what the old and the new rules owe them.

    All hosts of one switch go by the same rules, message by message; from number ``settled`` on, by
    the new ones. Nothing comes twice or late. Returns how many messages that the rules differ on
    went by which, counted at each switch.
    """
    got: dict[str, set[Key]] = defaultdict(set)
    for host, receipts in received.items():
        numbers = [receipt.sequence for receipt in receipts]
        assert numbers == sorted(set(numbers)), f"{host}: doubled or out of order"
        got[host] = {(r.session, r.sequence, m) for r in receipts for m in r.messages}
    racks: dict[str, list[str]] = defaultdict(list)
    for host in network.subscribers():
        racks[network.hosts[host].switch].append(host)
    went: Counter[str] = Counter()
    for switch, hosts in racks.items():
        keys = {key for side in (old, new, got) for host in hosts for key in side.get(host, ())}
        for key in keys:
            before, after, now = (
                {host for host in hosts if key in side.get(host, ())} for side in (old, new, got)
            )
            assert now in (before, after), f"{switch}: {key} is of neither: {now}"
            if key[1] >= settled:
                assert now == after, f"{switch}: {key} still goes by the old rules"
            elif before != after:
                went["old" if now == before else "new"] += 1
    return went
