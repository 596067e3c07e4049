"""The report of a retuning: one page that stands alone, and the same figures as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from stackcast.jobs.adapters.retune.planning import RetunePlan
from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock, utc
from stackcast.udfs.network.drawing import drawing
from stackcast.udfs.network.network import Network
from stackcast.udfs.report.page import render
from stackcast.udfs.retuning.comparison import UNITS, Trial
from stackcast.udfs.retuning.encodings import least
from stackcast.udfs.retuning.steps import rules
from stackcast.udfs.trees.strategies.strategy import Edges

#: Above so many switches no map is drawn: nobody could read it.
MOST_SWITCHES = 600
#: What became of a plan. A run that was killed leaves the second.
DRY_RUN = "dry run: nothing was written"
BEGUN = "begun"
DONE = "done"
UNFINISHED = "not finished: run it again"


def write(
    folder: Path,
    plan: RetunePlan,
    figures: Mapping[str, Any],
    outcome: str,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Writes ``retune.json`` and ``retune.html``; each is there whole or not at all.

    figures: the `summary` of the plan. outcome: what became of it by now, one of those above.
    """
    now = utc(clock).isoformat(timespec="seconds")
    figures = {"outcome": outcome, "at": now, **figures}
    drawn = len(plan.deployment.network.switches) <= MOST_SWITCHES
    if not drawn:
        # Gigabytes, maybe; they are in `virtual_trees`.
        figures["trees"] = [
            {key: value for key, value in tree.items() if key != "edges"}
            for tree in figures["trees"]
        ]
    _write(folder / "retune.json", json.dumps(figures, indent=2, default=str) + "\n")
    content = figures | {"map": drawing(plan.deployment.network) if drawn else None}
    body, script = (
        files("stackcast.jobs.adapters.retune").joinpath(name).read_text(encoding="utf-8")
        for name in ("retune.html", "retune.js")
    )
    _write(folder / "retune.html", render("retuning of virtual trees", body, script, content))


def summary(plan: RetunePlan) -> dict[str, Any]:
    """Returns the figures: what was compared and chosen, what the change costs and saves."""
    change, choice = plan.change, plan.choice
    now = plan.record.replay(list(plan.deployment.in_use))
    after = plan.record.replay(list(change.wanted))
    names = {**choice.trees, **change.wanted}
    return {
        "objective": {
            "name": plan.options.objective,
            "unit": UNITS[plan.options.objective],
            "reason": _reason(plan, after),
        },
        "record": {
            "batches": plan.recorded.batches,
            "first": plan.recorded.first,
            "last": plan.recorded.last,
            "publications": len(plan.record.publications),
            "notifications": sum(each.notifications for each in plan.record.publications),
            "bytes_covered": plan.recorded.covered,
            "deliveries_left_out": plan.record.left_out,
        },
        "budget": {
            "least": min(plan.deployment.budget.values()),
            "most": max(plan.deployment.budget.values()),
        },
        "now": {
            **_measured(now),
            "trees": len(plan.deployment.in_use),
        },
        "strategies": [
            {
                "name": outcome.name,
                **_measured(outcome.trial),
                "unseen_cost": outcome.unseen,
                "trees": len(outcome.trees),
                "seconds": outcome.seconds,
                "error": outcome.error,
            }
            for outcome in plan.outcomes
        ],
        "choice": {
            "name": choice.name,
            **_measured(choice.trial),
            "unseen_cost": choice.unseen,
            "trees": len(choice.trees),
        },
        "encodings": [
            {
                "name": each.encoding,
                "bits": each.bits,
                "bytes": each.bytes,
                "frames": each.frames,
                "rows": each.rows,
                "error": each.error,
            }
            for each in plan.encodings
        ],
        "encoding": least(plan.encodings).encoding,
        "change": {
            "rules": change.rules,
            "forced_rules": change.forced,
            "added": len(change.added),
            "removed": len(change.removed),
            "kept": len(change.wanted) - len(change.added),
            "cost_before": change.before,
            "cost_without_forced": change.left,
            "cost_after": change.after,
            "bytes_after": after.bytes,
            "labels_after": after.labels,
            "way_after": after.way,
            "saving": change.saving,
        },
        "trees": [
            _tree(plan.deployment.network, edges, names.get(edges, ""), state)
            for state, trees in (
                ("new", change.added),
                ("kept", [e for e in change.wanted if e not in set(change.added)]),
                ("goes", change.removed),
            )
            for edges in trees
        ],
    }


def _measured(trial: Trial) -> dict[str, Any]:
    return {"cost": trial.cost, "bytes": trial.bytes, "labels": trial.labels, "way": trial.way}


def _reason(plan: RetunePlan, after: Trial) -> str:
    """Says in a sentence why so many trees of the choice come, and what the others would have
    brought."""
    change, choice, options = plan.change, plan.choice, plan.options
    unit = UNITS[options.objective]
    labels = plan.deployment.network.labels
    if not labels.trees:
        return f"Stacks of encoding {labels.encoding} contain no tree ids, so no trees are chosen."
    standing = plan.deployment.in_use
    new = [edges for edges in choice.trees if edges not in standing]
    left = len(new) - len(change.added)
    if not new:
        return f"The trees with the fewest {unit} are already installed."
    words = (
        f"{len(change.added)} of {len(new)} new trees are added to reduce {unit}: on average, "
        f"{after.labels:.2f} labels, {after.bytes:,} bytes on links and {after.way:.2f} links "
        "per receiver."
    )
    if left:
        words += (
            f" The other {left} trees together save at most {options.min_saving:.1%} of the "
            f"cost, or exceed --max-changed-rules; with all trees: {choice.trial.labels:.2f} "
            f"labels, {choice.trial.bytes:,} bytes and {choice.trial.way:.2f} links."
        )
    if change.forced:
        words += (
            f" Limits require the removal of {change.forced} rules, which changes the cost from "
            f"{change.before:,} to {change.left:,}."
        )
    return words


def _tree(network: Network, edges: Edges, strategy: str, state: str) -> dict[str, Any]:
    ends = {name for pair in edges for name in pair}
    return {
        "strategy": strategy,
        "state": state,
        "switches": rules(network, edges),
        "hosts": sum(name in network.hosts for name in ends),
        "edges": [list(pair) for pair in sorted(edges)],
    }


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
