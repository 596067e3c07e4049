"""The proof of an embedded run: deliveries held against what was owed, counted, written down."""

from __future__ import annotations

import dataclasses
import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, utc
from stackcast.jobs.embedded.options import RunOptions
from stackcast.jobs.embedded.progress import Parts
from stackcast.lab.proof import verification
from stackcast.lab.report import page
from stackcast.udfs.network.drawing import drawing
from stackcast.udfs.network.network import Network

#: Settings and options that the page always shows, in addition to those that were given.
_SETTINGS = {"format", "latency", "match"}
_OPTIONS = ("network", "messages", "subscriptions", "seed", "speed")


class RunProof(ABC):
    """One run's deliveries and its report; what went in, and how, is the subclass's.

    folder: of the lab; the report is written there. status: what the network counted. expected,
    compared: what hosts were owed, and how what they received differs from it. framing: of frames
    that carry whole packets or events, for the bytes that other ways would have taken.
    """

    def __init__(
        self,
        settings: Settings,
        options: RunOptions,
        network: Network,
        folder: Path,
        status: Mapping[str, Any],
        expected: verification.Expectation,
        compared: verification.Tallies,
        framing: verification.Framing = verification.PACKETS,
    ) -> None:
        self._settings = settings
        self._options = options
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

    def write(self, parts: Parts) -> dict[str, Any]:
        """Print the table, and write report.json and report.html.

        Args:
            parts: parts of the run so far; the report becomes the last one.

        Returns:
            The figures of report.json.
        """
        parts.begin("report")
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
        }
        shown = drawing(self._network) | self._samples()
        seconds = parts.seconds()
        summary["seconds"] = round(sum(seconds.values()), 1)
        summary["parts"] = {name: round(value, 1) for name, value in seconds.items()}
        shown["run"] = self._run(summary["seconds"])
        hosts = compared.rows()
        page.print_table(summary, hosts)
        page.write_json(self._folder / "report.json", summary)
        page.write_html(self._folder / "report.html", page.ReportData(summary, hosts, **shown))
        print(f"report: {self._folder / 'report.html'}")
        return summary

    def _run(self, seconds: float) -> dict[str, Any]:
        """What the page says of the run as such."""
        began = utc(SYSTEM_CLOCK) - dt.timedelta(seconds=seconds)
        return {
            "began": began.isoformat(timespec="seconds"),
            "version": version("stackcast"),
            "network": self._network.words(),
            "labels": f"{self._network.labels.encoding}, {self._network.labels.bits} bits",
            "settings": {
                field.metadata["key"]: getattr(self._settings, field.name)
                for field in dataclasses.fields(Settings)
                if field.metadata.get("key") in _SETTINGS | self._settings.given
            }
            | self._shown_options(),
        }

    def _shown_options(self) -> dict[str, Any]:
        values = {name: getattr(self._options, name) for name in _OPTIONS}
        return {f"--{name}": value for name, value in (values | self._options.changed()).items()}


def shown_subscriptions(
    rows: Iterable[Mapping[str, Any]], expectation: verification.Expectation
) -> list[dict[str, Any]]:
    """Returns rows of ``subscriptions`` as the page has them, with the messages that each matched;
    those that rest are left out."""
    matches = expectation.matches
    return [
        {
            "id": row["id"],
            "host": row["subscriber"],
            "filter": row["filter"],
            "matched": matches[row["id"]].count if row["id"] in matches else 0,
        }
        for row in rows
        if row["enabled"]
    ]
