"""What both ways of the embedded default need: the lab's network, its session, its tables."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from jobs.adapters.app import session
from jobs.adapters.app.lifecycle import Lifecycle
from jobs.adapters.app.settings import Settings
from jobs.adapters.stream.warm_up import warm_up
from jobs.adapters.switches.refresh import Refresher
from jobs.adapters.tables.tables import Tables
from lab.fabric.topologies import NetworkOptions, load_network
from lab.up.process import child_options, stop_process
from udfs.errors import LabError, SettingsError
from udfs.network.network import Network

log = logging.getLogger("stackcast.lab")

T = TypeVar("T")


def prepare(settings: Settings) -> tuple[Path, Network]:
    """The lab's folder and network. Raises SettingsError ``BAD_VALUE``, LabError, NetworkError."""
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
    log.info(
        "network: %d switches, %d hosts, %d directed links",
        len(network.switches),
        len(network.subscribers()),
        len(network.links),
    )
    return folder, network


def network_options(settings: Settings) -> NetworkOptions:
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
    """Raises SettingsError, TableError."""
    spark = session.start("stackcast embedded")
    if settings.match != "network":
        # One compiles, if it must, and leaves a core to the other starts; all others load.
        warm_up(spark, workers=1)
    tables = Tables(spark, settings.tables)
    tables.create()
    log.info("tables are in %s", tables.location)
    return spark, tables


def fill(tables: Tables, rows: Mapping[str, Sequence[dict[str, Any]]]) -> None:
    """Write what the lab's tables hold before its jobs run."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(tables.append, rows, rows.values()))
    subscriptions = rows["subscriptions"]
    hosts = {row["subscriber"] for row in subscriptions}
    log.info("%d subscriptions by %d hosts", len(subscriptions), len(hosts))


def refresh(tables: Tables, settings: Settings, lifecycle: Lifecycle) -> None:
    with Refresher(tables, settings, lifecycle.stopping.is_set) as refresher:
        behind = [s for s in refresher.refresh(refresher.derive()) if not s["in_step"]]
    if behind:
        raise LabError(
            "SWITCHES_NOT_IN_STEP",
            f"{len(behind)} switches do not hold their entries, the first: {behind[0]['switch']}: "
            + "; ".join(behind[0]["errors"]),
        )
