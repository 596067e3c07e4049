"""The Spark session of our jobs: what they cannot do without, whatever they run under."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app import local_folders
from stackcast.jobs.adapters.app.error_texts import quiet
from stackcast.jobs.adapters.app.settings import secret_keys
from stackcast.requirements import check_java, java_program
from stackcast.udfs.errors import SettingsError

log = logging.getLogger(__name__)

#: Without these our tables and kernels do not work, so a properties file cannot forget them.
REQUIRED = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
}
#: Variable by which a worker of a standalone cluster tells the secret to a driver that it starts;
#: Spark asks such a driver for the property.
_SECRET = "_SPARK_AUTH_SECRET"
#: Spark then encrypts broadcasts, shuffles and spills, with a key that only memory holds.
ENCRYPTION = "spark.io.encryption.enabled"
#: Whether Spark serves pages about the application; its own default is true.
PAGES = "spark.ui.enabled"
#: Module of the process that forks Python workers.
_DAEMON_MODULE = "spark.python.daemon.module"
#: Variable with the address at which Spark serves its pages; without it, on all interfaces.
_LOCAL_IP = "SPARK_LOCAL_IP"
LOOPBACK = "127.0.0.1"
#: Set once the program has begun to stop its session, which cuts off all tasks.
ending = threading.Event()
#: Time that a session has to stop at the end of its program. A JVM that is stuck may take longer.
END_SECONDS = 20.0


def start(
    name: str,
    others: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start the session of an application, with Delta and times in UTC.

    Spark's temporary files are encrypted if properties name a secret, as tasks get secrets by such
    files. Files of applications that were killed are removed. Spark serves pages only if properties
    enable them.

    Args:
        name: name of the application.
        others: properties of this application.
        defaults: properties for a session that is started here, unless they are configured.

    Raises:
        SettingsError: ``NO_DRIVER_HOST``, if executors elsewhere could not reach the driver.
    """
    configured = {**dict(properties()), **(others or {})}
    _check_driver_host(configured)
    builder = SparkSession.builder.appName(name)
    missing = {key: value for key, value in (defaults or {}).items() if key not in configured}
    if SparkContext._active_spark_context is not None:
        missing = {}
    own = {**_pages(configured), **missing, **_encryption(configured)}
    chosen = {**own, **(others or {}), **REQUIRED}
    for key, value in chosen.items():
        builder = builder.config(key, value)
    if _SECRET in os.environ:
        builder = builder.config("spark.authenticate.secret", os.environ[_SECRET])
    session: SparkSession = builder.getOrCreate()
    local_folders.claim(session)
    return session


def _encryption(configured: Mapping[str, str]) -> dict[str, str]:
    """Returns the property that encrypts Spark's temporary files, if they may contain a secret and
    the user has not decided."""
    secrets = secret_keys(configured)
    if not secrets:
        return {}
    if ENCRYPTION in configured:
        if configured[ENCRYPTION].lower() != "true":
            log.warning(
                "%s is %s: Spark's temporary files contain the values of %s in plain text",
                ENCRYPTION,
                configured[ENCRYPTION],
                ", ".join(secrets),
            )
        return {}
    if configured.get("spark.master", "").startswith("local"):
        # Spark warns that executors get the key in plain text. Here they are in this process.
        jvm: Any = SparkContext._jvm
        log4j = jvm.org.apache.logging.log4j
        log4j.core.config.Configurator.setLevel("org.apache.spark.SparkEnv", log4j.Level.ERROR)
    return {ENCRYPTION: "true"}


def _pages(configured: Mapping[str, str]) -> dict[str, str]:
    """Returns the property that disables Spark's pages, unless the user has decided. They have no
    login, and the address cannot be set any more once the JVM runs."""
    if PAGES not in configured:
        return {PAGES: "false"}
    if configured[PAGES].lower() == "true" and not _local_ip():
        log.warning(
            "%s is true and %s is not set: Spark serves its pages, which have no login, on all "
            "interfaces; set the variable to 127.0.0.1 in the environment of spark-submit",
            PAGES,
            _LOCAL_IP,
        )
    return {}


def _check_driver_host(configured: Mapping[str, str]) -> None:
    """Raises SettingsError NO_DRIVER_HOST if Spark would give executors elsewhere a loopback
    address of the driver. In cluster mode the cluster decides where the driver is."""
    address = _local_ip()
    on_one_machine = configured.get("spark.master", "").startswith("local")
    in_cluster_mode = configured.get("spark.submit.deployMode") == "cluster"
    reachable = on_one_machine or in_cluster_mode or configured.get("spark.driver.host")
    if address.startswith("127.") and not reachable:
        raise SettingsError(
            "NO_DRIVER_HOST",
            f"spark.driver.host is not set, and {_LOCAL_IP} is {address}, where Spark serves its "
            "pages: executors on other machines could not reach the driver; set spark.driver.host "
            "to an address at which they can reach it",
        )


def _local_ip() -> str:
    """Returns the address that the environment of the JVM says; empty if it says none."""
    jvm: Any = SparkContext._jvm
    return jvm.java.lang.System.getenv(_LOCAL_IP) or ""


