"""Any set of rules compiles, matches exactly, and costs a sum, whatever fields rules compare."""

from __future__ import annotations

import pickle
import random
import re
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.filters import grouped
from stackcast.udfs.filters.advertisements import Advertisement, Announced
from stackcast.udfs.filters.compiler.compile import compile_texts
from stackcast.udfs.filters.grouped import Grouped
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.live_rules import LiveRules
from stackcast.udfs.filters.matching.carried import pack, unpack
from stackcast.udfs.filters.matching.cells import Carried, Stateful, StatefulMatcher
from stackcast.udfs.filters.matching.matcher import Matcher
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.meaning.interpreter import Interpreter
from stackcast.udfs.filters.nodes import Node
from stackcast.udfs.filters.predicate_index import terms
from stackcast.udfs.filters.subscriptions import Subscription
from stackcast.udfs.messages.specification import parse_specification

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


@cache
def condition(text: str) -> Node:
    return parse_rule(text, SPEC).condition


def one_by_one(rows: Sequence[Subscription], event: Mapping[str, int]) -> set[str]:
    return {row.subscriber for row in rows if matches(condition(row.filter), event)}


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


@pytest.mark.integration
def test_many_rules_of_one_form_stay_in_the_diagram_beside_those_that_would_multiply() -> None:
    draw = random.Random(2)
    texts = [f"f0 == {draw.randrange(300)} and f1 > {draw.randrange(300)}" for _ in range(1_500)]
    texts += [f"{draw.choice(FIELDS[2:])} > {draw.randrange(300)}" for _ in range(60)]
    rows = [Subscription(str(n), f"h{n % 64}", text) for n, text in enumerate(texts)]
    _, _, filter_ = LiveRules(SPEC, "feed1").update(rows, HOSTS)
    assert filter_.index is not None and 0 < filter_.index.terms <= 60
    assert len(filter_.diagram.entries) <= 4 * 3_120
    batch = events(draw, 60)
    assert receivers(filter_, batch) == [one_by_one(rows, event) for event in batch]


STATE = parse_specification(
    f"header_type e_t {{ fields {{ {' '.join(f'f{at}: 32;' for at in range(12))} }} }} "
    "header e_t e; "
    + " ".join(f"@query_field(e.f{at})" for at in range(12))
    + " @query_counter(seen, 100) @query_counter(spent, 30)",
    "twelve",
)
OWNERS = ("h0", "h1", "h2")
OWNED = parse_specification(
    f"header_type e_t {{ fields {{ {' '.join(f'f{at}: 32;' for at in range(12))} }} }} "
    "header e_t e; "
    + " ".join(f"@query_field(e.f{at})" for at in range(12))
    + "".join(
        f" @query_counter(seen_{owner}, 100) @query_counter(spent_{owner}, 30)" for owner in OWNERS
    ),
    "owned",
)
"""As ``STATE``, with variables of its own for each subscriber."""

Step = tuple[dict[str, int], int]
"""An event and its time."""


