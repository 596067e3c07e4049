"""The made-up market of the benchmarks, and the curves drawn of it."""

from __future__ import annotations

import re
from collections import Counter
from xml.etree import ElementTree

import pytest

from benchmarks.support import plot
from benchmarks.support.siena import NUMBER_OPERATORS, SienaWorkload
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.meaning.evaluate import fields_of

pytestmark = pytest.mark.unit

PREDICATE = re.compile(r"(f\d+) (\S+) (\S+)")


def test_every_subscription_is_a_rule_with_so_many_predicates_on_distinct_fields():
    for predicates in range(1, 9):
        workload = SienaWorkload(subscriptions=50, predicates=predicates)
        specification = workload.specification()
        texts = workload.texts()
        assert len(texts) == 50
        for text in texts:
            rule = parse_rule(text, specification)
            assert len(fields_of(rule.condition)) == predicates == len(PREDICATE.findall(text))
            assert len(rule.receivers) == 1


def test_a_seed_gives_the_same_subscriptions_and_fewer_are_the_first_of_more():
    many = SienaWorkload(subscriptions=200, seed=7).texts()
    assert SienaWorkload(subscriptions=50, seed=7).texts() == many[:50]
    assert SienaWorkload(subscriptions=50, seed=8).texts() != many[:50]


def test_popular_fields_operators_and_constants_are_drawn_in_the_order_of_their_ranks():
    workload = SienaWorkload(
        subscriptions=4000, predicates=1, fields=3, text_fields=0, values=20, field_exponent=1.5
    )
    parts = [PREDICATE.match(text).groups() for text in workload.texts()]
    fields = Counter(field for field, _, _ in parts)
    assert list(dict(fields.most_common())) == ["f1", "f2", "f3"]
    assert fields["f1"] / fields["f2"] == pytest.approx(2**1.5, rel=0.2)
    operators = Counter(operator for _, operator, _ in parts)
    assert [operator for operator, _ in operators.most_common()] == list(NUMBER_OPERATORS)
    constants = Counter(constant for field, _, constant in parts if field == "f1").most_common()
    assert len(constants) == 20
    assert constants[0][1] / constants[1][1] == pytest.approx(2, rel=0.25)


def test_an_exponent_of_zero_draws_evenly():
    workload = SienaWorkload(subscriptions=4000, predicates=1, fields=4, field_exponent=0, hosts=5)
    fields = Counter(text.split()[0] for text in workload.texts())
    assert min(fields.values()) > 900
    hosts = Counter(text.split()[-1] for text in workload.texts())
    assert set(hosts) == {f"fwd(h{number})" for number in range(1, 6)}


def test_text_is_compared_for_equality_only():
    workload = SienaWorkload(subscriptions=300, predicates=4, fields=6, text_fields=3)
    for text in workload.texts():
        for field, operator, constant in PREDICATE.findall(text):
            is_text = int(field[1:]) <= 3
            assert constant.isdigit() is not is_text
            assert operator == "==" or not is_text


def test_more_predicates_than_fields_are_refused():
    with pytest.raises(ValueError, match="one predicate a field"):
        SienaWorkload(predicates=9, fields=8).texts()


@pytest.mark.parametrize("log", [False, True])
def test_curves_become_a_picture_with_all_points_inside(log):
    curves = {"one & <two>": [(1, 5), (10, 50), (100, 70_000)], "b": [(1, 1), (100, 2)]}
    panel = plot.Panel("A & B", "rules", "entries", curves, log=log)
    root = ElementTree.fromstring(plot.svg("T", "D", [panel, panel]))
    name = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f".//{name}polyline")) == 4
    marks = [path for path in root.iter(f"{name}path") if "dot" in path.get("class")]
    places = [re.match(r"translate\(([\d.]+) ([\d.]+)\)", dot.get("transform")) for dot in marks]
    assert len(places) == 10 + 4, "of the points and of the names"
    assert len({dot.get("d") for dot in marks}) == 2, "each curve has a shape of its own"
    _, _, width, height = map(float, root.get("viewBox").split())
    for x, y in (place.groups() for place in places):
        assert 0 < float(x) < width / 2
        assert 0 < float(y) < height
    (first, *_, last) = root.find(f".//{name}polyline").get("points").split()
    assert float(first.split(",")[0]) < float(last.split(",")[0])
    assert float(first.split(",")[1]) > float(last.split(",")[1]), "more stands higher"


def test_a_panel_without_points_is_refused():
    with pytest.raises(ValueError, match="curves with points"):
        plot.Panel("t", "x", "y", {"a": []})
