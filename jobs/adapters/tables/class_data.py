"""Makes the archive of class data (CDS) that the JVMs of all jobs start with.

    export SPARK_SUBMIT_OPTS=-XX:ArchiveClassesAtExit=FILE
    python -m stackcast.jobs.adapters.tables.class_data

A JVM that maps the archive does without reading and linking some ten thousand classes of Spark's
jars. Run is what most jobs run; the JVM writes the classes that it loaded for that as it ends.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import SparkSession, functions

from stackcast.jobs.adapters.app import session
from stackcast.jobs.adapters.tables.edits import replace_changed
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.tables import Tables

#: What asks a broker, which is not there.
KAFKA = ("consumer.KafkaConsumer", "admin.KafkaAdminClient", "producer.KafkaProducer")
HOST = {"host": "h", "switch": "s", "port": 1, "mac": 1, "ipv4": "1.2.3.4", "role": "subscriber"}


def main() -> None:
    """Runs a bit of everything, and returns when the JVM has ended."""
    spark = session.start("class data")
    with tempfile.TemporaryDirectory() as folder:
        tables = open_tables(spark, f"{folder}/tables")
        tables.create("hosts", "subscriptions")
        _edit(spark, tables)
        _stream(spark, tables, Path(folder))
        _load_kafka(spark)
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def _edit(spark: SparkSession, tables: Tables) -> None:
    for number in range(3):
        tables.append("hosts", [HOST | {"host": f"h{number}"}])
    replace_changed(tables, "hosts", [HOST], ("host",))
    path = f"{tables.location}/hosts"
    spark.sql(f"UPDATE delta.`{path}` SET port = 2 WHERE host = 'h'")
    DeltaTable.forPath(spark, path).delete("port = 2")
    tables.rows("hosts")


def _stream(spark: SparkSession, tables: Tables, folder: Path) -> None:
    def batch(frame: Any, _: int) -> None:
        frame.mapInArrow(lambda parts: parts, frame.schema).agg(functions.count("*")).collect()

    query = (
        spark.readStream.format("delta")
        .load(f"{tables.location}/hosts")
        .writeStream.option("checkpointLocation", f"{folder}/checkpoint")
        .option("ignoreChanges", True)
        .foreachBatch(batch)
        .start()
    )
    query.processAllAvailable()
    query.stop()


def _load_kafka(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    for name in KAFKA:
        jvm.java.lang.Class.forName(f"org.apache.kafka.clients.{name}")
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", "k:1")
    source.option("subscribe", "t").load()


if __name__ == "__main__":
    main()
