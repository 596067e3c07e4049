"""Disjunctive normal form of a syntax tree: a condition as a list of terms (CAMUS 3.2).

A term is a conjunction, one set of raw values a field. ``not`` is pushed down to the predicates
first, where it flips the comparison; since an unknown value makes a predicate false in either
polarity from then on, this is the three-valued meaning of ``evaluate``. A predicate on a header
of a message type demands that type, and one on an optional field that it is there. Predicates on
state are literals like others, on the name of their subject.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Context, Decimal
from hashlib import blake2b
from itertools import chain, product

from stackcast.udfs.errors import SubscriptionError
from stackcast.udfs.filters.intervals import Intervals, comparison, intersection, union
from stackcast.udfs.filters.nodes import (
    Aggregate,
    And,
    Node,
    Not,
    Operator,
    Predicate,
    StatePredicate,
)
from stackcast.udfs.messages.specification import Counter, Field, Specification

MESSAGE_TYPE = "message_type"
"""Pseudo field: the type byte that all messages share, whatever header follows."""

MAX_TERMS = 256
"""Terms of one rule."""
MAX_BOXES = 4096
"""Terms over lanes that one term with wide fields may become."""
STATE_MAXIMUM = (1 << 64) - 1
"""The largest value that state can have."""
_MAX_PRODUCTS = 100_000
"""Pairs of terms multiplied for one rule: bounds the time of a rule made to be slow."""

_MAX_NAME = 160
"""Characters of a cell's name; a name that is cut has more, so that it is never that of another
cell."""

_EXACT = Context(prec=200)

Term = tuple[tuple[str, Intervals], ...]
"""(name, allowed values) sorted by name: qualified fields, ``message_type``, or what a predicate
on state reads. What is named must be there and have an allowed value; what is not may be
anything. The empty term is always true."""

_NEGATED: Mapping[Operator, Operator] = {
    "==": "!=",
    "!=": "==",
    "<": ">=",
    ">=": "<",
    ">": "<=",
    "<=": ">",
    "in": "not in",
    "not in": "in",
}


def is_message_type(field: Field, message_type: int | None) -> bool:
    """Returns True if the field is the type byte of its message, which always stands first."""
    return message_type is not None and field.bit_offset == 0


def subject_name(subject: Aggregate | Counter) -> str:
    """Names the subject of a predicate on state in a term: a variable (``v``, or ``v of h1`` with
    its owner), ``avg(a.price) per 100 us``, ``changed(a.price)``, ``moved(a.price, 0.5000)``."""
    if isinstance(subject, Counter):
        return short_name(f"{subject.name} of {subject.owner}" if subject.owner else subject.name)
    field = subject.field.qualified if subject.field is not None else ""
    if subject.function == "moved" and subject.field is not None:
        band = _EXACT.multiply(subject.field.unit, Decimal(subject.window))
        return f"changed({field})" if subject.window == 1 else f"moved({field}, {band:f})"
    return f"{subject.function}({field}) per {subject.window} us"


def short_name(name: str) -> str:
    """Returns the name of a cell, cut and with a digest if it is long.

    Tables repeat the names of cells in their rows.
    """
    if len(name) <= _MAX_NAME:
        return name
    digest = blake2b(name.encode(), digest_size=16).hexdigest()
    return f"{name[:_MAX_NAME]}... #{digest}"


def normal_form(
    condition: Node, specification: Specification, optional: bool | None = None
) -> tuple[Term, ...]:
    """Returns terms whose disjunction is the condition; no terms if nothing can satisfy it.

    Terms that differ only in the values of one field are one term, so that
    ``stock == A or stock == B`` costs one. ``optional``: True if events may lack a field although
    they have its header; None: as the specification says. The literal of an optional field stays in
    a term even where it allows any value, as the field must be there. Literals of state always
    stay.

    Errors: ``SubscriptionError`` TOO_COMPLEX if more than 256 terms are left, or it takes too
    long to know.
    """
    expansion = _Expansion(specification)
    terms = expansion.terms(condition, negated=False)
    # Not before all terms are there: which terms there are, and so which state macros have, must
    # not depend on what may be absent.
    return tuple(dict.fromkeys(expansion.needed(term, optional) for term in terms))


def conjunction(left: Term, right: Term) -> Term | None:
    """Returns the term that is true where both are; None if nothing can satisfy both."""
    common = dict(left)
    for field, allowed in right:
        before = common.get(field)
        both = allowed if before is None else intersection(before, allowed)
        if not both:
            return None
        common[field] = both
    return tuple(sorted(common.items()))


def presence(field: Field, specification: Specification, optional: bool | None = None) -> Term:
    """Returns the term that is true of the events that have the field."""
    expansion = _Expansion(specification)
    return expansion.needed(expansion.term(field, ((0, (1 << field.bits) - 1),)), optional)


def lane_terms(term: Term, specification: Specification) -> list[Term]:
    """Splits a term over lanes of at most 64 bits: disjoint terms that together equal it.

    A term without wide fields stays as it is. The first lane of a wide field is in each term, so
    that an event that lacks the field satisfies none. Errors: ``SubscriptionError`` TOO_COMPLEX
    beyond 4096 terms.
    """
    fields = specification.fields
    narrow: list[tuple[str, Intervals]] = []
    wide: list[list[Term]] = []
    for name, allowed in term:
        field = fields.get(name)
        if field is None or field.bits <= 64:
            narrow.append((name, allowed))
        else:
            wide.append(list(_boxes(allowed, field.lanes())))
    if not wide:
        return [term]
    count = 1
    for boxes in wide:
        count *= len(boxes)
    if count > MAX_BOXES:
        raise _too_complex(
            f"the rule has more than {MAX_BOXES} alternatives over fields of more than 64 bits"
        )
    return [tuple(sorted(chain(narrow, *boxes))) for boxes in product(*wide)]


def _boxes(allowed: Intervals, lanes: Sequence[Field]) -> Iterator[Term]:
    """Yields disjoint boxes over the lanes, most significant first, that make up the set."""
    first, *others = lanes
    bits = sum(lane.bits for lane in others)
    rest_maximum = (1 << bits) - 1
    # Values of the other lanes, for each value of the first lane that starts or ends an interval;
    # between these the others may have any.
    edges: dict[int, list[tuple[int, int]]] = {}
    firsts: dict[Intervals, list[tuple[int, int]]] = {}
    for low, high in allowed:
        start, end = low >> bits, high >> bits
        if start == end:
            edges.setdefault(start, []).append((low & rest_maximum, high & rest_maximum))
            continue
        edges.setdefault(start, []).append((low & rest_maximum, rest_maximum))
        edges.setdefault(end, []).append((0, high & rest_maximum))
        if start + 1 < end:
            firsts.setdefault(((0, rest_maximum),), []).append((start + 1, end - 1))
    for value, rest in edges.items():
        firsts.setdefault(union((tuple(rest),)), []).append((value, value))
    for rest_allowed, values in firsts.items():
        literal = (first.qualified, union((tuple(values),)))
        if rest_allowed == ((0, rest_maximum),):
            yield (literal,)
        else:
            for box in _boxes(rest_allowed, others):
                yield (literal, *box)


class _Expansion:
    def __init__(self, specification: Specification) -> None:
        self._specification = specification
        self._types = {header.name: header.message_type for header in specification.headers}
        self._products = 0

    def terms(self, node: Node, negated: bool) -> tuple[Term, ...]:
        if isinstance(node, Predicate):
            return self._predicate(node, negated)
        if isinstance(node, StatePredicate):
            return _state_predicate(node, negated)
        if isinstance(node, Not):
            return self.terms(node.child, not negated)
        children = [self.terms(child, negated) for child in node.children]
        if isinstance(node, And) is not negated:
            return self._conjunction(children)
        return _limited(merged(chain.from_iterable(children)))

    def term(self, field: Field, allowed: Intervals) -> Term:
        message_type = self._types[field.header]
        if message_type is None:
            return ((field.qualified, allowed),)
        typed = ((message_type, message_type),)
        if is_message_type(field, message_type):
            return ((MESSAGE_TYPE, intersection(typed, allowed)),)
        return tuple(sorted(((field.qualified, allowed), (MESSAGE_TYPE, typed))))

    def needed(self, term: Term, optional: bool | None) -> Term:
        """Drops fields that may have any value and are there by their header."""
        return tuple(
            (name, allowed) for name, allowed in term if not self._certain(name, allowed, optional)
        )

    def _certain(self, name: str, allowed: Intervals, optional: bool | None) -> bool:
        if optional or allowed[0][0] or len(allowed) > 1:
            return False
        field = self._specification.fields.get(name)
        return (
            field is not None
            and allowed[0][1] == (1 << field.bits) - 1
            and (optional is False or not self._specification.is_optional(field))
        )

    def _predicate(self, node: Predicate, negated: bool) -> tuple[Term, ...]:
        operator = _NEGATED[node.operator] if negated else node.operator
        allowed = comparison(operator, node.constants, (1 << node.field.bits) - 1)
        term = self.term(node.field, allowed)
        return (term,) if all(values for _, values in term) else ()

    def _conjunction(self, factors: Sequence[tuple[Term, ...]]) -> tuple[Term, ...]:
        terms: tuple[Term, ...] = ((),)
        # Small factors first: contradictions then show before the product has grown.
        for factor in sorted(factors, key=len):
            self._products += len(terms) * len(factor)
            if self._products > _MAX_PRODUCTS:
                raise _too_complex()
            pairs = (conjunction(left, right) for left in terms for right in factor)
            terms = _limited(merged(term for term in pairs if term is not None))
        return terms


def merged(terms: Iterable[Term]) -> tuple[Term, ...]:
    """Returns the terms without repeats, those on one and the same field (and type) united."""
    several: dict[Term, None] = {}
    single: dict[tuple[str, Intervals | None], list[Intervals]] = {}
    for term in terms:
        named = dict(term)
        message_type = named.pop(MESSAGE_TYPE, None)
        if len(named) == 1:
            ((field, allowed),) = named.items()
            single.setdefault((field, message_type), []).append(allowed)
        else:
            several[term] = None
    for (field, message_type), sets in single.items():
        term = ((field, union(sets)),)
        if message_type is not None:
            term = tuple(sorted((*term, (MESSAGE_TYPE, message_type))))
        several[term] = None
    return tuple(several)


def _state_predicate(node: StatePredicate, negated: bool) -> tuple[Term, ...]:
    operator = _NEGATED[node.operator] if negated else node.operator
    change = isinstance(node.subject, Aggregate) and node.subject.function == "moved"
    domain: Intervals = ((0, 1 if change else STATE_MAXIMUM),)
    constants = ((node.value, node.value),)
    allowed = intersection(comparison(operator, constants, STATE_MAXIMUM), domain)
    return (((subject_name(node.subject), allowed),),) if allowed else ()


def _limited(terms: tuple[Term, ...]) -> tuple[Term, ...]:
    if len(terms) > MAX_TERMS:
        raise _too_complex()
    return terms


def _too_complex(what: str = "") -> SubscriptionError:
    what = what or (
        f"the rule has more than {MAX_TERMS} alternatives when written as an 'or' of 'and's"
    )
    return SubscriptionError(
        "TOO_COMPLEX",
        f"line 1, column 1: {what}; split it into several subscriptions",
        line=1,
        column=1,
        suggestion=None,
    )
