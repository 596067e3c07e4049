"""``import stackcast``: the names for programs of users."""

from __future__ import annotations

import doctest
import subprocess
import sys

import pytest
from pyspark.sql import SparkSession

import stackcast

pytestmark = pytest.mark.integration

#: Their examples need a middleware, a controller and switches; docs/states.md has one, which a test
#: runs.
IN_DOCS = {"Replica", "StatesClient"}
NAMES = sorted({*stackcast.__all__} - {"__version__"})


def test_importing_it_loads_neither_spark_nor_numba() -> None:
    program = "import sys, stackcast; print(sorted({m.partition('.')[0] for m in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "'stackcast'" in done.stdout
    for name in ("pyspark", "numba", "numpy", "pandas", "pyarrow", "kafka"):
        assert f"'{name}'" not in done.stdout


def test_there_are_at_most_twenty_names_and_each_is_there() -> None:
    assert len(stackcast.__all__) <= 20
    assert {*stackcast.__all__} <= {*dir(stackcast)}
    assert all(getattr(stackcast, name) for name in stackcast.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Subscriptions'"):
        _ = stackcast.Subscriptions


@pytest.mark.parametrize("name", sorted({*NAMES} - IN_DOCS))
def test_the_example_of_each_name_prints_what_its_docstring_shows(
    name: str, spark: SparkSession
) -> None:
    found = getattr(stackcast, name)
    finder = doctest.DocTestFinder(recurse=False)
    (test,) = finder.find(found, name, globs=dict(vars(sys.modules[found.__module__])))
    assert test.examples
    outcome = doctest.DocTestRunner().run(test)
    assert outcome.attempted and not outcome.failed
