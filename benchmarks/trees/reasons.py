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

_FULL = (
    "from 20 rules on, in VtlWavenet2008 from 30, freq-relation has stored all trees that it "
    "knows, those of the publishers; hybrid has these and fills what is left with trees of clusters"
)
_MEMBERS = (
    "partitions have trees to every host of a part, clusters to the dense ones, and leave the "
    "others to hops: so partitions name more trees and fewer hops"
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
        False,
        "a path leads to one receiver, so 5 rules a switch hold few of them where most hosts "
        "subscribe, and 5.1 mends with hops what they leave; ours extends paths of other "
        "publishers, too, and comes as far as topo there",
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
            True,
            True,
            "a host that seldom wants what comes is cheaper to add by a hop than to stop. By 5.1 "
            "it is close: where half of the hosts subscribe, whole trees (0 %) are as long as "
            "paths; " + _STOPS,
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
    "hops need the most labels in every network at every budget": Reason(
        True, True, "a tree is named only where its label stands for two hops or more"
    ),
    "VtlWavenet2008 gains little beyond 10 rules, Dfn and Litnet go on gaining": Reason(
        False,
        False,
        "26 hosts publish there, all along one chain, so 10 rules hold no tree for each: "
        "freq-relation gains until 30 rules, and then no more (table above)",
    ),
    "freq-relation has the fewest labels at 40 rules in Litnet, Dfn, VtlWavenet2008": Reason(
        False, False, _FULL
    ),
    "random and freq-relation take one tree a stack on average": Reason(
        False,
        False,
        "so in Litnet and Dfn; in VtlWavenet2008, where hops alone take most labels of all, a "
        "second random tree covers a part of the way that the first leaves",
    ),
    "cycles need more labels than random and freq-relation in VtlWavenet2008": Reason(
        True,
        True,
        "92 links of 88 switches make five cycles, and a tree over them leads far beyond who "
        "receives: of 41 labels of ours 38 are stops",
    ),
    "hybrid lies between freq-relation and clusters": Reason(
        False, False, f"it is below both at 40 rules: {_FULL}"
    ),
    "clusters use the most tree labels and the fewest stops, in Litnet 3 to 4 trees": Reason(
        False, False, _MEMBERS
    ),
    "partitions use fewer trees than clusters in Litnet and Dfn; in VtlWavenet2008 they use the "
    "most, and are worst": Reason(
        False, False, f"{_MEMBERS}; worst are cycles, most of whose labels are stops there"
    ),
    "random does exceptionally well in VtlWavenet2008, and falls short in Dfn and Litnet": Reason(
        False,
        False,
        "its trees are drawn without regard to who publishes: over half of its labels are stops "
        "there (12.9 of 22.8 by ours), and hybrid, freq-relation, clusters and partitions need "
        "fewer in all three networks",
    ),
    "hops stay the same with churn, but for distant: a crest at 50 %": Reason(
        True, True, "half way, clients are in the regions that they leave and in those they go to"
    ),
    "uniform takes more hops than nearby and distant": Reason(
        True,
        True,
        "clients all over a network share fewer links than those of dense regions",
    ),
    "cycles have the largest headers of all strategies with trees, always": Reason(
        False,
        False,
        "all that fail are Dfn's: random is up to 1.0 label longer there, by 5.1 up to 1.9, and "
        "once all clients are in distant regions so are relation and freq-relation, up to 2.4",
    ),
    "freq-relation falls back towards hops where clients go to distant regions": Reason(
        False,
        False,
        "so in Litnet and Dfn (14.2 and 18.5 labels, hops 15.8 and 21.6); along VtlWavenet2008's "
        "chain trees that were made for others still cover most of a way (21.9, hops 58.6)",
    ),
    "partitions beat clusters where clients are uniform, clusters beat partitions nearby and "
    "distant": Reason(
        False,
        False,
        "partitions do not look at clients, so moving costs them nothing; clusters keep their lead "
        "where clients stay near, and lose it where dense regions empty",
    ),
    "hybrid is near the better of freq-relation and clusters at 0 % and at 100 %": Reason(
        True,
        False,
        "near is up to 1.2 x here: after uniform moves hybrid's trees of publishers serve others "
        "than they were made for, and what is left for clusters is less than clusters have",
    ),
    "after full churn partitions or clusters are best in scale-free networks": Reason(
        True,
        True,
        "their trees lead to all hosts of a region, or to its dense ones, whoever subscribes there",
    ),
    "after full churn freq-relation or clusters are best in other networks": Reason(
        False,
        False,
        "freq-relation stores trees for those who subscribed at first; partitions do not depend on "
        "who does, in these networks as in scale-free ones",
    ),
    "the best headers of scale-free networks are larger than those of others": Reason(
        False,
        False,
        "the others have the two chains among them, RedBestel and VtlWavenet2008, 13 labels each "
        "by ours; without these they take 8.0 by ours, less than scale-free ones",
    ),
}


def why(claim: str, by_its_own: bool, by_ours: bool) -> str:
    """Returns the reason of these verdicts on a claim, or `UNKNOWN`."""
    found = REASONS.get(claim)
    if found is None or (found.by_its_own, found.by_ours) != (by_its_own, by_ours):
        return UNKNOWN
    return found.words