class Partition:
    """One source of events, matched slice by slice with its state carried, and its oracle."""

    def __init__(self) -> None:
        self.carried: Carried | None = None
        self.oracle: Interpreter | None = None

    def adopt(self, rows: Sequence[Subscription]) -> None:
        # A variable of one subscriber is another variable than that of any other subscriber.
        texts = [re.sub(r"\b(seen|spent)\b", rf"\1_{r.subscriber}", r.filter) for r in rows]
        oracle = Interpreter([parse_rule(text, OWNED) for text in texts], OWNED, None)
        if self.oracle is not None:
            oracle.carry(self.oracle)
        self.oracle = oracle

    def check(self, filter_: Grouped, batch: Sequence[Step]) -> None:
        """The slice goes where the rules say, one event after the other."""
        assert self.oracle is not None
        expected = [set(self.oracle.step(*step).receivers) for step in batch]
        assert self.take(filter_, batch) == expected

    def take(self, filter_: Grouped, batch: Sequence[Step]) -> list[set[str]]:
        if filter_.index is not None and filter_.stateful is None and not filter_.diagram.cells:
            return receivers(filter_, [event for event, _ in batch])
        state: Stateful = filter_.stateful or StatefulMatcher(filter_.diagram)
        rows = [[event[name] for event, _ in batch] for name in state.fields]
        found, self.carried = pickle.loads(pickle.dumps(state)).match(
            np.zeros(len(batch), np.uint8),
            np.array(rows, np.uint64).reshape(len(rows), len(batch)),
            None,
            np.zeros(len(batch), np.bool_),
            np.array([time for _, time in batch], np.int64),
            None if self.carried is None else unpack(pack(self.carried)),
        )
        events = [event for event, _ in batch]
        if isinstance(state, StatefulMatcher):
            said = [set(state.matcher.receivers[leaf]) for leaf in found.tolist()]
            alone = Grouped(compile_texts([], STATE), filter_.index)
        else:
            said = [set(state.outcome(words).receivers) for words in found]
            alone = Grouped(filter_.diagram, filter_.index)
        return [one | other for one, other in zip(said, receivers(alone, events), strict=True)]


@pytest.mark.integration
def test_hundreds_of_rules_with_state_that_would_multiply_are_all_live_and_exact() -> None:
    draw = random.Random(6)

    def value() -> int:
        return draw.randrange(1 << 20)

    rows = [
        Subscription(
            f"a{at}",
            f"h{at % 64}",
            f"f0 > {value()} and f1 > {value()} and "
            + (f"avg(f2, 100) > {value()}" if at % 4 else f"moved(f2, {value()})")
            + f" : fwd(h{at % 64})",
        )
        for at in range(400)
    ]
    rows += [Subscription(f"p{at}", "h1", f"f{at % 12} == {at} : fwd(h{at})") for at in range(60)]
    live, partition = LiveRules(STATE, "feed1"), Partition()
    batch = [
        ({f"e.f{at}": value() if at < 3 else draw.randrange(60) for at in range(12)}, time)
        for time in range(0, 1200, 3)
    ]
    for step in range(3):
        rules, rejections, filter_ = live.update(rows, HOSTS)
        assert len(rules) == len(rows) and not rejections
        assert filter_.stateful is not None and len(filter_.cells) == 400 + bool(step)
        partition.adopt(rows)
        partition.check(filter_, batch[100 * step : 100 * (step + 1)])
        # The others' state stays through an edit.
        rows = [row for row in rows if row.id != "more"]
        rows.append(Subscription("more", "h1", f"f0 > {step} and count(50) > 3 : fwd(h63)"))
    (row,) = [r for r in filter_.term_rows() if "count() per 50 us" in str(r["predicates"])]
    assert row["receivers"] == ["h63"]
    assert [each["text"] for each in row["predicates"]][1] == "e.f0 in 2..4294967295"


def test_a_few_rules_with_state_stay_in_the_diagram() -> None:
    draw = random.Random(3)
    texts = ["f0 > 5 : { fwd(h9); seen <- count() }", "seen > 3 and f1 > 2", "count(20) > 7"]
    texts += [f"f{at} == {draw.randrange(40)}" for at in range(3) for _ in range(200)]
    rows = [
        Subscription(str(n), "h0", text if ":" in text else f"{text} : fwd(h{n % 64})")
        for n, text in enumerate(texts)
    ]
    _, rejections, filter_ = LiveRules(STATE, "feed1").update(rows, HOSTS)
    assert not rejections and len(filter_.diagram.cells) == 2
    assert filter_.index is not None and filter_.stateful is None
    partition = Partition()
    partition.adopt(rows)
    batch = [({f"e.f{at}": draw.randrange(40) for at in range(12)}, time) for time in range(300)]
    partition.check(filter_, batch)


