"""Plans for versions of the tables."""

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
from stackcast.jobs.adapters.runtime.memo import Memo
from stackcast.jobs.adapters.tables.network_versions import MATCHED, SOURCES
from stackcast.jobs.adapters.tables.tables import (
    GRANTS,
    INGRESSES,
    REJECTED,
    SENIORITY,
    SUBSCRIPTIONS,
    Tables,
)
from stackcast.jobs.adapters.wire import SinkOptions, check_ingresses
from stackcast.udfs.delivery.plan import Addressing, Compilation, Planner
from stackcast.udfs.errors import SettingsError, TableError
from stackcast.udfs.filters.advertisements import select_advertisements
from stackcast.udfs.filters.grants import Grant, select_grants
from stackcast.udfs.filters.selection import select
from stackcast.udfs.filters.subscriptions import Rejection, Subscription, live_rows
from stackcast.udfs.messages.attributes.registry import FORMAT as ATTRIBUTES
from stackcast.udfs.messages.readers import Format
from stackcast.udfs.messages.summary_keys import SummaryKey
from stackcast.udfs.network.ingresses import Ingresses
from stackcast.udfs.network.labels import LabelFormat
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.rows import network_from_rows, tree_from_row, with_states
from stackcast.udfs.network.virtual_tree import VirtualTree

#: Tables of the network. `LINK_STATES` is the version that determines which links are up.
NETWORK = ("switches", "hosts", "links")


def sources(settings: Settings) -> tuple[str, ...]:
    """Return the tables from which plans are made, except those of rules and network.

    If switches match, the refresher writes the rules that switches cannot hold to table
    `rejected_subscriptions`. These rules are not live.
    """
    refused = (REJECTED,) if settings.match == "network" else ()
    return (*formats.sources(settings), INGRESSES, *refused)


def switch_sources(settings: Settings) -> tuple[str, ...]:
    """Return the tables that determine the entries of switches."""
    return (*SOURCES, *MATCHED) if settings.match == "network" else SOURCES


class Planned(NamedTuple):
    """A plan with its sources.

    Attributes:
        compilation: the plan.
        subscriptions: rows of its rules.
        network: its network.
    """

    compilation: Compilation
    subscriptions: Sequence[Subscription]
    network: Network


