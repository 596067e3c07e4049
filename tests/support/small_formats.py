"""Message formats so small that every event can be tried, and conditions on their fields."""

from __future__ import annotations

import itertools

from hypothesis import strategies as st

from stackcast.udfs.messages.specification import parse_specification

TYPED = parse_specification(
    """
    header_type a_t { fields { kind: 8; x: 2; y: 3; pad: 3; } }
    @message_type("A") header a_t a;
    header_type b_t { fields { kind: 8; z: 2; pad: 6; } }
    @message_type("B") header b_t b;
    @query_field(a.x) @query_field(a.y) @query_field(b.z)
    @query_counter(seen, 100, 16)
    """,
    "typed",
)
UNTYPED = parse_specification(
    """
    header_type a_t { fields { x: 2; y: 2; pad: 4; } }
    header a_t a;
    header_type b_t { fields { z: 2; pad: 6; } }
    header b_t b;
    @query_field(a.x) @query_field(a.y) @query_field(b.z)
    """,
    "untyped",
)
TYPED_EVENTS = [
    *({"a.kind": 65, "a.x": x, "a.y": y} for x in range(4) for y in range(8)),
    *({"b.kind": 66, "b.z": z} for z in range(4)),
]
UNTYPED_EVENTS = [
    {name: value for name, value in zip(("a.x", "a.y", "b.z"), values, strict=True) if value < 4}
    for values in itertools.product(range(5), repeat=3)
]


@st.composite
def conditions(draw, fields=("a.x", "a.y", "b.z")):
    predicate = st.builds(
        "{} {} {}".format,
        st.sampled_from(fields),
        st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
        st.integers(0, 3),
    )
    return draw(
        st.recursive(
            predicate,
            lambda inner: (
                st.builds("({} and {})".format, inner, inner)
                | st.builds("({} or {})".format, inner, inner)
                | st.builds("not {}".format, inner)
            ),
            max_leaves=5,
        )
    )
