"""How the JVMs of Sparks run that tests start, here or in processes of their own.

Such a Spark lives for seconds or minutes. In that time the better compiler takes more than it gives
(a third of the time), and so does Java code that Spark makes and compiles for each query (half of
the processor's time of tests that write tables).
"""

from __future__ import annotations

import os

VARIABLE = "SPARK_SUBMIT_OPTS"
#: Alone, the quick compiler would have 48 MB for its code, which Spark fills. To verify the classes
#: of jars that every run has takes a fifth of a start.
QUICK = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
#: A checkpoint of a table's log at each tenth commit costs more than it saves in such a time.
FEW_CHECKPOINTS = "-Dspark.databricks.delta.properties.defaults.checkpointInterval=100"
#: A stream that waits for records asks Kafka a hundred times a second: a quarter of a core with the
#: broker's part, while other tests want both.
SELDOM = "-Dspark.sql.streaming.pollingDelay=50ms"
#: What a query computes is the same.
INTERPRETED = "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"


def set_up() -> None:
    """Have all JVMs run so, but for what somebody said otherwise."""
    given = os.environ.get(VARIABLE, "")
    if INTERPRETED not in given:
        os.environ[VARIABLE] = " ".join((QUICK, INTERPRETED, FEW_CHECKPOINTS, SELDOM, given))


def as_shipped() -> dict[str, str]:
    """Returns the environment of a Spark that compiles and commits as users have it."""
    options = os.environ[VARIABLE]
    return {VARIABLE: options.replace(INTERPRETED, "").replace(FEW_CHECKPOINTS, "")}