class Plans:
    """Makes plans for versions of the tables. It writes nothing, and is for one thread.

    Parts that have not changed since the last plan are not read, compiled or computed again. So
    plans are made fastest in the order of their versions.

    Args:
        settings: settings of the stream.
        tables: the tables.
        summary_key: master key of summaries, if they are authenticated.
        sink: options of the sink that sends the frames, which rows of `ingresses` must fit.
        ingresses: ingresses to use instead of those in the table.
    """

    def __init__(
        self,
        settings: Settings,
        tables: Tables,
        summary_key: SummaryKey | None = None,
        sink: SinkOptions | None = None,
        ingresses: Ingresses | None = None,
    ) -> None:
        self._settings = settings
        self._tables = tables
        self._summary_key = summary_key
        self._sink = sink
        self._fixed_ingresses = ingresses
        self._planner: Planner | None = None
        self._formats = Memo[Format]()
        self._selections = Memo[tuple[list[Subscription], list[Rejection]]]()
        self._active_trees = Memo[list[VirtualTree]]()
        self._advertisement_rows = Memo[Sequence[Mapping[str, Any]]]()
        self._selected_grants = Memo[Sequence[Grant] | None]()
        self._networks = Memo[Network]()
        self._ingresses = Memo[Ingresses]()
        self._addressing = Addressing(
            publisher=settings.publisher,
            group=_group(settings),
            port=settings.port,
            mtu=settings.mtu,
            max_labels=settings.max_labels,
            summary_port=settings.summary_port,
            publisher_by=settings.publisher_by,
            in_network=settings.match == "network",
        )

    def at(self, versions: Mapping[str, int]) -> Planned:
        """Return the plan for versions, as `stackcast.jobs.adapters.planning.versions` names them.

        Raises:
            TableError: VERSION_GONE if a version was deleted.
            StackcastError: the tables cannot be used.
            StorageError: the tables cannot be read.
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
            self._ingresses_at(versions),
        )
        return Planned(compilation, subscriptions, network)

    def _form_at(self, versions: Mapping[str, int]) -> Format:
        version = versions.get(ATTRIBUTES)

        def read() -> Format:
            with _existing(ATTRIBUTES, version):
                return formats.format_of(self._settings, self._tables, versions)

        return self._formats.get(version, read)

    def _planner_at(self, versions: Mapping[str, int]) -> Planner:
        form = self._form_at(versions)
        if self._planner is None:
            self._planner = Planner(
                form, self._addressing, self._settings.filter_order, self._summary_key
            )
        self._planner.use(form)
        return self._planner

    def _rows(self, name: str, version: int) -> list[dict[str, Any]]:
        with _existing(name, version):
            return self._tables.rows(name, version)

    def _subscriptions(
        self, versions: Mapping[str, int]
    ) -> tuple[list[Subscription], list[Rejection]]:
        quota = self._settings.rule_quota
        # Only a quota requires that texts are parsed.
        attributes = versions.get(ATTRIBUTES) if quota else None
        key = versions[SUBSCRIPTIONS], versions[SENIORITY], attributes

        def read() -> tuple[list[Subscription], list[Rejection]]:
            return select(
                self._rows(SUBSCRIPTIONS, versions[SUBSCRIPTIONS]),
                self._settings.format,
                FORMATS,
                self._form_at(versions).specification,
                partial(self._rows, SENIORITY, versions[SENIORITY]),
                quota,
            )

        return self._selections.get(key, read)

    def _trees(self, version: int) -> list[VirtualTree]:
        def read() -> list[VirtualTree]:
            trees = map(tree_from_row, self._rows("virtual_trees", version))
            return [tree for tree in trees if tree.state == "active"]

        return self._active_trees.get(version, read)

    def _advertisements(self, versions: Mapping[str, int]) -> Sequence[Mapping[str, Any]]:
        version = versions["advertisements"]
        return self._advertisement_rows.get(version, lambda: self._rows("advertisements", version))

    def _grants(self, versions: Mapping[str, int]) -> Sequence[Grant] | None:
        def read() -> Sequence[Grant] | None:
            return select_grants(self._rows(GRANTS, versions[GRANTS]), self._settings.format)

        return self._selected_grants.get(versions[GRANTS], read)

    def _ingresses_at(self, versions: Mapping[str, int]) -> Ingresses:
        if self._fixed_ingresses is not None:
            return self._fixed_ingresses
        version = versions.get(INGRESSES)

        def read() -> Ingresses:
            rows = [] if version is None else self._rows(INGRESSES, version)
            ingresses = Ingresses.from_rows(rows)
            if self._sink is not None:
                check_ingresses(ingresses, self._sink)
            return ingresses

        return self._ingresses.get(version, read)

    def _refused(self, versions: Mapping[str, int]) -> list[Rejection]:
        """Return the rejections of rules that switches cannot hold."""
        version = versions.get(REJECTED)
        rows = [] if version is None else self._rows(REJECTED, version)
        return [Rejection.from_row(row) for row in rows]

    def _network_at(self, versions: Mapping[str, int]) -> Network:
        key = tuple(versions[name] for name in (*NETWORK, LINK_STATES))
        return self._networks.get(
            key, lambda: network_at(versions, self._rows, self._settings.labels)
        )


def network_at(
    versions: Mapping[str, int],
    rows: Callable[[str, int], list[dict[str, Any]]],
    labels: LabelFormat,
) -> Network:
    """Return the network of a batch with these versions.

    Args:
        versions: versions of the tables.
        rows: returns the rows of a version of a table.
        labels: format of labels.

    Raises:
        NetworkError: the rows are not a valid network.
    """
    switches, hosts, links = (rows(name, versions[name]) for name in NETWORK)
    if versions[LINK_STATES] != versions["links"]:
        links = with_states(links, rows("links", versions[LINK_STATES]))
    return network_from_rows(switches, hosts, links, labels)


@contextmanager
def _existing(table: str, version: int | None) -> Iterator[None]:
    """Convert the error of a read of a deleted version.

    Raises:
        TableError: VERSION_GONE.
    """
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
