"""Reports why this host receives nothing, and what its own kernel drops."""

from __future__ import annotations

from stackcast.cli.receive.failures import tell
from stackcast.cli.receive.kernel_counters import read_counters
from stackcast.cli.receive.sockets import Wires

#: Seconds without a datagram before the first renewal and report.
_SILENCE = 5.0
#: Longest time between renewals, in seconds. A switch that snoops IGMP forgets a port after 260.
_LONGEST_PAUSE = 60.0
#: Shortest time between reports of drops, in seconds.
_DROPS_PAUSE = 30.0
_TICK = 1.0

#: Counters that explain silence, with their file and what to do.
_COUNTERS = {
    "TcpExt.IPReversePathFilter": (
        "/proc/net/netstat",
        "reverse-path filtering drops datagrams whose source this host would not reach by the "
        "interface: add a route to the publisher by it, or set rp_filter of the interface and of "
        "all to 0 (sysctl net.ipv4.conf)",
    ),
    "Udp.RcvbufErrors": (
        "/proc/net/snmp",
        "receive buffers are full: raise net.core.rmem_max (sysctl)",
    ),
    "Udp.InCsumErrors": (
        "/proc/net/snmp",
        "UDP checksums are wrong: look at checksum offload of the sender and at devices that "
        "rewrite datagrams",
    ),
}
_NO_CAUSE = (
    "the kernel of this host counts no drops and shows no fault: check that the publisher sends, "
    "that frames arrive (tcpdump), and that switches which snoop IGMP have a querier"
)


class HostWatch:
    """Watches the sockets of a receiver.

    After 5 seconds without a datagram it renews the membership and reports what the kernel counts.
    It renews again after 10, 20 and 40 seconds, then once a minute, or every second while the
    interface has a fault. It reports again when the silence has doubled, or when causes change. It
    reports drops of its sockets at most every 30 seconds.

    Args:
        wires: sockets to watch.
        where: address and interface, for messages.
        moment: monotonic clock, seconds.
    """

    def __init__(self, wires: Wires, where: str, moment: float) -> None:
        self._wires = wires
        self._where = where
        self._tick_at = moment
        self._drops = 0
        self._drops_at = moment
        self._start_silence(moment)

    def check(self, moment: float) -> None:
        """Renew and report if due. Most calls only compare the time."""
        if moment < self._tick_at:
            return
        self._tick_at = moment + _TICK
        self._report_drops(moment)
        if self._wires.heard != self._heard:
            if self._causes is not None:
                tell(f"{self._where}: datagrams arrive again")
            self._start_silence(moment)
        elif moment >= self._renew_at:
            self._break_silence(moment)

    def end(self, moment: float) -> bool:
        """Report why nothing was received at all.

        Returns:
            True if nothing was received and the kernel shows a cause.
        """
        if self._wires.heard:
            return False
        membership = self._wires.membership
        causes = self._find_causes(membership.fault() if membership else "")
        if causes != self._causes:
            self._report(moment, causes)
        return bool(causes)

    def _start_silence(self, moment: float) -> None:
        self._heard = self._wires.heard
        self._since = moment
        self._counters = read_counters()
        self._causes: dict[str, str] | None = None
        self._renew_at = moment + _SILENCE
        self._report_at = moment + _SILENCE

    def _break_silence(self, moment: float) -> None:
        membership = self._wires.membership
        fault = membership.fault() if membership else ""
        causes = self._find_causes(fault)
        error = membership.renew() if membership else ""
        if error:
            causes[error] = error
        silence = moment - self._since
        # A missing interface may return at any time; looking for it sends nothing to the network.
        self._renew_at = moment + (_TICK if fault else min(silence, _LONGEST_PAUSE))
        if moment >= self._report_at or causes.keys() != (self._causes or {}).keys():
            self._report(moment, causes, renewed=bool(membership) and not error)
            self._report_at = moment + silence

    def _find_causes(self, fault: str) -> dict[str, str]:
        """Return a fault of the membership, and counters that rose, each with what to do."""
        causes = {fault: fault} if fault else {}
        counters = read_counters()
        for name, (file, remedy) in _COUNTERS.items():
            if rise := counters.get(name, 0) - self._counters.get(name, 0):
                counter = name.partition(".")[2]
                causes[name] = f"{counter} in {file} rose by {rise:,}: {remedy}"
        return causes

    def _report(self, moment: float, causes: dict[str, str], renewed: bool = False) -> None:
        self._causes = causes
        joined = ", joined again" if renewed else ""
        tell(f"{self._where}: nothing received for {moment - self._since:.0f} s{joined}")
        for text in causes.values() or [_NO_CAUSE]:
            tell(f"  {text}")

    def _report_drops(self, moment: float) -> None:
        drops = self._wires.drops()
        if drops > self._drops and moment >= self._drops_at:
            self._drops = drops
            self._drops_at = moment + _DROPS_PAUSE
            tell(
                f"{self._where}: {drops:,} datagrams dropped by this host's kernel so far, because "
                "receive buffers were full or checksums wrong"
            )
