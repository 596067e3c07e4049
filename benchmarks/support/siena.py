"""Subscriptions of a made-up market, after the parameters of the Siena synthetic benchmark.

Carzaniga and Wolf ("Forwarding in a content-based network", SIGCOMM 2003) draw the constraints of
a filter from distributions over attribute names, operators and values. This generator has the same
knobs and none of that code: names, operators and values are ranked, and rank k is drawn with a
weight of ``k ** -exponent`` (Zipf); an exponent of 0 draws evenly.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from random import Random

from stackcast.udfs.messages.specification import Specification, parse_specification

NUMBER_OPERATORS = ("==", ">", "<", ">=", "<=")
TEXT_OPERATOR = "=="


@dataclass(frozen=True)
class SienaWorkload:
    """Subscriptions to draw, each an ``and`` of comparisons on distinct fields.

    subscriptions: how many.
    predicates: comparisons in each.
    fields: fields of an event; the first ``text_fields`` hold text, the others numbers.
    field_exponent: Zipf over fields, the first is the most asked for.
    values: constants that subscribers use, per field.
    value_exponent: Zipf over them; numbers stand evenly in 1..10,000, popular ones anywhere.
    operator_exponent: Zipf over ``NUMBER_OPERATORS``; text is compared with ``==`` only.
    hosts, host_exponent: whom ``fwd`` names, and Zipf over them.
    """

    subscriptions: int = 1000
    predicates: int = 3
    fields: int = 8
    text_fields: int = 4
    field_exponent: float = 1.0
    values: int = 100
    value_exponent: float = 1.0
    operator_exponent: float = 1.0
    hosts: int = 16
    host_exponent: float = 0.0
    seed: int = 1

    def specification(self) -> Specification:
        """Returns the format of the events: one header ``event`` with fields ``f1`` to ``fN``."""
        columns = [
            f"@string f{rank}: 64;" if rank <= self.text_fields else f"f{rank}: 32;"
            for rank in range(1, self.fields + 1)
        ]
        queries = [
            f"@query_field{'_exact' if rank <= self.text_fields else ''}(event.f{rank})"
            for rank in range(1, self.fields + 1)
        ]
        return parse_specification(
            "header_type event_t { fields { "
            + " ".join(columns)
            + " } }\nheader event_t event;\n"
            + "\n".join(queries),
            "siena",
        )

    def texts(self) -> list[str]:
        """Returns the subscriptions. More of them begin with the same ones; equal ones may stand
        twice.
        """
        if not 0 < self.predicates <= self.fields:
            raise ValueError("a subscription has one predicate a field at most")
        random = Random(f"siena {self.seed}")
        constants = [self._constants(rank, random) for rank in range(1, self.fields + 1)]
        fields = _weights(self.fields, self.field_exponent)
        values = _weights(self.values, self.value_exponent)
        operators = _weights(len(NUMBER_OPERATORS), self.operator_exponent)
        hosts = _weights(self.hosts, self.host_exponent)
        texts = []
        for _ in range(self.subscriptions):
            asked: set[int] = set()
            while len(asked) < self.predicates:
                asked.add(_draw(random, fields))
            parts = []
            for index in sorted(asked):
                operator = NUMBER_OPERATORS[_draw(random, operators)]
                if index < self.text_fields:
                    operator = TEXT_OPERATOR
                parts.append(f"f{index + 1} {operator} {constants[index][_draw(random, values)]}")
            texts.append(f"{' and '.join(parts)} : fwd(h{_draw(random, hosts) + 1})")
        return texts

    def _constants(self, rank: int, random: Random) -> list[str]:
        if rank <= self.text_fields:
            return [f"V{number}" for number in range(1, self.values + 1)]
        numbers = [number * 10_000 // self.values for number in range(1, self.values + 1)]
        random.shuffle(numbers)
        return [str(number) for number in numbers]


def _weights(count: int, exponent: float) -> list[float]:
    return list(accumulate(rank**-exponent for rank in range(1, count + 1)))


def _draw(random: Random, cumulated: list[float]) -> int:
    return random.choices(range(len(cumulated)), cum_weights=cumulated)[0]
