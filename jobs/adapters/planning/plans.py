"""Plans by the versions of the tables that they are made from."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from stackcast.jobs.adapters.app.settings import FORMATS, Settings
from stackcast.jobs.adapters.app.storage_errors import StorageError
from stackcast.jobs.adapters.planning import formats
from stackcast.jobs.adapters.planning.versions import LINK_STATES
from stackcast.jobs.adapters.tables.network_versions import MATCHED, SOURCES
from stackcast.jobs.adapters.tables.tables import GRANTS, REJECTED, SENIORITY, SUBSCRIPTIONS, Tables
from stackcast.jobs.adapters.wire import ingresses_of
from stackcast.udfs.delivery.plan import Addressing, Compilation, Planner
from stackcast.udfs.errors import SettingsError, TableError
from stackcast.udfs.filters.advertisements import select_advertisements
from stackcast.udfs.filters.grants import Grant, select_grants
from stackcast.udfs.filters.selection import select
from stackcast.udfs.filters.subscriptions import Rejection, Subscription, live_rows
from stackcast.udfs.messages.attributes.registry import FORMAT as ATTRIBUTES
from stackcast.udfs.messages.readers import Format
from stackcast.udfs.messages.summary_keys import SummaryKey
from stackcast.udfs.network.labels import LabelFormat
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.rows import network_from_rows, tree_from_row, with_states
from stackcast.udfs.network.virtual_tree import VirtualTree

#: The tables that make a network; `LINK_STATES` says which of its links are up.
NETWORK = ("switches", "hosts", "links")


def sources(settings: Settings) -> tuple[str, ...]:
    """The tables, beside those of rules and network, that a plan is made from.

    Where switches match, the refresher says in `rejected_subscriptions` which rules they do not
    hold: these are live nowhere.
    """
    refused = (REJECTED,) if settings.match == "network" else ()
    return (*formats.sources(settings), *refused)


def switch_sources(settings: Settings) -> tuple[str, ...]:
    """The tables that decide what switches hold."""
    return (*SOURCES, *MATCHED) if settings.match == "network" else SOURCES


class Planned(NamedTuple):
    """A plan, and what it was made from."""

    compilation: Compilation
    subscriptions: Sequence[Subscription]
    network: Network


class Plans:
    """Makes the plan for any versions of the tables, and writes nothing.

    What did not change since the plan before is not read, compiled or worked out again: ask for
    versions in their order where there is a choice. For one thread. summary_key: the master key of
    summaries, if they are authenticated.
    """

    def __init__(
        self, settings: Settings, tables: Tables, summary_key: SummaryKey | None = None
    ) -> None:
        self._settings = settings
        self._tables = tables
        self._summary_key = summary_key
        self._form: tuple[int | None, Format] | None = None
        self._planner: Planner | None = None
        self._selected: (
            tuple[tuple[int | None, ...], tuple[list[Subscription], list[Rejection]]] | None
        ) = None
        self._active: tuple[int, list[VirtualTree]] | None = None
        self._announced: tuple[int, Sequence[Mapping[str, Any]]] | None = None
        self._granted: tuple[int, Sequence[Grant] | None] | None = None
        self._network: tuple[tuple[int, ...], Network] | None = None
        self._addressing = Addressing(
            publisher=settings.publisher,
            group=_group(settings),
            port=settings.port,
            mtu=settings.mtu,
            max_labels=settings.max_labels,
            summary_port=settings.summary_port,
            publisher_by=settings.publisher_by,
            ingresses=tuple(host for _, host in ingresses_of(settings)),
            in_network=settings.match == "network",
        )

    def at(self, versions: Mapping[str, int]) -> Planned:
        """The plan of these versions, as `stackcast.jobs.adapters.planning.versions` names them.

        Raises TableError VERSION_GONE where Delta has a version no more, StackcastError where the
        tables cannot be used, Spark's errors where they cannot be read.
        """
        subscriptions, rejected = self._subscriptions(versions)
        if refused := self._refused(versions):
            subscriptions = live_rows(subscriptions, refused)
        trees = self._trees(versions["virtual_trees"])
        advertisements = select_advertisements(
            self._advertisements(versions), self._settings.format
        )
        network = self._network_at(versions)
        compilation = self._planner_at(versions).plan(
            subscriptions,
            network,
            trees,
            versions,
            rejected,
            advertisements,
            self._grants(versions),
        )
        return Planned(compilation, subscriptions, network)

    def _form_at(self, versions: Mapping[str, int]) -> Format:
        version = versions.get(ATTRIBUTES)
        if self._form is None or self._form[0] != version:
            with _kept(ATTRIBUTES, version):
                self._form = version, formats.format_of(self._settings, self._tables, versions)
        return self._form[1]

    def _planner_at(self, versions: Mapping[str, int]) -> Planner:
        form = self._form_at(versions)
        if self._planner is None:
            self._planner = Planner(
                form, self._addressing, self._settings.filter_order, self._summary_key
            )
        self._planner.use(form)
        return self._planner

    def _rows(self, name: str, version: int) -> list[dict[str, Any]]:
        with _kept(name, version):
            return self._tables.rows(name, version)

    def _subscriptions(
        self, versions: Mapping[str, int]
    ) -> tuple[list[Subscription], list[Rejection]]:
        quota = self._settings.rule_quota
        # Texts are parsed only to count against a quota.
        attributes = versions.get(ATTRIBUTES) if quota else None
        key = versions[SUBSCRIPTIONS], versions[SENIORITY], attributes
        if self._selected is None or self._selected[0] != key:
            found = select(
                self._rows(SUBSCRIPTIONS, versions[SUBSCRIPTIONS]),
                self._settings.format,
                FORMATS,
                self._form_at(versions).specification,
                partial(self._rows, SENIORITY, versions[SENIORITY]),
                quota,
            )
            self._selected = key, found
        return self._selected[1]

    def _trees(self, version: int) -> list[VirtualTree]:
        if self._active is None or self._active[0] != version:
            found = map(tree_from_row, self._rows("virtual_trees", version))
            self._active = version, [tree for tree in found if tree.state == "active"]
        return self._active[1]

    def _advertisements(self, versions: Mapping[str, int]) -> Sequence[Mapping[str, Any]]:
        version = versions["advertisements"]
        if self._announced is None or self._announced[0] != version:
            self._announced = version, self._rows("advertisements", version)
        return self._announced[1]

    def _grants(self, versions: Mapping[str, int]) -> Sequence[Grant] | None:
        version = versions[GRANTS]
        if self._granted is None or self._granted[0] != version:
            rows = self._rows(GRANTS, version)
            self._granted = version, select_grants(rows, self._settings.format)
        return self._granted[1]

    def _refused(self, versions: Mapping[str, int]) -> list[Rejection]:
        """Returns the rejections of rules that switches do not hold."""
        version = versions.get(REJECTED)
        rows = [] if version is None else self._rows(REJECTED, version)
        return [Rejection.from_row(row) for row in rows]

    def _network_at(self, versions: Mapping[str, int]) -> Network:
        key = tuple(versions[name] for name in (*NETWORK, LINK_STATES))
        if self._network is None or self._network[0] != key:
            self._network = key, network_at(versions, self._rows, self._settings.labels)
        return self._network[1]


def network_at(
    versions: Mapping[str, int],
    rows: Callable[[str, int], list[dict[str, Any]]],
    labels: LabelFormat,
) -> Network:
    """Returns the network that a batch of these versions delivers into.

    rows: reads a table as of a version. Raises NetworkError.
    """
    switches, hosts, links = (rows(name, versions[name]) for name in NETWORK)
    if versions[LINK_STATES] != versions["links"]:
        links = with_states(links, rows("links", versions[LINK_STATES]))
    return network_from_rows(switches, hosts, links, labels)


@contextmanager
def _kept(table: str, version: int | None) -> Iterator[None]:
    """Around a read: say it plainly where Delta has that version no more."""
    try:
        yield
    except StorageError as error:
        if not error.gone:
            raise
        raise TableError(
            "VERSION_GONE",
            f"version {version} of table {table}, or a file of it, was deleted by VACUUM or by "
            "the clean-up of the Delta log: keep old versions longer "
            "(docs/reference/checkpoint.md)",
            table=table,
            version=version,
        ) from error


def _group(settings: Settings) -> int:
    try:
        return int(ipaddress.IPv4Address(settings.group))
    except ValueError as error:
        raise SettingsError(
            "BAD_VALUE", f"spark.stackcast.multicast.group: {error}", value=settings.group
        ) from error
