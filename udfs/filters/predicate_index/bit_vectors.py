"""Bit vectors over a block of events, a line of the cache each, in compiled loops.

Numba does not make vectors of a few words, nor keep them in registers: these parts of kernels are
written as LLVM has them. Where a machine has shorter vectors, LLVM takes several.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

WORDS = 8
"""Of 64 events each."""
_WORD = ir.IntType(64)


def _vector(size: int = WORDS) -> Any:
    return ir.VectorType(_WORD, size)


_NOTHING = ir.Constant(_vector(), [0] * WORDS)
_NUMBERS = ir.Constant(_vector(), list(range(WORDS)))


def _constant(value: int) -> Any:
    return ir.Constant(_WORD, value)


def _element(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    """Returns the address of an element of an array that is contiguous."""
    return builder.gep(context.make_array(kind)(context, builder, array).data, [at])


def _row(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    first = _element(context, builder, kind, array, builder.mul(at, _constant(WORDS)))
    return builder.bitcast(first, _vector().as_pointer())


def _repeated(builder: Any, word: Any, size: int) -> Any:
    """Returns a vector of which all elements are the word."""
    number, unset = ir.IntType(32), ir.Constant(_vector(size), ir.Undefined)
    one = builder.insert_element(unset, word, ir.Constant(number, 0))
    zeros = ir.Constant(ir.VectorType(number, size), [0] * size)
    return builder.shuffle_vector(one, unset, zeros)


def _combined(operation: str) -> Any:
    @intrinsic
    def combine(
        context: Any, rows: Any, at: Any, of: Any, low: Any, above: Any, next_low: Any, next_: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            target = _row(context, builder, signature.args[0], *arguments[:2])
            low, above, next_low, next_above = (
                builder.load(_row(context, builder, signature.args[2], arguments[2], row), align=8)
                for row in arguments[3:]
            )
            first = builder.and_(low, builder.not_(above))
            both = builder.and_(first, builder.and_(next_low, builder.not_(next_above)))
            held = getattr(builder, operation)(builder.load(target, align=8), both)
            builder.store(held, target, align=8)
            return context.get_dummy_value()

        return types.void(rows, types.uint64, of, *[types.uint64] * 4), generate

    return combine


unite = _combined("or_")
"""``unite(rows, at, of, a, b, c, d)``: ``rows[at] |= of[a] & ~of[b] & of[c] & ~of[d]``."""
intersect = _combined("and_")
"""The same with ``&=``."""


@intrinsic
def fill(context: Any, rows: Any, first: Any, order: Any, count: Any) -> Any:
    """``fill(rows, first, order, count)``: row ``first + k`` is of the events ``order[k:count]``,
    that behind them of none; one event at least."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows, first, order, count = arguments

        def row(at: Any) -> Any:
            return _row(context, builder, signature.args[0], rows, builder.add(first, at))

        before = builder.block
        builder.store(_NOTHING, row(count), align=8)
        loop, done = builder.append_basic_block("fill"), builder.append_basic_block("filled")
        builder.branch(loop)
        builder.position_at_end(loop)
        last, those = builder.phi(_WORD), builder.phi(_vector())
        at = builder.sub(last, _constant(1))
        event = builder.load(_element(context, builder, signature.args[2], order, at))
        word = _repeated(builder, builder.lshr(event, _constant(6)), WORDS)
        bit = builder.shl(_constant(1), builder.and_(event, _constant(63)))
        here = builder.icmp_unsigned("==", _NUMBERS, word)
        more = builder.or_(those, builder.select(here, _repeated(builder, bit, WORDS), _NOTHING))
        builder.store(more, row(at), align=8)
        for phi, begin, onward in ((last, count, at), (those, _NOTHING, more)):
            phi.add_incoming(begin, before)
            phi.add_incoming(onward, loop)
        builder.cbranch(builder.icmp_unsigned("!=", at, _constant(0)), loop, done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.void(rows, types.uint64, order, types.uint64), generate


@intrinsic
def spread(context: Any, found: Any, first: Any, bits: Any, word: Any) -> Any:
    """``spread(found, first, bits, word)``: ``found[first + k] |= word`` for each bit k of 64,
    without branches: one that is set is as likely as one that is not."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        found, first, bits, word = arguments
        address = _element(context, builder, signature.args[0], found, first)
        address = builder.bitcast(address, _vector(64).as_pointer())
        here = builder.bitcast(bits, ir.VectorType(ir.IntType(1), 64))
        nothing = ir.Constant(_vector(64), [0] * 64)
        more = builder.select(here, _repeated(builder, word, 64), nothing)
        builder.store(builder.or_(builder.load(address, align=8), more), address, align=8)
        return context.get_dummy_value()

    return types.void(found, *[types.uint64] * 3), generate
