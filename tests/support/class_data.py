"""Class data of Spark's jars (CDS), made once an environment: a JVM that maps them starts with a
quarter less of the processor's time than one that reads and links some ten thousand classes.

A process beside the tests makes the archive, where a whole run finds none. JVMs that start before
it is there, or whose class path is another, do without and say nothing.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

VARIABLE = "SPARK_SUBMIT_OPTS"


def folder() -> Path:
    """Where archives are kept."""
    return Path(os.environ.get("STACKCAST_VAR") or ROOT / "var") / "class-data"


def archive() -> Path:
    """The archive of this environment's jars: others have another name."""
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    made = hashlib.sha256()
    for jar in sorted((Path(spec.origin).parent / "jars").glob("*.jar")):
        stat = jar.stat()
        made.update(f"{jar} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return folder() / f"{made.hexdigest()[:16]}.jsa"


def option() -> str:
    """What a JVM needs to map the archive, and to keep quiet where it cannot."""
    return f'"-XX:SharedArchiveFile={archive()}" -Xlog:disable'


def class_path() -> dict[str, str]:
    """An environment in which Spark's class path begins with its jars.

    Class data are of no use behind a folder with files in it, as ``conf`` is. Spark puts the
    folder of its settings first: by a name with a colon it finds the settings, and the JVM, for
    which a colon ends an entry, nothing. Behind the jars ``conf`` does no harm, and is found.
    """
    link = folder() / "conf:"
    with suppress(OSError):
        link.parent.mkdir(parents=True, exist_ok=True)
        if link.is_symlink() and link.readlink() != ROOT / "conf":
            link.unlink()
        if not link.is_symlink():
            link.symlink_to(ROOT / "conf")
    if not link.is_dir():
        return {}
    return {"SPARK_CONF_DIR": str(link), "SPARK_DIST_CLASSPATH": str(ROOT / "conf")}


def make() -> None:
    """Run what most JVMs of tests run, and keep the classes that it loaded."""
    from delta.tables import DeltaTable  # noqa: PLC0415
    from pyspark.sql import functions  # noqa: PLC0415

    from jobs.adapters.app import session  # noqa: PLC0415
    from jobs.adapters.tables.tables import Tables  # noqa: PLC0415

    place = archive()
    half = place.with_suffix(f".{os.getpid()}")
    given = os.environ[VARIABLE].replace(option(), "")
    os.environ[VARIABLE] = f'{given} "-XX:ArchiveClassesAtExit={half}" -Xlog:disable'
    spark = session.start("class data")
    with tempfile.TemporaryDirectory() as temporary:
        tables = Tables(spark, f"{temporary}/tables")
        tables.create("hosts", "subscriptions", "egress_ledger")
        row = {
            "host": "h",
            "switch": "s",
            "port": 1,
            "mac": 1,
            "ipv4": "1.2.3.4",
            "role": "subscriber",
        }
        for number in range(3):
            tables.append("hosts", [row | {"host": f"h{number}"}])
        tables.replace_changed("hosts", [row], ("host",))
        spark.sql(f"UPDATE delta.`{tables.location}/hosts` SET port = 2 WHERE host = 'h'")
        DeltaTable.forPath(spark, f"{tables.location}/hosts").delete("port = 2")
        tables.rows("hosts")

        def batch(frame: Any, _: int) -> None:
            frame.mapInArrow(lambda parts: parts, frame.schema).agg(functions.count("*")).collect()

        query = (
            spark.readStream.format("delta")
            .load(f"{tables.location}/subscriptions")
            .writeStream.option("checkpointLocation", f"{temporary}/checkpoint")
            .foreachBatch(batch)
            .start()
        )
        tables.append(
            "subscriptions",
            [
                dict.fromkeys(tables.read("subscriptions").columns, "x")
                | {"enabled": True, "updated_at": None}
            ],
        )
        query.processAllAvailable()
        query.stop()
        # What it takes to ask a broker would need one.
        for name in ("consumer.KafkaConsumer", "admin.KafkaAdminClient", "producer.KafkaProducer"):
            spark._jvm.java.lang.Class.forName(f"org.apache.kafka.clients.{name}")
        spark.read.format("kafka").option("kafka.bootstrap.servers", "k:1").option(
            "subscribe", "t"
        ).load()
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    if half.exists():
        for old in folder().glob("*.jsa"):
            old.unlink()
        half.rename(place)


def _wanted(config: pytest.Config) -> bool:
    several = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    return bool(several) and "unit" not in config.option.markexpr and not archive().exists()


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, Any, Any]:
    """Have the archive made beside the first tests; it is waited for at the end."""
    if not _wanted(session.config):
        return (yield)
    path = os.pathsep.join(sys.path)
    maker = subprocess.Popen(
        [sys.executable, __file__],
        env=os.environ | {"PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        return (yield)
    finally:
        maker.wait()


if __name__ == "__main__":
    make()
