"""Checked rules from rows of the subscriptions table: every row is either live or rejected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

from stackcast.udfs.errors import SubscriptionError
from stackcast.udfs.filters.grants import Grants
from stackcast.udfs.filters.language.rule import nearest, parse_rule, subscription_error
from stackcast.udfs.filters.language.shapes import RuleTable, read_table
from stackcast.udfs.filters.language.syntax_errors import MAX_NAME
from stackcast.udfs.filters.meaning.normal_form import Term, lane_terms
from stackcast.udfs.filters.meaning.state import add_updates, field_terms, split
from stackcast.udfs.filters.nodes import Call, Function, Node, Rule, Update
from stackcast.udfs.messages.specification import Specification

_CACHED_TEXTS = 200_000
_CACHED_SPECIFICATIONS = 4
_MANY = 1000
"""New texts from which on it is quicker to read them as columns."""


class Subscription(NamedTuple):
    """One row: a subscriber (a host) and its rule in the subscription language.

    A tuple, because a hundred thousand of them are compared for each edit.
    """

    id: str
    subscriber: str
    filter: str


@dataclass(frozen=True)
class Rejection:
    """One subscription that is not live, with the reason.

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
    """One rule that will compile: every field, constant and receiver is known.

    ``calls`` are named actions, which switches perform; ``updates`` are of named state variables.
    """

    id: str
    condition: Node
    receivers: tuple[str, ...]
    calls: tuple[Call, ...] = ()
    updates: tuple[Update, ...] = ()


class CheckedRules(Sequence[CheckedRule]):
    """Holds many checked rules, most of which are not objects until somebody asks for them.

    ids, receivers, numbers: of each rule; the last is the row's number in ``table``, the result of
    ``read_table`` for ``texts``. trees: by that number, the rules that are not plain and those
    that update state; blocks of ``table`` may have the latter too.
    """

    def __init__(
        self,
        ids: Sequence[str],
        receivers: Sequence[tuple[str, ...]],
        numbers: Sequence[int],
        texts: Sequence[str],
        table: RuleTable,
        trees: Mapping[int, Rule],
        specification: Specification,
    ) -> None:
        self.receivers = receivers
        self.numbers = numbers
        self.texts = texts
        self.table = table
        self.ids = ids
        self._specification = specification
        self._rules: dict[int, CheckedRule] = {}
        self.trees = trees

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> CheckedRule: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[CheckedRule]: ...
    def __getitem__(self, index: int | slice) -> CheckedRule | Sequence[CheckedRule]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = range(len(self))[index]
        found = self._rules.get(at)
        if found is None:
            number = self.numbers[at]
            rule = self.trees.get(number) or parse_rule(self.texts[number], self._specification)
            found = self._rules[at] = _checked(self.ids[at], rule, self.receivers[at])
        return found

    def __iter__(self) -> Iterator[CheckedRule]:
        return (self[at] for at in range(len(self)))


def select(
    rows: Iterable[Mapping[str, Any]], wanted: str, known: Container[str], most: int = 0
) -> tuple[list[Subscription], list[Rejection]]:
    """Selects the enabled rows of the table that are written for the format ``wanted``, by id.

    Rows of another of the ``known`` formats are for another job; rows of none are rejected, and so
    are those of a subscriber beyond its ``most``, 0 for any number: the oldest stay.
    """
    chosen: list[Subscription] = []
    rejections: list[Rejection] = []
    enabled = sorted((row for row in rows if row["enabled"]), key=lambda row: str(row["id"]))
    beyond = _beyond([row for row in enabled if row["format"] == wanted], most) if most else ()
    for row in enabled:
        if row["id"] in beyond:
            fault = SubscriptionError(
                "QUOTA",
                f"{row['subscriber']} has more than {most} enabled rules, and this is none of the "
                "oldest: disable or join some, or ask for a higher quota",
            )
            rejections.append(Rejection(row["id"], fault.code, 1, 1, fault.message))
        elif row["format"] == wanted:
            chosen.append(Subscription(row["id"], row["subscriber"], row["filter"]))
        elif row["format"] not in known:
            fault = SubscriptionError(
                "UNKNOWN_FORMAT", f"there is no message format {row['format']!r}: write {wanted!r}"
            )
            rejections.append(Rejection(row["id"], fault.code, 1, 1, fault.message))
    return chosen, rejections


