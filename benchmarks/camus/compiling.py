"""Fig. 5c: what compiling takes against the number of rules, beside a package of decision diagrams.

Rules are the text's, ``stock == S and price > P : fwd(H)``, drawn independently as in ``bench
compile``. The package is ``dd``, in plain Python (``dd.autoref``) and on CUDD, a library of C: its
diagrams have two leaves and bits for variables, so it makes one diagram a host, over the bits of
stock and price. That is less than what we are timed for, which begins at the rules' texts and ends
at tables with sets of hosts. A way that took too long is not asked for more rules.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from random import Random
from typing import Any

from benchmarks.compile import (
    HOSTS,
    SYMBOLS,
    Drawn,
    compile_in_phases,
    entries_of,
    groups_of,
    independent,
    texts_of,
    tied,
)
from benchmarks.support.measuring import one_core
from benchmarks.support.results import Lines
from stackcast import schemas
from stackcast.lab.traffic.symbols import symbols
from stackcast.udfs.messages.specification import parse_specification

COUNTS = (1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000)
PATIENCE = 20.0
"""Seconds that a way may have taken before it is asked for more rules."""
STOCK_BITS, PRICE_BITS = 7, 24
SAMPLES = 10
TEXT_RULES, TEXT_ENTRIES, TEXT_GROUPS = 100_000, 21_401, 198


def run(quick: bool = False) -> None:
    """Measures; ``quick`` up to 5,000 rules."""
    one_core()
    lines = Lines("camus", "compile")
    counts = [count for count in COUNTS if not quick or count <= 5_000]
    _ours(lines, counts)
    _tied(lines, counts[-1] if quick else TEXT_RULES)
    for name in ("dd.cudd", "dd.autoref"):
        for count in counts:
            if _theirs(lines, name, independent(1, count)) > PATIENCE:
                break


def _ours(lines: Lines, counts: Sequence[int]) -> None:
    itch = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
    compile_in_phases(texts_of(independent(1, 1_000)), itch)  # compiled and warm
    for count in counts:
        compiled, seconds = compile_in_phases(texts_of(independent(1, count)), itch)
        lines.say(
            "compiled",
            way="ours",
            rules=count,
            **seconds,
            entries=entries_of(compiled),
            groups=groups_of(compiled),
        )


def _tied(lines: Lines, count: int) -> None:
    """Measure the set of rules whose counts are close to the paper's (docs/results/compiler.md)."""
    itch = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
    compiled, seconds = compile_in_phases(texts_of(tied(HOSTS - 1, 1, count)), itch)
    lines.say(
        "tied",
        rules=count,
        seconds=seconds["seconds"],
        entries=entries_of(compiled),
        groups=groups_of(compiled),
        text_entries=TEXT_ENTRIES,
        text_groups=TEXT_GROUPS,
    )


def _theirs(lines: Lines, name: str, drawn: Drawn) -> float:
    began = time.thread_time()
    diagrams = Diagrams(name, drawn)
    seconds = time.thread_time() - began
    diagrams.check(drawn)
    lines.say("compiled", way=name, rules=len(drawn), seconds=seconds, nodes=diagrams.nodes())
    return seconds


class Diagrams:
    """A diagram a host, in a module of ``dd``: which events it gets. Raises ImportError."""

    def __init__(self, module: str, drawn: Drawn) -> None:
        self._bdd: Any = _manager(module)
        self._stock = [f"s{bit}" for bit in range(STOCK_BITS)]
        self._price = [f"p{bit}" for bit in range(PRICE_BITS)]
        # The highest bits come first, stock before price: what a rule compares first.
        self._bdd.declare(*self._stock, *self._price)
        self._number = {symbol.name: at for at, symbol in enumerate(symbols(SYMBOLS))}
        self._of_stock = [self._equal(number) for number in range(SYMBOLS)]
        by_host: dict[int, Any] = defaultdict(lambda: self._bdd.false)
        for name, raw, host in drawn:
            rule = self._of_stock[self._number[name]] & self._above(raw)
            by_host[host] = by_host[host] | rule
        self.by_host = dict(by_host)

    def _equal(self, number: int) -> Any:
        found = self._bdd.true
        for at, name in reversed(list(enumerate(self._stock))):
            bit = self._bdd.var(name)
            found = (bit if number >> (STOCK_BITS - 1 - at) & 1 else ~bit) & found
        return found

    def _above(self, raw: int) -> Any:
        """Prices over ``raw``, from the lowest bit up."""
        found = self._bdd.false
        for at, name in reversed(list(enumerate(self._price))):
            bit = self._bdd.var(name)
            found = bit & found if raw >> (PRICE_BITS - 1 - at) & 1 else bit | found
        return found

    def hosts_of(self, stock: str, raw: int) -> set[int]:
        """Returns the hosts that get an event."""
        number = self._number[stock]
        values = {
            name: bool(number >> (STOCK_BITS - 1 - at) & 1) for at, name in enumerate(self._stock)
        } | {name: bool(raw >> (PRICE_BITS - 1 - at) & 1) for at, name in enumerate(self._price)}
        return {
            host
            for host, diagram in self.by_host.items()
            if self._bdd.let(values, diagram) == self._bdd.true
        }

    def nodes(self) -> int:
        """Returns the nodes of the manager that are in use."""
        # CUDD counts no dead nodes.
        if hasattr(self._bdd, "collect_garbage"):
            self._bdd.collect_garbage()
        return len(self._bdd)

    def check(self, drawn: Drawn) -> None:
        """Compares some events with the rules themselves."""
        random = Random("checked")
        lowest: dict[tuple[str, int], int] = {}
        for name, raw, host in drawn:
            lowest[name, host] = min(lowest.get((name, host), raw), raw)
        for _ in range(SAMPLES):
            name, raw = random.choice(list(self._number)), random.randrange(10_000_000)
            wanted = {h for (s, h), least in lowest.items() if s == name and raw > least}
            assert self.hosts_of(name, raw) == wanted, "the diagrams disagree with the rules"


def _manager(module: str) -> Any:
    if module == "dd.cudd":
        from dd.cudd import BDD  # noqa: PLC0415
    else:
        from dd.autoref import BDD  # noqa: PLC0415
    return BDD()
