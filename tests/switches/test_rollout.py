"""Nothing that a stack names is missing on a switch or means something else, whatever happens."""

from __future__ import annotations

import dataclasses
import itertools
import random

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from rollout_world import (
    POSITIONS,
    FakeSession,
    Killed,
    Later,
    Stream,
    World,
    hasty,
    refresher,
)

from stackcast.jobs.adapters.tables.network_tables import NetworkTables
from stackcast.jobs.adapters.tables.network_versions import NetworkVersions
from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.network import Link, Network
from stackcast.udfs.network.rows import host_to_row, link_to_row, network_to_rows, tree_to_row
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network.virtual_tree import VirtualTree, stored
from stackcast.udfs.switches import rollout
from stackcast.udfs.switches.derivation import derive
from stackcast.udfs.switches.entry import SwitchEntry, canonical, group_entry, replicas
from stackcast.udfs.switches.rollout import NetworkVersion
from stackcast.udfs.switches.stack_entries import switch_entries

pytestmark = pytest.mark.unit

NETWORK = fabric(pods=1, racks=2, hosts=1, planes=1, spines=1)
RACK = NETWORK.hosts["h1"].switch


class People:
    """Edits of the tables, sensible and not; what is not is mended by a later edit."""

    def __init__(self, rng, tables):
        self._rng, self._tables = rng, tables
        self._trees, self._links = itertools.count(1), itertools.count(500)
        self._hosts = itertools.count(1)
        self._mends = []

    def edit(self):
        if self._mends and self._rng.random() < 0.6:
            self.mend()
            return
        self._rng.choice(
            [self._add_tree] * 3
            + [self._retire] * 3
            + [self._fail, self._delete_tree, self._add_host, self._remove_host]
            + [self._reuse_tree, self._reuse_link]
        )()

    def mend(self):
        while self._mends:
            self._mends.pop()()
        pairs = {frozenset((row["switch"], row["neighbor"])) for row in self._rows("links")}
        trees = self._rows("virtual_trees")
        right = [t for t in trees if all(frozenset(e.values()) in pairs for e in t["edges"])]
        if right != trees:
            self._tables.overwrite("virtual_trees", right)

    def _rows(self, name):
        return self._tables.rows(name)

    def _add_tree(self):
        links = self._rows("links")
        inside, edges = {self._rng.choice(links)["switch"]}, set()
        for _ in range(self._rng.randint(1, 4)):
            border = [r for r in links if r["switch"] in inside and r["neighbor"] not in inside]
            if border:
                row = self._rng.choice(border)
                inside.add(row["neighbor"])
                edges.add(tuple(sorted((row["switch"], row["neighbor"]))))
        if edges:
            state = self._rng.choice(["installing", "installing", "active"])
            tree = VirtualTree(next(self._trees), frozenset(edges), "test", state)
            self._tables.append("virtual_trees", [tree_to_row(tree)])

    def _retire(self):
        trees = self._rows("virtual_trees")
        active = [row for row in trees if row["state"] in ("active", "installing")]
        if active:
            self._rng.choice(active)["state"] = "retiring"
            self._tables.overwrite("virtual_trees", trees)

    def _delete_tree(self):
        trees = self._rows("virtual_trees")
        if trees:
            trees.remove(self._rng.choice(trees))
            self._tables.overwrite("virtual_trees", trees)

    def _fail(self):
        links = self._rows("links")
        row = self._rng.choice(links)
        row["up"] = not row["up"]
        self._tables.overwrite("links", links)

    def _add_host(self):
        number = next(self._hosts)
        port = 30 + number
        if port > 60:
            return
        host = dataclasses.replace(
            NETWORK.hosts["h1"],
            name=f"new{number}",
            port=port,
            mac=0x10_0000 + number,
            ipv4=0x0B00_0000 + number,
        )
        link = dataclasses.replace(
            NETWORK.link(RACK, "h1"), id=next(self._links), port=port, neighbor=host.name
        )
        self._tables.append("links", [link_to_row(link)])
        self._tables.append("hosts", [host_to_row(host)])

    def _remove_host(self):
        hosts = [row for row in self._rows("hosts") if row["host"].startswith("new")]
        if not hosts:
            return
        name = self._rng.choice(hosts)["host"]
        trees = self._rows("virtual_trees")
        without = [t for t in trees if all(name not in e.values() for e in t["edges"])]
        for table, rows in (
            ("virtual_trees", without),
            ("hosts", [row for row in self._rows("hosts") if row["host"] != name]),
            ("links", [row for row in self._rows("links") if row["neighbor"] != name]),
        ):
            self._tables.overwrite(table, rows)

    def _reuse_tree(self):
        """A tree's id gets other edges, for a while."""
        trees = self._rows("virtual_trees")
        ready = self._ready()
        named = {tree.id for tree in ready.named} if ready else set()
        known = [row for row in trees if row["tree_id"] in named and row["state"] != "retired"]
        if known and not self._mends:
            row = self._rng.choice(known)
            tree, before = row["tree_id"], row["edges"]
            other = [{"u": "h1", "v": RACK}, {"u": RACK, "v": "pod1-fabric1"}]
            row["edges"] = other[: self._rng.randint(1, 2)]
            self._tables.overwrite("virtual_trees", trees)
            self._mends.append(lambda: self._set("virtual_trees", "tree_id", tree, "edges", before))

    def _reuse_link(self):
        """A host's link keeps its id and moves to another port, for a while."""
        if self._ready() and not self._mends:
            self._move_h1(29)
            self._mends.append(lambda: self._move_h1(NETWORK.hosts["h1"].port))

    def _ready(self):
        """What streams go by; before that, an id may still be given to something else."""
        tables = NetworkTables(self._tables)
        newest = NetworkVersions(self._tables).newest(tables.current())
        return newest and tables.source(newest)

    def _move_h1(self, port):
        self._set("hosts", "host", "h1", "port", port)
        self._set("links", "neighbor", "h1", "port", port)

    def _set(self, name, key, which, column, value):
        rows = self._rows(name)
        for row in rows:
            if row[key] == which:
                row[column] = value
        self._tables.overwrite(name, rows)