def _beyond(rows: Sequence[Mapping[str, Any]], most: int) -> set[str]:
    """Returns the ids of rows, given by id, whose subscriber has ``most`` older ones."""
    counts = Counter(row["subscriber"] for row in rows)
    heavy = [row for row in rows if counts[row["subscriber"]] > most]
    # Rows without a time came first.
    heavy.sort(key=lambda row: (row["updated_at"] is not None, row["updated_at"]))
    seen: Counter[str] = Counter()
    found = set()
    for row in heavy:
        seen[row["subscriber"]] += 1
        if seen[row["subscriber"]] > most:
            found.add(row["id"])
    return found


def check(
    rows: Sequence[Subscription],
    specification: Specification,
    hosts: set[str],
    publisher: str,
    grants: Grants | None = None,
) -> tuple[Sequence[CheckedRule], list[Rejection]]:
    """Parts the rows into rules that are live and rejections, each in the order of the rows.

    A rule without ``fwd(...)`` forwards to its subscriber. ``hosts`` are the names that may
    receive, ``publisher`` is the host that sends and therefore may not. Refused are rules that ask
    for more than a receiver is granted (None: all is), actions for a switch, and a rule that
    updates a variable by another function than an earlier one. Never raises for what a user wrote.
    Texts are parsed once for a specification object.
    """
    checker = _Checker(specification, hosts, publisher, grants)
    new = {row.filter for row in rows}.difference(checker.texts)
    if len(new) >= _MANY:
        return checker.many(rows)
    rules: list[CheckedRule] = []
    rejections: list[Rejection] = []
    for row in rows:
        try:
            rule = checker.read(row.filter or "")
            receivers = checker.receivers(row, rule)
            checker.grant(row.filter, receivers, rule.condition)
            checker.admit(rule)
        except SubscriptionError as error:
            rejections.append(rejection(row.id, error))
        else:
            rules.append(_checked(row.id, rule, receivers))
    return rules, rejections


def _checked(name: str, rule: Rule, receivers: tuple[str, ...]) -> CheckedRule:
    return CheckedRule(name, rule.condition, receivers, (), _updates(rule))


def _updates(rule: Rule) -> tuple[Update, ...]:
    return tuple(action for action in rule.actions if isinstance(action, Update))


def rejection(name: str, error: SubscriptionError) -> Rejection:
    """Returns the rejection of the row of this id."""
    fields = error.fields
    return Rejection(name, error.code, fields["line"], fields["column"], error.message)


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


