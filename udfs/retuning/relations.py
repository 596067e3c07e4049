"""Possible receivers of each publisher: advertisements against subscriptions (WERNECKE 5.3.4, Fig.
5.7).

Both are filters, so both are put into one decision diagram (one a host where a diagram of all would
multiply): a publisher's mark stands at the leaves
that its advertised events come to, a host's at those that its rules forward. Every leaf of a
reduced diagram is where some event ends, so what stands there together decides the three cases. An
advertisement A and a host's rules S are

- no match, where no leaf has both: A ∧ S cannot be satisfied;
- a permanent match, where the host's mark is at every leaf with the publisher's: A ∧ ¬S cannot;
- else a potential match.

``¬S`` is *not true*: an event that lacks a header of which S asks is not forwarded
(docs/reference/rule-semantics.md). State is not known in advance: a condition on state may turn out
either way, so an alternative that reads state makes a match potential and never permanent, and is
left out of an advertisement, which then covers more events than are published.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stackcast.udfs.errors import FilterError
from stackcast.udfs.filters.advertisements import Advertisement, advertised_terms
from stackcast.udfs.filters.compiler.compile import (
    MAX_ENTRIES,
    ROWS_PER_ENTRY,
    Order,
    counter,
    named_order,
    table_of_rules,
    too_large,
)
from stackcast.udfs.filters.compiler.levels import make_levels
from stackcast.udfs.filters.compiler.order import choose_order
from stackcast.udfs.filters.compiler.term_table import TermTable
from stackcast.udfs.filters.diagrams.diagrams import Diagrams
from stackcast.udfs.filters.grouped import small
from stackcast.udfs.filters.meaning.normal_form import MESSAGE_TYPE, Term
from stackcast.udfs.filters.subscriptions import CheckedRules, Subscription, check
from stackcast.udfs.messages.specification import Specification
from stackcast.udfs.network.network import Network
from stackcast.udfs.trees.publications import Clients


def clients_of(
    advertisements: Iterable[Advertisement],
    subscriptions: Sequence[Subscription],
    network: Network,
    specification: Specification,
    publishers: Iterable[str] | None = None,
    order: Order = "specification",
) -> Clients:
    """Finds for each publisher the hosts that may receive its events, and those that always do.

    ``order``: in which fields are asked for, as of ``compile_rules``; it changes the cost alone.

    ``publishers``: hosts; None: those of the network's role, and all that advertise. A publisher
    without an advertisement advertises all messages of the specification. Nobody receives what it
    publishes itself. Subscriptions that do not compile match nothing.

    Raises NetworkError ``UNKNOWN_HOST`` for a publisher that is none of the network,
    SubscriptionError as ``parse_rule`` for an advertisement that is wrong
    (``check_advertisements`` finds them), and FilterError ``TOO_LARGE`` where one host's rules and
    the advertisements would not compile together.
    """
    announced: dict[str, set[str]] = {}
    rows = list(advertisements)
    for row in rows:
        announced.setdefault(row.publisher, set()).add(row.filter)
    named = {*network.publishers(), *announced} if publishers is None else set(publishers)
    for name in sorted(named):
        network.host(name)
    # Publishers that announce the same share a mark.
    texts = {name: tuple(sorted(announced.get(name, ()))) for name in sorted(named)}
    terms = {
        key: [
            term
            for text in key
            for term in advertised_terms(Advertisement(name, text), specification)
        ]
        if key
        else _everything(specification)
        for name, key in texts.items()
    }
    found = _matches(terms, subscriptions, network, specification, named, order)
    return Clients(
        {name: found[key].potential - {name} for name, key in texts.items()},
        {name: found[key].permanent - {name} for name, key in texts.items()},
    )


@dataclass
class _Match:
    potential: frozenset[str] = frozenset()
    permanent: frozenset[str] = frozenset()

    def united(self, other: _Match) -> _Match:
        return _Match(self.potential | other.potential, self.permanent | other.permanent)


_Key = tuple[str, ...]


def _everything(specification: Specification) -> list[Term]:
    """Returns terms that hold for every message of the specification."""
    types = sorted({h.message_type for h in specification.headers if h.message_type is not None})
    return [((MESSAGE_TYPE, ((kind, kind),)),) for kind in types] or [()]


def _matches(
    advertised: Mapping[_Key, list[Term]],
    subscriptions: Sequence[Subscription],
    network: Network,
    specification: Specification,
    publishers: set[str],
    order: Order,
) -> dict[_Key, _Match]:
    """Finds the hosts that match each advertisement, from the leaves of one diagram of all filters,
    or where that does not stay small from those of one a host.

    Bits at a leaf: host i at i if its rules surely forward the event, at i + number of hosts if
    they may, then the advertisements.
    """
    hosts = list(network.hosts)
    place = {name: n for n, name in enumerate(hosts)}
    table, marks, receivers = _marked_rules(subscriptions, specification, place, publishers)
    said: list[tuple[Term, int, int]] = []
    for bit, terms in enumerate(advertised.values(), start=2 * len(hosts)):
        said += [(term, 0, len(marks)) for term in terms]
        marks.append((bit,))
    if order == "auto":
        order = _chosen(subscriptions, specification, place)
    named = named_order(order)

    def matched(rules: TermTable, most: int) -> dict[_Key, _Match]:
        every = TermTable(rules.blocks, rules.outcome, [*rules.terms, *said])
        if not len(every):
            return {key: _Match() for key in advertised}
        levels = make_levels(specification, named, used=every.used())
        bits = 2 * len(hosts) + len(advertised)
        diagrams = Diagrams(levels.maxima, levels.may_lack, bits, ROWS_PER_ENTRY * most)
        leaf_of = np.array([diagrams.leaf(bits) for bits in marks], np.int32)
        roots, like = every.roots(diagrams, levels, leaf_of)
        root = diagrams.union_all(roots[like])
        leaves = diagrams.reachable(root).leaves if root >= 0 else np.array([root], np.int32)
        return _read(diagrams, leaves, hosts, list(advertised))

    try:
        return matched(table, small(table))
    except FilterError:
        # Rules of different hosts multiply; those of one mostly lead to the same leaves.
        pass
    rules_of: dict[str, list[int]] = {}
    for rule, names in enumerate(receivers):
        for name in names:
            rules_of.setdefault(name, []).append(rule)
    found = {key: _Match() for key in advertised}
    for rules in rules_of.values():
        try:
            more = matched(table.select(np.array(rules, np.int64)), MAX_ENTRIES)
        except FilterError as error:
            raise too_large(MAX_ENTRIES) from error
        found = {key: found[key].united(more[key]) for key in advertised}
    return found


def _chosen(
    subscriptions: Sequence[Subscription], specification: Specification, hosts: Iterable[str]
) -> tuple[str, ...]:
    """Returns the order of fields that suits the rules by themselves."""
    rules, _ = check(subscriptions, specification, set(hosts), publisher="")
    table = table_of_rules(rules, specification)
    if not len(table):
        return ()
    return choose_order(table, specification, counter(table, specification, small(table), None))


def _marked_rules(
    subscriptions: Sequence[Subscription],
    specification: Specification,
    place: Mapping[str, int],
    publishers: set[str],
) -> tuple[TermTable, list[tuple[int, ...]], Sequence[tuple[str, ...]]]:
    """Returns the rules' terms over fields alone, the bits of each outcome number, and the
    receivers of each rule."""
    rules, _ = check(subscriptions, specification, set(place), publisher="")
    table = table_of_rules(rules, specification)
    surely: list[tuple[int, ...]] = []
    perhaps: list[tuple[int, ...]] = []
    for outcome in table.outcomes:
        names = [token for token in outcome if isinstance(token, str)]
        bits = tuple(place[name] for name in names)
        may = tuple(bit + len(place) for bit in bits)
        perhaps.append(may)
        # A rule for a publisher and others is rejected where that publisher sends.
        shared = len(names) > 1 and not publishers.isdisjoint(names)
        surely.append(may if shared else bits)
    terms: list[tuple[Term, int, int]] = []
    for term, rule, outcome_number in table.terms:
        if perhaps[outcome_number]:
            fields = tuple(literal for literal in term if literal[0] not in table.cells)
            stateful = len(fields) < len(term)
            terms.append((fields, rule, outcome_number + stateful * len(surely)))
    receivers = (
        rules.receivers if isinstance(rules, CheckedRules) else [rule.receivers for rule in rules]
    )
    return TermTable(table.blocks, table.outcome, terms), surely + perhaps, receivers


def _read(
    diagrams: Diagrams,
    leaves: np.ndarray[tuple[int], np.dtype[np.int32]],
    hosts: Sequence[str],
    keys: Sequence[_Key],
) -> dict[_Key, _Match]:
    count = len(hosts)
    found: dict[_Key, _Match] = {}
    start, tokens = diagrams.members_of(leaves)
    potential: list[set[int]] = [set() for _ in keys]
    permanent: list[set[int] | None] = [None for _ in keys]
    for begin, end in zip(start[:-1].tolist(), start[1:].tolist(), strict=True):
        here = tokens[begin:end]
        first = int(np.searchsorted(here, 2 * count))
        if first == len(here):
            continue
        middle = int(np.searchsorted(here, count))
        sure = set(here[:middle].tolist())
        perhaps = sure.union((here[middle:first] - count).tolist())
        for number in (here[first:] - 2 * count).tolist():
            potential[number] |= perhaps
            before = permanent[number]
            permanent[number] = sure if before is None else before & sure
    for number, key in enumerate(keys):
        always = permanent[number] or set()
        found[key] = _Match(
            frozenset(hosts[n] for n in potential[number]), frozenset(hosts[n] for n in always)
        )
    return found
