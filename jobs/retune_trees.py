"""Choose the virtual trees from recorded publications, as a batch job for a scheduler or a service.

    spark-submit [--properties-file conf/X.conf] jobs/retune_trees.py [--dry-run] [--window 1d]
        [--wait SECONDS] ...

The job replays recorded publications (`publication_statistics`, or `delivery_statistics` if that is
empty) with the trees of every strategy, and selects the strategy or mixture with the lowest
expected cost (--objective: bytes on links, labels or latency). It changes `virtual_trees` towards
it as far as the saving justifies. Trees change in steps, make before break, and within the budgets
at all times; after each step, jobs/refresh_switches.py updates the switches. The next run continues
with the remaining steps, or this one with --wait. With --every, the job runs until it is stopped,
and plans again when there are new records. The report is in var/retune/retune.html.

The exit code is 0, or 2 after an error. With --exit-code, it is 0 if all trees are as chosen, 1 if
--dry-run would change trees, 3 if further steps follow, so that the job must run again, and 4 if
there are no records.
"""

from __future__ import annotations

import argparse
import datetime as dt
import logging
import sys
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from stackcast.jobs.command_lines.retune_trees import parser

if __name__ == "__main__":
    parser(__doc__).parse_args()

from stackcast.jobs.adapters.app import application, session
from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.metrics_server import serve
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.retune import report
from stackcast.jobs.adapters.retune.metrics import RetuneMetrics
from stackcast.jobs.adapters.retune.options import RetuneOptions
from stackcast.jobs.adapters.retune.planning import Planner, RetunePlan
from stackcast.jobs.adapters.retune.writing import TreeWriter
from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.tables import DELIVERIES, Tables
from stackcast.jobs.adapters.tables.writers import Fence
from stackcast.udfs.errors import StackcastError
from stackcast.udfs.retuning.comparison import UNITS
from stackcast.udfs.retuning.steps import TreeStep, Wanted
from stackcast.udfs.stop_request import StopAsked

log = logging.getLogger("stackcast.retune_trees")

DONE, WOULD_CHANGE, MORE, NO_RECORD = 0, 1, 3, 4
#: The same, as metrics of a service name them.
OUTCOMES = {DONE: "done", MORE: "unfinished", NO_RECORD: "no_record"}
POLL_SECONDS = 1.0


def main(arguments: list[str]) -> int:
    command_line = parser(__doc__)
    asked = command_line.parse_args(arguments)
    if asked.every and (asked.dry_run or asked.exit_code or asked.as_of is not None):
        command_line.error("--every does not allow --dry-run, --exit-code and --as-of")
    outcome = application.run(partial(work, asked))
    # To a scheduler anything else is a failure.
    normal = outcome in (WOULD_CHANGE, MORE, NO_RECORD) and not asked.exit_code
    return DONE if normal else outcome


def work(arguments: argparse.Namespace, settings: Settings, lifecycle: Lifecycle) -> int:
    options = RetuneOptions(
        arguments.max_rules,
        arguments.max_changed_rules,
        arguments.min_saving,
        arguments.window,
        arguments.as_of,
        arguments.publications,
        tuple(name for name in arguments.strategies.split(",") if name),
        arguments.seed,
        arguments.strategy_seconds,
        arguments.quarantine,
        arguments.objective,
    )
    options.names(settings.labels)
    spark = session.start("stackcast retune_trees")
    lifecycle.hold_jvm(spark)
    tables = open_tables(spark, settings.tables)
    fence = Fence(tables, "retuning")
    planner = Planner(spark, tables, settings, options)
    writer = TreeWriter(tables, settings, options)
    with ExitStack() as ending:
        if not arguments.dry_run:
            # The newest run is the one that counts: who works by an older record gives way.
            ending.callback(fence.release)
            fence.claim(uuid.uuid4().hex, str(spark.sparkContext.applicationId), take_over=True)
        metrics = RetuneMetrics()
        rounds = partial(retune, arguments, planner, writer, fence, lifecycle, metrics)
        if not arguments.every:
            return rounds()
        with serve(settings, metrics.registry, metrics.health):
            follow(rounds, arguments.every, tables, lifecycle, metrics)
    return DONE


