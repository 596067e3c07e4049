"""The documented deployment of attribute/value events: each of its commands, as pasted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_shell import Background, Shell, Step, clone, parameters
from doc_steps import ATTRIBUTE_DEPLOYMENT, ATTRIBUTE_RULE, ATTRIBUTE_STREAM
from documents import DOOR
from waiting import until

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with clone(tmp_path_factory.mktemp("clone")) as path:
        shell = Shell(path)
        yield shell
        shell.check(Step("stackcast lab down || true"))


@pytest.mark.parametrize("step", parameters(ATTRIBUTE_DEPLOYMENT))
def test_a_command_before_the_stream(step: Step, shell: Shell):
    shell.check(step)


def test_a_rule_goes_live_and_gets_the_events_that_follow(shell: Shell):
    for step in ATTRIBUTE_DEPLOYMENT:
        shell.check(step)
    with Background(shell, ATTRIBUTE_STREAM) as streams:
        shell.check(ATTRIBUTE_RULE)
        # Not the documented command: a shell runs each command once.
        shell.check(
            Step(
                "stackcast attributes publish events.jsonl --topic attributes.raw "
                "--bootstrap-servers $(awk '/bootstrap.servers/ {print $2}' var/lab/lab.conf)"
            )
        )
        receipts = Path(shell.folder) / "var" / "lab" / "receipts" / "h3.mold"
        until(lambda: receipts.exists() and receipts.stat().st_size)
        streams.interrupt(ATTRIBUTE_STREAM)
    attributes = Step(
        f"{DOOR} --properties-file var/lab/lab.conf jobs/run_sql.py "
        '"SELECT name, scale FROM attributes ORDER BY id"',
        prints="|temp|0.100000000000000000",
    )
    shell.check(attributes)
