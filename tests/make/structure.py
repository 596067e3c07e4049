"""Prints how the product is built: ./spark-submit.sh make structure [--at REV ...] [--json].

By package and by room: modules, their lines, modules that only one other imports, and circles of
imports between modules or rooms. Each ``--at`` puts a revision of this clone before the work tree.
"""

from __future__ import annotations

import ast
import io
import json
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import PurePosixPath

import networkx as nx
from paths import ROOT

from stackcast.command_line import ArgumentParser

PACKAGES = ("udfs", "jobs", "lab", "switch", "cli", "schemas", "benchmarks")
#: Packages whose sub-packages are rooms of their own.
DEEPER = ("jobs.adapters",)


@dataclass(frozen=True)
class Structure:
    """Counts one package or room. circles: between modules, and between the rooms in it."""

    name: str
    modules: int
    lines: int
    one_caller: int
    circles: list[list[str]]


class Code:
    """The modules of one revision, named by their folders: ``udfs.errors``.

    texts: by path from the root, such as ``udfs/errors.py``.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.lines: dict[str, int] = {}
        self._packages: set[str] = set()
        #: Packages whose ``__init__`` has nothing but words.
        self.folders: set[str] = set()
        imports: dict[str, list[ast.Import | ast.ImportFrom]] = {}
        for path, text in texts.items():
            pure = PurePosixPath(path)
            parts = pure.parent.parts if pure.stem == "__init__" else pure.with_suffix("").parts
            name = ".".join(parts)
            self.lines[name] = len(text.splitlines())
            if pure.stem == "__init__":
                self._packages.add(name)
            tree = ast.parse(text)
            if pure.stem == "__init__" and len(tree.body) <= 1:
                self.folders.add(name)
            imports[name] = list(imports_of(tree))
        self.imports = nx.DiGraph()
        self.imports.add_nodes_from(self.lines)
        for name, nodes in imports.items():
            self.imports.add_edges_from((name, other) for other in self._imported(name, nodes))

    def _imported(self, name: str, nodes: Iterable[ast.Import | ast.ImportFrom]) -> Iterator[str]:
        for node in nodes:
            if isinstance(node, ast.Import):
                wanted: Iterable[str] = [_in_folder(alias.name) for alias in node.names]
            else:
                wanted = self._of_from(name, node)
            yield from (each for each in wanted if each in self.lines and each != name)

    def _of_from(self, name: str, node: ast.ImportFrom) -> Iterator[str]:
        """``from a import b``: the module ``a.b`` if there is one, else ``a``."""
        source = _in_folder(node.module or "")
        if node.level:
            above = name.split(".")[: -node.level]
            source = ".".join([*above, source] if source else above)
        for alias in node.names:
            full = _in_folder(f"{source}.{alias.name}")
            if full in self.lines or source in self.lines:
                yield full if full in self.lines else source
            # Benchmarks once were run with their own folder on the path.
            elif name.startswith("benchmarks."):
                yield f"benchmarks.{source}"

    @cached_property
    def rooms(self) -> list[str]:
        """Packages and their rooms, each behind what it is in."""
        found = set()
        for name in self.lines:
            parts = name.split(".")
            deepest = 3 if ".".join(parts[:2]) in DEEPER else 2
            # Without the module itself, which is no room.
            above = parts if name in self._packages else parts[:-1]
            found |= {".".join(above[:n]) for n in range(1, min(deepest, len(above)) + 1)}
        return sorted(found)

    def structure(self, name: str = "") -> Structure:
        """The counts of a package or room; of all where none is named."""
        inside = {m for m in self.lines if not name or f"{m}.".startswith(f"{name}.")}
        graph = self.imports
        return Structure(
            name or "all",
            len(inside - self.folders),
            sum(self.lines[m] for m in inside),
            sum(graph.in_degree(m) == 1 for m in inside),
            circles(graph.subgraph(inside)) + circles(self._between(name, inside)),
        )

    def circles(self) -> list[tuple[str, ...]]:
        """All circles, between modules and between rooms."""
        rooms = ["", *self.rooms]
        return sorted({tuple(each) for room in rooms for each in self.structure(room).circles})

    def _between(self, name: str, inside: set[str]) -> nx.DiGraph:
        """Returns the imports between the rooms of a package."""
        rooms = {room for room in self.rooms if room.rpartition(".")[0] == name}
        depth = name.count(".") + 2 if name else 1

        def room(module: str) -> str:
            found = ".".join(module.split(".")[:depth])
            return found if found in rooms else ""

        pairs = ((room(a), room(b)) for a, b in self.imports.subgraph(inside).edges)
        return nx.DiGraph((a, b) for a, b in pairs if a and b and a != b)


def _in_folder(name: str) -> str:
    """Returns the name of a module by its folder, ``udfs.errors``, of one that is imported."""
    return name.removeprefix("stackcast.")


def imports_of(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports of a module, those in functions and branches included.

    Imports are statements, so no expression is searched.
    """
    blocks: list[ast.AST] = [tree]
    for block in blocks:
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            for node in getattr(block, part, ()):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    yield node
                else:
                    blocks.append(node)


def circles(graph: nx.DiGraph) -> list[list[str]]:
    """The sets of nodes that reach each other, each in alphabetical order."""
    found = nx.strongly_connected_components(graph)
    return sorted(sorted(each) for each in found if len(each) > 1)


def tree_texts() -> dict[str, str]:
    """The modules of the work tree, as far as version control knows or may know them."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *PACKAGES]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    paths = [name for name in names.split("\0") if name.endswith(".py")]
    return {name: (ROOT / name).read_text("utf-8") for name in paths if (ROOT / name).is_file()}


def texts_at(revision: str) -> dict[str, str]:
    """The modules of a revision."""
    command = ["git", "archive", "--format=tar", revision]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        files = {
            member.name: archive.extractfile(member)
            for member in archive
            if member.name.endswith(".py") and member.name.split("/")[0] in PACKAGES
        }
        return {name: file.read().decode() for name, file in files.items() if file is not None}


def table(columns: Mapping[str, Code]) -> list[list[str]]:
    """A row for each package and room, with the counts of each revision."""
    heads = ["modules", "lines", "one caller", "circles"]
    rows = [["", *(f"{head} {name}".strip() for head in heads for name in columns)]]
    rooms = sorted({room for code in columns.values() for room in code.rooms})
    for room in ["", *rooms]:
        found = [code.structure(room) for code in columns.values()]
        counts = [[each.modules, each.lines, each.one_caller, len(each.circles)] for each in found]
        rows.append([room or "all", *(str(count[i]) for i in range(4) for count in counts)])
    return rows


def main(arguments: list[str] | None = None) -> None:
    parser = ArgumentParser("./spark-submit.sh make structure", description=__doc__)
    parser.add_argument("--at", metavar="REV", action="append", default=[], help="a revision, too")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of a table")
    asked = parser.parse_args(arguments)
    columns = {revision: Code(texts_at(revision)) for revision in asked.at}
    columns["now" if asked.at else ""] = Code(tree_texts())
    if asked.json:
        made = {
            name or "now": [asdict(code.structure(room)) for room in ["", *code.rooms]]
            for name, code in columns.items()
        }
        print(json.dumps(made))
        return
    rows = table(columns)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        first, *others = row
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        print("  ".join(cells).rstrip())
    for name, code in columns.items():
        for circle in code.circles():
            print(f"circle {name}".rstrip() + f": {', '.join(circle)}")


if __name__ == "__main__":
    main()