def follow(
    rounds: Callable[[], int],
    every: dt.timedelta,
    tables: Tables,
    lifecycle: Lifecycle,
    metrics: RetuneMetrics,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Retunes whenever more is on record, until it is stopped; an error costs one round.

    Raises TableError FENCED where another run has begun since.
    """
    log.info("the retuning runs until it is stopped, a round in %s at most", every)
    seen: int | None = None
    while not lifecycle.stopping.is_set():
        end = clock.monotonic() + every.total_seconds()
        try:
            on_record = tables.version(DELIVERIES)
            if on_record != seen:
                with metrics.round():
                    code = rounds()
                metrics.ended(OUTCOMES[code])
                # A change with steps left is gone on with, whatever comes on record.
                seen = on_record if code != MORE else None
        except (StackcastError, OSError, *SQL_ERRORS) as error:
            if isinstance(error, StackcastError) and error.code == "TABLE.FENCED":
                raise
            metrics.ended("failed", one_line(error))
            log.error("not retuned this time: %s", one_line(error))
        lifecycle.stopping.wait(max(0.0, end - clock.monotonic()))


def retune(
    arguments: argparse.Namespace,
    planner: Planner,
    writer: TreeWriter,
    fence: Fence,
    lifecycle: Lifecycle,
    metrics: RetuneMetrics,
) -> int:
    """Plans and, but for a dry run, writes; returns the exit code. Raises TableError FENCED."""
    try:
        plan = planner.plan(lifecycle.stopping)
    except StopAsked:
        log.warning("asked to stop: nothing was chosen, and no tree was changed")
        return MORE
    write = partial(
        apply,
        writer,
        patience=arguments.wait,
        lifecycle=lifecycle,
        fence=fence,
        metrics=metrics,
    )
    if plan is None:
        log.warning("nothing is on record that the network can carry: no trees are chosen")
        # Trees that lost a link go all the same, and what an earlier run began is gone on with.
        wanted = planner.keep()
        if not writer.look(wanted).writes:
            return NO_RECORD
        if arguments.dry_run:
            return WOULD_CHANGE
        return write(wanted) or NO_RECORD
    _tell(plan)
    metrics.planned(plan.change.saving)
    step = writer.look(plan.change.wanted)
    told = partial(report.write, Path(arguments.report), plan, report.summary(plan))
    told(report.DRY_RUN if arguments.dry_run else report.BEGUN)
    log.info("the report is %s", Path(arguments.report) / "retune.html")
    if arguments.dry_run:
        return WOULD_CHANGE if step.writes or step.left else DONE
    code = None
    try:
        code = write(plan.change.wanted)
    finally:
        told(report.DONE if code == DONE else report.UNFINISHED)
    return code


def apply(
    writer: TreeWriter,
    wanted: Wanted,
    patience: float,
    lifecycle: Lifecycle,
    fence: Fence,
    metrics: RetuneMetrics,
    clock: Clock = SYSTEM_CLOCK,
) -> int:
    """Write step after step; between them wait for the switches, ``patience`` seconds each time.

    Raises TableError FENCED, before a step, where another run has begun since.
    """
    deadline = clock.monotonic() + patience
    number = 0
    while True:
        step = writer.step(wanted, fence.check)
        if step.writes:
            number += 1
            metrics.wrote(step)
            log.info("step %d: %s", number, _words(step))
            deadline = clock.monotonic() + patience
        for edges in step.unfit:
            log.warning("no switch of %s has room for another tree", _ends(edges))
        if step.left == 0:
            return DONE
        if lifecycle.stopping.is_set() or clock.monotonic() >= deadline:
            log.info("%d trees are left: run again when the switches hold this step", step.left)
            return MORE
        lifecycle.stopping.wait(min(POLL_SECONDS, max(0.0, deadline - clock.monotonic())))


def _tell(plan: RetunePlan) -> None:
    change = plan.change
    if not change.rules:
        log.info("no change saves enough to be worth its rules")
        return
    log.info(
        "%d trees come, %d go: %d rules change, %.2f %% of the %s are saved",
        len(change.added),
        len(change.removed),
        change.rules,
        100 * change.saving,
        UNITS[plan.options.objective],
    )
    if change.forced:
        log.warning(
            "limits force %d rules out, which costs %.2f %% of the %s",
            change.forced,
            100 * (change.left / change.before - 1) if change.before else 0.0,
            UNITS[plan.options.objective],
        )


def _words(step: TreeStep) -> str:
    words = [f"{len(step.installed)} trees are to be installed"] if step.installed else []
    for state in ("active", "retiring", "retired"):
        number = sum(after == state for _, after in step.moved.values())
        if number:
            words.append(f"{number} are {state}")
    return ", ".join(words)


def _ends(edges: frozenset[tuple[str, str]]) -> str:
    names = sorted({name for pair in edges for name in pair})
    return ", ".join(names[:4]) + (", …" if len(names) > 4 else "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
