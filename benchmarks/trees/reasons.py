"""Why claims of WERNECKE hold or do not, by the text's algorithm and by ours.

Each reason was written for the verdicts that it names; where a later run finds others, the document
says so instead.
"""

from __future__ import annotations

from typing import NamedTuple

UNKNOWN = "**to be explained**"


class Reason(NamedTuple):
    """by_its_own, by_ours: whether the claim held when ``words`` were written."""

    by_its_own: bool
    by_ours: bool
    words: str


_INDEX = (
    "ours: from 512 stored trees on, between 30 and 40 rules here, it looks only at those that its "
    "index finds best for a set"
)
_STOPS = (
    "5.1 takes what covers most and stops each host too many; ours weighs several trees, hops and "
    "stops against each other"
)

REASONS: dict[str, Reason] = {
    "topo at 10 rules takes 60 B at 30 % subscribers, about 78 B at 70 %": Reason(
        False,
        False,
        "it does where every subscriber wants each notification (62.0 and 82.8 B, table above), "
        "where 5.4.1 says that half of them do; who publishes changes nothing",
    ),
    "more rules, smaller headers, for every strategy (30 %)": Reason(True, False, _INDEX),
    "more rules, smaller headers, for every strategy (70 %)": Reason(
        False,
        False,
        f"5.1 takes trees in one pass, which one more tree can lead astray; {_INDEX}",
    ),
    "from about 20 rules most strategies are where they get; path and threshold-70 still gain": (
        Reason(True, False, _INDEX)
    ),
    "trees save more of the header at 70 % subscribers than at 30 % (topo, 10 rules)": Reason(
        True, True, "a tree of the topology covers more of a delivery tree that is larger"
    ),
    "path is below topo from 5 rules, and the gap widens": Reason(
        False,
        True,
        "a path leads to one receiver, so 5 rules a switch hold few of them, and 5.1 mends with "
        "hops what they leave; ours extends paths of other publishers, too",
    ),
    "threshold-30 always has the smallest headers": Reason(
        False,
        False,
        "a host in a tree costs a stop whenever it does not want a notification, and one that is "
        "not costs a hop or more whenever it does: where both cost one label, 50 % is best",
    ),
    "threshold-30 is below threshold-70 at 20 rules": Reason(False, True, _STOPS),
    "tree is always below path, which comes nearer as rules are added": Reason(False, True, _STOPS),
    "topo and path stay above 50 KB at 30 % subscribers and 120 KB at 70 %, of one number of "
    "notifications": Reason(
        False,
        False,
        "the text does not say of how many notifications its KB are, and no number makes both, "
        "whoever publishes and whatever subscribers want (table above)",
    ),
    "topo and path load links more than tree and the thresholds, with any number of rules": Reason(
        True, True, "labels of trees stay in the header, those of hops and stops leave it"
    ),
    "from 20 rules tree and threshold-30 stay below 45 of the 50 KB that topo and path exceed "
    "(30 %), and all others above": Reason(
        False,
        False,
        "payload and headers of Ethernet, IPv4 and UDP are most of each frame, so shorter stacks "
        "save less than a tenth by 5.1; ours saves that with the other thresholds, too",
    ),
    "thresholds of 30 to 70 % have the smallest headers, 100 % (path) the largest (10 rules)": (
        Reason(
            False,
            True,
            "by 5.1 a whole tree (0 %) is as long as paths where half of the hosts subscribe: "
            + _STOPS,
        )
    ),
    "paths make headers smaller than hops do, above 30 % markedly, at 0 % hardly": Reason(
        True,
        False,
        "ours gains by paths at 0 %, too, where few subscribe: it takes those of other publishers",
    ),
    "paths lower the load markedly only above 70 %": Reason(
        False,
        False,
        "what they save grows little by little with the threshold; a label that a path spares is "
        "one of 2 bytes in frames of 100 and more",
    ),
}


def why(claim: str, by_its_own: bool, by_ours: bool) -> str:
    """Returns the reason of these verdicts on a claim, or `UNKNOWN`."""
    found = REASONS.get(claim)
    if found is None or (found.by_its_own, found.by_ours) != (by_its_own, by_ours):
        return UNKNOWN
    return found.words
