"""Explanations of the verdicts on WERNECKE's claims, by its algorithm and by Stackcast's encoder.

Each explanation was written for the two verdicts that it names. If a later run comes to other
verdicts, the page shows `UNKNOWN` instead.
"""

from __future__ import annotations

from typing import NamedTuple

UNKNOWN = "**to be explained**"


class Reason(NamedTuple):
    """by_its_own, by_ours: whether the claim was confirmed when ``words`` were written."""

    by_its_own: bool
    by_ours: bool
    words: str


_INDEX = (
    "If more than 512 trees are stored, which happens here between 30 and 40 rules, "
    "Stackcast considers only the trees that its index ranks best for a receiver set"
)
_STOPS = (
    "Algorithm 5.1 picks the tree that covers the most receivers and then adds a "
    "stop for each superfluous host; Stackcast compares combinations of trees, hops and "
    "stops"
)

_FULL = (
    "With 20 or more rules (30 in VtlWavenet2008), freq-relation stores all of its "
    "trees, one per publisher; hybrid stores the same trees and uses the remaining rules "
    "for trees of clusters"
)
_MEMBERS = (
    "The trees of partitions lead to every host in a partition; the trees of "
    "clusters lead only to the dense hosts, and hops reach the other hosts, so partitions "
    "uses more trees and fewer hops"
)

