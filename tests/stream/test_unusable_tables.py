"""Edits that make tables unusable: the last good version stays live, also after a restart."""

from __future__ import annotations

import pytest
from pcap_deployment import Deployment, records

from udfs.messages.specification import Specification

pytestmark = pytest.mark.integration

UNUSABLE = {
    "hosts": ({"host": "h1"}, {"switch": "nowhere"}),
    "virtual_trees": ({"tree_id": 1}, {"edges": [{"u": "nowhere", "v": "pod1-rack1"}]}),
}


@pytest.mark.parametrize("latency", ["microbatch", "realtime"])
def test_the_last_good_network_and_trees_stay_live(
    deployment: Deployment, itch: Specification, latency: str
) -> None:
    deployment.set(latency=latency, realtime_slice="300 milliseconds")
    good = {name: deployment.tables.version(name) for name in UNUSABLE}
    packets = iter(records())

    def publish() -> None:
        deployment.publish([next(packets) for _ in range(20)])

    publish()
    steps = []
    for name, (where, columns) in UNUSABLE.items():
        steps.append(lambda n=name, w=where, c=columns: deployment.change(n, w, **c))
        steps.append(publish)
    deployment.run(*steps)
    publish()
    deployment.run()
    assert all(deployment.tables.version(name) > version for name, version in good.items())
    ledger = [dict(row["versions"]) for row in deployment.ledger]
    assert len(ledger) >= 3
    assert all({name: row[name] for name in UNUSABLE} == good for row in ledger)
    outcome = deployment.outcome(itch)
    assert (outcome.missing, outcome.extra, outcome.duplicates) == (0, 0, 0)
    assert outcome.received > 0
