"""The section of docs/reference/lab-switch.md on several switches by hand, as a reader types it.

The commands run in a network namespace. With ``--bmv2 FILE``, ``simple_switch_grpc`` is BMv2's
program. Otherwise it is a script that starts the software switch with the same options, so that the
test covers interfaces, ports, tables, refresher and frames, but not how BMv2 parses its options.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

from stackcast.udfs.stacks.dissect import dissect

pytestmark = pytest.mark.integration

PAGE = (ROOT / "docs/how-to/use-bmv2.md").read_text()
SECTION = PAGE.split("## Connect several switches by hand")[1].split("\n## ")[0]
BLOCKS = [
    "\n".join(line[4:] for line in block.splitlines())
    for block in re.findall(r"(?:^ {4}.*\n)+", SECTION, re.MULTILINE)
]
SWITCHES, LINKS, FRAMES = BLOCKS
HOSTS = {"feed1": ("s1", 1, "10.64.0.1"), "h1": ("s2", 2, "10.0.0.1"), "h2": ("s3", 2, "10.0.0.2")}
ENDS = {
    1: ("s1", 1, "feed1"), 2: ("s1", 2, "s2", 1), 3: ("s2", 1, "s1", 2), 4: ("s1", 3, "s3", 1),
    5: ("s3", 1, "s1", 3), 6: ("s2", 2, "h1"), 7: ("s3", 2, "h2"),
}  # fmt: skip

#: Starts the software switch by those options of simple_switch_grpc that the text uses.
BMV2 = """
import os, sys
own, _, target = " ".join(sys.argv[1:]).partition(" -- ")
words = own.split()
assert words.pop(0) == "--no-p4", own
options = list(zip(words[::2], words[1::2], strict=True))
(device,) = (value for name, value in options if name == "--device-id")
links = [value.split("@") for name, value in options if name == "-i"]
assert len(options) == 1 + len(links), own
grpc, address = target.split()
assert grpc == "--grpc-server-addr", target
ports = [part for number, end in links for part in ("--port", f"{number}={end}")]
line = ["switch", "run", "--device-id", device, "--grpc", address, *ports]
os.execv(sys.executable, [sys.executable, "-m", "stackcast.cli.main", *line])
"""

#: Prints frames that arrive at the hosts' interfaces, as lines of JSON, until its input ends.
CAPTURE = """
import json, select, socket, sys
ends = {}
for name in ("h1", "h2"):
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    end.bind((name, 0))
    ends[end] = name
print("ready", flush=True)
while True:
    ready, _, _ = select.select([sys.stdin, *ends], [], [])
    if ready == [sys.stdin]:
        break
    for end in ready:
        if end in ends:
            frame, address = end.recvfrom(65535)
            if address[2] != socket.PACKET_OUTGOING:
                print(json.dumps([ends[end], frame.hex()]), flush=True)
"""

SCRIPT = """
set -eu
ip link set lo up
{switches}
for port in 9561 9562 9563; do
  until (: > /dev/tcp/127.0.0.1/$port) 2> /dev/null; do sleep 0.2; done
done
mkfifo stop
{python} capture.py < stop > frames &
capture=$!
exec 3> stop
until grep -q ready frames; do sleep 0.1; done
{frames}
# The ready line, and three frames. Frames too many would come with them.
until [ "$(wc -l < frames)" -ge 4 ]; do sleep 0.1; done
sleep 1
exec 3>&-
wait $capture
for switch in $(jobs -p); do kill $switch; done
wait
"""


def network() -> dict[str, list[dict[str, object]]]:
    links = [
        {"link_id": number, "switch": switch, "port": port, "neighbor": neighbor}
        | ({"neighbor_port": far[0]} if far else {})
        | {"weight": 1, "up": True}
        for number, (switch, port, neighbor, *far) in ENDS.items()
    ]
    pairs = [("feed1", "s1"), ("s1", "s2"), ("s1", "s3"), ("s2", "h1"), ("s3", "h2")]
    tree = {"tree_id": 1, "edges": [{"u": u, "v": v} for u, v in pairs]}
    return {
        "switches": [
            {
                "switch": f"s{number}",
                "device_id": number,
                "address": f"127.0.0.1:956{number}",
                "pipeline": "virtual_trees",
            }
            for number in (1, 2, 3)
        ],
        "hosts": [
            {
                "host": name,
                "switch": switch,
                "port": port,
                "mac": 0x020000000000 + number,
                "ipv4": ipv4,
                "role": "publisher" if name == "feed1" else "subscriber",
            }
            for number, (name, (switch, port, ipv4)) in enumerate(HOSTS.items())
        ],
        "links": links,
        "virtual_trees": [tree | {"strategy": "by hand", "state": "active"}],
    }


def executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@pytest.mark.parametrize(
    "real",
    [
        pytest.param(False, marks=pytest.mark.long),
        pytest.param(True, marks=pytest.mark.bmv2),
    ],
)
def test_the_recipe_leads_frames_to_the_hosts_that_the_text_names(
    real: bool, namespace: list[str], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    rows = network()
    # The text shows rows of this network.
    for line in LINKS.splitlines():
        assert json.loads(line) in rows["links"]
    (tmp_path / "three").mkdir()
    for name, table in rows.items():
        text = "".join(json.dumps(row) + "\n" for row in table)
        (tmp_path / "three" / f"{name}.jsonl").write_text(text)
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    python = f'exec "{sys.executable}"'
    (tmp_path / "bmv2.py").write_text(BMV2)
    (tmp_path / "capture.py").write_text(CAPTURE)
    executable(bin_ / "sudo", '#!/bin/sh\nexec "$@"\n')
    software_switch = f'{python} "{tmp_path}/bmv2.py" "$@"'
    bmv2 = f'exec {pytestconfig.getoption("--bmv2")} "$@"'
    switch = f'#!/bin/sh\n{bmv2 if real else software_switch} >> "{tmp_path}/switches"\n'
    executable(bin_ / "simple_switch_grpc", switch)
    executable(bin_ / "stackcast", f'#!/bin/sh\n{python} -m stackcast.cli.main "$@"\n')
    (tmp_path / "switches").touch()
    # The environment exists already.
    executable(tmp_path / "spark-submit.sh", '#!/bin/sh\nexec spark-submit "$@"\n')
    for name in ("jobs", "p4", "schemas"):
        (tmp_path / name).symlink_to(ROOT / name)
    script = SCRIPT.format(switches=SWITCHES, frames=FRAMES, python=sys.executable)
    result = subprocess.run(
        [*namespace, "bash", "-c", script],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PATH": f"{bin_}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    received = [json.loads(line) for line in (tmp_path / "frames").read_text().splitlines()[1:]]
    sent = [line for line in result.stdout.splitlines() if re.fullmatch("[0-9a-f]{100,}", line)]
    assert len(sent) == 3
    # The tree leads to both, hop labels lead to h1, and a host's port leads to neither.
    assert sorted(host for host, _ in received) == ["h1", "h1", "h2"]
    for _, frame in received:
        plain = dissect(bytes.fromhex(frame))
        assert not plain.labels and plain.session == b"BYHAND    "
    if real:
        return  # BMv2 does not print its drops
    counts = [json.loads(line) for line in (tmp_path / "switches").read_text().splitlines()]
    drops = [line["drops"] for line in counts if line.get("drops")]
    assert drops == [{"ingress.dropped[13]": 1}]
