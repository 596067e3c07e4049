"""Checked rules from rows of the subscriptions table: every row is either live or rejected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple, overload

from stackcast.udfs.errors import SubscriptionError
from stackcast.udfs.filters.grants import Grants
from stackcast.udfs.filters.language.rule import nearest, parse_rule, subscription_error
from stackcast.udfs.filters.language.shapes import RuleTable, read_table
from stackcast.udfs.filters.language.syntax_errors import MAX_NAME, check_names
from stackcast.udfs.filters.meaning.normal_form import Term, lane_terms
from stackcast.udfs.filters.meaning.state import add_updates, field_terms, owned, split, subjects
from stackcast.udfs.filters.nodes import Call, Function, Node, Rule, Update
from stackcast.udfs.messages.specification import Counter as Variable
from stackcast.udfs.messages.specification import Specification

_CACHED_TEXTS = 200_000
_CACHED_SPECIFICATIONS = 4
_MANY = 1000
"""New texts from which on it is quicker to read them as columns."""
_DUPLICATE: Final = "SUBSCRIPTION.DUPLICATE_ID"


class Subscription(NamedTuple):
    """One row of `subscriptions`: a subscriber and its rule in the subscription language.

    It is a tuple, because a hundred thousand of them are compared for each edit.

    Attributes:
        id: of the rule.
        subscriber: the host that receives what the rule matches, unless it has ``fwd(...)``.
        filter: the rule.

    Example:
        >>> Subscription("1", "h1", "stock == GOOGL and price > 50")
        Subscription(id='1', subscriber='h1', filter='stock == GOOGL and price > 50')
    """

    id: str
    subscriber: str
    filter: str


@dataclass(frozen=True)
class Rejection:
    """One subscription that is not live, with the reason.

    ``code`` is stable (``SUBSCRIPTION.UNKNOWN_FIELD``); ``line`` and ``column`` are
    1-based places in the filter text (1, 1 where the rule as a whole is at fault);
    ``message`` repeats the place, shows it with a caret and says what to do. ``subscriber`` is that
    of the row, and None for a grant or an advertisement.
    """

    id: str
    code: str
    line: int
    column: int
    message: str
    subscriber: str | None = None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Rejection:
        """Returns the rejection of a row of `rejected_subscriptions`."""
        return cls(**{field.name: row[field.name] for field in fields(cls)})

    def row(self, version: int) -> dict[str, Any]:
        """Returns the row of `rejected_subscriptions` for a version of `subscriptions`."""
        return {**vars(self), "subscriptions_version": version}


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


def check(
    rows: Sequence[Subscription],
    specification: Specification,
    hosts: set[str],
    publisher: str,
    grants: Grants | None = None,
) -> tuple[Sequence[CheckedRule], list[Rejection]]:
    """Parts the rows into rules that are live and rejections, each in the order of the rows.

    A rule without ``fwd(...)`` forwards to its subscriber. ``hosts`` are the names that may
    receive, ``publisher`` is the host that sends and therefore may not. Refused are rows whose id
    or subscriber is not a name (`stackcast.udfs.names`), rules that ask for more than a receiver is
    granted (None: all is), actions for a switch, and a rule that updates a variable by another
    function than an earlier one of its subscriber. Variables belong to the subscriber of their row.
    Never raises for what a user wrote. Texts are parsed once for a specification object.
    """
    checker = _Checker(specification, hosts, publisher, grants)
    new = {row.filter for row in rows}.difference(checker.texts)
    if len(new) >= _MANY:
        return checker.many(rows)
    rules: list[CheckedRule] = []
    rejections: list[Rejection] = []
    for row in rows:
        try:
            check_names(id=row.id, subscriber=row.subscriber)
            rule = checker.read(row)
            receivers = checker.receivers(row, rule)
            checker.grant(row.filter, receivers, rule.condition)
            checker.admit(rule)
        except SubscriptionError as error:
            rejections.append(rejection(row.id, error, row.subscriber))
        else:
            rules.append(_checked(row.id, rule, receivers))
    return rules, rejections


def _checked(name: str, rule: Rule, receivers: tuple[str, ...]) -> CheckedRule:
    return CheckedRule(name, rule.condition, receivers, (), _updates(rule))


def _names_variables(rule: Rule) -> bool:
    read = subjects(rule.condition)
    return bool(_updates(rule)) or any(isinstance(subject, Variable) for subject in read)


def _updates(rule: Rule) -> tuple[Update, ...]:
    return tuple(action for action in rule.actions if isinstance(action, Update))


def rejection(name: str, error: SubscriptionError, subscriber: str | None = None) -> Rejection:
    """Returns the rejection of the row of this id.

    Args:
        name: id of the row.
        error: why it is rejected. Without a place, the row as a whole is wrong.
        subscriber: subscriber of the row, None for a grant or an advertisement.
    """
    line, column = (error.fields.get(place, 1) for place in ("line", "column"))
    return Rejection(name, error.code, line, column, error.message, subscriber)


def live_rows(rows: Iterable[Subscription], rejections: Iterable[Rejection]) -> list[Subscription]:
    """Returns the rows that are not rejected.

    Args:
        rows: rows with different ids, as `stackcast.udfs.filters.selection.select` returns them.
        rejections: rejections of subscriptions, grants and advertisements. A duplicate does not
            reject the row that its id belongs to.
    """
    rejected = {(each.id, each.subscriber) for each in rejections if each.code != _DUPLICATE}
    return [row for row in rows if (row.id, row.subscriber) not in rejected]


def forward_count(text: str, specification: Specification) -> int:
    """Returns the number of hosts that a rule forwards to, 1 for a text that is no rule."""
    found = _parsed(text, specification, _texts_of(specification))
    return 1 if isinstance(found, SubscriptionError) else len(found.rule.receivers) or 1


class _Text(NamedTuple):
    """A rule as its text says it, and True if it names variables, which then need their owner."""

    rule: Rule
    variables: bool


_Texts = dict[str, _Text | SubscriptionError]
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


def _parsed(text: str, specification: Specification, texts: _Texts) -> _Text | SubscriptionError:
    """Returns the rule of a text, or what is wrong with it, from ``texts`` if it is there."""
    result = texts.get(text)
    if result is None:
        try:
            rule = parse_rule(text, specification)
            _expand(rule, specification)
            result = _Text(rule, _names_variables(rule))
        except SubscriptionError as error:
            result = error
        texts[text] = result
    return result


def _expand(rule: Rule, specification: Specification) -> None:
    """Raises the errors that compiling would raise."""
    for term, _, _ in split(rule.condition, specification, _updates(rule)).terms:
        lane_terms(term, specification)


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
                check_names(id=row.id, subscriber=row.subscriber)
                if found is None:
                    if number in wrong:
                        raise wrong[number].with_traceback(None)
                    rule = trees.get(number)
                    if rule is None:
                        rule = parse_rule(texts[number], self._specification)
                    else:
                        rule = trees[number] = owned(rule, row.subscriber)
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
                rejections.append(rejection(row.id, error, row.subscriber))
                continue
            ids.append(row.id)
            receivers.append(found)
            numbers.append(number)
        rules = CheckedRules(ids, receivers, numbers, texts, table, trees, self._specification)
        return rules, rejections

    def read(self, row: Subscription) -> Rule:
        """Returns the rule of a row. Errors: ``SubscriptionError``, the same each time."""
        text = row.filter or ""
        result = _parsed(text, self._specification, self.texts)
        if isinstance(result, SubscriptionError):
            # Without the traceback of the time before: it would grow with each check.
            raise result.with_traceback(None)
        self._refuse(text, result.rule)
        return owned(result.rule, row.subscriber) if result.variables else result.rule

    def _validate(self, text: str, rule: Rule) -> None:
        _expand(rule, self._specification)
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

    def _refuse(self, text: str, rule: Rule) -> None:
        """Raises for actions of switches, which the stream does not perform."""
        for action in rule.actions:
            if isinstance(action, Call):
                raise subscription_error(
                    "ACTION_FOR_SWITCH",
                    text,
                    (1, 1),
                    f"action '{action.name[:MAX_NAME]}' can only be performed by a switch, but "
                    "the stream evaluates this rule; write fwd(...), or remove the action",
                )

    def receivers(self, row: Subscription, rule: Rule) -> tuple[str, ...]:
        """Returns the receivers, sorted. Errors: ``SubscriptionError`` for one who cannot
        receive."""
        hosts, publisher = self._hosts, self._publisher
        of_rule = f" of rule {row.id[:MAX_NAME]!r}" if row.id else ""
        for name, place in zip(rule.receivers, rule.places, strict=True):
            fault = _fault(f"receiver {name[:MAX_NAME]!r}{of_rule}", name, hosts, publisher)
            if fault:
                raise subscription_error(fault[0], row.filter, place, fault[1], fault[2])
        if rule.receivers:
            return tuple(sorted(rule.receivers))
        title = f"subscriber {str(row.subscriber)[:MAX_NAME]!r}{of_rule}"
        fault = _fault(title, row.subscriber, hosts, publisher)
        if fault:
            # The text of the rule does not contain the name, so no caret can point at it.
            hint = f"; did you mean '{fault[2]}'?" if fault[2] else ""
            raise SubscriptionError(
                fault[0],
                f"line 1, column 1: {fault[1]}{hint}",
                line=1,
                column=1,
                suggestion=fault[2],
            )
        return (row.subscriber,)


def _fault(
    title: str, name: str, hosts: Iterable[str], publisher: str
) -> tuple[str, str, str | None] | None:
    """Returns code, message and suggestion if a host of this name cannot receive, or None."""
    if name == publisher:
        message = f"{title} is the publisher, which cannot receive its own events"
        return "PUBLISHER_AS_RECEIVER", message, None
    if name not in hosts:
        near = nearest(str(name), (host for host in hosts if host != publisher))
        return "UNKNOWN_HOST", f"{title} is not a host of the network", near
    return None