REASONS: dict[str, Reason] = {
    "topo with 10 rules needs 60 B at 30 % subscribers and about 78 B at 70 %": Reason(
        False,
        False,
        "Headers are about this long if every subscriber wants each notification "
        "(62.0 and 82.8 B in the table of variants), but 5.4.1 says that half of the "
        "subscribers do; the number of publishers has no effect",
    ),
    "more rules give smaller headers for every strategy (30 % subscribers)": Reason(
        True, False, _INDEX
    ),
    "more rules give smaller headers for every strategy (70 % subscribers)": Reason(
        False,
        False,
        "Algorithm 5.1 selects trees in one pass, so an additional tree can lead to a worse "
        f"selection. {_INDEX}",
    ),
    "beyond about 20 rules most strategies no longer improve, except path and threshold-70": (
        Reason(True, False, _INDEX)
    ),
    "trees save a larger share of the header at 70 % subscribers than at 30 % (topo, 10 rules)": (
        Reason(True, True, "A tree of the topology covers a larger part of a large delivery tree")
    ),
    "path has smaller headers than topo from 5 rules on, and the gap widens": Reason(
        False,
        False,
        "A path leads to one receiver. If most hosts subscribe, 5 rules per switch store paths to "
        "only a few of them, and Algorithm 5.1 reaches the others by hops. Stackcast also extends "
        "the paths of other publishers, which makes path about as good as topo in this case",
    ),
    "threshold-30 always has the smallest headers": Reason(
        False,
        False,
        "A host in a tree costs one stop for each notification that it does not "
        "want. A host outside of the tree costs at least one hop for each notification that "
        "it wants. If both "
        "cost one label, a threshold of 50 % is best",
    ),
    "threshold-30 has smaller headers than threshold-70 at 20 rules": Reason(False, True, _STOPS),
    "tree always has smaller headers than path, and the gap narrows with more rules": Reason(
        False, True, _STOPS
    ),
    "topo and path stay above 50 KB at 30 % subscribers and 120 KB at 70 %, for the same number of "
    "notifications": Reason(
        False,
        False,
        "The thesis does not say how many notifications its load includes, and no number leads to "
        "both values in any of the measured variants",
    ),
    "topo and path load links more than tree and the thresholds do, for any number of rules": (
        Reason(
            True,
            True,
            "Tree labels stay in the header on the whole path, whereas switches "
            "remove hops and stops after using them",
        )
    ),
    "from 20 rules on, tree and threshold-30 stay below 45 KB where topo and path exceed 50 KB "
    "(30 % subscribers), and all others stay above": Reason(
        False,
        False,
        "The payload and the Ethernet, IPv4 and UDP headers make up most of each frame, so shorter "
        "stacks save less than a tenth with Algorithm 5.1. With Stackcast's encoder, the other "
        "thresholds save more than a tenth as well",
    ),
    "thresholds of 30 to 70 % have the smallest headers and 100 % (path) the largest (10 rules)": (
        Reason(
            True,
            True,
            "If a host rarely wants a notification, adding the host with a hop costs "
            "less than excluding it with a stop. With Algorithm 5.1, the results are close: if "
            "half of the hosts subscribe, whole trees "
            "(0 %) need as many labels as paths. " + _STOPS,
        )
    ),
    "paths give smaller headers than hops: much smaller above a threshold of 30 %, hardly smaller "
    "at 0 %": Reason(
        True,
        False,
        "If few hosts subscribe, Stackcast also benefits from paths at a threshold of 0 %, because "
        "it uses the paths of other publishers",
    ),
    "paths reduce the load noticeably only above a threshold of 70 %": Reason(
        False,
        False,
        "Savings grow gradually with the threshold; a path that saves one label "
        "saves only 2 bytes in a frame of at least 100 bytes",
    ),
    "hops need the most labels in every network and with any number of rules": Reason(
        True, True, "The encoder names a tree only if its label replaces at least two hops"
    ),
    "VtlWavenet2008 gains little beyond 10 rules, while Dfn and Litnet keep improving": Reason(
        False,
        False,
        "VtlWavenet2008 has 26 publishers along a single chain, so 10 rules are too few "
        "to store one tree per publisher; freq-relation improves up to 30 rules, but not "
        "beyond",
    ),
    "freq-relation has the fewest labels at 40 rules in Litnet, Dfn, VtlWavenet2008": Reason(
        False, False, _FULL
    ),
    "stacks of random and freq-relation contain one tree on average": Reason(
        False,
        False,
        "This holds in Litnet and Dfn. In VtlWavenet2008, where stacks of hops are longest, a "
        "second random tree often covers a part of the path that the first tree does not cover",
    ),
    "cycles need more labels than random and freq-relation in VtlWavenet2008": Reason(
        True,
        True,
        "The 92 links between 88 switches form five cycles, and a tree that covers "
        "these cycles leads to many hosts that are not receivers: with Stackcast's encoder, "
        "38 of 41 labels are stops",
    ),
    "hybrid lies between freq-relation and clusters": Reason(
        False, False, f"With 40 rules, hybrid is better than both. {_FULL}"
    ),
    "clusters use the most tree labels and the fewest stops, with 3 to 4 trees in Litnet": Reason(
        False, False, _MEMBERS
    ),
    "partitions use fewer trees than clusters in Litnet and Dfn; in VtlWavenet2008 they use the "
    "most and perform worst": Reason(
        False,
        False,
        f"{_MEMBERS}. In VtlWavenet2008 the worst strategy is cycles, because most of its labels "
        "are stops",
    ),
    "random performs exceptionally well in VtlWavenet2008 and poorly in Dfn and Litnet": Reason(
        False,
        False,
        "The trees of random do not depend on the publishers, so more than half of "
        "its labels in VtlWavenet2008 are stops (12.9 of 22.8 with Stackcast's encoder); hybrid, "
        "freq-relation, clusters and partitions need fewer labels in all three networks",
    ),
    "churn does not change the headers of hops, except for a peak at 50 % in the distant "
    "scenario": (
        Reason(
            True,
            True,
            "At 50 % churn, the clients are spread over both their old and their new regions",
        )
    ),
    "hops need more labels in the uniform scenario than in nearby and distant": Reason(
        True,
        True,
        "Clients that are spread over the whole network share fewer links than "
        "clients in dense regions",
    ),
    "cycles always have the largest headers of all strategies with trees": Reason(
        False,
        False,
        "All exceptions are in Dfn, where random needs up to 1.0 more labels than "
        "cycles (1.9 with Algorithm 5.1). After all clients have moved to distant regions, "
        "relation and freq-relation also need up to 2.4 more labels than cycles",
    ),
    "freq-relation approaches hops when clients move to distant regions": Reason(
        False,
        False,
        "This holds in Litnet and Dfn (14.2 and 18.5 labels, compared with 15.8 and 21.6 for "
        "hops). Along the chain of VtlWavenet2008, trees built for other clients still cover most "
        "of a path (21.9 labels, compared with 58.6 for hops)",
    ),
    "partitions beat clusters in the uniform scenario, and clusters beat partitions in nearby and "
    "distant": Reason(
        False,
        False,
        "The trees of partitions do not depend on clients, so they remain good when "
        "clients move. The strategy clusters stays ahead if clients move to nearby hosts, but "
        "not if the dense regions lose their clients",
    ),
    "hybrid is close to the better of freq-relation and clusters at 0 % and at 100 % churn": Reason(
        True,
        False,
        "Here, close means a factor of at most 1.2. After the clients have moved in "
        "the uniform scenario, the trees that hybrid built for publishers no longer fit, and "
        "hybrid stores fewer cluster trees than clusters does",
    ),
    "after full churn, partitions or clusters are best in scale-free networks": Reason(
        True,
        True,
        "The trees of partitions and clusters lead to all hosts or to the dense "
        "hosts of a region, regardless of which hosts subscribe",
    ),
    "after full churn, freq-relation or clusters are best in other networks": Reason(
        False,
        False,
        "freq-relation builds its trees for the initial subscribers, whereas the "
        "trees of partitions do not depend on subscribers in any network",
    ),
    "the best headers of scale-free networks are larger than those of other networks": Reason(
        False,
        False,
        "The other networks include the two chains RedBestel and VtlWavenet2008, which need 13 "
        "labels each with Stackcast's encoder; without these two networks, the "
        "average is 8.0 labels, which is less than in scale-free networks",
    ),
}


def why(claim: str, by_its_own: bool, by_ours: bool) -> str:
    """Return the explanation of these verdicts on a claim, or `UNKNOWN`."""
    reason = REASONS.get(claim)
    if reason is None or (reason.by_its_own, reason.by_ours) != (by_its_own, by_ours):
        return UNKNOWN
    return reason.words
