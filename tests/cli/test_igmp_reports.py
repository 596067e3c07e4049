"""IGMP reports of ``stackcast receive``, read by scapy."""

from __future__ import annotations

import pytest
from scapy.layers.igmp import IGMPv3_MR

from stackcast.cli.receive.igmp_reports import internet_checksum, membership_report

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("sources", [[], ["10.0.0.1"], ["10.0.0.1", "10.255.0.2"]])
def test_a_report_names_the_group_and_its_sources(sources: list[str]) -> None:
    content = membership_report("233.54.12.1", sources)
    report = IGMPv3_MR(content)
    assert report.type == 0x22
    (record,) = report.records
    assert record.maddr == "233.54.12.1"
    # MODE_IS_INCLUDE lists sources to receive, MODE_IS_EXCLUDE sources to ignore.
    assert record.rtype == (1 if sources else 2)
    assert record.srcaddrs == sources


def test_the_checksum_is_that_of_scapy() -> None:
    content = membership_report("239.255.255.255", ["255.255.255.255"] * 9)
    report = IGMPv3_MR(content)
    del report.chksum
    assert bytes(report) == content
    assert internet_checksum(content) == 0
