"""Rollout of changed tables: from when stacks may use them, and until when older entries stay.

Switches are written from one set of table versions; stacks are made from one, too, by a stream that
runs at its own pace. Both go right if a stack only names entries that every switch holds, and if
these stay there until no stack can name them any more:

- Versions are *ready* once every switch was read back to hold their entries. A stream uses the
  newest ready versions for its next batch and for no earlier one (`newest`).
- A stream that runs a batch again takes the versions that it pinned for it. So it may still use the
  versions of its last batch on record and all that became ready after them (`in_use`).
- Switches hold the entries of the newest versions *and* those that stacks of versions in use may
  name (`together`). Ids in use keep their meaning: an edit that gives a tree's or link's id another
  one is refused (`check_meaning`).

Versions are a mapping from tables to their Delta versions. Sets of them that were ever current are
ordered, since a version only grows; `age` puts that order in a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.network import Link, Network
from stackcast.udfs.network.virtual_tree import State, VirtualTree
from stackcast.udfs.switches.entry import GROUPS, SwitchEntry, group_entry, group_id, replicas

Versions = Mapping[str, int]


def age(versions: Versions) -> int:
    """Returns a number that is larger for later versions of the same tables."""
    return sum(versions.values())


def newest(ready: Iterable[Versions], current: Versions) -> Versions | None:
    """Returns the newest ready versions, or None. ``current``: the tables' versions now.

    Rows with a version that a table has not reached are of an earlier table of that name.
    """
    return max(_possible(ready, current), key=age, default=None)


def in_use(
    ready: Iterable[Versions], used: Iterable[Versions], current: Versions
) -> list[Versions]:
    """Returns all versions that a stack may be made from now or was a moment ago, oldest first.

    ``used``: of each stream, the versions of its last batch on record; before its first one, those
    that it announced to begin with. The newest ready versions are always among the result: a
    stream may begin with them at any time. Where a stream used versions that were never ready, all
    that are ready may be in use.
    """
    possible = sorted(_possible(ready, current), key=age)
    found: dict[tuple[tuple[str, int], ...], Versions] = {}
    for versions in possible[-1:]:
        found[_frozen(versions)] = versions
    for last in used:
        # What else a batch used, as its subscriptions, is on no switch.
        network = {name: version for name, version in last.items() if name in current}
        if network.keys() == current.keys():
            found[_frozen(network)] = network
        after = age(network) if any(network == versions for versions in possible) else -1
        for versions in possible:
            if age(versions) > after:
                found[_frozen(versions)] = versions
    return sorted(found.values(), key=age)


def _possible(ready: Iterable[Versions], current: Versions) -> list[Versions]:
    return [
        versions
        for versions in ready
        if versions.keys() == current.keys()
        and all(versions[name] <= current[name] for name in current)
    ]


def _frozen(versions: Versions) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(versions.items()))


@dataclass(frozen=True)
class NetworkVersion:
    """Network and trees, in any state, of one set of versions."""

    network: Network
    trees: Sequence[VirtualTree]

    @property
    def named(self) -> list[VirtualTree]:
        """The trees that stacks made from this version may name."""
        return [tree for tree in self.trees if tree.state == "active"]


def check_meaning(source: NetworkVersion, others: Iterable[NetworkVersion]) -> None:
    """Checks the newest tables against versions in use: an id means one thing.

    The edges of a tree may be edited as long as it is `installing`; from then on they belong to its
    id until it is retired in all versions in use (`free_ids`). The newest ready versions are always
    in use, so no edit escapes.

    Raises NetworkError ``DUPLICATE_TREE``, ``TREE_ID_REUSED`` (a tree has other edges, or takes
    another of parallel links), ``LINK_ID_REUSED`` (a link's id stands for another port or
    neighbor).
    """
    trees: dict[int, VirtualTree] = {}
    for tree in source.trees:
        if trees.setdefault(tree.id, tree) is not tree:
            raise NetworkError(
                "DUPLICATE_TREE", f"two virtual trees have the id {tree.id}", tree=tree.id
            )
    for other in others:
        for tree in other.trees:
            now = trees.get(tree.id, tree)
            if now.edges != tree.edges and tree.state not in ("installing", "retired"):
                raise NetworkError(
                    "TREE_ID_REUSED",
                    f"virtual tree {tree.id} has other edges than the tree with this id in "
                    "versions that a stream may still use: give the new tree an unused id",
                    tree=tree.id,
                )
        _check_parallel(source, other)
        for link in other.network.links:
            found = source.network.link_by_id.get(link.id)
            if found is not None and _ends(found) != _ends(link):
                raise NetworkError(
                    "LINK_ID_REUSED",
                    f"link {link.id} leads from {found.switch}:{found.port} to {found.neighbor}, "
                    f"but in header stacks this id means the link from {link.switch}:{link.port} "
                    f"to {link.neighbor}: give the new link an id that was never used",
                    link=link.id,
                )


def free_ids(trees: Iterable[VirtualTree], using: Iterable[NetworkVersion]) -> set[int]:
    """Returns the ids of retired ``trees`` that no stack and no switch can hold any more: in every
    version in use (``using``), which switches hold together, they are retired or not there. None
    where no version is in use, as nobody knows what switches hold then."""
    versions = list(using)
    held = {tree.id for each in versions for tree in each.trees if tree.state != "retired"}
    retired = {tree.id for tree in trees if tree.state == "retired"}
    return retired - held if versions else set()


def _ends(link: Link) -> tuple[str, int, str, int | None]:
    return link.switch, link.port, link.neighbor, link.neighbor_port


def _check_parallel(source: NetworkVersion, other: NetworkVersion) -> None:
    """Checks that a new link beside another does not take its place in trees in use: switches that
    know of it and others that do not would send each other's copies back."""
    for u, v in source.network.parallel():
        now, pair = source.network.tree_link(u, v), (min(u, v), max(u, v))
        before = [x for x in other.network.links if (x.switch, x.neighbor) == (u, v)]
        if not before or any(x.id == now.id for x in before):
            continue
        held = {_ends(x) for x in source.network.links if (x.switch, x.neighbor) == (u, v)}
        for tree in other.named:
            if pair in tree.edges and _ends(other.network.tree_link(u, v)) in held:
                raise NetworkError(
                    "TREE_ID_REUSED",
                    f"link {now.id} from {u} to {v} would replace the parallel link that virtual "
                    f"tree {tree.id} uses: give the new link a larger id",
                    tree=tree.id,
                    link=now.id,
                )


