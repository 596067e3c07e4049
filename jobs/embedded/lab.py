"""The bring-up of an embedded run: lab, Spark, tables and switch entries, taken down at its end."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from jobs.adapters.app import session
from jobs.adapters.app.lifecycle import Lifecycle
from jobs.adapters.app.settings import Settings
from jobs.adapters.stream.warm_up import warm_up
from jobs.adapters.switches.lead import Refresher
from jobs.adapters.tables.tables import Tables
from jobs.embedded.kinds import RunKind, in_background
from lab.fabric.topologies import NetworkOptions, load_network
from lab.up import deployment
from lab.up.lab import Lab
from udfs.errors import LabError, SettingsError
from udfs.network.network import Network

log = logging.getLogger("stackcast.lab")


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

    def settle(self) -> dict[str, Any]:
        """Waits until nothing is on its way to a host; returns what the network counted."""
        status = self.lab.settle()
        log.info("comparing what the hosts received with what they were owed")
        return status


@contextmanager
def bring_up(
    settings: Settings,
    lifecycle: Lifecycle,
    kind: RunKind,
    *,
    broker: bool = True,
    keep_spark: bool = False,
) -> Iterator[RunningLab]:
    """Brings a lab up and takes it down again, whatever happens in between.

    broker: with a Kafka broker, and settings that lead to it. keep_spark: leave its session to a
    run that comes after this one.

    Raises SettingsError ``BAD_VALUE``, LabError, NetworkError, TableError.
    """
    folder, network = prepare(settings)
    settings = dataclasses.replace(settings, tables=str(folder / "tables"))
    with ExitStack() as stack:
        lab = stack.enter_context(Lab(folder, network, broker=broker))
        lab.clear()
        wait = stack.enter_context(kind.source(settings, folder))
        log.info("starting switches, hosts, %sSpark and its workers", "a broker, " * broker)
        spark_and_tables = in_background(lambda: open_tables(settings))
        lab.up()
        at = f"broker {lab.bootstrap_servers}; " if broker else ""
        log.info("%s%d switches at %s", at, len(network.switches), lab.p4runtime)
        if not spark_and_tables.done():
            log.info("waiting for Spark and its tables")
        spark, tables = spark_and_tables.result()
        if not keep_spark:
            stack.callback(spark.stop)
        lifecycle.hold_jvm(spark)
        settings = dataclasses.replace(
            settings,
            checkpoint=str(folder / "checkpoint"),
            udp_endpoint=lab.ingress[settings.publisher],
            udp_window=deployment.WINDOW,
        )
        if broker:
            kafka = settings.kafka | {"bootstrap.servers": lab.bootstrap_servers}
            settings = dataclasses.replace(settings, kafka=kafka)
        fill(tables, kind.rows(settings, network, lab.p4runtime))
        refresh(tables, settings, lifecycle)
        yield RunningLab(settings, lab, spark, tables, wait())


def prepare(settings: Settings) -> tuple[Path, Network]:
    """Returns the lab's folder and network.

    Raises SettingsError ``BAD_VALUE``, LabError, NetworkError.
    """
    folder = Path(settings.lab_folder).absolute()
    if settings.sink != "udp":
        raise SettingsError(
            "BAD_VALUE",
            f"spark.stackcast.sink is {settings.sink!r}, but the embedded lab is reached by udp "
            "only: configure a broker and tables of your own for other sinks",
        )
    if settings.lab_session and folder in Path(settings.lab_session).absolute().parents:
        raise SettingsError(
            "BAD_VALUE",
            f"spark.stackcast.lab.session is {settings.lab_session!r}, which lies in the lab's own "
            "folder; every run empties that: move the file elsewhere",
        )
    network = load_network(network_options(settings))
    # In the words of the report's map, where a link is one line; the lab has one publisher.
    log.info(
        "network: %d switches, %d subscribers, 1 publisher, %d links",
        len(network.switches),
        len(network.subscribers()),
        len({frozenset((link.switch, link.neighbor)) for link in network.links}),
    )
    return folder, network


def network_options(settings: Settings) -> NetworkOptions:
    """Returns the choice of the lab's network that the settings make."""
    return NetworkOptions(
        pods=settings.lab_pods,
        racks=settings.lab_racks,
        hosts=settings.lab_hosts,
        planes=settings.lab_planes,
        spines=settings.lab_spines,
        hosts_per_switch=settings.lab_hosts if "lab.hosts" in settings.given else 1,
        name="" if settings.lab_network == "fabric" else settings.lab_network,
        label_bits=settings.label_bits,
    )


def open_tables(settings: Settings) -> tuple[SparkSession, Tables]:
    """Starts Spark and makes the tables. Raises SettingsError, TableError."""
    spark = session.start("stackcast embedded")
    if settings.match != "network":
        # One compiles, if it must, and leaves a core to the other starts; all others load.
        warm_up(spark, workers=1)
    tables = Tables(spark, settings.tables)
    tables.create()
    log.info("tables are in %s", tables.location)
    return spark, tables


def fill(tables: Tables, rows: Mapping[str, Sequence[dict[str, Any]]]) -> None:
    """Writes what the lab's tables hold before its jobs run."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(tables.append, rows, rows.values()))
    subscriptions = rows["subscriptions"]
    hosts = {row["subscriber"] for row in subscriptions}
    log.info("%d subscriptions by %d hosts", len(subscriptions), len(hosts))


def refresh(tables: Tables, settings: Settings, lifecycle: Lifecycle) -> None:
    """Puts the switches in step with the tables. Raises LabError ``SWITCHES_NOT_IN_STEP``."""
    with Refresher(tables, settings, lifecycle.stopping) as refresher:
        behind = refresher.once()
    for name, why in behind.items():
        raise LabError(
            "SWITCHES_NOT_IN_STEP",
            f"{len(behind)} switches do not hold their entries, the first: {name}: {why}",
        )
