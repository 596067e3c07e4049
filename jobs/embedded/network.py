"""The embedded default where the switches match: one trading session through the network, proved.

Sends the records' packets whole into the publisher's switch, and compares what the hosts received
with what they were owed. Neither broker nor stream: Spark reads and writes tables, and sees no
packet.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from jobs.adapters.app.lifecycle import Lifecycle
from jobs.adapters.app.settings import FORMATS, Settings
from jobs.adapters.planning import formats
from jobs.adapters.tables.tables import GRANTS, Tables
from jobs.adapters.wire import open_sink, sink_options
from jobs.embedded.feed import Fed
from jobs.embedded.kinds import RunKind
from jobs.embedded.lab import RunningLab, bring_up
from jobs.embedded.progress import Progress
from jobs.embedded.proof import RunProof, shown_subscriptions
from lab.proof import verification
from lab.proof.receipts import receipts
from lab.report.showcase import FilteredShowcase
from lab.traffic.packets import SESSION
from udfs.filters.grants import Grants
from udfs.filters.subscriptions import CheckedRule, check, select
from udfs.messages.attributes.registry import Registry
from udfs.messages.specification import Specification
from udfs.network.network import Network

log = logging.getLogger("stackcast.lab")


def run(
    settings: Settings,
    lifecycle: Lifecycle,
    kind: RunKind,
    progress: Progress,
    keep_spark: bool = False,
) -> int:
    """Delivers the records of ``kind`` once, on the embedded lab, by switches that match.

    keep_spark: leave its session to a run that comes after this one. Returns the exit code: 0 only
    if every delivery was exact.
    """
    began = time.monotonic()
    with bring_up(settings, lifecycle, kind, progress, broker=False, keep_spark=keep_spark) as up:
        with progress.stage(f"{kind.noun} into the network") as stage:
            fed = _feed(up, lifecycle, kind, lambda done, _: progress.count(stage, done, done))
        with progress.stage("what hosts received, compared with what they were owed"):
            network, folder, status = up.lab.network, up.lab.folder, up.lab.settle()
            proof = NetworkProof(up.settings, kind, up.tables, network, fed, folder, status)
        proof.write(time.monotonic() - began)
    return 0 if proof.exact else 1


def _feed(
    up: RunningLab, lifecycle: Lifecycle, kind: RunKind, progress: Callable[[int, int], None]
) -> Fed:
    """Sends the records into the publisher's switch; returns when all are in the network."""
    publisher = up.lab.network.host(up.settings.publisher)
    with closing(open_sink(sink_options(up.settings))) as sink:
        fed = kind.feed(
            up.settings, up.tables, publisher, sink, up.source, lifecycle.stopping, progress
        )
    log.info("%d frames, %d %s in %.1f s", len(fed.packets), fed.messages, kind.noun, fed.seconds)
    return fed


class NetworkProof(RunProof):
    """The proof of a run of switches that match, by what was fed and the hosts' receipts."""

    def __init__(
        self,
        settings: Settings,
        kind: RunKind,
        tables: Tables,
        network: Network,
        fed: Fed,
        folder: Path,
        status: Mapping[str, Any],
    ) -> None:
        self._fed = fed
        self._specification = formats.specification_of(settings, tables)
        self._subscriptions = tables.rows("subscriptions")
        self._rejected = {row["id"] for row in tables.rows("rejected_subscriptions")}
        self._read = kind.frame_reader()
        self._registry = kind.registry(settings, tables)
        rows, _ = select(self._subscriptions, settings.format, FORMATS, settings.rule_quota)
        hosts = set(network.subscribers())
        grants = Grants.of_table(tables.rows(GRANTS), settings.format, self._specification)
        rules, _ = check(rows, self._specification, hosts, settings.publisher, grants)
        self._rules = [rule for rule in rules if rule.id not in self._rejected]
        owed = expected(fed.packets, self._rules, self._specification, self._read, self._registry)
        compared = verification.compare(owed, receipts(folder, kind.receipt), pruned=True)
        super().__init__(settings, network, folder, status, owed, compared, kind.framing)

    @property
    def exact(self) -> bool:
        carried = self._status["frames_in"] == len(self._fed.packets)
        return self._compared.exact and carried and bool(self._fed.packets)

    def _figures(self) -> dict[str, Any]:
        return {
            "messages_in": self._fed.messages,
            "messages_matched": self._expected.messages_matched,
            "frames_sent": len(self._fed.packets),
            "rejected_subscriptions": len(self._rejected),
            "dead_letters": self._expected.dead_letters.total(),
            "feed_seconds": round(self._fed.seconds, 1),
        }

    def _samples(self) -> dict[str, Any]:
        showcase = FilteredShowcase(
            self._network,
            self._specification,
            self._settings.publisher,
            self._read,
            self._registry,
        )
        live = (row for row in self._subscriptions if row["id"] not in self._rejected)
        return {
            "subscriptions": shown_subscriptions(live, self._expected),
            "notifications": showcase.notifications(self._fed.packets, self._rules, self._expected),
        }


def expected(
    packets: Iterable[tuple[int, int, bytes]],
    rules: Sequence[CheckedRule],
    specification: Specification,
    read: verification.RecordReader | None = None,
    registry: Registry | None = None,
) -> verification.Expectation:
    """Returns what hosts are owed of packets as `Fed` has them, all under the same rules."""
    all_of_it = verification.Batch(0, {0: (0, 1 << 62)}, rules, registry)
    return verification.expected(packets, [all_of_it], specification, "", SESSION, read)
