"""The stream of a lab that stays up, with its tables and switches: ``stackcast lab up --ready``.

    spark-submit --properties-file FOLDER/lab.conf lab_stream.py FOLDER --subscriptions N --seed N

It creates and fills the tables, writes the entries of the switches and follows later edits, and
runs the stream, all in one JVM, until SIGTERM. It is a service of a lab as
`stackcast.lab.up.service` describes it, and prints lines of JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

from stackcast.command_line import ArgumentParser
from stackcast.jobs.adapters.app import application, session
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.planning import formats
from stackcast.jobs.adapters.runtime.threads import SYSTEM_THREADS
from stackcast.jobs.adapters.stream import checks, spark_stream
from stackcast.jobs.adapters.stream.warm_up import warm_up
from stackcast.jobs.adapters.switches.lead import Refresher
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.jobs.embedded.lab import fill, refresh
from stackcast.lab.fabric.network import read_description
from stackcast.lab.up import deployment
from stackcast.udfs.stop_request import StopRequest

_LOOK_SECONDS = 0.2


def main(arguments: list[str]) -> int:
    parser = ArgumentParser(prog="lab_stream.py")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--subscriptions", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    return application.run(partial(serve, parser.parse_args(arguments)))


def serve(asked: argparse.Namespace, settings: Settings, lifecycle: Lifecycle) -> int:
    """Bring tables, switches and stream of a lab up, and deliver until a stop is requested.

    Args:
        asked: ``folder`` of the lab, ``subscriptions`` (number of generated ones) and ``seed``.
        settings: the settings in lab.conf.
        lifecycle: lifecycle of the job.

    Returns:
        The exit code.
    """
    settings = formats.of_settings(settings, "itch")
    checks.beside_switches(settings)
    state = json.loads((asked.folder / "lab.json").read_text())
    network = read_description(asked.folder / "network.json")
    _say(stage="starting Spark")
    spark = session.start("stackcast lab")
    lifecycle.hold_jvm(spark)
    # One worker compiles missing kernels, and leaves a core to the other steps.
    warm_up(spark, workers=1)
    _say(stage="creating and filling tables")
    tables = open_tables(spark, settings.tables)
    tables.create()
    count, seed = asked.subscriptions, asked.seed
    rows = deployment.rows(network, state["p4runtime"], count, seed, match=settings.match)
    fill(tables, rows | deployment.ingress_rows(state["ingress"]))
    _say(stage=f"writing the entries of {len(network.switches)} switches")
    refresh(tables, settings, lifecycle)
    _say(stage="computing the plan of the stream")
    stop = StopRequest()
    refreshing: list[Future[None]] = []

    def started() -> None:
        refreshing.append(
            SYSTEM_THREADS.start("refresh", _follow, tables, settings, lifecycle, stop)
        )
        _say(ready=True)

    try:
        spark_stream.serve(spark, settings, lifecycle, started=started)
    finally:
        stop.set()
        for each in refreshing:
            each.result()
    session.end_workers(spark)
    return 0


def _follow(tables: Tables, settings: Settings, lifecycle: Lifecycle, stop: StopRequest) -> None:
    """Keep the switches in step with edits; if that fails, the stream ends."""
    try:
        with Refresher(tables, settings, stop) as refresher:
            while not stop.wait(_LOOK_SECONDS):
                refresher.poll()
    finally:
        lifecycle.stopping.set()


def _say(**values: Any) -> None:
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
