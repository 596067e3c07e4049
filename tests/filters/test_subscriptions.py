"""Rows of the table of subscriptions: live or rejected, each for itself."""

from __future__ import annotations

from datetime import datetime

import pytest

import stackcast.schemas
from stackcast.udfs.filters.subscriptions import Subscription, check, select
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


def test_rows_of_no_known_format_are_rejected_and_rows_of_another_job_left_to_it():
    rows = [
        {"id": i, "subscriber": "h1", "filter": "price > 1", "format": f, "enabled": e}
        for i, f, e in (
            ("b", "itch", True),
            ("a", "ITCH", True),
            ("c", "av", True),
            ("d", "x", False),
        )
    ]
    chosen, rejected = select(rows, "itch", ("itch", "av"))
    assert [s.id for s in chosen] == ["b"]
    assert [(r.id, r.code) for r in rejected] == [("a", "SUBSCRIPTION.UNKNOWN_FORMAT")]


def test_a_subscriber_beyond_its_quota_keeps_its_oldest_rules_and_others_keep_theirs():
    monday, tuesday = datetime(2026, 1, 5), datetime(2026, 1, 6)
    rows = [
        {"id": i, "subscriber": who, "filter": "x", "format": f, "enabled": e, "updated_at": at}
        for i, who, f, e, at in (
            ("a", "h1", "itch", True, tuesday),
            ("b", "h1", "itch", True, monday),
            ("c", "h1", "itch", True, None),
            ("d", "h1", "itch", False, None),
            ("e", "h1", "av", True, None),
            ("f", "h2", "itch", True, tuesday),
            ("g", "h2", "itch", True, tuesday),
        )
    ]
    chosen, rejected = select(rows, "itch", ("itch", "av"), 2)
    assert [s.id for s in chosen] == ["b", "c", "f", "g"]
    (rejection,) = rejected
    assert (rejection.id, rejection.code) == ("a", "SUBSCRIPTION.QUOTA")
    assert "h1 has more than 2 enabled rules" in rejection.message
    assert len(select(rows, "itch", ("itch", "av"))[0]) == 5
