"""Definitions of tables, read without Spark, are those that Spark reads."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from stackcast.jobs.adapters.tables.definitions import NAMES, definition, statement

pytestmark = pytest.mark.integration


def test_spark_reads_the_same_definitions(spark: SparkSession) -> None:
    state: Any = spark._jsparkSession.sessionState()
    jvm: Any = spark._jvm
    convert = jvm.scala.jdk.javaapi.CollectionConverters
    for name in NAMES:
        plan = state.sqlParser().parsePlan(statement(name, name))
        defined = definition(name)
        assert json.loads(defined.schema) == json.loads(str(plan.tableSchema().json())), name
        assert defined.comment == str(plan.tableSpec().comment().get())
        entries = convert.asJava(plan.tableSpec().properties()).entrySet().toArray()
        assert defined.properties == {str(e.getKey()): str(e.getValue()) for e in entries}
