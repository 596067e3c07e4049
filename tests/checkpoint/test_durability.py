"""What recovery needs survives a power failure: each step is on the disk before the next begins."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pcap_deployment import Deployment, records

from stackcast.jobs.adapters.checkpoint.local_files import LocalFolder
from stackcast.jobs.adapters.stream.delivery import BatchDelivery

pytestmark = pytest.mark.integration

SENDS = "sends"


class Steps:
    """What is made durable, removed and sent, in its order."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        fsync, remove, work = os.fsync, LocalFolder.remove, BatchDelivery.work

        def synced(descriptor: int) -> None:
            fsync(descriptor)
            self.made.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

        def removed(folder: LocalFolder, name: str) -> None:
            self.made.append(f"without {folder.path(name)}")
            remove(folder, name)

        def sends(*given: Any, **named: Any) -> Any:
            self.made.append(SENDS)
            return work(*given, **named)

        patch.setattr(os, "fsync", synced)
        patch.setattr(LocalFolder, "remove", removed)
        patch.setattr(BatchDelivery, "work", sends)

    def first(self, step: Path | str, after: int = 0) -> int:
        return self.made.index(str(step), after)


@pytest.mark.parametrize("latency", ["microbatch", "realtime"])
def test_each_step_is_durable_before_what_follows_from_it(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, latency: str
) -> None:
    first = deployment.tables.rows("subscriptions")[0]
    rule = {"id": "state", "subscriber": "h4", "filter": "count(10000000) > 5 and price > 0"}
    deployment.tables.append("subscriptions", [first | rule])
    deployment.set(latency=latency, realtime_slice="300 milliseconds", ledger_interval="1 second")
    steps = Steps(monkeypatch)
    deployment.publish(records()[:20])
    deployment.run(lambda: deployment.publish(records()[20:40]))
    checkpoint, tables = Path(deployment.settings.checkpoint), Path(deployment.settings.tables)
    last = deployment.ledger[-1]["batch_id"]
    assert last > 0
    pins, states, reports = (checkpoint / f"stackcast-{n}" for n in ("pins", "state", "reports"))

    # The tables that it is made from, then its pin, then its frames.
    rules = tables / "subscriptions" / "_delta_log"
    at = steps.first(rules / f"{deployment.tables.version('subscriptions'):020d}.json")
    at = steps.first(rules, at)
    at = steps.first(pins / f".{last}.json.draft", at)
    at = steps.first(pins, at)
    sent = steps.first(SENDS, at)
    if latency == "microbatch":
        assert steps.first(checkpoint / "offsets" / f"{last}") < sent
    # Then its state, then its report.
    at = steps.first(states / f".{last}.bin.draft", sent)
    at = steps.first(states, at)
    at = steps.first(reports / f".{last}.json.draft", at)
    at = steps.first(reports, at)
    # Then its rows, and only then the report goes.
    for table in ("delivery_statistics", "publication_statistics", "egress_ledger"):
        log = tables / table / "_delta_log"
        commit = log / f"{deployment.tables.version(table):020d}.json"
        assert any(Path(step).suffix == ".parquet" for step in steps.made[at : steps.first(commit)])
        at = steps.first(commit, at)
        at = steps.first(log, at)
    steps.first(f"without {reports / f'{last}.json'}", at)