def test_terms_that_share_a_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terms, "hashed", np.zeros_like)
    monkeypatch.setattr(grouped, "MAX_ENTRIES", 1)
    rows = [
        Subscription(str(at), "h1", f"f{at} > {at} and count({at + 5}) > 1 : fwd(h{at})")
        for at in range(4)
    ]
    _, _, filter_ = LiveRules(STATE, "feed1").update(rows, HOSTS)
    partition = Partition()
    partition.adopt(rows)
    draw = random.Random(1)
    partition.check(
        filter_, [({f"e.f{at}": draw.randrange(6) for at in range(12)}, t) for t in range(60)]
    )


def stateful_texts(fields: int) -> st.SearchStrategy[str]:
    name, constant = st.sampled_from([f"f{at}" for at in range(fields)]), st.integers(0, 4)
    plain = st.builds("{} {} {}".format, name, st.sampled_from(["==", ">", "!="]), constant)
    reading = st.builds(
        "{}{} {} {}".format,
        st.sampled_from(["count(", "avg(f0, ", "sum(f1, ", "max(f0, "][: 2 + 2 * (fields > 1)]),
        st.sampled_from(["100)", "7)"]),
        st.sampled_from([">", "<="]),
        constant,
    )
    reading |= st.builds("{} > {}".format, st.sampled_from(["seen", "spent"]), constant)
    reading |= st.builds("changed({})".format, name) | st.builds("moved({}, 2)".format, name)
    parts = st.lists(st.one_of(plain, plain, reading), min_size=1, max_size=4)
    joined = st.builds(
        lambda found, joint, negated: f" {joint} ".join(
            f"not ({part})" if negated else part for part in found
        ),
        parts,
        st.sampled_from(["and", "and", "or"]),
        st.sampled_from([False, False, True]),
    )
    action = st.sampled_from(["", "", "; seen <- count()", "; spent <- sum(f0)"])
    return st.builds("{} : {{ fwd(h0){} }}".format, joined, action)


@st.composite
def stateful_steps(draw: st.DrawFn) -> tuple[int, list[dict[int, str | None]]]:
    fields = draw(st.integers(1, 12))
    text = st.none() | stateful_texts(fields)
    steps = st.lists(st.dictionaries(st.integers(0, 15), text, max_size=8), min_size=1, max_size=4)
    return fields, draw(steps)


@examples(80)
@given(stateful_steps(), st.sampled_from([1, 12, 60, 1 << 20]), st.integers(0, 1 << 30))
def test_with_state_any_edits_between_any_slices_are_the_interpreter_on_each_partition(
    edited: tuple[int, list[dict[int, str | None]]], room: int, seed: int
) -> None:
    live, table = LiveRules(STATE, "feed1"), {}
    chance, partitions, now = random.Random(seed), [Partition(), Partition()], 0
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(grouped, "MAX_ENTRIES", room)
        patched.setattr(grouped, "_WORTH_A_TRIAL", 2)
        for step in edited[1]:
            for number, text in step.items():
                table.pop(number, None)
                if text is not None:
                    owner = OWNERS[number % 3]
                    told = text.replace("fwd(h0)", f"fwd(h{number})")
                    if owner == "h2":
                        told = told.replace("seen <- count()", "seen <- max(f0)")
                    table[number] = Subscription(str(number), owner, told)
            rows = list(table.values())
            rules, rejections, filter_ = live.update(rows, HOSTS)
            assert [rule.id for rule in rules] == [row.id for row in rows] and not rejections
            for partition in partitions:
                partition.adopt(rows)
                for _ in range(chance.randrange(1, 4)):
                    batch = []
                    for _ in range(chance.randrange(1, 12)):
                        now += chance.choice([0, 1, 2, 6, 7, 30, -3, 101])
                        batch.append(({f"e.f{at}": chance.randrange(6) for at in range(12)}, now))
                    partition.check(filter_, batch)


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
