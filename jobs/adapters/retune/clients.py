"""Who may receive what, from whom: what strategies choose trees for."""

from __future__ import annotations

import logging
from functools import partial

from stackcast.jobs.adapters.app.settings import FORMATS, Settings
from stackcast.jobs.adapters.planning.specifications import specification_of
from stackcast.jobs.adapters.tables.tables import SENIORITY, Tables
from stackcast.udfs.errors import StackcastError
from stackcast.udfs.filters.advertisements import check_advertisements, select_advertisements
from stackcast.udfs.filters.selection import select
from stackcast.udfs.network.network import Network
from stackcast.udfs.retuning.comparison import Record
from stackcast.udfs.retuning.relations import clients_of
from stackcast.udfs.trees.publications import Clients

log = logging.getLogger(__name__)


def clients_by_tables(
    tables: Tables, settings: Settings, network: Network, record: Record
) -> Clients:
    """Returns who may receive what by subscriptions and advertisements; where those do not compile,
    by what was received."""
    specification = specification_of(settings, tables)
    subscriptions, _ = select(
        tables.rows("subscriptions"),
        settings.format,
        FORMATS,
        specification,
        partial(tables.rows, SENIORITY),
        settings.rule_quota,
    )
    announced, refused = check_advertisements(
        select_advertisements(tables.rows("advertisements"), settings.format),
        specification,
        network.hosts,
    )
    for rejection in refused:
        log.warning("advertisement %s: %s %s", rejection.id, rejection.code, rejection.message)
    publishers = {each.publisher for each in record.publications}
    known = publishers | set(network.publishers())
    try:
        found = clients_of(
            announced,
            subscriptions,
            network,
            specification,
            known,
            "auto" if specification.optional else "specification",
        )
    except StackcastError as error:
        log.warning(
            "cannot compute the potential receivers from the tables, so they are taken from the "
            "statistics: %s",
            error,
        )
        found = Clients({})
    received: dict[str, frozenset[str]] = {name: frozenset() for name in known}
    for each in record.publications:
        received[each.publisher] |= each.receivers
    # Who received something once may do so again, whatever became of its subscription.
    potential = {name: found.potential.get(name, frozenset()) | received[name] for name in known}
    return Clients(potential, found.permanent)