class Play:
    """Two refreshers, two streams and people, all at once."""

    def __init__(self, rng):
        self.rng = rng
        self.world = World()
        tables = self.world.tables
        for name, rows in network_to_rows(NETWORK, dict.fromkeys(NETWORK.switches, "")).items():
            tables.overwrite(name, rows)
        self.versions = NetworkVersions(tables)
        self.people = People(rng, tables)
        self.streams = [Stream(self.world, "one"), Stream(self.world, "two")]
        self.steps = {}
        self.calm = False
        self.depth = 0
        self.jobs = {}
        self.later = {}
        for owner in "ab":
            self.start(owner)

    def start(self, owner):
        """A refresher's job (again)."""
        between = lambda: self.between(owner)  # noqa: E731

        def opened(target):
            session = FakeSession(self.world, owner, target, between)
            session.superseded = job._versions.superseded
            session.interrupted = later.drain
            return session

        later = Later(lambda: not self.calm and self.rng.random() < 0.3)
        self.later[owner] = later
        self.jobs[owner] = job = refresher(self.world, owner, between, opened, threads=later)

    def poll(self, owner):
        self.depth += 1
        try:
            self.jobs[owner].poll()
        except Killed:
            self.start(owner)
        finally:
            self.depth -= 1

    def stream(self, stream):
        """One step of a stream, once there is something to begin with; it may have crashed."""
        if not self.versions.ready():
            return
        if stream not in self.steps or self.rng.random() < 0.02:
            self.steps[stream] = stream.run()
        next(self.steps[stream])

    def between(self, owner):
        """What happens between two steps of a refresher."""
        if self.calm:
            return
        drawn = self.rng.random()
        if drawn < 0.25:
            self.stream(self.rng.choice(self.streams))
        elif drawn < 0.27:
            self.people.edit()
        elif drawn < 0.275:
            raise Killed
        elif drawn < 0.28:
            names = sorted(NETWORK.switches)
            self.world.disturbed.add((owner, self.rng.choice(names)))
        elif drawn < 0.283:
            # Ways to switches are lost, of one refresher or of both, and others are back.
            pairs = [(one, name) for one in "ab" for name in sorted(NETWORK.switches)]
            self.world.set_cut(*self.rng.sample(pairs, self.rng.choice((0, 0, 1, 2, 4))))
        elif drawn > 0.95:
            # A refresh that takes long goes on beside whatever else the refresher does.
            self.later[owner].work()
        elif drawn < 0.288 and self.depth == 1:
            # The other one takes over, while this one is in the midst of something.
            self.world.leader = other = "b" if owner == "a" else "a"
            self.world.term += 1
            for _ in range(self.rng.randint(1, 4)):
                self.poll(other)

    def act(self):
        drawn = self.rng.random()
        if drawn < 0.5:
            self.poll(self.rng.choice("ab"))
        elif drawn < 0.9:
            self.stream(self.rng.choice(self.streams))
        else:
            self.people.edit()

    def settle(self):
        """Nobody edits any more, and everything has the time that it needs."""
        self.people.mend()
        self.world.set_cut()
        self.calm = True
        for later in self.later.values():
            later.drain()
        for _ in range(16):
            for owner in "ab":
                self.poll(owner)
            for stream in self.streams:
                for _ in range(8):
                    self.stream(stream)


