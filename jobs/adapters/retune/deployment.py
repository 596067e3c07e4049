"""The network, what its switches can hold, and the trees that stand in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.switches.program import P4Program
from stackcast.jobs.adapters.tables.network_tables import NetworkTables
from stackcast.jobs.adapters.tables.tables import TREES, Tables
from stackcast.udfs.errors import SettingsError
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.rows import network_from_rows, tree_from_row
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.retuning.steps import Wanted, lost_links
from stackcast.udfs.switches.capacity import Limits, tree_budgets
from stackcast.udfs.trees.publisher_trees import host_trees
from stackcast.udfs.trees.strategies.strategy import Edges, TreeCapacity


@dataclass(frozen=True)
class Deployment:
    """A network. limits: of each switch's program. budget: trees that a switch may hold. trees: all
    rows of `virtual_trees`."""

    network: Network
    limits: Mapping[str, Limits]
    budget: Mapping[str, int]
    trees: Sequence[VirtualTree]

    @cached_property
    def in_use(self) -> Wanted:
        """The trees that stand, by their edges: active or about to be, and with all their links."""
        return {
            tree.edges: tree.strategy
            for tree in sorted(self.trees, key=lambda tree: tree.id)
            if tree.state in ("active", "installing") and not lost_links(self.network, tree.edges)
        }

    @cached_property
    def base(self) -> Wanted:
        """The trees that must stand whatever is on record: where stacks name trees alone, those to
        each host, of which any set is put together."""
        if self.network.labels.trees != "alone":
            return {}
        return dict.fromkeys(host_trees(self.network, self.network.publishers()), "publisher")

    @property
    def chosen(self) -> Wanted:
        """The trees in use that need not stand."""
        return {edges: name for edges, name in self.in_use.items() if edges not in self.base}

    @cached_property
    def free(self) -> Mapping[str, int]:
        """The trees that switches may hold beside those that must stand. Raises SettingsError
        ``BAD_VALUE`` where these are too many."""
        capacity = TreeCapacity(self.network, self.budget)
        for edges in self.base:
            capacity.reserve(edges)
        for name, left in capacity.left.items():
            if left < 0 and self.base:
                raise SettingsError(
                    "BAD_VALUE",
                    f"encoding {self.network.labels.encoding} needs a tree for each single host, "
                    f"which takes {self.budget[name] - left} trees in switch {name!r}, but "
                    f"--rules, max_rules and its program allow {self.budget[name]}",
                )
        return capacity.left


def read_deployment(tables: Tables, settings: Settings, rules: int) -> Deployment:
    """Reads it from the tables, in versions that go together. rules: trees a switch at most."""
    source = NetworkTables(tables)
    versions = source.consistent()
    rows = {name: source.rows(name, version) for name, version in versions.items()}
    network = network_from_rows(rows["switches"], rows["hosts"], rows["links"], settings.labels)
    pipelines: dict[str, P4Program] = {}
    limits = {}
    for row in rows["switches"]:
        name = row["pipeline"]
        if name not in pipelines:
            pipelines[name] = P4Program.read(settings.p4_folder, name)
        limits[row["switch"]] = Limits(pipelines[name].sizes, row["max_rules"])
    trees = [tree_from_row(row) for row in rows[TREES]]
    return Deployment(network, limits, tree_budgets(network, limits, rules), trees)


def all_up(network: Network, edges: Edges) -> bool:
    for pair in edges:
        switch, neighbor = pair if pair[0] in network.switches else (pair[1], pair[0])
        if not network.usable(network.link(switch, neighbor)):
            return False
    return True
