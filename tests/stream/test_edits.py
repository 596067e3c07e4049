"""Edits of a running stream's tables."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from pcap_deployment import Deployment, records

pytestmark = pytest.mark.integration


def until(told: Callable[[], object], expected: object) -> None:
    deadline = time.monotonic() + 120
    while (seen := told()) != expected:
        assert time.monotonic() < deadline, seen
        time.sleep(0.1)


def edit(deployment: Deployment, text: str) -> None:
    deployment.sql(f"UPDATE {{}} SET filter = '{text}' WHERE id = 'high'", "subscriptions")


def test_edits_answer_while_nothing_flows(deployment: Deployment) -> None:
    def rejected() -> dict[str, str]:
        rows = deployment.tables.rows("rejected_subscriptions")
        return {row["id"]: row["code"] for row in rows}

    def in_quiet() -> None:
        edit(deployment, "prise > 200")
        until(rejected, {"high": "SUBSCRIPTION.UNKNOWN_FIELD"})
        edit(deployment, "price > 100")
        until(rejected, {})

    deployment.publish(records()[:10])
    deployment.run(in_quiet, lambda: deployment.publish(records()[10:40]))
    # No batch ran for it, and the next one goes by the last edit.
    first, *_, last = deployment.ledger
    versions = [dict(row["versions"])["subscriptions"] for row in (first, last)]
    assert versions[1] - versions[0] == 2


def test_a_rule_that_is_most_likely_not_meant_is_live_with_a_warning(
    deployment: Deployment,
) -> None:
    def warned() -> set[tuple[str, str]]:
        rows = deployment.tables.rows("subscription_warnings")
        return {(row["id"], row["code"]) for row in rows}

    def in_quiet() -> None:
        edit(deployment, "price > 200 and price < 100")
        until(warned, {("high", "SUBSCRIPTION.NEVER_TRUE")})
        edit(deployment, "price > 100")
        until(warned, set())

    deployment.publish(records()[:10])
    deployment.run(in_quiet, lambda: deployment.publish(records()[10:40]))
    assert not deployment.tables.rows("rejected_subscriptions")
