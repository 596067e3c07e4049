"""Passes of a frame through a switch, by labels a pass, and the entries that the switch needs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil
from random import Random
from typing import Any

from virtual_trees_cases import datagram, modelled, stack_frame

from benchmarks.compile import say
from benchmarks.p4.text_program import LABEL_TABLES, by_hand, text_switch
from benchmarks.p4.text_program import entries as text_entries
from benchmarks.p4.workloads import Visit, Workload, ports_of_switch
from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.udfs.network.labels import MAX_PORT, SwitchTables
from stackcast.udfs.stacks.forwarding import forward
from stackcast.udfs.switches.entry import GROUPS
from stackcast.udfs.switches.ports import SUBSET
from stackcast.udfs.switches.stack_entries import LABELS_A_PASS, positions_of, switch_entries

COUNTS = (1, 2, 4, 8, 16, 32, 64)
"""Labels a pass that are compared."""
COUNTED_VISITS = 400
"""Visits of each workload that are counted for each number of labels a pass."""
MANY_TREES = (1, 1000, 16_000)
ENTRY_BITS = 16 + MAX_PORT + 3
"""Bits of a label's entry: its key, the ports, and which of three actions."""

Curve = list[tuple[float, float]]


def computed(tables: SwitchTables, visit: Visit, labels_a_pass: int) -> int:
    """Returns passes by arithmetic: labels over labels a pass, and one a subset of ports if
    several.
    """
    _, port, labels = visit
    subsets = {(out - 1) // SUBSET for out, _ in forward(tables, port, labels)}
    return ceil(len(labels) / labels_a_pass) + (len(subsets) if len(subsets) > 1 else 0)


def tables_of(program: bytes) -> list[str]:
    """Returns names of the tables of a BMv2 JSON."""
    return [t["name"] for p in json.loads(program)["pipelines"] for t in p["tables"]]


def passes(
    workloads: Sequence[Workload], programs: Mapping[int, bytes], text: bytes
) -> dict[str, Curve]:
    """Returns passes a frame, for each workload and number of labels a pass; by workload, as a
    curve.

    A number with a program is also counted in the software switch, at visits drawn by how many
    frames make them; every one must be as computed, and its copies as of the forwarding model.
    ``text``: the text's program, which is said beside them.
    """
    curves: dict[str, Curve] = {}
    for work in workloads:
        visits = work.visits
        total = visits.total()
        drawn = draw(work, visits)
        labels = sum(len(visit[2]) * frames for visit, frames in visits.items())
        of_text = _of_the_text(work, text)
        curve = curves.setdefault(work.name, [])
        for count in COUNTS:
            found = {visit: computed(work.tables[visit[0]], visit, count) for visit in visits}
            mean = sum(found[visit] * frames for visit, frames in visits.items()) / total
            saved = 1 - mean / curve[-1][1] if curve else 0.0
            curve.append((count, mean))
            more: dict[str, Any] = {"how": "computed"}
            if count in programs:
                seen = counted(work, drawn, programs[count], count)
                assert seen == {visit: found[visit] for visit in drawn}, (work.name, count)
                more = {
                    "how": "computed, and counted in the software switch",
                    "counted_visits": len(drawn),
                    "counted_mean": sum(seen[v] * visits[v] for v in drawn)
                    / sum(visits[v] for v in drawn),
                    "computed_mean_of_these": sum(found[v] * visits[v] for v in drawn)
                    / sum(visits[v] for v in drawn),
                }
            say(
                "passes",
                stacks=work.name,
                labels_a_pass=count,
                shipped=count == LABELS_A_PASS,
                passes=mean,
                most=max(found.values()),
                saved_by_twice_the_entries=saved,
                all_switches=mean * total / work.frames,
                to="passes, the text",
                ratio=mean / (labels / total),
                ratio_to_the_text=mean / of_text,
                **more,
            )
    return curves


def draw(work: Workload, visits: Counter[Visit]) -> list[Visit]:
    """Returns visits to be run, those that many frames make before others."""
    known = sorted(visits)
    weights = [visits[visit] for visit in known]
    return sorted(set(Random(work.name).choices(known, weights, k=COUNTED_VISITS)))


def _of_the_text(work: Workload, program: bytes) -> float:
    """Reports passes of the text's program; returns their mean at a switch.

    Its frames must come to the same switches by the same ports, so to the same hosts. They carry
    labels that ours takes off, and have passes more for these: how many is said, too.
    """
    visits = text_arrivals(work)
    assert _by_way(visits) == _by_way(work.visits), work.name
    total = visits.total()
    found = {visit: by_hand(work.tables[visit[0]], *visit[1:]).passes for visit in visits}
    mean = sum(found[visit] * frames for visit, frames in visits.items()) / total
    fewer = sum(
        by_hand(work.tables[visit[0]], *visit[1:]).passes * frames
        for visit, frames in work.visits.items()
    )
    drawn = draw(work, visits)
    seen = counted_text(work, drawn, program)
    assert seen == {visit: found[visit] for visit in drawn}, work.name
    say(
        "passes, the text",
        stacks=work.name,
        frames=work.frames,
        labels_a_stack=sum(len(s) * n for s, n in work.stacks.items()) / work.frames,
        most_labels=max(map(len, work.stacks)),
        switches_a_frame=total / work.frames,
        one_pass_a_label=sum(len(visit[2]) * n for visit, n in work.visits.items()) / total,
        passes=mean,
        most=max(found.values()),
        with_stacks_of_ours=fewer / total,
        how="computed, and counted in the software switch",
        counted_visits=len(drawn),
        counted_mean=sum(seen[v] * visits[v] for v in drawn) / sum(visits[v] for v in drawn),
        computed_mean_of_these=sum(found[v] * visits[v] for v in drawn)
        / sum(visits[v] for v in drawn),
    )
    return mean


def text_arrivals(work: Workload) -> Counter[Visit]:
    """Counts the frames that come to a switch where switches run the text's program."""
    return work.arrivals(lambda tables, port, labels: by_hand(tables, port, labels).copies)


def _by_way(visits: Counter[Visit]) -> Counter[tuple[str, int]]:
    found: Counter[tuple[str, int]] = Counter()
    for (switch, port, _), frames in visits.items():
        found[switch, port] += frames
    return found


def counted_text(work: Workload, visits: Sequence[Visit], program: bytes) -> dict[Visit, int]:
    """Returns passes that the text's program takes in the software switch, whose copies must leave
    by the ports of the forwarding model.
    """
    switches = {
        name: text_switch(program, work.tables[name], ports_of_switch(work.network, name))
        for name in {name for name, _, _ in visits}
    }
    found = {}
    behind = datagram()
    for visit in visits:
        name, port, labels = visit
        before = switches[name].passes
        copies = sorted(switches[name].process(port, stack_frame(labels, behind)))
        way = by_hand(work.tables[name], port, labels)
        assert copies == [(out, stack_frame(left, behind)) for out, left in way.copies]
        wanted = forward(work.tables[name], port, labels)
        assert [out for out, _ in copies] == [out for out, _ in wanted]
        found[visit] = switches[name].passes - before
    return found


def counted(
    work: Workload, visits: Sequence[Visit], program: bytes, labels_a_pass: int
) -> dict[Visit, int]:
    """Returns passes that the program takes in the software switch, whose copies must be right."""
    assert positions_of(name for name in tables_of(program) if "label_" in name) == labels_a_pass
    entries = switch_entries(work.network, work.trees, labels_a_pass)
    switches: dict[str, SimpleSwitch] = {}
    found = {}
    behind = datagram()
    for visit in visits:
        name, port, labels = visit
        if name not in switches:
            switches[name] = SimpleSwitch(cached=False)
            switches[name].load(program)
            switches[name].apply({e.key: e for e in entries if e.switch == name})
        switch = switches[name]
        before = switch.passes
        copies = sorted(switch.process(port, stack_frame(labels, behind)))
        assert copies == modelled(work.tables[name], port, list(labels), behind)
        found[visit] = switch.passes - before
    return found


def entries(workloads: Sequence[Workload]) -> dict[str, Curve]:
    """Reports entries of each network's largest switch; returns label entries by trees."""
    seen = set()
    for work in workloads:
        if id(work.network) in seen:
            continue
        seen.add(id(work.network))
        _text_entries(work)
        for count in COUNTS:
            _our_entries(work, count)
    largest = workloads[-1].network
    ports = max(_by_switch(link.switch for link in largest.links).values())
    curves: dict[str, Curve] = {}
    for trees in MANY_TREES:
        name = f"{trees:,} tree{'s' * (trees > 1)}"
        curves[name] = [(count, count * (trees + 2 * ports)) for count in COUNTS]
        for count, rows in curves[name]:
            say(
                "label entries of one switch",
                trees=trees,
                ports=ports,
                labels_a_pass=int(count),
                how="computed",
                entries=int(rows),
                megabits=rows * ENTRY_BITS / 1e6,
            )
    return curves


def _our_entries(work: Workload, labels_a_pass: int) -> None:
    rows = switch_entries(work.network, work.trees, labels_a_pass)
    labels = _by_switch(e.switch for e in rows if e.table.startswith("ingress.label_"))
    grouped = _by_switch(e.switch for e in rows if e.table == GROUPS)
    whole = _by_switch(e.switch for e in rows)
    say(
        "entries a switch",
        network=_network(work),
        labels_a_pass=labels_a_pass,
        shipped=labels_a_pass == LABELS_A_PASS,
        label_tables=labels_a_pass,
        mean=sum(whole.values()) / len(whole),
        most=max(whole.values()),
        labels_mean=sum(labels.values()) / len(labels),
        labels_most=max(labels.values()),
        groups_mean=sum(grouped.values()) / len(grouped),
        groups_most=max(grouped.values()),
    )


def _text_entries(work: Workload) -> None:
    rows = {
        name: text_entries(tables, ports_of_switch(work.network, name))
        for name, tables in work.tables.items()
    }
    whole = [len(held) for held in rows.values()]
    labels = [sum(each.table in LABEL_TABLES for each in held) for held in rows.values()]
    say(
        "entries a switch, the text",
        network=_network(work),
        label_tables=len(LABEL_TABLES),
        mean=sum(whole) / len(whole),
        most=max(whole),
        labels_mean=sum(labels) / len(labels),
        labels_most=max(labels),
        note="labels, a row and a clone session a port; no IPv4 routes",
    )


def _network(work: Workload) -> str:
    return work.name.rpartition(", ")[0]


def _by_switch(names: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in names:
        found[name] = found.get(name, 0) + 1
    return found
