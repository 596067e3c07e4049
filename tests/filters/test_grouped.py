"""Any set of rules compiles, matches exactly, and costs a sum, whatever fields rules compare."""

from __future__ import annotations

import pickle
import random
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from udfs.filters import grouped
from udfs.filters.advertisements import Advertisement, Announced
from udfs.filters.grouped import Grouped
from udfs.filters.language.rule import parse_rule
from udfs.filters.live_rules import LiveRules
from udfs.filters.matching.matcher import Matcher
from udfs.filters.meaning.evaluate import matches
from udfs.filters.subscriptions import Subscription
from udfs.messages.specification import parse_specification

pytestmark = pytest.mark.unit

FIELDS = [f"f{at}" for at in range(11)]
SPEC = parse_specification(
    f"header_type e_t {{ fields {{ {' '.join(f'{name}: 32;' for name in FIELDS)} }} }} "
    "header e_t e; " + " ".join(f"@query_field(e.{name})" for name in FIELDS),
    "eleven",
)
HOSTS = {f"h{at}" for at in range(64)}


def receivers(filter_: Grouped, batch: Sequence[Mapping[str, int]]) -> list[set[str]]:
    """What both parts say together."""
    matcher = Matcher(filter_.diagram)

    def values(names: Sequence[str]) -> np.ndarray:
        rows = [[event[name] for event in batch] for name in names]
        return np.array(rows, np.uint64).reshape(len(names), len(batch))

    leaf = matcher.match(np.zeros(len(batch), np.uint8), values(matcher.fields))
    found = [set(matcher.receivers[at]) for at in leaf.tolist()]
    if filter_.index is not None:
        index = filter_.index
        bits = index.match(None, values(index.fields))
        for said, row in zip(found, bits, strict=True):
            said.update(h for at, h in enumerate(index.hosts) if int(row[at // 64]) >> at % 64 & 1)
    return found


def one_by_one(rows: Sequence[Subscription], event: Mapping[str, int]) -> set[str]:
    return {
        row.subscriber for row in rows if matches(parse_rule(row.filter, SPEC).condition, event)
    }


def events(draw: random.Random, values: int, count: int = 200) -> list[dict[str, int]]:
    return [{f"e.{name}": draw.randrange(values) for name in FIELDS} for _ in range(count)]


def test_rules_that_each_ask_for_another_field_cost_no_product() -> None:
    rows = [Subscription(str(n), f"h{n}", f"{FIELDS[n % 11]} == 33") for n in range(40)]
    draw = random.Random(1)
    batch = [*events(draw, 3), {f"e.{name}": 33 for name in FIELDS}]
    batch += [event | {f"e.{draw.choice(FIELDS)}": 33} for event in batch]
    for order in ("specification", "auto"):
        rules, rejections, filter_ = LiveRules(SPEC, "feed1", order).update(rows, HOSTS)
        assert len(rules) == 40 and not rejections
        assert filter_.index is not None
        assert len(filter_.diagram.entries) + filter_.index.terms <= 400
        assert receivers(filter_, batch) == [one_by_one(rows, event) for event in batch]


def test_many_rules_of_one_form_stay_in_the_diagram_beside_those_that_would_multiply() -> None:
    draw = random.Random(2)
    texts = [f"f0 == {draw.randrange(300)} and f1 > {draw.randrange(300)}" for _ in range(3_000)]
    texts += [f"{draw.choice(FIELDS[2:])} > {draw.randrange(300)}" for _ in range(60)]
    rows = [Subscription(str(n), f"h{n % 64}", text) for n, text in enumerate(texts)]
    _, _, filter_ = LiveRules(SPEC, "feed1").update(rows, HOSTS)
    assert filter_.index is not None and 0 < filter_.index.terms <= 60
    assert len(filter_.diagram.entries) <= 4 * 6_120
    batch = events(draw, 300)
    assert receivers(filter_, batch) == [one_by_one(rows, event) for event in batch]


def test_rules_with_state_stay_in_the_diagram() -> None:
    spec = parse_specification(
        "header_type e_t { fields { a: 32; b: 32; c: 32; } } header e_t e; "
        "@query_field(e.a) @query_field(e.b) @query_field(e.c) @query_counter(seen, 100)",
        "state",
    )
    draw = random.Random(3)
    texts = ["a > 5 : seen <- count()", "seen > 3 and b > 2", "count() > 7"]
    texts += [f"{name} == {draw.randrange(1 << 30)}" for name in "abc" for _ in range(200)]
    rows = [Subscription(str(n), f"h{n % 64}", text) for n, text in enumerate(texts)]
    _, rejections, filter_ = LiveRules(spec, "feed1").update(rows, HOSTS)
    assert not rejections and len(filter_.diagram.cells) >= 2
    assert filter_.index is not None and filter_.index.terms == 600


def test_rules_with_state_that_do_not_fit_are_refused_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One subscriber's many rules cost its own, and nobody else's edits."""
    monkeypatch.setattr(grouped, "_STATE_ROWS", 3_000)
    draw = random.Random(6)

    def rule(name: str, host: str) -> Subscription:
        a, b, c = (draw.randrange(1 << 20) for _ in range(3))
        return Subscription(name, host, f"f0 > {a} and f1 > {b} and avg(f2, 100) > {c}")

    heavy = [rule(f"a{at:02}", "h1") for at in range(30)]
    light = [rule("x", "h2"), rule("y", "h3"), Subscription("z", "h4", "f9 == 7")]
    live = LiveRules(SPEC, "feed1")
    for _ in range(2):
        # Again from what is live by then: the same rules are.
        rules, rejections, _ = live.update([*heavy, *light], HOSTS)
        assert {"a00", "x", "y", "z"} <= {rule.id for rule in rules}
        assert {r.code for r in rejections} == {"FILTER.TOO_LARGE"}
        assert {r.id for r in rejections} | {rule.id for rule in rules} == {
            row.id for row in (*heavy, *light)
        }
        assert all(r.id.startswith("a") for r in rejections)
        assert all("e.f0, e.f1" in r.message for r in rejections)
        # Others' edits go on.
        light[2] = Subscription("z", "h5", "f9 == 8")
    refused = {r.id for r in rejections}
    rules, rejections, filter_ = live.update(heavy[:3] + light, HOSTS)
    assert not rejections and len(rules) == 6 and not filter_.refused
    rules, rejections, _ = live.update([*heavy, *light], HOSTS)
    assert {r.id for r in rejections} == refused
    # Where an id is there twice, all is made anew.
    rules, rejections, _ = live.update([*heavy, *light, light[2]], HOSTS)
    assert len(rules) + len(rejections) == 34 and {r.id for r in rejections} < {
        row.id for row in heavy
    } | {"x", "y"}


def test_an_event_is_announced_if_any_advertisement_holds() -> None:
    draw = random.Random(4)
    texts = [
        f"{first} > {draw.randrange(200)} and {other} == {draw.randrange(200)}"
        for first, other in (draw.sample(FIELDS, 2) for _ in range(300))
    ]
    rows = [Advertisement("feed1", text, str(at)) for at, text in enumerate(texts)]
    announced = pickle.loads(pickle.dumps(Announced(rows, SPEC)))
    assert announced._index is not None
    batch = events(draw, 200)
    conditions = [parse_rule(text, SPEC).condition for text in texts]
    expected = [any(matches(each, event) for each in conditions) for event in batch]
    values = np.array([[event[f.qualified] for event in batch] for f in announced.fields])
    found = announced.of(np.zeros(len(batch), np.uint8), values.astype(np.uint64))
    assert found.tolist() == expected and 0 < sum(expected) < len(batch)


edits = st.lists(
    st.lists(
        st.tuples(
            st.integers(0, 11),
            st.none()
            | st.lists(
                st.builds(
                    "{} {} {}".format,
                    st.sampled_from(FIELDS[:5]),
                    st.sampled_from(["==", ">", "!="]),
                    st.integers(0, 4),
                ),
                min_size=1,
                max_size=2,
            ).map(" and ".join),
        ),
        max_size=6,
    ),
    min_size=1,
    max_size=6,
)


@examples(60)
@given(edits, st.sampled_from([6, 20, 60]), st.integers(0, 1 << 30))
def test_after_any_edits_an_event_goes_where_the_rules_of_now_say(
    steps: list[list[tuple[int, str | None]]], room: int, seed: int
) -> None:
    live, table = LiveRules(SPEC, "feed1"), {}
    batch = events(random.Random(seed), 6, 60)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(grouped, "MAX_ENTRIES", room)
        patched.setattr(grouped, "_WORTH_A_TRIAL", 2)
        for step in steps:
            for number, text in step:
                table.pop(number, None)
                if text is not None:
                    table[number] = Subscription(str(number), f"h{number}", text)
            rows = list(table.values())
            rules, rejections, filter_ = live.update(rows, HOSTS)
            assert [rule.id for rule in rules] == [row.id for row in rows] and not rejections
            assert receivers(filter_, batch) == [one_by_one(rows, event) for event in batch]