class _Checker:
    """Reads texts, and finds the faults of rules for one network."""

    def __init__(
        self,
        specification: Specification,
        hosts: set[str],
        publisher: str,
        grants: Grants | None,
    ) -> None:
        self.texts = _texts_of(specification)
        self._specification = specification
        self._hosts = hosts
        self._publisher = publisher
        self._grants = grants
        self._functions: dict[str, Function] = {}

    def many(self, rows: Sequence[Subscription]) -> tuple[CheckedRules, list[Rejection]]:
        """Checks rows with many new texts."""
        texts = [row.filter or "" for row in rows]
        table = read_table(texts, self._specification)
        wrong = dict(table.errors)
        trees = dict(table.rules)
        updating = {
            n for n, a in enumerate(table.outcomes) if any(isinstance(b, Update) for b in a)
        }
        plain: dict[int, Term] = {}
        if self._grants is not None:
            every = (pair for block in table.blocks for pair in block.terms())
            plain = {number: term for term, number in every if number not in trees}
        fine: dict[tuple[int, str], tuple[str, ...]] = {}
        ids, receivers, numbers, rejections = [], [], [], []
        for number, (row, outcome) in enumerate(zip(rows, table.outcome.tolist(), strict=True)):
            if outcome in updating and number not in trees:
                trees[number] = parse_rule(texts[number], self._specification)
            # Rules without a tree are plain: where all of their actions are right, all is.
            key = (outcome, row.subscriber)
            found = None if number in wrong or number in trees else fine.get(key)
            try:
                if found is None:
                    if number in wrong:
                        raise wrong[number].with_traceback(None)
                    rule = trees.get(number)
                    if rule is None:
                        rule = parse_rule(texts[number], self._specification)
                    self._validate(texts[number], rule)
                    found = self.receivers(row, rule)
                    if number in trees:
                        self.grant(texts[number], found, rule.condition)
                        self.admit(rule)
                    else:
                        fine[key] = found
                if number in plain:
                    self.grant(texts[number], found, plain[number])
            except SubscriptionError as error:
                rejections.append(rejection(row.id, error))
                continue
            ids.append(row.id)
            receivers.append(found)
            numbers.append(number)
        rules = CheckedRules(ids, receivers, numbers, texts, table, trees, self._specification)
        return rules, rejections

    def read(self, text: str) -> Rule:
        """Returns the rule of a text. Errors: ``SubscriptionError``, the same each time."""
        result = self.texts.get(text)
        if result is None:
            try:
                result = parse_rule(text, self._specification)
                self._expand(result)
            except SubscriptionError as error:
                result = error
            self.texts[text] = result
        if isinstance(result, SubscriptionError):
            # Without the traceback of the time before: it would grow with each check.
            raise result.with_traceback(None)
        self._refuse(text, result)
        return result

    def _validate(self, text: str, rule: Rule) -> None:
        self._expand(rule)
        self._refuse(text, rule)

    def grant(self, text: str, receivers: Iterable[str], asked: Node | Term) -> None:
        """Raises if a receiver may not get all events of a condition, or of a plain rule's term."""
        if self._grants is None:
            return
        terms = [asked] if isinstance(asked, tuple) else field_terms(asked, self._specification)
        for receiver in receivers:
            if not self._grants.allows(receiver, terms):
                raise self._grants.refusal(receiver, text)

    def admit(self, rule: Rule) -> None:
        """Adds a rule; raises if it updates state otherwise than rules before."""
        if updates := _updates(rule):
            add_updates(self._functions, updates)

    def _expand(self, rule: Rule) -> None:
        """Raises the errors that compiling would raise."""
        for term, _, _ in split(rule.condition, self._specification, _updates(rule)).terms:
            lane_terms(term, self._specification)

    def _refuse(self, text: str, rule: Rule) -> None:
        """Raises for actions of switches, which the stream does not perform."""
        for action in rule.actions:
            if isinstance(action, Call):
                raise subscription_error(
                    "ACTION_FOR_SWITCH",
                    text,
                    (1, 1),
                    f"action '{action.name[:MAX_NAME]}' is for a switch to perform, and this rule "
                    "is for the stream, which forwards; write fwd(...), or no action",
                )

    def receivers(self, row: Subscription, rule: Rule) -> tuple[str, ...]:
        """Returns the receivers, sorted. Errors: ``SubscriptionError`` for one who cannot
        receive."""
        hosts, publisher = self._hosts, self._publisher
        for name, place in zip(rule.receivers, rule.places, strict=True):
            fault = _fault("host", name, hosts, publisher)
            if fault:
                raise subscription_error(fault[0], row.filter, place, fault[1], fault[2])
        if rule.receivers:
            return tuple(sorted(rule.receivers))
        fault = _fault("subscriber", row.subscriber, hosts, publisher)
        if fault:
            raise subscription_error(fault[0], row.filter or "", (1, 1), fault[1], fault[2])
        return (row.subscriber,)


def _fault(
    role: str, name: str, hosts: Iterable[str], publisher: str
) -> tuple[str, str, str | None] | None:
    title = f"{role} '{str(name)[:MAX_NAME]}'"
    if name == publisher:
        message = f"{title} is the publisher and cannot receive what it sends"
        return "PUBLISHER_AS_RECEIVER", message, None
    if name not in hosts:
        near = nearest(str(name), (host for host in hosts if host != publisher))
        return "UNKNOWN_HOST", f"{title} is not a host of the network", near
    return None
