"""`stackcast explain` tells people what decided, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from stackcast.cli.explain import text_of

pytestmark = pytest.mark.unit


def rule(name: str, matches: bool, false: int, true: int = 1) -> dict[str, Any]:
    """A rule of predicates that are false, which decide if it does not match, and true ones."""
    predicates = [
        {
            "text": f"{name} {truth} {number}",
            "truth": truth,
            "decided": (truth == "true") == matches,
        }
        for truth, count in (("false", false), ("true", true))
        for number in range(count)
    ]
    verdict = {"message": 0, "truth": str(matches).lower(), "predicates": predicates}
    told = {"id": name, "subscriber": "h1", "filter": f"{name} == 1", "receivers": ["h1"]}
    return told | {"matches": matches, "verdicts": [verdict]}


def shown(*rules: dict[str, Any], frames: Sequence[dict[str, Any]] = ()) -> str:
    about = {"session": "S", "sequence": 1, "topic": "t", "partition": 0, "offset": 5}
    about |= {"message_index": 0, "batch": 3, "started_us": 0, "versions": {}, "settings": {}}
    about["receivers"] = ["h2"]
    return text_of(
        about | {"host": "h1", "received": False, "events": [], "frames": frames, "rules": rules}
    )


def test_of_rules_that_do_not_match_the_nearest_are_told_by_what_decided():
    text = shown(*(rule(f"far{n}", False, 5) for n in range(20)), rule("near", False, 1))
    lines = text.splitlines()
    first = lines.index("subscriptions") + 1
    assert lines[first] == "  near of h1: near == 1  (does not match)"
    assert "near false 0" in text and "near true 0" not in text
    assert sum("(does not match)" in line for line in lines) == 10
    assert lines[-1] == "  11 more do not match; --json prints them"


def test_of_rules_that_match_all_are_told_with_all_their_predicates():
    text = shown(*(rule(f"r{n}", True, 1) for n in range(15)))
    assert "does not match" not in text and "more do" not in text
    assert all(f"r{n} {truth} 0" in text for n in range(15) for truth in ("true", "false"))


def test_a_frame_says_who_sent_it_and_by_whose_link_it_entered():
    def of(publisher: str, entry: str) -> str:
        frame = {"publisher": publisher, "entry": entry, "receivers": ["feed1"], "bytes": 2}
        frame |= {"labels": ["stop 4"], "paths": {"feed1": [entry, "s1", "feed1"]}, "hex": "00ff"}
        return shown(frames=[frame]).partition("subscriptions\n")[2]

    assert of("feed1", "feed2").splitlines() == [
        "",
        "frame from feed1, by the link of feed2, to feed1, 2 bytes",
        "  stop 4",
        "  feed1: feed2 > s1 > feed1",
        "  0000  00 ff",
    ]
    assert "frame from feed2 to feed1, 2 bytes" in of("feed2", "feed2")
