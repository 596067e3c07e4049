"""A disk that gets full leaves pcap files that can be read."""

from __future__ import annotations

import subprocess
import sys

import pytest

from stackcast.jobs.adapters.wire.pcap import read_pcap

pytestmark = pytest.mark.integration

# A limit on the size of files stands for the end of the disk: the write is a partial one, too.
PROGRAM = """
import resource, signal, sys
import numpy as np
from stackcast.jobs.adapters.wire import SinkOptions, open_sink
from stackcast.udfs.errors import SinkError
path, limit = sys.argv[1], int(sys.argv[2])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
sink = open_sink(SinkOptions("pcap", path=path))
offsets = np.arange(0, 1001, 100, dtype=np.int64)
try:
    while True:
        sink.send(np.arange(1000, dtype=np.uint8), offsets)
        print("sent", flush=True)
except SinkError as error:
    print(error)
"""


@pytest.mark.parametrize("limit", [10, 24, 1000, 5000])
def test_a_frame_is_whole_or_not_there(tmp_path, limit):
    path = tmp_path / "x.pcap"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, path, str(limit)],
        capture_output=True,
        text=True,
        check=True,
    )
    *sent, told = done.stdout.splitlines()
    assert f"SINK.WRITE_FAILED: {path}: " in told
    assert len(sent) == max(0, (limit - 24) // 1160)
    held = [r.frame for r in read_pcap(path.open("rb"))] if path.exists() else []
    assert len(held) == 10 * len(sent)
    assert path.exists() == (len(sent) > 0)
