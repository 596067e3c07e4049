"""What Spark's JVM logs of names that others write is one line a record, and obeyed by nobody."""

from __future__ import annotations

import re
from typing import Any

import pytest
from paths import ROOT
from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

HOSTILE = "h\x1b[2J\x1b]0;owned\x07\r\x08\x9b31m\u202e\u2028\x85end"
FORGED = "h1\n2026-01-01 00:00:00,000 ERROR   jobs: all is lost"


@pytest.fixture(scope="module")
def layout(spark: SparkSession) -> Any:
    """The layout of conf/log4j2.properties, made by log4j of the file's own words."""
    jvm: Any = spark._jvm
    properties = jvm.java.util.Properties()
    text = (ROOT / "conf/log4j2.properties").read_text()
    properties.load(jvm.java.io.StringReader(text))
    own = "appender.stderr.layout."
    return (
        jvm.org.apache.logging.log4j.core.layout.PatternLayout.newBuilder()
        .withPattern(properties.getProperty(f"{own}pattern"))
        .withAlwaysWriteExceptions(properties.getProperty(f"{own}alwaysWriteExceptions") == "true")
        .build()
    )


def written(spark: SparkSession, layout: Any, said: str, raised: str = "") -> str:
    jvm: Any = spark._jvm
    core = jvm.org.apache.logging.log4j
    event = core.core.impl.Log4jLogEvent.newBuilder().setLoggerName("org.x.Y")
    event.setLevel(core.Level.WARN).setMessage(core.message.SimpleMessage(said))
    if raised:
        event.setThrown(jvm.java.lang.RuntimeException(raised))
    return str(layout.toSerializable(event.build()))


@pytest.mark.parametrize("name", [HOSTILE, FORGED])
def test_a_record_of_the_jvm_is_one_line_whatever_it_names(
    spark: SparkSession, layout: Any, name: str
) -> None:
    out = written(spark, layout, f"host {name} asks")
    assert out.count("\n") == 1 and out.endswith("asks\n")
    assert re.match(r"\d{4}-\d\d-\d\d [\d:,]+ WARN    Y: host h", out)
    assert out[:-1].isprintable()


def test_of_errors_by_delta_only_the_one_on_filters_with_deletion_vectors_is_hidden(
    spark: SparkSession,
) -> None:
    jvm: Any = spark._jvm
    core = jvm.org.apache.logging.log4j
    content = jvm.java.io.FileInputStream(str(ROOT / "conf/log4j2.properties"))
    source = core.core.config.ConfigurationSource(content)
    factory = core.core.config.properties.PropertiesConfigurationFactory()
    configuration = factory.getConfiguration(core.LogManager.getContext(False), source)
    configuration.initialize()
    name = "org.apache.spark.sql.delta.DeltaParquetFileFormat"
    logger = configuration.getLoggerConfig(name)
    assert logger.getLevel() == core.Level.ERROR

    def hidden(message: str) -> bool:
        event = core.core.impl.Log4jLogEvent.newBuilder().setLoggerName(name)
        event.setLevel(core.Level.ERROR).setMessage(core.message.SimpleMessage(message))
        return bool(logger.isFiltered(event.build()))

    assert hidden("Failed to translate filter EqualTo(id,\na)")
    assert not hidden("Failed to read a deletion vector")


@pytest.mark.parametrize("name", [HOSTILE, FORGED])
def test_a_stack_of_the_jvm_has_no_line_that_looks_like_a_record(
    spark: SparkSession, layout: Any, name: str
) -> None:
    first, *stack = written(spark, layout, "failed", name).splitlines()
    assert first.endswith("WARN    Y: failed")
    assert stack and "RuntimeException: h" in stack[0]
    assert all(line.startswith("    ") for line in stack)
    assert all(line.replace("\t", "").isprintable() for line in stack)