def _ensure_jvm() -> None:
    """Start the JVM unless it runs, as under ``spark-submit``.

    Raises:
        RequirementError: ``JAVA``.
    """
    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        check_java(java_program())
    os.environ.setdefault(_LOCAL_IP, LOOPBACK)
    SparkContext._ensure_initialized()


def stop(spark: SparkSession) -> None:
    """Stop a session, after its streams and workers.

    A stream whose session stops under it fails with a long error.
    """
    with contextlib.suppress(Py4JError, OSError):
        for query in spark.streams.active:
            query.stop()
    end_workers(spark)
    spark.stop()


def active() -> SparkSession | None:
    """Return the session of this program; None if none runs."""
    if SparkContext._active_spark_context is None:
        return None
    session: SparkSession | None = SparkSession._instantiatedSession
    return session


def end(spark: SparkSession, *, silently: bool) -> None:
    """Stop a session at the end of its program, which waits at most `END_SECONDS` for it.

    Args:
        spark: the session.
        silently: whether the JVM logs nothing from now on. A program that ends with an error has
            reported the reason: the tasks and queries that end with it only repeat its effects.
    """

    def run() -> None:
        with contextlib.suppress(Py4JError, OSError):
            if silently:
                quiet(spark)
            stop(spark)

    ending.set()
    thread = threading.Thread(target=run, name="end of session", daemon=True)
    thread.start()
    with contextlib.suppress(KeyboardInterrupt):
        thread.join(END_SECONDS)


def end_workers(spark: SparkSession) -> None:
    """Ends the driver's Python workers, for a job that has no more tasks.

    Spark closes their sockets before it ends them: a worker that waits for a task then answers into
    the one that is closed, and prints a traceback of the pipe that broke.
    """
    with contextlib.suppress(Py4JError, OSError):
        jvm: Any = spark.sparkContext._jvm
        driver = str(jvm.java.lang.ProcessHandle.current().pid())
        module = spark.sparkContext.getConf().get(_DAEMON_MODULE, "pyspark.daemon") or ""
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                # After the name, which may have parentheses: state, parent.
                parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
                words = (process / "cmdline").read_bytes().split(b"\0")
                if parent == driver and module.encode() in words:
                    # It takes its workers with it.
                    os.kill(int(process.name), signal.SIGTERM)


class LateSession:
    """Stands for a session that starts when something is asked of it: an application that finds its
    tables in a folder mostly does without. For any thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._session: SparkSession | None = None

    @property
    def started(self) -> bool:
        """Whether the session has started."""
        return self._session is not None

    @property
    def _jvm(self) -> Any:
        """The JVM, which is there before a session is: Kafka's client needs none."""
        _ensure_jvm()
        return SparkContext._jvm

    def __getattr__(self, name: str) -> Any:
        with self._lock:
            if self._session is None:
                self._session = start(self._name)
        return getattr(self._session, name)


def configuration(spark: SparkSession | LateSession) -> dict[str, str]:
    """Returns the properties of a session. A `LateSession` is not started for that: before its
    start, it has those that were submitted."""
    if isinstance(spark, LateSession) and not spark.started:
        return dict(properties())
    return dict(spark.conf.getAll)


def hadoop_configuration(spark: SparkSession | LateSession) -> Any:
    """Returns Hadoop's configuration as a session has it, without starting a `LateSession`."""
    if isinstance(spark, LateSession) and not spark.started:
        spark_package = spark._jvm.org.apache.spark
        submitted = spark_package.SparkConf()
        return spark_package.deploy.SparkHadoopUtil.get().newConfiguration(submitted)
    context: Any = spark._jsc
    return context.hadoopConfiguration()


def properties() -> list[tuple[str, str]]:
    """Spark properties as submitted, without starting a session."""
    # Without its JVM a SparkConf is empty, whatever spark-submit was given.
    _ensure_jvm()
    pairs: list[tuple[str, str]] = SparkConf().getAll()
    return pairs


def runs_in_driver(master: str) -> bool:
    """Tells whether tasks run in the driver's own process.

    Executors of ``local-cluster[...]`` are processes of their own. master: ``spark.master``.
    """
    return master.partition("[")[0] == "local"


def slots(
    spark: SparkSession,
    wanted: int = 0,
    patience: float = 30.0,
    pause: float = 1.0,
    given_up: Callable[[], bool] = lambda: False,
) -> int:
    """Returns how many tasks can run at once; 0 where there is no executor.

    Executors of a cluster register after the session is there: it waits until there are ``wanted``
    slots, by default until their number stays the same for a ``pause``, and ``patience`` seconds at
    most, or until the wait is ``given_up``. Both are in seconds.
    """
    local = runs_in_driver(spark.sparkContext.master)
    deadline, before = time.monotonic() + patience, 0
    while True:
        now = _slots_now(spark)
        enough = now >= wanted if wanted else now and now == before
        if local or enough or time.monotonic() >= deadline or given_up():
            return now
        before = now
        time.sleep(pause)


def _slots_now(spark: SparkSession) -> int:
    """Not Spark's ``defaultParallelism``, which is 2 at least, with fewer slots and with none."""
    context: Any = spark.sparkContext._jsc.sc()
    profile = context.resourceProfileManager().defaultResourceProfile()
    return int(context.maxNumConcurrentTasks(profile))
