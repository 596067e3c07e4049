"""A stream in real time does not need more resources with every slice, and delivers exactly.

./spark-submit.sh test --soak MINUTES
"""

from __future__ import annotations

import faulthandler
import os
import sys
import time

import pytest
import soak
from pcap_deployment import Deployment, exact_deliveries, records

from stackcast.installation import var_folder
from stackcast.udfs.messages.specification import Specification

pytestmark = pytest.mark.long

#: Minutes in the long tier.
MINUTES = 5.0
#: Ten times as many as by default.
SLICES = {"latency": "realtime", "realtime_slice": "50 milliseconds"}


def test_a_stream_of_short_slices_neither_grows_nor_slows_down(
    deployment: Deployment,
    itch: Specification,
    pytestconfig: pytest.Config,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def report(line: str) -> None:
        with capfd.disabled():
            print(line, flush=True)

    def edit(number: int) -> None:
        deployment.change("subscriptions", {"id": "high"}, filter=f"price > {100 + number % 100}")

    deployment.set(**SLICES)
    minutes = pytestconfig.getoption("--soak") or MINUTES
    # The time after which pytest ends a test that hangs is shorter than a long soak.
    limit = 60 * minutes + float(pytestconfig.getini("faulthandler_timeout"))
    faulthandler.dump_traceback_later(limit, exit=True, file=sys.__stderr__)
    run = soak.Soak(deployment, 60 * minutes, edit, report)
    report("")
    # Steps begin when a first batch has ended.
    deployment.publish(records()[:10])
    deployment.run(run.run)
    series = run.series()
    began = time.monotonic()
    deliveries = exact_deliveries(deployment, itch)
    path = var_folder() / "soak.json"
    soak.write(path, run, series, minutes=minutes, deliveries=deliveries)
    report(soak.table(series))
    report(
        f"{run.slices:,} slices ({run.slices / minutes / 60:.1f} per second), {run.edits} edits, "
        f"{deliveries:,} deliveries, all exact (checked in {time.monotonic() - began:.0f} s); "
        f"load {os.getloadavg()[0]:.1f}; samples: {path}"
    )
    assert run.times[-1] >= 60 * minutes - 2 * soak.SAMPLE_SECONDS - 60 * minutes / soak.SAMPLES
    growing = [each.name for each in series if not each.verdict.is_flat]
    assert not growing, f"these series grow: {'; '.join(growing)}"
