"""The cost of compiling subscriptions, and the number of table entries that come out.

    ./spark-submit.sh bench compile [--pictures]

Prints one line of JSON per measurement, as ``bench kernels`` does: ``seconds`` is time on one core.
``--pictures`` also draws docs/pictures/entries.svg from the measured entries. Memory is measured in
a separate process. docs/results/compiler.md describes the workloads.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import pickle
import statistics
import sys
import time
from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from benchmarks.support.plot import Panel, svg
from benchmarks.support.siena import SienaWorkload
from stackcast import schemas
from stackcast.lab.traffic.symbols import symbols
from stackcast.udfs.filters.compiler import compile as compiler
from stackcast.udfs.filters.compiler.compile import (
    CheckedRule,
    CompiledFilter,
    compile_table,
    table_of_texts,
)
from stackcast.udfs.filters.compiler.incremental import IncrementalCompiler
from stackcast.udfs.filters.compiler.tables import KINDS
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.language.shapes import read_table
from stackcast.udfs.filters.matching.matcher import Matcher
from stackcast.udfs.filters.prefixes import split
from stackcast.udfs.messages.specification import Specification, parse_specification

RULES, SYMBOLS, HOSTS = 100_000, 100, 200
RUNS = 5
EDITS = 300
TEXT = {"entries of the text": 21_401, "groups of the text": 198}
MEBIBYTE = 1 << 20
PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "entries.svg"

GROWING = {
    "3 predicates, 30 constants": SienaWorkload(predicates=3, fields=3, text_fields=2, values=30),
    "3 predicates, 100 constants": SienaWorkload(predicates=3, fields=3, text_fields=2, values=100),
    "4 predicates, 20 constants": SienaWorkload(predicates=4, fields=4, text_fields=3, values=20),
}
"""Entries against rules: constants of a field are few, and some are much more popular."""
SELECTIVE = SienaWorkload(
    subscriptions=200,
    fields=8,
    text_fields=4,
    values=50,
    field_exponent=2,
    value_exponent=2,
    operator_exponent=3,
)
"""Entries against predicates."""
COUNTS = (1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)

Drawn = Sequence[tuple[str, int, int]]
"""Rules ``stock == S and price > P : fwd(hH)`` as (S, raw P, H)."""


def main() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    itch = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
    drawn = independent(seed=1)
    texts = texts_of(drawn)
    compiled = independent_rules(drawn, texts, itch)
    tied_rules(itch)
    plain_ways(drawn, compiled)
    memory(compiled)
    incremental(texts, itch)
    siena("--pictures" in sys.argv[1:])


def say(name: str, **values: Any) -> None:
    shown = {k: float(f"{v:.5g}") if isinstance(v, float) else v for k, v in values.items()}
    print(json.dumps({"name": name} | shown), flush=True)


def independent(seed: int, rules: int = RULES) -> Drawn:
    """Each rule drawn on its own: symbol, host, and a price of four decimals in (0, 1000)."""
    random = Random(f"independent {seed}")
    names = [symbol.name for symbol in symbols(SYMBOLS)]
    return [
        (random.choice(names), random.randrange(1, 10_000_000), random.randint(1, HOSTS))
        for _ in range(rules)
    ]


def tied(levels: int, seed: int, rules: int = RULES) -> Drawn:
    """The host follows from the price: host h asks for prices from about its level on.

    ``levels`` levels part (0, 1000) evenly. All hosts ask for all symbols, five times and
    a few at random once more, each time at another price near their level: on the way up a price
    passes the hosts in the same order for all symbols, so the sets of hosts repeat.
    """
    random = Random(f"tied {seed}")
    names = [symbol.name for symbol in symbols(SYMBOLS)]
    pairs = [(name, host) for name in names for host in range(1, levels + 1)]
    pairs = pairs * (rules // len(pairs)) + random.sample(pairs, rules % len(pairs))
    step = 10_000_000 // (levels + 1)
    return [
        (name, host * step + random.randrange(-step // 2 + 1, step // 2), host)
        for name, host in pairs
    ]


def texts_of(drawn: Drawn) -> list[str]:
    return [
        f"stock == {name} and price > {Decimal(raw).scaleb(-4)} : fwd(h{host})"
        for name, raw, host in drawn
    ]


def minimum(drawn: Drawn) -> int:
    """Returns entries that no tables over type, stock, price can be without, counted without a
    compiler.

    For each symbol one row a price at which another host is reached, and one below all of them;
    a row for each symbol, and one for the other symbols; a row for the message type and one for
    the others; a leaf for each set of hosts, nobody's included.
    """
    first: dict[str, dict[int, int]] = {}
    for name, raw, host in drawn:
        prices = first.setdefault(name, {})
        prices[host] = min(prices.get(host, raw), raw)
    rows, leaves = 2 + len(first) + 1, {0}
    for prices in first.values():
        reached: list[tuple[int, int]] = []
        for host, raw in prices.items():
            insort(reached, (raw, host))
        hosts = 0
        for at, (raw, host) in enumerate(reached):
            hosts |= 1 << host
            if at + 1 == len(reached) or reached[at + 1][0] > raw:
                rows += 1
                leaves.add(hosts)
        rows += 1
    return rows + len(leaves)


def entries_of(compiled: CompiledFilter) -> int:
    """Returns rows of all tables, leaves included."""
    return len(compiled.entries) + len(compiled.outcomes)


def free_of_charge(compiled: CompiledFilter) -> int:
    """Returns rows that a parser or a table's default action stands for: types, what leads from the
    first state to nobody, and nobody's leaf.
    """
    entries = compiled.entries
    nobody = [state for state, hosts in compiled.leaves.items() if not hosts]
    types = entries["field"] == 0
    first = entries["state"] == entries["next"][types & (entries["low"] == ord("A"))][0]
    default = entries["kind"] == KINDS.index("default")
    return int((types | (first & default & np.isin(entries["next"], nobody))).sum()) + len(nobody)


def groups_of(compiled: CompiledFilter) -> int:
    """Returns multicast groups: distinct sets of two or more."""
    return len({hosts for hosts in compiled.leaves.values() if len(hosts) > 1})


def compile_in_phases(
    texts: Sequence[str], specification: Specification, **more: Any
) -> tuple[CompiledFilter, dict[str, float]]:
    """Returns the compiled texts, and the seconds of each phase."""
    gc.collect()
    began = time.thread_time()
    read = read_table(texts, specification)
    assert not read.errors
    was_read = time.thread_time()
    with moment_of(compiler, "slice_diagram") as sliced:
        table = table_of_texts(texts, read, specification, more.get("optional"))
        compiled = compile_table(table, specification, **more)
    ended = time.thread_time()
    return compiled, {
        "seconds": ended - began,
        "read": was_read - began,
        "diagram": sliced[0] - was_read,
        "tables": ended - sliced[0],
    }


@contextmanager
def moment_of(module: Any, name: str) -> Iterator[list[float]]:
    """Notes when a function of a module is called, as time of this thread."""
    function: Callable[..., Any] = getattr(module, name)
    moments: list[float] = []

    def noted(*args: Any, **more: Any) -> Any:
        moments.append(time.thread_time())
        return function(*args, **more)

    setattr(module, name, noted)
    try:
        yield moments
    finally:
        setattr(module, name, function)


def median_run(
    texts: Sequence[str], specification: Specification, **more: Any
) -> tuple[CompiledFilter, dict[str, float]]:
    compile_in_phases(texts[:1000], specification, **more)  # compiled and warm
    runs = [compile_in_phases(texts, specification, **more) for _ in range(RUNS)]
    seconds = {key: statistics.median(run[1][key] for run in runs) for key in runs[0][1]}
    return runs[-1][0], seconds


def independent_rules(drawn: Drawn, texts: list[str], itch: Specification) -> CompiledFilter:
    compiled, seconds = median_run(texts, itch)
    least = minimum(drawn)
    say(
        "compile independent",
        rules=len(texts),
        **seconds,
        entries=entries_of(compiled),
        minimum=least,
        ratio=entries_of(compiled) / least,
        groups=groups_of(compiled),
    )
    return compiled


def tied_rules(itch: Specification) -> None:
    for levels in (HOSTS - 1, HOSTS):
        drawn = tied(levels, seed=1)
        compiled, seconds = median_run(texts_of(drawn), itch)
        say(
            f"compile tied, {levels} levels",
            rules=len(drawn),
            **seconds,
            entries=entries_of(compiled),
            in_a_switch=entries_of(compiled) - free_of_charge(compiled),
            minimum=minimum(drawn),
            groups=groups_of(compiled),
            **TEXT,
        )


def plain_ways(drawn: Drawn, compiled: CompiledFilter) -> None:
    """Other ways to come from these rules to tables, for scale."""
    began = time.thread_time()
    least = minimum(drawn)
    say("count by hand, for this one form of rules", seconds=time.thread_time() - began, rows=least)
    began = time.thread_time()
    itch = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
    texts = texts_of(drawn)[:2000]
    for text in texts:
        parse_rule(text, itch)
    each = (time.thread_time() - began) / len(texts)
    say("parse each text", seconds=each * RULES, rules=RULES, measured=len(texts))
    ternary = sum(len(split(raw + 1, (1 << 32) - 1, 32)) for _, raw, _ in drawn)
    say(
        "one row a rule",
        rows=len(drawn),
        ternary_rows=ternary,
        note="and a switch takes one row only: hosts that share an event would need the product",
        to="compile independent",
        ratio=len(drawn) / entries_of(compiled),
    )


def memory(compiled: CompiledFilter) -> None:
    held = len(pickle.dumps(Matcher(compiled)))
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        before, peak = pool.apply(memory_of_compiling)
    say(
        "memory",
        matcher_mebibytes=held / MEBIBYTE,
        compiler_peak_mebibytes=(peak - before) / 1024,
        process_peak_mebibytes=peak / 1024,
    )


def memory_of_compiling() -> tuple[int, int]:
    """Most memory that this process ever held, in KiB: before and after it compiles the rules."""
    itch = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
    texts = texts_of(independent(seed=1))
    compile_in_phases(texts[:1000], itch)
    before = most_memory()
    compile_in_phases(texts, itch)
    return before, most_memory()


def most_memory() -> int:
    """KiB. What getrusage says is inherited from the process that started this one."""
    status = Path("/proc/self/status").read_text("ascii")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))


def incremental(texts: list[str], itch: Specification) -> None:
    """Random edits of one rule at 100,000 live rules: a third each are new, changed and gone."""
    random = Random("edits")
    spare = texts_of(independent(seed=2))

    def checked(name: str, text: str) -> CheckedRule:
        rule = parse_rule(text, itch)
        return CheckedRule(name, rule.condition, rule.receivers)

    live = {f"r{number}": checked(f"r{number}", text) for number, text in enumerate(texts)}
    live_names = list(live)
    warm = IncrementalCompiler(itch)
    for names in (live_names[:1000], live_names[:1], live_names[1000:1002]):
        warm.update({name: live[name] for name in names})
    for number in range(30):
        warm.update({live_names[number]: live[live_names[2000 + number]] if number % 3 else None})
    gc.collect()
    began = time.thread_time()
    editor = IncrementalCompiler(itch)
    change = editor.update(live)
    say("incremental, first", seconds=time.thread_time() - began, rules=len(live))
    seconds: list[float] = []
    shares: list[float] = []
    for number in range(EDITS):
        at = random.randrange(len(live_names))
        kind = ("add", "change", "remove")[number % 3]
        name = f"new{number}" if kind == "add" else live_names[at]
        rule = None if kind == "remove" else checked(name, spare[number])
        if kind == "add":
            live_names.append(name)
        elif kind == "remove":
            live_names[at] = live_names[-1]
            live_names.pop()
        began = time.thread_time()
        change = editor.update({name: rule})
        seconds.append(time.thread_time() - began)
        shares.append(change.size / entries_of(change.compiled))
    say(
        "incremental, one edit",
        edits=EDITS,
        seconds=statistics.median(seconds),
        slowest=max(seconds),
        changed_share=statistics.mean(shares),
        most_changed_share=max(shares),
    )


def siena(pictures: bool) -> None:
    by_rules: dict[str, list[tuple[float, float]]] = {}
    for name, workload in GROWING.items():
        curve = by_rules.setdefault(name, [])
        for count in COUNTS:
            curve.append((count, said("siena, rules", replace(workload, subscriptions=count))))
        a_rule = [entries / count for count, entries in curve]
        assert a_rule == sorted(a_rule, reverse=True), "entries a rule must fall as rules grow"
    by_predicates = [
        (number, said("siena, predicates", replace(SELECTIVE, predicates=number)))
        for number in range(1, 9)
    ]
    if pictures:
        PICTURE.write_text(
            svg(
                "Table entries by number of rules and of predicates",
                "Left: entries grow more slowly than rules. Right: the more predicates a rule has, "
                "the fewer entries the rules need.",
                [
                    Panel(
                        "Entries by number of rules", "rules", "table entries", by_rules, log=True
                    ),
                    Panel(
                        f"Entries by number of predicates, {SELECTIVE.subscriptions} rules",
                        "predicates in a rule",
                        "table entries",
                        {"": by_predicates},
                    ),
                ],
            ),
            "utf-8",
        )
        say("picture", path=f"docs/pictures/{PICTURE.name}")


def said(name: str, workload: SienaWorkload) -> int:
    compiled, seconds = compile_in_phases(
        workload.texts(), workload.specification(), max_entries=4_000_000, optional=False
    )
    entries = entries_of(compiled)
    say(
        name,
        rules=workload.subscriptions,
        predicates=workload.predicates,
        constants=workload.values,
        seconds=seconds["seconds"],
        entries=entries,
        a_rule=entries / workload.subscriptions,
        groups=groups_of(compiled),
    )
    return entries


if __name__ == "__main__":
    main()
