"""Summaries of slices announce to each host all that it received, without a gap."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from kafka_topics import kafka_topic
from pcap_deployment import MODEL, PUBLISHER, SLICES, Deployment, feed, records

from stackcast.jobs.adapters.wire.pcap import read_pcap
from stackcast.udfs.messages.sequence import OFFSET_SHIFT, session_id
from stackcast.udfs.messages.summaries import Summary
from stackcast.udfs.stacks.dissect import dissect

pytestmark = pytest.mark.integration


def test_summaries_of_slices_announce_each_notification(deployment: Deployment) -> None:
    deployment.set(**SLICES)
    deployment.publish(records()[:20])
    # Several slices, each with a few notifications per host.
    deployment.run(lambda: feed(deployment, records()[20:80], 0.05))
    received: defaultdict[tuple[str, bytes], list[int]] = defaultdict(list)
    announced: defaultdict[tuple[str, bytes], list[Summary]] = defaultdict(list)
    for path in Path(deployment.settings.pcap_path).glob("*.pcap"):
        for record in read_pcap(path.open("rb")):
            parts = dissect(record.frame)
            for host in MODEL.deliver(PUBLISHER, parts.labels).hosts:
                if parts.summary is not None:
                    announced[host, parts.summary.session].append(parts.summary)
                else:
                    received[host, parts.session].append(parts.sequence)
    topic = kafka_topic(deployment.settings)
    for partition, end in deployment.topics.end_offsets().items():
        session = session_id(topic, partition)
        for host in ("h1", "h2", "h4"):
            until = 0
            for summary in sorted(announced[host, session], key=lambda each: each.from_):
                assert summary.from_ <= until
                until = max(until, summary.until)
                keys = [s for s in received[host, session] if summary.from_ <= s < summary.until]
                assert summary.notifications == len(keys)
            assert until == end << OFFSET_SHIFT
