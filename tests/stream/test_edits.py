"""Edits of a running stream's tables."""

from __future__ import annotations

import time

import pytest
from pcap_deployment import Deployment, records

pytestmark = pytest.mark.integration


def test_edits_answer_while_nothing_flows(deployment: Deployment) -> None:
    def rejected() -> dict[str, str]:
        rows = deployment.tables.rows("rejected_subscriptions")
        return {row["id"]: row["code"] for row in rows}

    def until(expected: dict[str, str]) -> None:
        deadline = time.monotonic() + 120
        while rejected() != expected:
            assert time.monotonic() < deadline, rejected()
            time.sleep(0.1)

    def edit(text: str) -> None:
        deployment.sql(f"UPDATE {{}} SET filter = '{text}' WHERE id = 'high'", "subscriptions")

    def in_quiet() -> None:
        edit("prise > 200")
        until({"high": "SUBSCRIPTION.UNKNOWN_FIELD"})
        edit("price > 100")
        until({})

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

    def until(expected: set[tuple[str, str]]) -> None:
        deadline = time.monotonic() + 120
        while warned() != expected:
            assert time.monotonic() < deadline, warned()
            time.sleep(0.1)

    def edit(text: str) -> None:
        deployment.sql(f"UPDATE {{}} SET filter = '{text}' WHERE id = 'high'", "subscriptions")

    def in_quiet() -> None:
        edit("price > 200 and price < 100")
        until({("high", "SUBSCRIPTION.NEVER_TRUE")})
        edit("price > 100")
        until(set())

    deployment.publish(records()[:10])
    deployment.run(in_quiet, lambda: deployment.publish(records()[10:40]))
    assert not deployment.tables.rows("rejected_subscriptions")
