"""Rules with state: what sets cost to compile and to match where they would multiply, and to edit.

A part of ``bench match``. Rules and events are drawn, and events come a microsecond apart.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence

import numpy as np

from benchmarks.many_fields import BRUTE_EVENTS, EDITS, EVENTS, HOSTS, TOP, specification
from benchmarks.support.measuring import Reporter
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.live_rules import LiveRules
from stackcast.udfs.filters.meaning.interpreter import Interpreter
from stackcast.udfs.filters.subscriptions import Subscription

FIELDS = 12
FORMS: Sequence[tuple[str, str, int]] = [
    ("f > a and g > b and avg(h) > c", "f0 > {} and f1 > {} and avg(f2, 100) > {}", 400),
    ("key and f > b and avg(g) > c", "f11 == {key} and f1 > {} and avg(f2, 1000) > {}", 10_000),
    ("key and f > b and moved(g, c)", "f11 == {key} and f1 > {} and moved(f2, {})", 10_000),
]


def measure(quick: bool) -> None:
    """Prints all measurements."""
    for name, form, count in FORMS:
        _measure(name, form, count // 10 if quick else count)


def _measure(name: str, form: str, count: int) -> None:
    draw = random.Random(f"{name} {count}")
    keys = max(1, count // 4)

    def row(at: int) -> Subscription:
        bounds = (draw.randrange(TOP) for _ in range(3))
        host = f"h{at % HOSTS}"
        text = form.format(*bounds, key=draw.randrange(keys))
        return Subscription(str(at), host, f"{text} : fwd({host})")

    rows = [row(at) for at in range(count)]
    whole, hosts = specification(FIELDS), {f"h{at}" for at in range(HOSTS)}
    live = LiveRules(whole, "feed")
    began = time.thread_time()
    compiled = live.update(rows, hosts)[2]
    seconds = time.thread_time() - began
    index = compiled.stateful
    assert index is not None
    values = np.random.default_rng(1).integers(0, TOP, (FIELDS, EVENTS), np.uint64, True)
    values[-1] %= np.uint64(keys)
    columns = values[[int(field.removeprefix("e.f")) for field in index.fields]]
    times, unread = np.arange(EVENTS), np.zeros(EVENTS, np.bool_)
    kinds = np.zeros(EVENTS, np.uint8)
    found, _ = index.match(kinds, columns, None, unread, times, None)
    oracle = Interpreter([parse_rule(each.filter, whole) for each in rows], whole, None)
    for at in range(BRUTE_EVENTS):
        event = {f"e.f{field}": int(values[field, at]) for field in range(FIELDS)}
        assert index.outcome(found[at]).receivers == oracle.step(event, at).receivers
    Reporter()(
        f"{count:,} x {name}",
        lambda: index.match(kinds, columns, None, unread, times, None),
        EVENTS,
        runs=3,
        cells=len(index.cells),
        compile_seconds=round(seconds, 3),
        bytes=index.nbytes,
    )
    edits = []
    for _ in range(EDITS):
        at = draw.randrange(count)
        rows = [*rows[:at], row(at), *rows[at + 1 :]]
        began = time.thread_time()
        live.update(rows, hosts)
        edits.append(time.thread_time() - began)
    line = {"name": f"an edit at {count:,} x {name}", "seconds": round(float(np.median(edits)), 4)}
    print(json.dumps(line), flush=True)
