"""Syntax tree to disjunctive normal form: a condition as a list of terms (CAMUS 3.2).

A term is a conjunction, one set of raw values a field. ``not`` is pushed down to
the predicates first, where it flips the comparison; since an absent header makes a
predicate false in either polarity from then on, this is the three-valued meaning
of ``udfs.filters.evaluate``. A predicate on a header of a message type demands that type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from udfs.errors import SubscriptionError
from udfs.filters.intervals import Intervals, comparison, intersection, union
from udfs.filters.nodes import And, Node, Not, Operator, Predicate, StatePredicate
from udfs.messages.specification import Field, Specification

MESSAGE_TYPE = "message_type"
"""Pseudo field: the type byte that all messages share, whatever header follows."""

MAX_TERMS = 256
"""Terms of one rule."""
_MAX_PRODUCTS = 100_000
"""Pairs of terms multiplied for one rule: bounds the time of a rule made to be slow."""

Term = tuple[tuple[str, Intervals], ...]
"""(field, allowed values) sorted by field: qualified names, or ``message_type``. A field
that is not named may have any value; the empty term is always true."""

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
    """Whether the field is the type byte of its message, which always stands first."""
    return message_type is not None and field.bit_offset == 0


def normal_form(condition: Node, specification: Specification) -> tuple[Term, ...]:
    """Terms whose disjunction is the condition; no terms if nothing can satisfy it.

    Terms that differ only in the values of one field are one term, so that
    ``stock == A or stock == B`` costs one. Errors: ``SubscriptionError``
    TOO_COMPLEX if more than 256 terms are left, or it takes too long to know.
    """
    return _Expansion(specification).terms(condition, negated=False)


class _Expansion:
    def __init__(self, specification: Specification) -> None:
        self._types = {header.name: header.message_type for header in specification.headers}
        self._products = 0

    def terms(self, node: Node, negated: bool) -> tuple[Term, ...]:
        if isinstance(node, Predicate):
            return self._predicate(node, negated)
        if isinstance(node, StatePredicate):
            raise NotImplementedError
        if isinstance(node, Not):
            return self.terms(node.child, not negated)
        children = [self.terms(child, negated) for child in node.children]
        if isinstance(node, And) is not negated:
            return self._conjunction(children)
        return _limited(_merged(chain.from_iterable(children)))

    def _predicate(self, node: Predicate, negated: bool) -> tuple[Term, ...]:
        field = node.field
        maximum = (1 << field.bits) - 1
        operator = _NEGATED[node.operator] if negated else node.operator
        allowed = comparison(operator, node.constants, maximum)
        message_type = self._types[field.header]
        if message_type is None:
            term = {field.qualified: allowed}
        elif is_message_type(field, message_type):
            term = {MESSAGE_TYPE: intersection(((message_type, message_type),), allowed)}
        else:
            term = {MESSAGE_TYPE: ((message_type, message_type),), field.qualified: allowed}
        if not all(term.values()):
            return ()
        if allowed == ((0, maximum),):
            term.pop(field.qualified, None)
        return (tuple(sorted(term.items())),)

    def _conjunction(self, factors: Sequence[tuple[Term, ...]]) -> tuple[Term, ...]:
        product: tuple[Term, ...] = ((),)
        # Small factors first: contradictions then show before the product has grown.
        for factor in sorted(factors, key=len):
            self._products += len(product) * len(factor)
            if self._products > _MAX_PRODUCTS:
                raise _too_complex()
            pairs = (_both(left, right) for left in product for right in factor)
            product = _limited(_merged(term for term in pairs if term is not None))
        return product


def _both(left: Term, right: Term) -> Term | None:
    common = dict(left)
    for field, allowed in right:
        before = common.get(field)
        both = allowed if before is None else intersection(before, allowed)
        if not both:
            return None
        common[field] = both
    return tuple(sorted(common.items()))


def _merged(terms: Iterable[Term]) -> tuple[Term, ...]:
    """Without repeats; terms on one and the same field (and type) united."""
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


def _limited(terms: tuple[Term, ...]) -> tuple[Term, ...]:
    if len(terms) > MAX_TERMS:
        raise _too_complex()
    return terms


def _too_complex() -> SubscriptionError:
    return SubscriptionError(
        "TOO_COMPLEX",
        f"line 1, column 1: written as an 'or' of 'and's the rule has more than {MAX_TERMS} "
        "alternatives; split it into several subscriptions",
        line=1,
        column=1,
        suggestion=None,
    )
