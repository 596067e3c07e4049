"""Subscriptions become entries of switches that match, from version to version."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from stackcast import schemas
from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS
from stackcast.jobs.adapters.app.settings import FORMATS, PREFIX, Settings
from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock
from stackcast.jobs.adapters.switches.program import P4Program
from stackcast.jobs.adapters.tables.network_versions import MATCHED
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.udfs.errors import NetworkError, SettingsError
from stackcast.udfs.filters.grants import Grants
from stackcast.udfs.filters.selection import by_age, select
from stackcast.udfs.filters.subscriptions import CheckedRule, Rejection, check, rejection
from stackcast.udfs.messages.attributes.registry import Registry
from stackcast.udfs.messages.formats import Specification
from stackcast.udfs.messages.specification import parse_specification
from stackcast.udfs.network.labels import NARROW, LabelFormat
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.programs import (
    ATTRIBUTES,
    FILTERING,
    MATCHING,
    matching_program,
)
from stackcast.udfs.network.publishers import receiving
from stackcast.udfs.network_match import layout
from stackcast.udfs.network_match.filters import Filtered, NetworkFilters, event_ports
from stackcast.udfs.network_match.generic.network import AttributeFilters, header_widths
from stackcast.udfs.switches.entry import SwitchEntry, entry_from_row
from stackcast.udfs.switches.rollout import Versions, age

log = logging.getLogger(__name__)

#: Most rejections that one edit writes into the log.
_SHOWN = 10

Rows = Sequence[Mapping[str, Any]]


class Filters(Protocol):
    """Makes the entries of one program from rules, version after version."""

    def entries(
        self,
        network: Network,
        rules: Sequence[CheckedRule],
        held: Mapping[str, Sequence[SwitchEntry]],
        edit: int = 0,
    ) -> Filtered: ...


class NetworkMatch:
    """Compiles subscriptions for the switches of the publishers' tree.

    program: the one that matches events of the format of the settings. sources: the tables beside
    those of the network that decide what it makes.

    Raises SettingsError ``WRONG_PORT`` if the compiled program takes another UDP port for events
    than hosts see, ``WRONG_WIDTHS`` if it reads headers of other widths; SwitchError ``NO_P4INFO``.
    """

    def __init__(self, settings: Settings, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self.program = matching_program(settings.format)
        config = P4Program.read(settings.p4_folder, self.program).device_config
        self._publisher = settings.publisher
        self._format = settings.format
        self._quota = settings.rule_quota
        self._widths = settings.widths
        self._attributes: AttributeFilters | None = None
        self._messages: tuple[Specification, NetworkFilters] | None = None
        self.sources: tuple[str, ...] = MATCHED
        if self.program == ATTRIBUTES:
            self.sources = (*self.sources, "attributes")
            _check_widths(config, settings)
        else:
            _check_port(config, settings)
            specification = parse_specification(
                schemas.read_text(f"messages/{settings.format}.spec"), settings.format
            )
            self._messages = specification, NetworkFilters(specification, settings.publisher)
        self._made: tuple[Versions, list[SwitchEntry], list[Rejection]] | None = None
        self._rejected: list[dict[str, Any]] | None = None
        self._granted: tuple[Rows, Specification, Grants | None] | None = None

    def entries(
        self,
        network: Network,
        versions: Versions,
        subscriptions: Rows,
        held: Rows,
        pipelines: Mapping[str, str],
        attributes: Rows = (),
        grants: Rows = (),
        seniority: Callable[[], Rows] = tuple,
    ) -> list[SwitchEntry]:
        """The filters of all switches, as of ``versions`` of the tables.

        subscriptions: the table's rows. held: those of ``switch_entries``. pipelines: the program
        of each switch. attributes: rows of that table, where the format is of attributes. grants:
        rows of that table. seniority: reads those of ``subscription_seniority``.

        Raises NetworkError ``WRONG_PIPELINE``, ``UNKNOWN_HOST``, ``NO_PUBLISHER``; FilterError
        where the rules together are beyond the limits; AttributeTableError where the attributes are
        no registry.
        """
        if self._made is not None and self._made[0] == versions:
            return self._made[1]
        began = self._clock.monotonic()
        hosts, only = receiving(network, self._publisher)
        specification, filters = self._of(attributes)
        selected, rejections = select(
            subscriptions, self._format, FORMATS, specification, seniority, self._quota
        )
        # Switches that cannot hold all rules then refuse the youngest ones.
        selected = by_age(selected, seniority)
        granted = self._granted_of(grants, specification)
        rejections += [rejection(*wrong) for wrong in granted.errors] if granted else []
        rules, unfit = check(selected, specification, hosts, only, granted)
        before: dict[str, list[SwitchEntry]] = defaultdict(list)
        for row in held:
            if row["table_name"].startswith(f"{layout.PREFIX}."):
                before[row["switch"]].append(entry_from_row(row))
        filtered = filters.entries(network, rules, before, age(versions))
        for switch in filtered.entries:
            if pipelines.get(switch) != self.program:
                raise NetworkError(
                    "WRONG_PIPELINE",
                    f"switch {switch!r} is on a path from {self._publisher} to hosts, but runs "
                    f"{pipelines.get(switch)!r}: with {PREFIX}match=network and "
                    f"{PREFIX}format={self._format}, set column pipeline of table switches to "
                    f"{self.program!r}",
                    switch=switch,
                )
        subscriber = {row.id: row.subscriber for row in selected}
        rejections += unfit
        rejections += [replace(r, subscriber=subscriber[r.id]) for r in filtered.rejections]
        made = [entry for entries in filtered.entries.values() for entry in entries]
        log.info(
            "filters of subscriptions@%d: %d rules, %d rejected, %d entries on %d switches, at "
            "most %d passes per message, in %.2f s",
            versions["subscriptions"],
            len(rules) - len(filtered.rejections),
            len(rejections),
            len(made),
            len(filtered.entries),
            filtered.passes,
            self._clock.monotonic() - began,
        )
        self._made = dict(versions), made, rejections
        return made

    def _of(self, attributes: Rows) -> tuple[Specification, Filters]:
        """Returns what rules are written for, and what makes entries of them."""
        if self._messages is not None:
            return self._messages
        registry = Registry.from_rows(attributes, self._widths)
        made = self._attributes
        if made is None or made.registry != registry:
            # Texts are parsed once for a specification, so it stays as long as it can.
            made = self._attributes = AttributeFilters(
                registry, self._publisher, before=self._attributes
            )
        return made.specification, made

    def _granted_of(self, rows: Rows, specification: Specification) -> Grants | None:
        """Returns the same object as long as nothing has changed: it remembers what it found."""
        made = self._granted
        if made is None or made[0] != rows or made[1] is not specification:
            found = Grants.of_table(rows, self._format, specification)
            made = self._granted = rows, specification, found
        return made[2]

    def forget(self) -> None:
        """Has `entries` read ``switch_entries`` again, as somebody else may have written it."""
        self._made = self._rejected = None

    def write_rejections(self, tables: Tables) -> None:
        """Make `rejected_subscriptions` hold what the last `entries` refused, if that is new."""
        if self._made is None:
            return
        versions, _, rejections = self._made
        rows = [each.row(versions["subscriptions"]) for each in rejections]
        if rows == self._rejected:
            return
        known = {(row["id"], row["message"]) for row in self._rejected or ()}
        new = [row for row in rows if (row["id"], row["message"]) not in known]
        for row in new[:_SHOWN]:
            log.warning(
                "subscriptions@%d: rule %s is not live: %s %s",
                versions["subscriptions"],
                row["id"],
                row["code"],
                row["message"],
            )
        if len(new) > _SHOWN:
            log.warning(
                "%d more rejected rules are in table rejected_subscriptions", len(new) - _SHOWN
            )
        try:
            tables.overwrite("rejected_subscriptions", rows)
        except SQL_ERRORS as error:
            # They explain and decide nothing: written anew with the next edit.
            log.error(
                "table rejected_subscriptions could not be written for subscriptions@%d: %s",
                versions["subscriptions"],
                one_line(error),
            )
            return
        self._rejected = rows


def _check_port(config: bytes, settings: Settings) -> None:
    ports = event_ports(config)
    if ports and settings.port not in ports:
        raise SettingsError(
            "WRONG_PORT",
            f"{PREFIX}multicast.port is {settings.port}, but program {FILTERING} of "
            f"{settings.p4_folder} accepts events at UDP port {', '.join(map(str, ports))}: "
            "change the setting, or generate and compile the program for your port",
        )


def _check_widths(config: bytes, settings: Settings) -> None:
    found, wanted = header_widths(config), settings.widths
    if found is not None and found != wanted:
        raise SettingsError(
            "WRONG_WIDTHS",
            f"{PREFIX}attributes.idBits is {wanted.id} and {PREFIX}attributes.bitmaskBits is "
            f"{wanted.bitmask}, but program {ATTRIBUTES} of {settings.p4_folder} reads ids of "
            f"{found.id} bits and bitmasks of {found.bitmask} bits: change the settings, or "
            "compile the program for your widths (./spark-submit.sh make p4 --p4c FILE --widths "
            f"{wanted.id}/{wanted.bitmask} --out FOLDER) and set {PREFIX}p4.folder to that folder",
        )


def check_pipelines(pipelines: Mapping[str, str], labels: LabelFormat = NARROW) -> None:
    """Refuses a switch with a program that matches: here the stream does.

    labels: the format of the network's stacks.

    Raises NetworkError ``WRONG_PIPELINE``.
    """
    filtering = sorted(switch for switch, name in pipelines.items() if name in MATCHING)
    if filtering:
        first = filtering[0]
        raise NetworkError(
            "WRONG_PIPELINE",
            f"switch {first!r} runs {pipelines[first]!r}, which does not support header stacks: "
            f"with {PREFIX}match=spark, set column pipeline of table switches to "
            f"{labels.program!r}, or set {PREFIX}match=network",
            switch=first,
        )
