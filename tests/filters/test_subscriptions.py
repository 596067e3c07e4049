"""Rows of the table of subscriptions: live or rejected, each for itself."""

from __future__ import annotations

import pytest

from stackcast import schemas
from stackcast.udfs.filters.subscriptions import Subscription, check
from stackcast.udfs.messages.specification import parse_specification

pytestmark = pytest.mark.unit

ITCH = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
HOSTS = {"h1", "h2", "h3", "feed1"}


def test_one_bad_subscription_harms_no_other():
    rows = [
        Subscription("a", "h1", "stock == GOOGL"),
        Subscription("b", "h1", "stock = = GOOGL"),
        Subscription("c", "h2", "stock == GOOGL : fwd(h3, h1)"),
        Subscription("d", "h3", "stock = = GOOGL"),
    ]
    for _ in range(2):  # the second time from the cache of texts
        rules, rejections = check(rows, ITCH, HOSTS, "feed1")
        assert [(rule.id, rule.receivers) for rule in rules] == [
            ("a", ("h1",)),
            ("c", ("h1", "h3")),
        ]
        assert [rejection.id for rejection in rejections] == ["b", "d"]


def test_the_host_set_is_asked_anew_each_time_though_texts_are_cached():
    row = [Subscription("a", "h9", "stock == GOOGL")]
    assert check(row, ITCH, HOSTS, "feed1")[1]
    assert check(row, ITCH, HOSTS | {"h9"}, "feed1")[0]
