"""Places without a scheme, where the default file system is another than this machine's."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.kafka.topics import Topics
from stackcast.jobs.adapters.stream import failures
from stackcast.jobs.adapters.stream.spark_watch import watch_stream
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.udfs.errors import StreamError

pytestmark = pytest.mark.integration

KEY = "fs.defaultFS"
#: Nobody is asked there.
FAR = "hdfs://127.0.0.1:9"


@pytest.fixture
def far(spark: SparkSession) -> Iterator[SparkSession]:
    configuration = spark._jsc.hadoopConfiguration()
    before = configuration.get(KEY)
    configuration.set(KEY, FAR)
    yield spark
    configuration.set(KEY, before)


def test_tables_are_where_spark_looks_for_them(spark, far, tmp_path):
    tables = open_tables(far, str(tmp_path))
    assert not tables.local and tables.location == f"{FAR}{tmp_path}"
    # One that says it is here is here.
    here = open_tables(far, f"file:{tmp_path}")
    assert here.local and here.location == str(tmp_path)
    assert open_tables(far, "s3a://bucket/tables").location == "s3a://bucket/tables"
    assert open_tables(far, "catalog.schema").location == "catalog.schema"


def test_on_a_default_file_system_of_this_machine_a_path_is_of_it(spark, tmp_path):
    tables = open_tables(spark, f"{tmp_path}/t/")
    assert tables.local and tables.location == f"{tmp_path}/t"


def test_no_disk_of_this_machine_is_told_to_be_full_for_what_is_elsewhere(
    far, tmp_path, monkeypatch
):
    empty = SimpleNamespace(free=0, total=1 << 30)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: empty)
    settings = Settings(
        tables=str(tmp_path / "t"),
        checkpoint=str(tmp_path / "c"),
        sink="pcap",
        pcap_path=str(tmp_path / "out.pcap"),
        kafka={"bootstrap.servers": "127.0.0.1:1"},
    )
    watch = watch_stream(far, settings, Topics(far, settings))
    assert watch.full_disks() == ("sink",)
    told = failures.after_failure(far, settings, StreamError("FAILED", "No space left on device"))
    assert "the checkpoint" not in told.message and "the tables" not in told.message
    assert "the pcap sink" in told.message
