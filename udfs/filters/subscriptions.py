"""Rows of the subscriptions table to checked rules: every row is either live or rejected."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from udfs.errors import SubscriptionError
from udfs.filters.language import nearest, parse_rule, subscription_error
from udfs.filters.nodes import Call, Node, Rule, Update
from udfs.filters.normal_form import normal_form
from udfs.messages.specification import Specification

_CACHED_TEXTS = 200_000
_CACHED_SPECIFICATIONS = 4


@dataclass(frozen=True)
class Subscription:
    """A row: who (a host) wants what (a rule in the subscription language)."""

    id: str
    subscriber: str
    filter: str


@dataclass(frozen=True)
class Rejection:
    """A subscription that is not live, and why.

    ``code`` is stable (``SUBSCRIPTION.UNKNOWN_FIELD``); ``line`` and ``column`` are
    1-based places in the filter text (1, 1 where the rule as a whole is at fault);
    ``message`` repeats the place, shows it with a caret and says what to do.
    """

    id: str
    code: str
    line: int
    column: int
    message: str


@dataclass(frozen=True)
class CheckedRule:
    """A rule that will compile: every field, constant and receiver is known.

    ``calls`` are named actions, which switches perform; ``updates`` are of named state variables.
    """

    id: str
    condition: Node
    receivers: tuple[str, ...]
    calls: tuple[Call, ...] = ()
    updates: tuple[Update, ...] = ()


def select(
    rows: Iterable[Mapping[str, Any]], wanted: str, known: Container[str]
) -> tuple[list[Subscription], list[Rejection]]:
    """The enabled rows of the table that are written for the format ``wanted``, by id.

    Rows of another of the ``known`` formats are for another job; rows of none are rejected.
    """
    chosen: list[Subscription] = []
    rejections: list[Rejection] = []
    for row in sorted(rows, key=lambda r: str(r["id"])):
        if not row["enabled"]:
            continue
        if row["format"] == wanted:
            chosen.append(Subscription(row["id"], row["subscriber"], row["filter"]))
        elif row["format"] not in known:
            fault = SubscriptionError(
                "UNKNOWN_FORMAT", f"there is no message format {row['format']!r}: write {wanted!r}"
            )
            rejections.append(Rejection(row["id"], fault.code, 1, 1, fault.message))
    return chosen, rejections


def check(
    rows: Sequence[Subscription], specification: Specification, hosts: set[str], publisher: str
) -> tuple[list[CheckedRule], list[Rejection]]:
    """Part the rows into rules that are live and rejections, each in the order of the rows.

    A rule without ``fwd(...)`` forwards to its subscriber. ``hosts`` are the names
    that may receive, ``publisher`` is the host that sends and therefore may not.
    Never raises for what a user wrote. Texts are parsed once for a specification object.
    """
    texts = _texts_of(specification)
    rules: list[CheckedRule] = []
    rejections: list[Rejection] = []
    for row in rows:
        try:
            rule = _read(row.filter, specification, texts)
            receivers = _receivers(row, rule, hosts, publisher)
        except SubscriptionError as error:
            fields = error.fields
            rejections.append(
                Rejection(row.id, error.code, fields["line"], fields["column"], error.message)
            )
        else:
            rules.append(CheckedRule(row.id, rule.condition, receivers))
    return rules, rejections


_Texts = dict[str, Rule | SubscriptionError]
# By identity: hashing a specification costs more than parsing a rule. The
# specification is kept beside its texts so that its identity is not used again.
_cache: dict[int, tuple[Specification, _Texts]] = {}


def _texts_of(specification: Specification) -> _Texts:
    held = _cache.get(id(specification))
    if held is None:
        if len(_cache) >= _CACHED_SPECIFICATIONS:
            _cache.pop(next(iter(_cache)), None)
        held = _cache.setdefault(id(specification), (specification, {}))
    if len(held[1]) > _CACHED_TEXTS:
        held[1].clear()
    return held[1]


def _read(text: str | None, specification: Specification, texts: _Texts) -> Rule:
    key = text or ""
    result = texts.get(key)
    if result is None:
        try:
            result = parse_rule(key, specification)
            normal_form(result.condition, specification)
        except SubscriptionError as error:
            result = error
        texts[key] = result
    if isinstance(result, SubscriptionError):
        # Without the traceback of the time before: it would grow with each check.
        raise result.with_traceback(None)
    return result


def _receivers(row: Subscription, rule: Rule, hosts: set[str], publisher: str) -> tuple[str, ...]:
    for name, place in zip(rule.receivers, rule.places, strict=True):
        fault = _fault(f"host '{name}'", name, hosts, publisher)
        if fault:
            raise subscription_error(fault[0], row.filter, place, fault[1], fault[2])
    if rule.receivers:
        return tuple(sorted(rule.receivers))
    fault = _fault(f"subscriber '{row.subscriber}'", row.subscriber, hosts, publisher)
    if fault:
        raise subscription_error(fault[0], row.filter or "", (1, 1), fault[1], fault[2])
    return (row.subscriber,)


def _fault(
    title: str, name: str, hosts: Iterable[str], publisher: str
) -> tuple[str, str, str | None] | None:
    if name == publisher:
        message = f"{title} is the publisher and cannot receive what it sends"
        return "PUBLISHER_AS_RECEIVER", message, None
    if name not in hosts:
        near = nearest(str(name), (host for host in hosts if host != publisher))
        return "UNKNOWN_HOST", f"{title} is not a host of the network", near
    return None
