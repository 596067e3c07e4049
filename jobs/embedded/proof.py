"""The proof of an embedded run: deliveries held against what was owed, counted, written down."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jobs.adapters.app.settings import Settings
from lab.proof import verification
from lab.report import page
from udfs.network.drawing import drawing
from udfs.network.network import Network


class RunProof(ABC):
    """One run's deliveries and its report; what went in, and how, is the subclass's.

    folder: of the lab; the report is written there. status: what the network counted. expected,
    compared: what hosts were owed, and how what they received differs from it. framing: of frames
    that carry whole packets or events, for the bytes that other ways would have taken.
    """

    def __init__(
        self,
        settings: Settings,
        network: Network,
        folder: Path,
        status: Mapping[str, Any],
        expected: verification.Expectation,
        compared: verification.Tallies,
        framing: verification.Framing = verification.PACKETS,
    ) -> None:
        self._settings = settings
        self._network = network
        self._folder = folder
        self._status = status
        self._expected = expected
        self._compared = compared
        self._framing = framing

    @property
    @abstractmethod
    def exact(self) -> bool:
        """True if everything went in and every delivery was as owed."""

    @abstractmethod
    def _figures(self) -> dict[str, Any]:
        """The figures of ``report.json`` on what went in."""

    @abstractmethod
    def _samples(self) -> dict[str, Any]:
        """``subscriptions``, ``notifications`` and ``batches`` of the page."""

    def write(self, seconds: float) -> dict[str, Any]:
        """Prints the table, writes report.json and report.html; returns the figures.

        seconds: that the run took.
        """
        compared, expected = self._compared, self._expected
        publisher, framing = self._settings.publisher, self._framing
        summary = self._figures() | {
            "deliveries_expected": compared.expected,
            "deliveries_received": compared.received,
            "missing": compared.missing,
            "extra": compared.extra,
            "duplicates": compared.duplicates,
            "out_of_order": compared.out_of_order,
            "misnumbered": compared.misnumbered,
            "link_bytes": sum(self._status["link_bytes"].values()),
            "unicast_bytes": verification.unicast_bytes(
                self._network, publisher, expected, framing
            ),
            "broadcast_bytes": verification.broadcast_bytes(self._network, expected, framing),
            "seconds": round(seconds, 1),
        }
        shown = drawing(self._network) | self._samples()
        hosts = compared.rows()
        page.print_table(summary, hosts)
        page.write_json(self._folder / "report.json", summary)
        page.write_html(self._folder / "report.html", page.ReportData(summary, hosts, **shown))
        print(f"report: {self._folder / 'report.html'}")
        return summary


def shown_subscriptions(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns rows of ``subscriptions`` as the page has them; those that rest are left out."""
    return [
        {"id": row["id"], "host": row["subscriber"], "filter": row["filter"]}
        for row in rows
        if row["enabled"]
    ]
