"""The stream in real time delivers exactly, wherever its process is killed.

Its real modules run on tables, files, Kafka, clock and engine in memory.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st
from paths import SUPPORT
from simulated_stream import RULES, Deployment, Kill, tell

pytestmark = pytest.mark.integration

STATEFUL = {**RULES, "state": ("h4", "count(100000000000000) > 30 and price > 0")}
#: More than the effects of a story.
MOST_EFFECTS = 250


def check(deployment: Deployment) -> None:
    """Fail unless all records are delivered, recorded and covered by summaries as rules say."""
    verdict = deployment.verdict()
    assert verdict.proved and not verdict.waiting, "\n".join(verdict.lines())
    summaries = deployment.summaries()
    assert summaries.exact, summaries


@pytest.mark.parametrize("rules", [RULES, STATEFUL], ids=["without state", "with state"])
def test_a_stream_that_is_not_killed_delivers_each_message_once(rules) -> None:
    deployment = Deployment(rules)
    tell(deployment)
    check(deployment)
    assert deployment.verdict().repeats == 0


def test_a_simulation_takes_the_same_course_each_time() -> None:
    runs = [Deployment(), Deployment()]
    effects = [tell(deployment, [Kill(60)]) for deployment in runs]
    assert effects[0] == effects[1]
    assert runs[0].hosts.received == runs[1].hosts.received


@pytest.mark.parametrize(
    ("rules", "power"),
    [(RULES, False), (RULES, True), (STATEFUL, False)],
    ids=["killed", "without power", "with state"],
)
@pytest.mark.parametrize("effect", range(1, MOST_EFFECTS, 23))
def test_a_stream_that_is_killed_continues_without_a_gap(effect: int, rules, power: bool) -> None:
    deployment = Deployment(rules)
    tell(deployment, [Kill(effect, power)])
    check(deployment)


@pytest.mark.long
@pytest.mark.parametrize("rules", [RULES, STATEFUL], ids=["without state", "with state"])
@pytest.mark.parametrize("effect", range(1, MOST_EFFECTS))
def test_a_stream_can_be_killed_before_each_effect(effect: int, rules) -> None:
    deployment = Deployment(rules)
    tell(deployment, [Kill(effect)])
    check(deployment)


@pytest.mark.long
@pytest.mark.parametrize("effect", range(1, 60))
@pytest.mark.parametrize("earlier", [[Kill(72)], [Kill(72), Kill(11)]], ids=["once", "twice"])
def test_a_stream_can_be_killed_before_each_effect_of_a_recovery(
    earlier: list[Kill], effect: int
) -> None:
    deployment = Deployment()
    tell(deployment, [*earlier, Kill(effect)])
    check(deployment)


@examples(40)
# The pin of a slice was left that had been sent again as part of the one before.
@example(kills=[Kill(72), Kill(11), Kill(46)], stateful=False)
@given(
    kills=st.lists(st.builds(Kill, st.integers(1, 120), st.booleans()), min_size=2, max_size=5),
    stateful=st.booleans(),
)
def test_a_stream_that_is_killed_several_times_continues_without_a_gap(
    kills: list[Kill], stateful: bool
) -> None:
    deployment = Deployment(STATEFUL if stateful else RULES)
    tell(deployment, kills)
    check(deployment)


def test_a_simulation_uses_no_external_system_no_file_and_no_sleep() -> None:
    command = [sys.executable, str(SUPPORT / "simulation_program.py")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr[-4000:]
    assert "proved: nothing is lost" in result.stdout
