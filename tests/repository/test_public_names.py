"""``import stackcast``: the names for programs of users."""

from __future__ import annotations

import doctest
import subprocess
import sys

import pytest
from state_hosts import state_hosts

import stackcast

pytestmark = pytest.mark.integration

NAMES = sorted({*stackcast.__all__} - {"__version__"})
#: Their examples need middlewares, a replica controller and a switch.
OF_STATES = ("Replica", "StatesClient")


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
    assert dir(stackcast) == sorted(stackcast.__all__)
    assert all(getattr(stackcast, name) for name in stackcast.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Subscriptions'"):
        _ = stackcast.Subscriptions


@pytest.mark.parametrize("name", sorted({*NAMES} - {*OF_STATES}))
@pytest.mark.usefixtures("spark")
def test_the_example_of_each_name_prints_what_its_docstring_shows(name: str) -> None:
    run_example(name)


@pytest.mark.parametrize("name", OF_STATES)
def test_the_examples_of_states_print_what_their_docstrings_show(name: str) -> None:
    with state_hosts(2) as hosts:
        run_example(name, first=hosts.listen[2], second=hosts.listen[3])


def run_example(name: str, **given: object) -> None:
    """Run the example in the docstring of a public name, with these names defined."""
    public = getattr(stackcast, name)
    finder = doctest.DocTestFinder(recurse=False)
    (test,) = finder.find(public, name, globs=vars(sys.modules[public.__module__]) | given)
    assert test.examples
    outcome = doctest.DocTestRunner().run(test)
    assert outcome.attempted and not outcome.failed
