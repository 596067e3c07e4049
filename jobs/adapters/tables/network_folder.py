"""Checks a folder with rows of a network before they become tables.

The checks are those of `row_files`, of the tables' constraints, and of the stream and the refresher
when they read the network: a folder without problems is one that they accept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from stackcast.jobs.adapters.tables.constraints import Constraints
from stackcast.jobs.adapters.tables.definitions import NAMES, definition
from stackcast.jobs.adapters.tables.row_files import examine_row, lines_of
from stackcast.udfs.errors import NetworkError, StackcastError, TableError, nearest
from stackcast.udfs.network.faults import faults
from stackcast.udfs.network.labels import NARROW, LabelFormat
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.programs import STACKS, check_labels
from stackcast.udfs.network.rows import (
    host_from_row,
    link_from_row,
    switch_from_row,
    tree_from_row,
)
from stackcast.udfs.network.virtual_tree import VirtualTree, check_ids, edge_link, stored
from stackcast.udfs.switches.derivation import DERIVATIONS, check_programs
from stackcast.udfs.switches.rollout import NetworkVersion, check_meaning

#: Tables without which there is no network.
_NEEDED = ("switches", "hosts", "links")
_TREES = "virtual_trees"
_INGRESSES = "ingresses"
#: Tables whose rows must all be readable for a check of the network.
_NETWORK = (*_NEEDED, _TREES, _INGRESSES)
#: The tables and columns that the fields of an error name.
_FIELDS = (
    ("tree", _TREES, "tree_id"),
    ("link", "links", "link_id"),
    ("switch", "switches", "switch"),
)
#: A P4Runtime address: gRPC also knows sockets of Unix, and prefixes of name services.
_ADDRESS = re.compile(r"unix:.+|[^\s]+:(\d{1,5})", re.ASCII)
_MAX_PORT = (1 << 16) - 1

_Part = TypeVar("_Part")
Row = dict[str, Any]


@dataclass(frozen=True, order=True)
class Problem:
    """A problem of a folder.

    Attributes:
        file: name of the file.
        line: number of the line, from 1; 0 for the whole file.
        text: place and fault, for people.
    """

    file: str
    line: int
    text: str


@dataclass
class CheckedFolder:
    """The result of a check.

    Attributes:
        problems: all problems, in the order of files and lines.
        unread: True if rows could not be read, so that the network was not checked.
        network: the network, if there is no problem with it.
        trees: its stored trees, except retired ones.
    """

    problems: list[Problem] = field(default_factory=list)
    unread: bool = False
    network: Network | None = None
    trees: list[VirtualTree] = field(default_factory=list)


def check_folder(folder: Path, labels: LabelFormat | None = None) -> CheckedFolder:
    """Check the files ``<table>.jsonl`` of a folder, and the network that they describe.

    Args:
        folder: the folder.
        labels: format of the labels of the deployment; by default that of the switches' programs.

    Raises:
        TableError: ``NO_ROWS`` if the folder has no such file.
        OSError: a file cannot be read.
    """
    check = _Check(folder)
    check.read_files()
    if not check.unread:
        check.check_network(labels)
    problems = sorted(set(check.problems))
    return CheckedFolder(problems, check.unread, check.network, check.trees)


class _Check:
    """A check of one folder."""

    def __init__(self, folder: Path) -> None:
        self.problems: list[Problem] = []
        self.unread = False
        self.network: Network | None = None
        self.trees: list[VirtualTree] = []
        self._folder = folder
        self._rows: dict[str, list[tuple[int, Row]]] = {}
        #: Table, line and column of values that violate a constraint: one problem is enough.
        self._violated: set[tuple[str, int, str]] = set()

    def read_files(self) -> None:
        if not self._folder.is_dir():
            fault = "is not a folder" if self._folder.exists() else "does not exist"
            raise TableError(
                "NO_ROWS",
                f"{self._folder} {fault}: give a folder with files <table>.jsonl, such as "
                "hosts.jsonl",
            )
        paths = sorted(self._folder.glob("*.jsonl"))
        if not any(path.stem in NAMES for path in paths):
            raise TableError(
                "NO_ROWS",
                f"{self._folder} contains no rows of any table: expected files <table>.jsonl, "
                "such as hosts.jsonl",
            )
        for path in paths:
            if path.stem in NAMES:
                self._read_file(path)
            else:
                near = nearest(path.stem, NAMES)
                hint = f"; did you mean {near}.jsonl?" if near else ""
                self._add(path.stem, 0, f"table {path.stem!r} does not exist{hint}")
        for table in _NEEDED:
            if table not in self._rows:
                self._add(table, 0, "the file is missing, but every network needs it")
                self.unread = True

    def _read_file(self, path: Path) -> None:
        columns, constraints = definition(path.stem).columns, Constraints(path.stem)
        rows = self._rows[path.stem] = []
        try:
            lines = list(lines_of(path))
        except TableError as error:
            self.problems.append(Problem(path.name, 0, error.message))
            self.unread = True
            return
        for number, text in lines:
            row, errors = examine_row(text, columns, f"{path}, line {number}")
            self.problems += (Problem(path.name, number, fault.message) for fault in errors)
            for column, condition in constraints.violated(row):
                fault = f"its value {row[column]!r} must satisfy {condition}"
                self._add_at(path.stem, number, column, fault)
                self._violated.add((path.stem, number, column))
            rows.append((number, row))
            self.unread = self.unread or bool(errors and path.stem in _NETWORK)

    def check_network(self, labels: LabelFormat | None) -> None:
        """Check the network of rows that could all be read."""
        labels = labels or self._labels()
        self._check_switch_rows(labels)
        switches = self._parts("switches", switch_from_row)
        hosts = self._parts("hosts", host_from_row)
        links = self._parts("links", link_from_row)
        lines: dict[int, tuple[str, int]] = {}
        for table, parts in (("switches", switches), ("hosts", hosts), ("links", links)):
            lines |= {id(part): (table, number) for number, part in parts}
        if len(lines) < sum(len(self._rows[table]) for table in _NEEDED):
            return  # Other rows would seem to refer to nothing.
        network_faults = list(
            faults(
                sorted((part for _, part in switches), key=lambda switch: switch.device_id),
                sorted((part for _, part in hosts), key=lambda host: host.ipv4),
                sorted((part for _, part in links), key=lambda link: link.id),
                labels,
            )
        )
        for fault in network_faults:
            table, number = lines[id(fault.part)] if fault.part else ("switches", 0)
            if (table, number, fault.column) not in self._violated:
                self._add_at(table, number, fault.column, str(fault.error))
        if network_faults:
            return
        network = self.network = Network.from_rows(
            (part for _, part in switches),
            (part for _, part in hosts),
            (part for _, part in links),
            labels,
        )
        self._try(lambda: check_programs(network, self._pipelines()))
        self._check_trees(network)
        self._check_ingresses(network)

    def _pipelines(self) -> dict[str, str]:
        return {row["switch"]: row["pipeline"] for _, row in self._rows["switches"]}

    def _labels(self) -> LabelFormat:
        """Return the labels that the first program which reads any reads."""
        formats = (STACKS[name] for name in self._pipelines().values() if name in STACKS)
        return next(formats, NARROW)

    def _check_switch_rows(self, labels: LabelFormat) -> None:
        for number, row in self._rows["switches"]:
            name = row["pipeline"]
            if name not in DERIVATIONS:
                near = nearest(name, DERIVATIONS)
                hint = f"; did you mean {near!r}?" if near else ""
                self._add_at(
                    "switches", number, "pipeline", f"program {name!r} does not exist{hint}"
                )
            try:
                check_labels({row["switch"]: name}, labels)
            except NetworkError as error:
                self._add_at("switches", number, "pipeline", str(error))
            match = _ADDRESS.fullmatch(row["address"])
            if not match or (match[1] and not 0 < int(match[1]) <= _MAX_PORT):
                self._add_at(
                    "switches",
                    number,
                    "address",
                    f"{row['address']!r} must have the form host:port, with a port from 1 to "
                    f"{_MAX_PORT}",
                )

    def _parts(self, table: str, read: Callable[[Row], _Part]) -> list[tuple[int, _Part]]:
        """Return what rows describe, with the numbers of their lines."""
        parts = []
        for number, row in self._rows[table]:
            try:
                parts.append((number, read(row)))
            except NetworkError as error:
                column = "ipv4" if table == "hosts" else "tunnel"
                self._add_at(table, number, column, str(error))
        return parts

    def _check_trees(self, network: Network) -> None:
        earlier: set[int] = set()
        for number, row in self._rows.get(_TREES, ()):
            try:
                tree = tree_from_row(row)
            except NetworkError as error:
                column = "tree_id" if error.what == "BAD_TREE_ID" else "edges"
                self._add_at(_TREES, number, column, str(error))
                continue
            if tree.id in earlier:
                text = f"NETWORK.DUPLICATE_TREE: two trees have the id {tree.id}"
                self._add_at(_TREES, number, "tree_id", text)
            earlier.add(tree.id)
            if not stored([tree]):
                continue
            self.trees.append(tree)
            try:
                check_ids([tree], network.labels)
            except NetworkError as error:
                self._add_at(_TREES, number, "tree_id", str(error))
            for edge in sorted(tree.edges):
                try:
                    edge_link(network, edge)
                except NetworkError as error:
                    self._add_at(_TREES, number, "edges", f"tree {tree.id}: {error}")
        if not self.problems:
            # The refresher's own check, which comes after these.
            self._try(lambda: check_meaning(NetworkVersion(network, self.trees), ()))

    def _check_ingresses(self, network: Network) -> None:
        publishers = network.publishers()
        earlier: set[tuple[str | None, str | None]] = set()
        for number, row in self._rows.get(_INGRESSES, ()):
            place, publisher = row["place"], row["publisher"]
            if publisher is not None and publisher not in publishers:
                text = f"{publisher!r} is not a host with role publisher"
                self._add_at(_INGRESSES, number, "publisher", text)
            if (place, publisher) in earlier:
                text = f"TABLE.DUPLICATE_KEY: two rows have place {place!r} and publisher "
                self._add_at(_INGRESSES, number, "place", f"{text}{publisher!r}")
            earlier.add((place, publisher))

    def _try(self, check: Callable[[], object]) -> None:
        """Add the error of a check of the whole network, at the row that its fields name."""
        try:
            check()
        except StackcastError as error:
            for name, table, column in _FIELDS:
                for number, row in self._rows.get(table, ()):
                    if name in error.fields and row[column] == error.fields[name]:
                        self._add_at(table, number, column, str(error))
                        return
            self._add("switches", 0, str(error))

    def _add_at(self, table: str, line: int, column: str, fault: str) -> None:
        self._add(table, line, f"column {column!r}: {fault}")

    def _add(self, table: str, line: int, fault: str) -> None:
        path = self._folder / f"{table}.jsonl"
        place = f"{path}, line {line}" if line else str(path)
        self.problems.append(Problem(path.name, line, f"{place}: {fault}"))


def unreachable_hosts(network: Network) -> Iterator[str]:
    """Yield the hosts that no path over links that are up leads to, from any publisher."""
    neighbors: dict[str, list[str]] = {}
    for link in network.links:
        if network.usable(link):
            neighbors.setdefault(link.switch, []).append(link.neighbor)
    # A publisher sends into its switch whether the link to it is up or not.
    waiting = [network.hosts[name].switch for name in network.publishers()]
    reached = set(waiting)
    while waiting:
        for name in neighbors.get(waiting.pop(), ()):
            if name not in reached:
                reached.add(name)
                waiting.append(name)
    return (name for name in network.subscribers() if name not in reached)