@pytest.fixture(scope="module", autouse=True)
def _hasty():
    with hasty():
        yield


@pytest.mark.integration
@examples(20)
@given(st.integers(0, 1 << 64))
def test_whatever_happens_no_batch_names_what_a_switch_lacks_and_in_the_end_all_is_as_it_should(
    seed,
):
    rng = random.Random(seed)
    play = Play(rng)
    for _ in range(rng.randint(10, 120)):
        play.act()
    play.settle()
    assert [stream.wrong for stream in play.streams] == [[], []]
    tables = NetworkTables(play.world.tables)
    current = tables.consistent()
    source = tables.source(current)
    # What nobody needs is gone, what was to come is there, and streams use it.
    wanted = switch_entries(source.network, stored(source.trees), POSITIONS)
    for name in source.network.switches:
        held = set(play.world.held[name].values())
        assert held == {entry for entry in wanted if entry.switch == name}
    assert {tree.state for tree in source.trees} <= {"active", "retired"}
    assert NetworkVersions(play.world.tables).newest(current) == current
    assert all(stream.pinned[stream.done].items() >= current.items() for stream in play.streams)


def at(number, **others):
    return dict.fromkeys(("hosts", "links"), 0) | {"links": number} | others


CURRENT = at(9, hosts=9)


def test_the_newest_ready_versions_are_those_whose_tables_are_newest():
    ready = [at(3), at(1), at(2), {}]
    assert rollout.newest(ready, CURRENT) == at(3)
    assert rollout.newest([], CURRENT) is None
    # Tables that were dropped and made anew have not come so far: those rows were of others.
    assert rollout.newest(ready, at(2)) == at(2)


@pytest.mark.parametrize(
    ("ready", "used", "in_use"),
    [
        ([], [], []),
        # Nobody is known: a stream may begin with the newest.
        ([1, 2, 3], [], [3]),
        # The last batch on record, and all that the next may have begun with.
        ([1, 2, 3, 4], [2], [2, 3, 4]),
        ([1, 2, 3, 4], [4], [4]),
        ([1, 2, 3, 4], [4, 3], [3, 4]),
        # Versions that never were ready: anything may be in use.
        ([1, 3], [2], [1, 2, 3]),
        ([], [2], [2]),
    ],
)
def test_in_use_is_what_a_stream_used_last_and_all_that_became_ready_since(ready, used, in_use):
    last = [at(number) | {"subscriptions": 7, "link_states": 8} for number in used]
    found = rollout.in_use([at(number) for number in reversed(ready)], last, CURRENT)
    assert found == [at(number) for number in in_use]
    # A batch on record without all of the tables is of long ago, and says as little.
    unknown = rollout.in_use([at(number) for number in ready], [*last, {"hosts": 0}], CURRENT)
    assert unknown == [at(number) for number in sorted({*ready, *used})]