def rewired(source: Network, older: Network) -> dict[str, int]:
    """Returns ports that lead elsewhere than they did: ``{switch: bitmask, bit port - 1}``.

    A port that had a link and has none now is not among them.
    """
    now = {(link.switch, link.port): _ends(link) for link in source.links}
    ports: dict[str, int] = {}
    for link in older.links:
        ends = now.get((link.switch, link.port), _ends(link))
        if ends != _ends(link):
            ports[link.switch] = ports.get(link.switch, 0) | 1 << link.port - 1
    return ports


@dataclass(frozen=True)
class DesiredEntries:
    """Holds the entries that switches should have. taken_back: those of versions in use that the
    newest contradict, by another entry of the same key."""

    entries: list[SwitchEntry]
    taken_back: list[SwitchEntry]


def together(
    entries: Iterable[SwitchEntry],
    older: Iterable[Iterable[SwitchEntry]],
    lost: Callable[[SwitchEntry], bool] = lambda _: False,
) -> DesiredEntries:
    """Joins the newest ``entries`` and those of ``older`` versions in use, newest first.

    Of two entries with one key the newer stands. Groups with one number are joined: they have the
    replicas of all, of each instance the newest. ``lost``: older entries that must go at once, as
    they use a port that leads elsewhere by now: better that the last frames which name them are
    lost than that they reach somebody else. Sorted by switch and key.
    """
    held = {(entry.switch, entry.key): entry for entry in entries}
    taken_back: dict[SwitchEntry, None] = {}
    for version in older:
        for entry in version:
            key = entry.switch, entry.key
            if lost(entry):
                taken_back[entry] = None
                continue
            known = held.setdefault(key, entry)
            if known == entry:
                continue
            if entry.table == GROUPS:
                held[key] = _joined(known, entry)
            else:
                taken_back[entry] = None
    # What stands all the same, as another version in use has it too, was not taken back.
    stands = set(held.values())
    return DesiredEntries(
        [held[key] for key in sorted(held)],
        [entry for entry in taken_back if entry not in stands],
    )


def _joined(newer: SwitchEntry, older: SwitchEntry) -> SwitchEntry:
    both = replicas(newer)
    instances = {instance for _, instance in both if instance}
    both += [
        (port, instance)
        for port, instance in replicas(older)
        if instance not in instances and (port, instance) not in both
    ]
    return group_entry(newer.switch, group_id(newer), both)


def next_states(
    trees: Iterable[VirtualTree], using: Iterable[Iterable[VirtualTree]]
) -> dict[int, State]:
    """Returns the next states of trees that are due for another, given ready rows: by tree id.

    A tree that was to be installed is on all switches, so it becomes active. One that retires is
    retired once no version in use (``using``: their trees) has stacks that name it.
    """
    named = {tree.id for version in using for tree in version if tree.state == "active"}
    due: dict[int, State] = {}
    for tree in trees:
        if tree.state == "installing":
            due[tree.id] = "active"
        elif tree.state == "retiring" and tree.id not in named:
            due[tree.id] = "retired"
    return due
