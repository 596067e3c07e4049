"""The bring-up of an embedded run: lab, Spark, tables and switch entries, taken down at its end."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app import session
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import PREFIX, Settings
from stackcast.jobs.adapters.runtime.threads import SYSTEM_THREADS, parallel_map
from stackcast.jobs.adapters.stream.warm_up import warm_up
from stackcast.jobs.adapters.switches.lead import Refresher
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.jobs.embedded import machine
from stackcast.jobs.embedded.kinds import RunKind
from stackcast.jobs.embedded.options import RunOptions
from stackcast.jobs.embedded.progress import Progress
from stackcast.lab.fabric.topologies import load_network
from stackcast.lab.up import deployment
from stackcast.lab.up.lab import Lab
from stackcast.udfs.errors import LabError, SettingsError
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.publishers import listed


@dataclass(frozen=True)
class RunningLab:
    """A lab that is up, with tables that are filled and switches that hold their entries.

    settings: those of the run, with the lab's addresses and folders. source: file of the records
    that the run is to deliver.
    """

    settings: Settings
    lab: Lab
    spark: SparkSession
    tables: Tables
    source: Path


@contextmanager
def bring_up(
    settings: Settings,
    lifecycle: Lifecycle,
    kind: RunKind,
    progress: Progress,
    *,
    broker: bool = True,
    keep_spark: bool = False,
) -> Iterator[RunningLab]:
    """Brings a lab up and takes it down again, whatever happens in between.

    broker: with a Kafka broker, and settings that lead to it. keep_spark: leave its session to a
    run that comes after this one.

    Raises SettingsError ``BAD_VALUE``, LabError, NetworkError, TableError.
    """
    folder, network = prepare(settings, kind.options)
    if kind.options.publishers > 1 and "publisher" not in settings.given:
        settings = dataclasses.replace(settings, publisher=",".join(network.publishers()))
    check_publishers(settings, network)
    progress.parts.begin(f"{'broker, ' * broker}switches and hosts")
    progress.say(f"network: {network.words()}")
    settings = dataclasses.replace(settings, tables=str(folder / "tables"))
    with ExitStack() as stack:
        lab = stack.enter_context(Lab(folder, network, broker=broker))
        lab.clear()
        progress.log_to(folder / "log" / "run.log")
        wait = stack.enter_context(kind.source(settings, folder))
        spark_and_tables = SYSTEM_THREADS.start("tables", create_tables, settings, progress)
        started = f"{'broker, ' * broker}switches and hosts"
        with progress.stage(f"starting {started}") as stage:
            lab.up()
            at = f", broker {lab.bootstrap_servers}" if broker else ""
            stage.finished = f"started {len(network.switches)} switches at {lab.p4runtime}{at}"
        progress.parts.begin("Spark and tables")
        spark, tables = spark_and_tables.result()
        if not keep_spark:
            stack.push(lambda kind, *_: session.end(spark, silently=kind is not None))
        lifecycle.hold_jvm(spark)
        settings = dataclasses.replace(
            settings,
            checkpoint=str(folder / "checkpoint"),
            udp_window=deployment.WINDOW,
        )
        if len(lab.ingress) == 1:
            endpoint = lab.ingress[settings.publisher]
            settings = dataclasses.replace(settings, udp_endpoint=endpoint)
        if broker:
            kafka = machine.kafka_options() | settings.kafka
            kafka["bootstrap.servers"] = lab.bootstrap_servers
            settings = dataclasses.replace(settings, kafka=kafka)
        rows = kind.rows(settings, network, lab.p4runtime)
        fill(tables, {**rows, **deployment.ingress_rows(lab.ingress)})
        count, hosts = len(rows["subscriptions"]), {r["subscriber"] for r in rows["subscriptions"]}
        progress.parts.begin("switch entries")
        entries = f"switch entries for {count} subscriptions of {len(hosts)} hosts"
        with progress.stage(f"writing {entries}", f"wrote {entries}"):
            refresh(tables, settings, lifecycle)
        with progress.stage(f"generating {kind.noun}", f"generated {kind.noun}"):
            source = wait()
        yield RunningLab(settings, lab, spark, tables, source)


def check_publishers(settings: Settings, network: Network) -> None:
    """Raise SettingsError ``BAD_VALUE`` if the setting names a publisher that is not in the lab."""
    names = network.publishers()
    unknown = [name for name in listed(settings.publisher) if name not in names]
    if unknown:
        number = len(unknown)
        raise SettingsError(
            "BAD_VALUE",
            f"{PREFIX}publisher is {settings.publisher!r}, but the embedded lab has no "
            f"{'publisher' if number == 1 else 'publishers'} {', '.join(unknown)}: use "
            f"{', '.join(names)}, or start the lab with more publishers (--publishers NUMBER)",
            key=f"{PREFIX}publisher",
        )


def prepare(settings: Settings, options: RunOptions) -> tuple[Path, Network]:
    """Returns the lab's folder and network.

    Raises SettingsError ``BAD_VALUE``, LabError, NetworkError.
    """
    folder = options.path
    if settings.sink != "udp":
        raise SettingsError(
            "BAD_VALUE",
            f"spark.stackcast.sink is {settings.sink!r}, but the embedded lab supports only "
            "the udp sink: configure your own broker and tables for other sinks",
        )
    if options.session and folder in Path(options.session).absolute().parents:
        raise SettingsError(
            "BAD_VALUE",
            f"--session names {options.session}, which is in the folder of the lab, and each run "
            "empties that folder: move the file to another folder",
        )
    return folder, load_network(options.network_options(settings.encoding, settings.label_bits))


def create_tables(settings: Settings, progress: Progress) -> tuple[SparkSession, Tables]:
    """Start Spark and create the tables. Raises SettingsError, TableError."""
    with progress.stage("starting Spark and creating tables", "started Spark and created tables"):
        return _create_tables(settings)


def _create_tables(settings: Settings) -> tuple[SparkSession, Tables]:
    spark = session.start("stackcast embedded", defaults=machine.spark_properties())
    if settings.match != "network":
        # One compiles, if it must, and leaves a core to the other starts; all others load.
        warm_up(spark, workers=1)
    tables = open_tables(spark, settings.tables)
    tables.create()
    return spark, tables


def fill(tables: Tables, rows: Mapping[str, Sequence[dict[str, Any]]]) -> None:
    """Writes what the lab's tables hold before its jobs run."""
    parallel_map(SYSTEM_THREADS, "fill", lambda item: tables.append(*item), rows.items(), len(rows))


def refresh(tables: Tables, settings: Settings, lifecycle: Lifecycle) -> None:
    """Puts the switches in step with the tables. Raises LabError ``SWITCHES_OUT_OF_SYNC``."""
    with Refresher(tables, settings, lifecycle.stopping) as refresher:
        behind = refresher.once()
    for name, why in behind.items():
        raise LabError(
            "SWITCHES_OUT_OF_SYNC",
            f"{len(behind)} switches are out of sync with the tables, the first is {name}: {why}",
        )
