"""Settings of the JVMs and of the memory allocator of test runs.

A Spark of a test runs for seconds or minutes. In that time the optimizing compiler costs more than
it saves (a third of the time), and so does Java code that Spark generates and compiles for each
query (half of the processor time of tests that write tables).
"""

from __future__ import annotations

import os

VARIABLE = "SPARK_SUBMIT_OPTS"
#: The fast compiler alone would have 48 MB for its code, which Spark fills. Verification of the
#: classes of known jars takes a fifth of a start.
QUICK = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
#: A checkpoint of a table's log at each tenth commit costs more than it saves in this time.
FEW_CHECKPOINTS = "-Dspark.databricks.delta.properties.defaults.checkpointInterval=100"
#: A stream that waits for records asks Kafka a hundred times a second, which takes a quarter of a
#: core together with the broker's part.
SELDOM = "-Dspark.sql.streaming.pollingDelay=50ms"
#: Queries are interpreted, with the same results.
INTERPRETED = "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"
#: By default, each thread of a JVM may take its own arena of memory from the C library.
ARENAS = {"MALLOC_ARENA_MAX": "2"}


def set_up() -> None:
    """Set the environment of all programs that tests start; settings of users take precedence."""
    users = os.environ.get(VARIABLE, "")
    if INTERPRETED not in users:
        os.environ[VARIABLE] = " ".join((QUICK, INTERPRETED, FEW_CHECKPOINTS, SELDOM, users))
    for name, value in ARENAS.items():
        os.environ.setdefault(name, value)


def as_shipped() -> dict[str, str]:
    """Returns the environment of a Spark that compiles and commits with the defaults of users."""
    options = os.environ[VARIABLE]
    return {VARIABLE: options.replace(INTERPRETED, "").replace(FEW_CHECKPOINTS, "")}
