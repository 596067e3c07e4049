"""Advertisements against subscriptions: permanent, potential and no match, held against trying
every event of small formats."""

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from small_formats import TYPED, TYPED_EVENTS, UNTYPED, UNTYPED_EVENTS, conditions

from stackcast.udfs.errors import NetworkError, SubscriptionError
from stackcast.udfs.filters.advertisements import Advertisement, check_advertisements
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.subscriptions import Subscription
from stackcast.udfs.messages.specification import parse_specification
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.retuning import relations
from stackcast.udfs.retuning.relations import clients_of
from stackcast.udfs.trees.publications import Clients

pytestmark = pytest.mark.unit

NETWORK = fabric(1, 2, 2, 1, 1, publishers=2)


def rows(subscribed):
    return [Subscription(f"r{n}", host, text) for n, (host, text) in enumerate(subscribed)]


def tried(advertised, subscribed, specification, events):
    """``Clients`` by trying each event on each filter."""

    def of(text):
        return [matches(parse_rule(text, specification).condition, event) for event in events]

    potential, permanent = {}, {}
    for publisher, texts in advertised.items():
        sent = [any(held) for held in zip(*map(of, texts), strict=True)] if texts else None
        sent = sent or [True] * len(events)
        potential[publisher], permanent[publisher] = set(), set()
        for host in {host for host, _ in subscribed} - {publisher}:
            wanted = [
                any(held) for held in zip(*(of(t) for h, t in subscribed if h == host), strict=True)
            ]
            if any(a and s for a, s in zip(sent, wanted, strict=True)):
                potential[publisher].add(host)
                if all(s for a, s in zip(sent, wanted, strict=True) if a):
                    permanent[publisher].add(host)
    return Clients(
        {name: frozenset(found) for name, found in potential.items()},
        {name: frozenset(found) for name, found in permanent.items()},
    )


@pytest.mark.integration
@pytest.mark.parametrize(
    ("specification", "events"),
    [(TYPED, TYPED_EVENTS), (UNTYPED, UNTYPED_EVENTS)],
    ids=["one header by type", "any fields"],
)
@examples(40)
@given(
    advertised=st.fixed_dictionaries(
        {
            "feed1": st.lists(conditions(), max_size=2),
            "feed2": st.lists(conditions(), max_size=1),
            "h4": st.lists(conditions(), min_size=1, max_size=1),
        }
    ),
    subscribed=st.lists(
        st.tuples(st.sampled_from(["h1", "h2", "h3", "h4"]), conditions()), max_size=5
    ),
    one_by_one=st.booleans(),
)
def test_clients_are_those_that_trying_every_event_finds(
    specification, events, advertised, subscribed, one_by_one
):
    said = [Advertisement(name, text) for name, texts in advertised.items() for text in texts]
    with pytest.MonkeyPatch.context() as patched:
        if one_by_one:
            patched.setattr(relations, "small", lambda table: 0)
        found = clients_of(said, rows(subscribed), NETWORK, specification)
    assert found == tried(advertised, subscribed, specification, events)


def test_hosts_that_each_ask_for_another_field_cost_no_product():
    names = [f"f{at}" for at in range(11)]
    specification = parse_specification(
        f"header_type e_t {{ fields {{ {' '.join(f'{name}: 32;' for name in names)} }} }} "
        "header e_t e; " + " ".join(f"@query_field(e.{name})" for name in names),
        "eleven",
    )
    network = fabric(pods=2, racks=4, hosts=5, planes=1, spines=1)
    hosts = network.subscribers()
    subscribed = rows([(host, f"f{at % 11} == {at}") for at, host in enumerate(hosts)])
    (publisher,) = network.publishers()
    for order in ("specification", "auto"):
        found = clients_of(
            [Advertisement(publisher, "f3 == 3")], subscribed, network, specification, None, order
        )
        elsewhere = {host for at, host in enumerate(hosts) if at % 11 != 3}
        assert found.potential[publisher] == {*elsewhere, hosts[3]}
        assert found.permanent[publisher] == {hosts[3]}


@examples(25)
@given(
    advertised=conditions(("a.x", "a.y")),
    before=conditions(("a.x", "a.y", "b.z")),
    state=st.sampled_from(["count() > 2", "seen < 3", "avg(a.x) >= 1", "not sum(a.y) > 4"]),
    joint=st.sampled_from(["and", "or"]),
)
def test_a_condition_on_state_may_match_and_is_never_sure_to(advertised, before, state, joint):
    subscribed = [("h1", f"({before}) {joint} {state}")]
    found = clients_of([Advertisement("feed1", advertised)], rows(subscribed), NETWORK, TYPED)
    # As if the state were always what it takes, and never.
    always = before if joint == "and" else "a.kind == A or b.kind == B"
    never = "a.x < 0" if joint == "and" else before
    of = {"feed1": [advertised]}
    assert (
        found.potential["feed1"]
        == (tried(of, [("h1", always)], TYPED, TYPED_EVENTS).potential["feed1"])
    )
    if joint == "and":
        assert not found.permanent["feed1"]
    else:
        sure = tried(of, [("h1", never)], TYPED, TYPED_EVENTS).permanent["feed1"]
        assert found.permanent["feed1"] == sure


