"""The wire of the benchmark: a veth pair in a network namespace of its own, else the UDP tunnel.

The namespace goes when the benchmark's processes go, so nothing is left on the machine.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NEAR, FAR = "sc-near", "sc-far"
_QUEUES = "numtxqueues 8 numrxqueues 8"
_INSIDE = "STACKCAST_BENCH_INSIDE"
_SOURCE = Path(__file__).with_name("sendmmsg.c")


def enter_namespace() -> None:
    """Start this program anew in a namespace, as root or as a user's own root; else go on here."""
    if _INSIDE in os.environ or not (shutil.which("unshare") and shutil.which("ip")):
        return
    command = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
    if subprocess.run([*command, "true"], check=False, capture_output=True).returncode:
        return
    os.environ[_INSIDE] = "1"
    os.execvp(command[0], [*command, sys.executable, *sys.argv])


@dataclass(frozen=True)
class Wire:
    """The wire of the benchmark: frames are sent on ``near`` and arrive at ``far``. Pickles.

    kind: af_packet (interfaces) or udp (both the same endpoint, ``host:port``).
    """

    kind: str
    near: str
    far: str

    @classmethod
    def make(cls) -> Wire:
        if _INSIDE not in os.environ:
            return cls.make_tunnel()
        for command in (
            "link set lo up",
            # AF_XDP has a queue for each worker.
            f"link add {NEAR} {_QUEUES} type veth peer name {FAR} {_QUEUES}",
            # No neighbour discovery: all frames on the interface are the benchmark's.
            f"link set {NEAR} addrgenmode none",
            f"link set {FAR} addrgenmode none",
            f"link set {NEAR} up",
            f"link set {FAR} up",
        ):
            subprocess.run(["ip", *command.split()], check=True)
        return cls("af_packet", NEAR, FAR)

    @classmethod
    def make_tunnel(cls) -> Wire:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("127.0.0.1", 0))
            endpoint = f"127.0.0.1:{probe.getsockname()[1]}"
        return cls("udp", endpoint, endpoint)

    def settings(self) -> dict[str, Any]:
        """Returns the jobs' settings that lead to it."""
        if self.kind == "udp":
            return {"sink": "udp", "udp_endpoint": self.near, "udp_window": 0}
        return {"sink": "af_packet", "interface": self.near}

    def hold(self) -> socket.socket:
        """Holds the far end of a tunnel open: a datagram to nobody would be refused."""
        far = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        if self.kind == "udp":
            host, _, port = self.far.partition(":")
            far.bind((host, int(port)))
        return far

    def sent(self) -> int:
        """Returns frames that went out so far; of a tunnel those that arrived, read or dropped, as
        what the kernel cuts counts once where it goes out."""
        if self.kind == "udp":
            lines = Path("/proc/self/net/snmp").read_text("utf-8").splitlines()
            names, values = (line.split() for line in lines if line.startswith("Udp: "))
            return sum(int(values[names.index(name)]) for name in ("InDatagrams", "InErrors"))
        return int(self._counters()[9])

    def sent_bytes(self) -> int:
        """Their bytes; 0 for a tunnel, which does not count them."""
        return 0 if self.kind == "udp" else int(self._counters()[8])

    def _counters(self) -> list[str]:
        for line in Path("/proc/self/net/dev").read_text("utf-8").splitlines():
            name, _, values = line.partition(":")
            if name.strip() == self.near:
                return values.split()
        raise OSError(f"there is no interface {self.near}")

    def limit(self, size: int, seconds: float, processes: int) -> float | None:
        """Returns frames of ``size`` bytes a second by a C program; None where no compiler is."""
        compiler = shutil.which("cc")
        if compiler is None:
            return None
        with tempfile.TemporaryDirectory() as folder:
            program = f"{folder}/sendmmsg"
            subprocess.run([compiler, "-O2", "-o", program, str(_SOURCE)], check=True)
            command = [program, self.near, str(size), str(seconds)]
            started = [
                subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
                for _ in range(processes)
            ]
            answers = [each.communicate()[0].split() for each in started]
        return sum(int(frames) / float(took) for frames, took in answers)