def tree(number, state="active", edges=(("h1", RACK),)):
    return VirtualTree(number, frozenset(edges), "test", state)


HOSTS = tuple(NETWORK.hosts.values())


def source(*trees, links=NETWORK.links, hosts=HOSTS):
    return NetworkVersion(Network.from_rows(NETWORK.switches.values(), hosts, links), trees)


def with_cable(network, first_id):
    """The network with a second cable between the first two switches that are linked."""
    one = next(link for link in network.links if link.neighbor in network.switches)
    more = [
        dataclasses.replace(one, id=first_id, port=60, neighbor_port=61),
        Link(first_id + 1, one.neighbor, 61, one.switch, 60),
    ]
    return (one.switch, one.neighbor), [*network.links, *more]


def test_a_second_cable_leaves_the_meaning_of_trees_alone():
    spread = [dataclasses.replace(link, id=link.id + 100) for link in NETWORK.links]
    pair, after = with_cable(source(links=spread).network, 500)
    _, before = with_cable(source(links=spread).network, 1)
    trees = tree(1, edges=(tuple(sorted(pair)),)), tree(2, "retired", (tuple(sorted(pair)),))
    old = source(*trees, links=spread)
    rollout.check_meaning(source(*trees, links=after), [old])
    with pytest.raises(
        NetworkError, match=r"TREE_ID_REUSED.*link [12] from .* virtual tree 1 uses"
    ):
        rollout.check_meaning(source(*trees, links=before), [old])
    # Where no stack names such a tree, any id will do.
    rollout.check_meaning(source(links=before), [source(tree(1), links=spread)])


def test_an_id_that_stacks_may_name_keeps_its_meaning():
    old = source(tree(1), tree(2, "retiring"), tree(3, "installing"), tree(4, "retired"))
    others = (("feed1", RACK),)
    states = ("installing", "active", "retiring", "retired")
    for number, state in itertools.product(range(1, 5), states):
        rollout.check_meaning(source(tree(number, state)), [old])
    # What only was to be installed is free, and so is what is retired; so is an id that no row has.
    rollout.check_meaning(source(*(tree(n, edges=others) for n in (3, 4, 5))), [old])
    for number, state in itertools.product((1, 2), states):
        with pytest.raises(NetworkError, match=rf"TREE_ID_REUSED.*tree {number} "):
            rollout.check_meaning(source(tree(number, state, others)), [source(), old])
    with pytest.raises(NetworkError, match="DUPLICATE_TREE"):
        rollout.check_meaning(source(tree(1), tree(1, "retired")), [])
    down = [dataclasses.replace(link, up=False, weight=7.0) for link in NETWORK.links]
    rollout.check_meaning(source(links=down), [source()])
    with pytest.raises(NetworkError, match=r"LINK_ID_REUSED.*link 1 leads from pod1-rack1:29"):
        rollout.check_meaning(moved(1), [source()])
    # Under a new id it is another link.
    rollout.check_meaning(moved(99), [source()])


def test_an_id_is_free_when_its_tree_is_retired_in_all_that_may_be_in_use():
    states = ("installing", "active", "retiring", "retired")
    rows = [tree(number, "retired") for number in range(1, 6)]
    before = source(*(tree(number, state) for number, state in enumerate(states, 1)))
    now = source(*rows)
    # Tree 4 was retired then, and tree 5 not there.
    assert rollout.free_ids(rows, [before, now]) == {4, 5}
    assert rollout.free_ids(rows, [now]) == {1, 2, 3, 4, 5}
    assert rollout.free_ids([tree(1)], [now]) == set()
    # Nobody knows what switches hold that nothing was ever ready for.
    assert rollout.free_ids(rows, []) == set()