def test_the_three_cases_of_the_text():
    """Fig. 5.7: the subscription covers what is advertised, is apart from it, or cuts it."""
    found = clients_of(
        [Advertisement("feed1", "a.x >= 2 and a.y <= 4")],
        rows([("h1", "a.x >= 1"), ("h2", "a.x == 0"), ("h3", "a.y > 3")]),
        NETWORK,
        TYPED,
        publishers=["feed1"],
    )
    assert found.potential == {"feed1": frozenset({"h1", "h3"})}
    assert found.permanent == {"feed1": frozenset({"h1"})}


def test_several_rules_of_a_host_cover_an_advertisement_together():
    halves = rows([("h1", "a.x <= 1"), ("h1", "a.x >= 2"), ("h2", "a.x <= 1 or a.x >= 3")])
    found = clients_of([Advertisement("feed1", "a.y == 3")], halves, NETWORK, TYPED)
    assert found.permanent["feed1"] == {"h1"}
    assert found.potential["feed1"] == {"h1", "h2"}


def test_a_publisher_that_does_not_advertise_may_publish_anything():
    found = clients_of(
        [], rows([("h1", "a.x == 0"), ("h2", "a.kind == A or b.kind == B")]), NETWORK, TYPED
    )
    assert found.publishers() == ("feed1", "feed2")
    assert found.potential["feed2"] == {"h1", "h2"}
    assert found.permanent["feed2"] == {"h2"}


def test_a_condition_that_is_always_true_still_asks_for_its_header():
    both = rows([("h1", "a.x >= 0 or not a.x >= 0")])
    assert clients_of([Advertisement("feed1", "a.y > 2")], both, NETWORK, TYPED).permanent[
        "feed1"
    ] == {"h1"}
    every = clients_of([], both, NETWORK, TYPED)
    assert every.potential["feed1"] == {"h1"}
    assert every.permanent["feed1"] == set()


def test_actions_name_the_receivers_and_nobody_receives_what_it_publishes():
    subscribed = rows(
        [("h1", "a.x == 1 : fwd(h2, h3)"), ("h4", "a.x == 1"), ("h4", "a.x == 1 : fwd(h1, feed2)")]
    )
    found = clients_of(
        [Advertisement(name, "a.x == 1") for name in ("feed1", "h4")], subscribed, NETWORK, TYPED
    )
    assert found.potential["feed1"] == {"h1", "h2", "h3", "h4", "feed2"}
    # The rule for feed2 and another is refused where feed2 publishes, so it is never a promise.
    assert found.permanent["feed1"] == {"h2", "h3", "h4"}
    assert found.potential["h4"] == {"h1", "h2", "h3", "feed2"}


def test_what_nobody_can_satisfy_and_what_does_not_compile_match_nothing():
    subscribed = rows([("h1", "a.x > 2 and a.x < 1"), ("h2", "prise > 3"), ("h9", "a.x == 1")])
    found = clients_of([], subscribed, NETWORK, TYPED)
    assert found.potential == {"feed1": frozenset(), "feed2": frozenset()}
    nothing = [Advertisement("feed1", "a.x > 2 and a.x < 1")]
    found = clients_of(nothing, rows([("h1", "a.x >= 0")]), NETWORK, TYPED)
    assert found.potential == {"feed1": frozenset(), "feed2": frozenset({"h1"})}
    assert found.permanent["feed1"] == set()


def test_bad_advertisements_are_named():
    bad = [
        Advertisement("feed1", "prise > 3"),
        Advertisement("feed1", "a.x == 1 : fwd(h1)"),
        Advertisement("nobody", "a.x == 1"),
        Advertisement("feed2", None),
    ]
    fine = Advertisement("feed2", "a.x == 1")
    kept, rejections = check_advertisements([*bad, fine], TYPED, NETWORK.hosts)
    assert kept == [fine]
    assert [(r.id, r.code) for r in rejections] == [
        ("feed1", "SUBSCRIPTION.UNKNOWN_FIELD"),
        ("feed1", "SUBSCRIPTION.SYNTAX"),
        ("nobody", "SUBSCRIPTION.UNKNOWN_HOST"),
        ("feed2", "SUBSCRIPTION.EMPTY"),
    ]
    for row in (bad[0], bad[1], bad[3]):
        with pytest.raises(SubscriptionError):
            clients_of([row], [], NETWORK, TYPED)
    with pytest.raises(NetworkError, match="UNKNOWN_HOST"):
        clients_of([bad[2]], [], NETWORK, TYPED)
