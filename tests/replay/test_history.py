"""A late subscription: since when it is live, what it matched, and what it missed before."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path

import pytest
from following import polled
from kafka_topics import kafka_topic
from pcap_deployment import NETWORK, Deployment, receipts, records
from waiting import until

from stackcast.jobs import deliver_from, run_sql
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.replay.history import History
from stackcast.jobs.command_lines.deliver_from import bound
from stackcast.lab.proof import verification
from stackcast.udfs.errors import MessageError, ReplayError
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.subscriptions import Subscription, check
from stackcast.udfs.messages.reference import read_message, read_packet
from stackcast.udfs.messages.specification import Specification

pytestmark = pytest.mark.integration

LATE = Subscription("late", "h3", "price > 50 and shares < 400 : fwd(h3, h4)")
COUNTED = Subscription("counted", "h2", "price > 50 and count(1h) > 20")
SQL = "SELECT id, since_version, messages FROM subscription_matches ORDER BY id"


def add(deployment: Deployment, row: Subscription) -> int:
    """Add a rule, wait until it is live, and return the version since which it is live."""
    updated_at = dt.datetime.now(dt.UTC)
    common = {"format": "itch", "enabled": True, "updated_by": "test", "updated_at": updated_at}
    deployment.tables.append("subscriptions", [row._asdict() | common])
    until(lambda: row.id in live(deployment))
    return live(deployment)[row.id]


def live(deployment: Deployment) -> dict[str, int]:
    rows = polled(deployment.tables, "live_subscriptions")
    return {row["id"]: row["since_version"] for row in rows}


def owed(
    deployment: Deployment,
    itch: Specification,
    row: Subscription,
    spans: Mapping[int, tuple[int, int]],
) -> verification.Expectation:
    """Returns the messages of a range of offsets that match one rule, by brute force."""
    rules, _ = check([row], itch, set(NETWORK.subscribers()), "feed1")
    batch = verification.Batch(0, spans, rules)
    topic = kafka_topic(deployment.settings)
    return verification.expected(deployment.topics.read_all(), [batch], itch, topic)


def matched(deployment: Deployment, itch: Specification, text: str, since: int) -> int:
    """Returns the number of messages that match a rule, from the batches of a version on."""
    condition = parse_rule(text, itch).condition
    spans = [
        (p["partition"], p["from_offset"], p["until_offset"])
        for row in deployment.ledger
        if dict(row["versions"])["subscriptions"] >= since
        for p in row["partitions"]
    ]
    count = 0
    for partition, offset, value in deployment.topics.read_all():
        if any(p == partition and begin <= offset < end for p, begin, end in spans):
            for message in read_packet(value)[2]:
                try:
                    count += matches(condition, read_message(itch, message))
                except MessageError:
                    continue
    return count


def test_a_late_rule_is_counted_since_it_is_live_and_gets_earlier_messages(
    deployment: Deployment, itch: Specification, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    between: list[dt.datetime] = []
    ends: list[dict[int, int]] = []

    def edit() -> None:
        ends.append(deployment.topics.end_offsets())
        between.append(dt.datetime.now(dt.UTC))
        assert add(deployment, LATE) > add_before["high"]
        add(deployment, COUNTED)
        deployment.publish(records()[150:])

    add_before = {"high": deployment.tables.version("subscriptions")}
    deployment.publish(records()[:150])
    deployment.run(edit)

    # The table and the view list since when each rule is live, and how much it matched.
    since = live(deployment)
    rows = {row["id"]: row for row in deployment.tables.rows("live_subscriptions")}
    assert set(rows) == {"high", "side", "both", "late", "counted"}
    assert between[0] < rows["late"]["since"] < rows["counted"]["since"]
    assert rows["high"]["since"] < between[0]
    assert since["high"] < since["late"] < since["counted"]
    run_sql.show([SQL], deployment.settings, Lifecycle())
    counts = {}
    for line in capsys.readouterr().out.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[0] in rows:
            counts[cells[0]] = (int(cells[1]), cells[2])
    assert counts == {
        name: (
            since[name],
            "NULL"
            if name == "counted"
            else str(matched(deployment, itch, rows[name]["filter"], since[name])),
        )
        for name in rows
    }
    assert int(counts["late"][1]) > 20

    # The frames from before the rule complete those of the stream, without a gap or a duplicate.
    sent = deployment.frames()
    history = History(deployment.spark, deployment.settings, deployment.tables, "late")
    spans = history.spans(None, None)
    assert spans == {p: (0, end) for p, end in ends[0].items()}
    deployment.set(pcap_path=str(tmp_path / "history"))
    options = deliver_from.parser().parse_args(["late", "--from", "earliest"])
    assert deliver_from.deliver(options, deployment.settings, Lifecycle()) == 0
    assert "150 packets" in capsys.readouterr().out
    before = deployment.frames()
    expectation = owed(deployment, itch, LATE, spans)
    assert expectation.total > 20
    assert verification.compare(expectation, receipts(before)).exact
    everything = {p: (0, end) for p, end in deployment.topics.end_offsets().items()}
    all_messages = owed(deployment, itch, LATE, everything)
    host_receipts = receipts(before + sent)["h3"]
    by_host = {host: host_receipts if host == "h3" else [] for host in NETWORK.subscribers()}
    tally = verification.compare(all_messages, by_host).hosts["h3"]
    assert tally.exact and tally.expected > expectation.deliveries["h3"].total()

    # If nothing is owed, the answer says since when the stream delivers by the rule.
    for arguments, words in [
        (["--from", "earliest"], f"high has been live since version {since['high']} of sub"),
        (["--from", "20", "--until", "10"], "has no records in this range"),
    ]:
        options = deliver_from.parser().parse_args(["high", *arguments])
        assert deliver_from.deliver(options, deployment.settings, Lifecycle()) == 0
        answer = capsys.readouterr().out
        assert answer.startswith("nothing to deliver: ") and words in answer
        assert answer.count("\n") == 1

    # A delivery starts at a time or an offset, works in small steps, and supports rules with state.
    deployment.set(pcap_path=str(tmp_path / "part"), max_offsets_per_trigger=20)
    history = History(deployment.spark, deployment.settings, deployment.tables, "late")
    part = history.spans(between[0], bound("120"))
    assert part == {p: (ends[0][p], 120) for p in ends[0]}
    history.deliver(part, Lifecycle().stopping)
    assert verification.compare(
        owed(deployment, itch, LATE, part), receipts(deployment.frames())
    ).exact
    deployment.set(pcap_path=str(tmp_path / "state"))
    stateful = History(deployment.spark, deployment.settings, deployment.tables, "counted")
    stateful.deliver(everything, Lifecycle().stopping)
    expectation = owed(deployment, itch, COUNTED, everything)
    assert expectation.total > 20
    assert verification.compare(expectation, receipts(deployment.frames())).exact

    # An error names a rule that cannot be delivered.
    missing = History(deployment.spark, deployment.settings, deployment.tables, "missing")
    with pytest.raises(ReplayError, match=r"NO_SUBSCRIPTION.*'missing'"):
        missing.deliver({}, Lifecycle().stopping)
    deployment.change("subscriptions", {"id": "late"}, filter="prise > 1")
    with pytest.raises(ReplayError, match=r"NOT_LIVE.*UNKNOWN_FIELD"):
        history.deliver({}, Lifecycle().stopping)
    grant = {"id": "g", "subscriber": "h3", "format": "itch", "filter": "all"}
    deployment.tables.append("grants", [grant])
    with pytest.raises(ReplayError, match=r"NOT_LIVE.*NOT_GRANTED.*'h2'"):
        stateful.deliver({}, Lifecycle().stopping)


def test_a_bound_is_an_offset_or_a_time_in_utc_by_default() -> None:
    assert (bound("earliest"), bound("0"), bound("17")) == (None, 0, 17)
    assert bound("2026-03-01T09:30:00") == dt.datetime(2026, 3, 1, 9, 30, tzinfo=dt.UTC)
    assert bound("2026-03-01T09:30:00+02:00") == dt.datetime(2026, 3, 1, 7, 30, tzinfo=dt.UTC)
    for wrong in ("", "-1", "yesterday", "1.5"):
        with pytest.raises(ValueError):
            bound(wrong)
    with pytest.raises(SystemExit):
        deliver_from.parser().parse_args(["late", "--from", "yesterday"])