def moved(number, port=29):
    """Host h1 on another port of its switch, by a link of that id."""
    links = [
        dataclasses.replace(link, id=number, port=port) if link.neighbor == "h1" else link
        for link in NETWORK.links
    ]
    hosts = [
        dataclasses.replace(host, port=port) if host.name == "h1" else host
        for host in NETWORK.hosts.values()
    ]
    return source(links=links, hosts=hosts)


PIPELINES = dict.fromkeys(NETWORK.switches, "virtual_trees")
TABLES = {"virtual_trees": ["ingress.label_1.look_up"]}


def test_old_and_new_are_held_together_but_for_routes():
    new, old = moved(99), source(tree(5), tree(6, "retiring"))
    union = derive(new, [old], PIPELINES, TABLES)
    assert union.taken_back == []
    held = set(union.entries)
    assert held >= set(switch_entries(new.network, [], 1))
    more = {entry for entry in held - set(switch_entries(new.network, [], 1))}
    # Of the old: its tree in use, its link's labels, groups and host port; no tree that stacks no
    # longer name, no route.
    assert {entry.switch for entry in more} == {RACK}
    tables = sorted({entry.table for entry in more})
    assert tables == [
        "egress.host_port",
        "ingress.label_1.look_up",
        "ingress.source.port",
        "multicast_group",
    ]
    labels = {entry.match[0][2] for entry in more if entry.table == "ingress.label_1.look_up"}
    assert labels == {canonical(0x4005), canonical(0x8001), canonical(0xC001)}
    (fan,) = [e for e in held if e.key == "multicast_group|group=1000" and e.switch == RACK]
    assert {instance for _, instance in replicas(fan)} == {1, 4}


def test_what_uses_a_port_that_leads_elsewhere_goes_at_once():
    # Host h1 leaves its port, and another gets it.
    old = source(tree(5), tree(6, edges=(("feed1", RACK),)))
    port = NETWORK.hosts["h1"].port
    links = [*moved(99).network.links]
    links.append(dataclasses.replace(NETWORK.link(RACK, "h1"), id=98, neighbor="other"))
    hosts = [*moved(99).network.hosts.values()]
    other = dataclasses.replace(NETWORK.hosts["h1"], name="other", mac=1, ipv4=1, port=port)
    union = derive(source(links=links, hosts=[*hosts, other]), [old], PIPELINES, TABLES)
    labels = {
        entry.match[0][2]
        for entry in union.entries
        if entry.table == "ingress.label_1.look_up" and entry.switch == RACK
    }
    assert {canonical(0x4006), canonical(0x8000 + 98), canonical(0x8000 + 99)} <= labels
    assert not {canonical(0x4005), canonical(0x8001), canonical(0xC001)} & labels
    gone = {entry.match[0][2] for entry in union.taken_back if "label" in entry.table}
    assert gone == {canonical(0x4005), canonical(0x8001), canonical(0xC001)}


def test_of_two_that_contradict_each_other_the_newer_stands_and_groups_are_joined():
    def entry(value):
        return SwitchEntry("s", "t", (("k", "exact", b"\x01"),), "go", (("p", value),))

    a, b = entry(b"\x01"), entry(b"\x02")
    assert rollout.together([a], [[b], [a]]) == rollout.DesiredEntries([a], [b])
    # What one version in use says as the newest kept, another may say too.
    assert rollout.together([], [[a], [b], [a]]) == rollout.DesiredEntries([a], [b])
    one, other = group_entry("s", 7, [(1, 1), (9, 2)]), group_entry("s", 7, [(2, 1), (17, 3)])
    assert rollout.together([one], [[other]]).entries == [
        group_entry("s", 7, [(1, 1), (9, 2), (17, 3)])
    ]


def test_trees_become_active_when_ready_and_retire_when_nobody_names_them():
    rows = [
        tree(1, "installing"),
        tree(2, "retiring"),
        tree(3, "retiring"),
        tree(4),
        tree(5, "retired"),
    ]
    named = [[tree(2, "retiring"), tree(3)], [tree(3, "retiring")]]
    assert rollout.next_states(rows, named) == {1: "active", 2: "retired"}
    assert rollout.next_states(rows, []) == {1: "active", 2: "retired", 3: "retired"}
