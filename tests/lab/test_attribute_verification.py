"""The verdict on attribute/value events, in a stream and in switches that match.

What must arrive is checked against plain Python on the values that the records were made from. A
perfect delivery passes; whatever is wrong with one frame of it is noticed.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from itertools import islice
from threading import Event

import pytest
from attribute_records import read_records
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.embedded.feed import feed_events
from stackcast.jobs.embedded.network import expected as expected_in_network
from stackcast.lab.fabric.hosts import LabHost, NetworkCard
from stackcast.lab.proof.attribute_reader import FRAMES, event_reader, frame_reader, read_json
from stackcast.lab.proof.receipts import KEY, Receipt, event_receipt, receipts
from stackcast.lab.proof.verification import (
    Batch,
    broadcast_bytes,
    compare,
    expected,
    unicast_bytes,
)
from stackcast.lab.report.showcase import FilteredShowcase, Showcase
from stackcast.lab.traffic import sensors
from stackcast.lab.traffic.feed import GROUPS, event_frames
from stackcast.udfs.errors import LabError, MessageError
from stackcast.udfs.filters.nodes import Or
from stackcast.udfs.filters.subscriptions import Subscription, check
from stackcast.udfs.messages.attributes.events import REASONS
from stackcast.udfs.messages.sequence import Topic, sequence_number, session_id
from stackcast.udfs.network.topology import fabric, line
from stackcast.udfs.trees.broadcast import broadcast_trees

pytestmark = pytest.mark.unit

TOPIC = Topic("attributes.raw")
SESSION = b"STACKCAST1"
REGISTRY = sensors.registry()
TEMPERATURE, HUMIDITY, STATION = 1, 3, 9
ALL = {0: (0, 1 << 40), 1: (0, 1 << 40)}


def rules_of(texts, registry=REGISTRY, hosts=None):
    rows = [Subscription(f"s-{host}-{n}", host, text) for n, (host, text) in enumerate(texts)]
    hosts = set(hosts or {host for host, _ in texts})
    rules, rejections = check(rows, registry.specification(), hosts, "feed1")
    assert rejections == []
    return rules


def batch(texts, offsets=ALL, registry=REGISTRY):
    return Batch(0, offsets, rules_of(texts, registry), registry)


# --- what must arrive ---------------------------------------------------------------------------

WANTS = (
    ("h1", "temperature < 3 and humidity > 80"),
    ("h1", "temperature < -5.5"),
    ("h2", "not humidity <= 80"),
    ("h3", "station == 7 or temperature between -1 and 0.5"),
)


def owed_to(host, event):
    temperature, humidity, station = map(event.get, ("temperature", "humidity", "station"))
    if host == "h1":
        cold = temperature is not None and temperature < 30
        damp = humidity is not None and humidity > 800
        return (cold and damp) or (temperature is not None and temperature < -55)
    if host == "h2":
        return humidity is not None and humidity > 800
    mild = temperature is not None and -10 <= temperature <= 5
    return station == 7 or mild


EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.sampled_from([-56, -55, -11, -10, 5, 6, 29, 30]),
        "humidity": st.sampled_from([799, 800, 801]),
        "station": st.sampled_from([6, 7]),
    },
).filter(bool)


def written(event, encoding):
    """An event of tenths, by hand: header of KUNDEL III-B."""
    raw = {}
    if "temperature" in event:
        raw[TEMPERATURE] = event["temperature"] + 1_000
    if "humidity" in event:
        raw[HUMIDITY] = event["humidity"]
    if "station" in event:
        raw[STATION] = event["station"]
    if encoding == "id_pairs":
        return b"".join(struct.pack(">BI", *pair) for pair in sorted(raw.items())) + b"\0"
    mask = sum(1 << number for number in raw)
    return struct.pack(f">I{len(raw)}I", mask, *(raw[number] for number in sorted(raw)))


def as_json(event):
    return json.dumps({k: v if k == "station" else v / 10 for k, v in event.items()}).encode()


@examples(40)
@given(st.lists(EVENTS, max_size=10), st.sampled_from(sorted(GROUPS)), st.booleans())
def test_hosts_are_owed_what_their_rules_say(events, encoding, binary):
    """From JSON, and from records in the other encoding with a payload, which is carried along."""
    source = next(name for name in GROUPS if name != encoding) if binary else "json"
    payload = b"!" if binary else b""
    records, owed = [], {host: Counter() for host, _ in WANTS}
    for offset, event in enumerate(events):
        record = written(event, source) + payload if binary else as_json(event)
        records.append((offset % 2, offset, record))
        key = (session_id(TOPIC, offset % 2), offset, written(event, encoding) + payload)
        for host, counter in owed.items():
            counter.update([key] if owed_to(host, event) else [])
    found = expected(
        records,
        [batch(WANTS)],
        REGISTRY.specification(),
        TOPIC,
        read=event_reader(source, encoding),
    )
    assert {host: found.deliveries.get(host, Counter()) for host in owed} == owed
    assert found.messages_in == len(events)
    assert not found.dead_letters


def test_dead_letters_are_counted_by_reason_and_harm_no_neighbour():
    records = list(sensors.events(2_000, faults=0.05))
    announced = rules_of([("h1", row["filter"]) for row in sensors.advertisements("feed1")])
    advertised = Or(tuple(rule.condition for rule in announced))
    read = event_reader("json", "bitmask", advertised=advertised)
    harmed = [a != b for a, b in zip(records, sensors.events(2_000), strict=True)]
    numbered = [(0, offset, record) for offset, record in enumerate(records)]
    found = expected(
        numbered, [batch([("h1", "station > 0")])], REGISTRY.specification(), TOPIC, read=read
    )
    assert set(found.dead_letters) <= set(REASONS.values())
    assert found.dead_letters.total() == sum(harmed)
    faults = len(sensors.FAULTS)
    kinds = Counter(sum(harmed) // faults + (n < sum(harmed) % faults) for n in range(faults))
    assert found.dead_letters["outside_advertisement"] in kinds
    assert found.dead_letters["malformed_json"] >= 3 * min(kinds)
    arrived = {offset for _, offset, _ in found.deliveries["h1"]}
    assert arrived == {offset for offset, bad in enumerate(harmed) if not bad}
    # What nobody announced was read, so it is a message; what could not be read is none.
    outside = found.dead_letters["outside_advertisement"]
    assert found.messages_in == len(records) - sum(harmed) + outside


def test_binary_damage_has_its_reasons():
    sound = written({"temperature": 1, "station": 7}, "id_pairs")
    records = {
        b"": "empty_event",
        sound[:-2]: "truncated_event",
        b"\x1f" + sound[1:]: "unknown_attribute",
        sound[:5] + sound: "id_twice",
        sound + bytes(60): "event_too_large",
    }
    read = event_reader("id_pairs", "bitmask", longest=64)
    found = expected(
        [(0, offset, record) for offset, record in enumerate([*records, sound])],
        [batch([("h1", "station == 7")])],
        REGISTRY.specification(),
        TOPIC,
        read=read,
    )
    assert found.dead_letters == Counter(records.values())
    assert {offset for _, offset, _ in found.deliveries["h1"]} == {len(records)}


def test_an_event_that_is_too_long_in_the_encoding_of_hosts_is_a_dead_letter():
    """Four attributes are 20 bytes as a bitmask and 21 as pairs."""
    record = struct.pack(">5I", 0xF, sensors.START, 1_000, 10_000, 500)
    for longest, letters in ((21, {}), (20, {"event_too_large": 1}), (19, {"event_too_large": 1})):
        found = expected(
            [(0, 0, record)],
            [batch([("h1", "temperature == 0")])],
            REGISTRY.specification(),
            TOPIC,
            read=event_reader("bitmask", "id_pairs", longest),
        )
        assert found.dead_letters == letters
        assert found.total == found.messages_in == (0 if letters else 1)


def test_each_batch_reads_with_the_attributes_it_knew():
    late = [
        (0, offset, record)
        for offset, record in enumerate(sensors.events(400, late=True))
        if sensors.LATE.encode() in record
    ]
    border = late[len(late) // 2][1]
    after = sensors.registry(late=True)
    found = expected(
        late,
        [
            batch([("h1", "station > 0")], {0: (0, border)}),
            batch([("h1", f"{sensors.LATE} >= 0")], {0: (border, 400)}, after),
        ],
        after.specification(),
        TOPIC,
        read=event_reader("json", "id_pairs"),
    )
    assert found.dead_letters == {"unknown_attribute": len(late) // 2}
    assert {offset for _, offset, _ in found.deliveries["h1"]} == {
        offset for _, offset, _ in late if offset >= border
    }


# --- the plain reader ---------------------------------------------------------------------------

VALUES = st.one_of(
    st.sampled_from(
        ["-0", "1e400", "NaN", "-Infinity", "true", "null", '"12"', "{}", "[1]", "1e-9", "25.55"]
    ),
    st.sampled_from(['"2026-03-01T00:00:00Z"', '"2026-03-01"', '"2026-W09-7"', '"12:00"']),
    st.integers(-(1 << 33), 1 << 33).map(str),
    st.floats(-200, 5e8).map(repr),
)
MEMBERS = st.lists(
    st.tuples(st.sampled_from([*REGISTRY.by_name, "nobody"]), VALUES).map(
        lambda pair: f'"{pair[0]}": {pair[1]}'
    ),
    max_size=4,
)
RECORDS = st.one_of(
    MEMBERS.map(lambda members: ("{" + ", ".join(members) + "}").encode()),
    st.sampled_from([b"", b"[1]", b"{", b'{"station": 1} x', b"\xff", b'{"station": 01}', b"7"]),
)


@examples(60)
@given(st.lists(RECORDS, min_size=1, max_size=8))
def test_json_means_the_same_to_the_plain_reader_and_to_the_stream(records):
    events = read_records(records, REGISTRY, 1 << 20)
    for i, record in enumerate(records):
        try:
            values, reason = read_json(record, REGISTRY), ""
        except MessageError as error:
            values, reason = {}, error.what.lower()
        assert reason == REASONS.get(int(events.reason[i]), ""), record
        mask = int(events.mask[i])
        assert values == {n: int(events.values[n, i]) for n in range(32) if mask >> n & 1}


# --- switches that match ------------------------------------------------------------------------


class Sent:
    """A sink that keeps the addresses that frames go to."""

    def __init__(self):
        self.groups = []

    def send(self, frames, offsets):
        self.groups += [frames[at : at + 6].tobytes() for at in offsets[:-1]]

    def flush(self):
        pass


@pytest.mark.parametrize(
    ("settings", "groups"),
    [
        (Settings(), list(GROUPS.values()) * 3),
        *(
            (
                Settings(attributes_encoding=name, given=frozenset({"attributes.encoding"})),
                [group] * 6,
            )
            for name, group in GROUPS.items()
        ),
    ],
)
def test_events_are_fed_in_the_encoding_that_was_asked_for_and_in_both_where_none_was(
    settings, groups
):
    sink = Sent()
    publisher = NETWORK.host("feed1")
    fed = feed_events(settings, publisher, REGISTRY, sink, sensors.events(6), Event())
    assert fed.messages == 6
    assert sink.groups == [group.to_bytes(6) for group in groups]


NETWORK = line(3, 2)
HOSTS = NETWORK.subscribers()
TEXTS = [(row["subscriber"], row["filter"]) for row in sensors.subscriptions(HOSTS, 60)]
RULES = rules_of(TEXTS, hosts=HOSTS)


def in_switches(count=60, seed=1):
    """Frames as a publisher sends them, and what hosts are owed of them."""
    sent = list(event_frames(sensors.events(count, seed), NETWORK.host("feed1"), REGISTRY))
    return sent, expected(
        [(0, one.sequence, one.frame) for one in sent],
        [Batch(0, ALL, RULES, REGISTRY)],
        REGISTRY.specification(),
        Topic(""),
        lambda _: SESSION,
        read=frame_reader(),
    )


def perfect(sent, expectation):
    """Frames as hosts receive them, all of what they are owed and in order."""
    return {
        host: [
            event_receipt(one.frame[14:])
            for one in sent
            if any(sequence == one.sequence for _, sequence, _ in expectation.deliveries[host])
        ]
        for host in HOSTS
    }


def test_frames_take_turns_in_both_encodings_and_hold_the_records_events():
    records = list(sensors.events(20))
    publisher = NETWORK.host("feed1")
    sent = list(event_frames(records, publisher, REGISTRY))
    assert [one.sequence for one in sent] == list(range(1, 21))
    for i, (record, one) in enumerate(zip(records, sent, strict=True)):
        encoding = ("id_pairs", "bitmask")[i % 2]
        ethernet, header = one.frame[:14], one.frame[14 : -KEY.size]
        assert ethernet == GROUPS[encoding].to_bytes(6) + publisher.mac.to_bytes(6) + b"\x90\x01"
        raw = read_json(record, REGISTRY)
        assert len(header) == (1 + 5 * len(raw) if encoding == "id_pairs" else 4 + 4 * len(raw))
        assert KEY.unpack(one.frame[-KEY.size :]) == (SESSION, one.sequence)
        (found,) = frame_reader()(one.frame, Batch(0, {}, (), REGISTRY))
        assert found.message == header
        assert found.event == {REGISTRY.attributes[number].name: raw[number] for number in raw}


def test_one_encoding_alone_and_numbers_of_ones_own():
    only = event_frames(
        sensors.events(4), NETWORK.host("feed1"), REGISTRY, ["bitmask"], b"SENSORS001", 7
    )
    assert [KEY.unpack(one.frame[-18:]) for one in only] == [
        (b"SENSORS001", number) for number in (7, 8, 9, 10)
    ]


def test_what_is_no_event_is_not_sent_as_one():
    with pytest.raises(MessageError, match="MALFORMED_JSON"):
        list(event_frames([b"{"], NETWORK.host("feed1"), REGISTRY))


def test_frames_of_another_ethertype_are_nobodys():
    sent, _ = in_switches(2)
    frames = [one.frame[:12] + b"\x08\x00" + one.frame[14:] for one in sent[:1]]
    found = expected(
        [(0, n, frame) for n, frame in enumerate([*frames, sent[1].frame])],
        [batch([("h1", "station > 0")])],
        REGISTRY.specification(),
        Topic(""),
        lambda _: SESSION,
        read=frame_reader(),
    )
    assert found.dead_letters == {"not_an_event": 1}
    assert [offset for _, offset, _ in found.deliveries["h1"]] == [1]


def test_a_perfect_delivery_by_switches_is_exact():
    sent, expectation = in_switches()
    received = perfect(sent, expectation)
    outcome = compare(expectation, received, pruned=True)
    assert outcome.exact
    assert outcome.received == outcome.expected == expectation.total > 20
    assert expectation.messages_matched < len(sent), "some events are nobody's"


@examples(60)
@given(st.data())
def test_whatever_is_wrong_with_one_frame_is_noticed(data):
    sent, expectation = in_switches(30, 2)
    received = perfect(sent, expectation)
    host = data.draw(st.sampled_from([h for h in HOSTS if len(received[h]) > 1]))
    own = received[host]
    at = data.draw(st.integers(0, len(own) - 2))
    session, sequence, (header,) = own[at]
    fault = data.draw(
        st.sampled_from(["lost", "twice", "late", "unwanted", "changed", "number", "session"])
    )
    if fault == "lost":
        del own[at]
        counts = {"missing": 1}
    elif fault == "twice":
        own.insert(at, own[at])
        counts = {"duplicates": 1}
    elif fault == "late":
        own[at], own[at + 1] = own[at + 1], own[at]
        counts = {"out_of_order": 1}
    elif fault == "unwanted":
        unwanted = [
            receipt
            for receipt in (event_receipt(one.frame[14:]) for one in sent)
            if receipt not in own
        ]
        own.append(data.draw(st.sampled_from(unwanted)))
        counts = {"extra": 1}
        if own[-1].sequence < own[-2].sequence:
            counts["out_of_order"] = 1
    elif fault == "changed":
        bit = 1 << data.draw(st.integers(0, 8 * len(header) - 1))
        changed = (int.from_bytes(header) ^ bit).to_bytes(len(header))
        own[at] = Receipt(session, sequence, (changed,))
        counts = {"missing": 1, "extra": 1, "misnumbered": 1}
    elif fault == "number":
        own[at] = Receipt(session, sequence + 1_000, (header,))
        counts = {"missing": 1, "extra": 1, "misnumbered": 1, "out_of_order": len(own) - at - 1}
    else:
        own[at] = Receipt(b"STACKCAST2", sequence, (header,))
        counts = {"missing": 1, "extra": 1, "misnumbered": 1}
    tally = compare(expectation, received, pruned=True).hosts[host]
    assert not tally.exact
    wrong = ("missing", "extra", "duplicates", "out_of_order", "misnumbered")
    assert {name: n for name in wrong if (n := getattr(tally, name))} == counts


@examples(30)
@given(st.sampled_from(["lost", "twice", "changed", "place", "index"]), st.data())
def test_whatever_is_wrong_with_one_message_of_the_stream_is_noticed(fault, data):
    """Frames of the stream: MoldUDP64 under the number of their Kafka offset."""
    records = [(0, offset, record) for offset, record in enumerate(sensors.events(40))]
    read = event_reader("json", "id_pairs")
    expectation = expected(
        records, [Batch(0, ALL, RULES, REGISTRY)], REGISTRY.specification(), TOPIC, read=read
    )
    received = {
        host: [
            Receipt(session, int(sequence_number(offset, 0)), (message,))
            for session, offset, message in sorted(owed, key=lambda key: key[1])
        ]
        for host, owed in expectation.deliveries.items()
    }
    assert compare(expectation, received).exact
    host = data.draw(st.sampled_from(sorted(host for host in received if received[host])))
    own = received[host]
    at = data.draw(st.integers(0, len(own) - 1))
    session, sequence, (message,) = own[at]
    if fault == "lost":
        del own[at]
    elif fault == "twice":
        own.insert(at, own[at])
    elif fault == "changed":
        own[at] = Receipt(session, sequence, (message[:-1],))
    else:
        own[at] = Receipt(session, sequence + {"place": 1, "index": 1 << 13}[fault], (message,))
    tally = compare(expectation, received).hosts[host]
    assert not tally.exact
    assert (tally.missing, tally.extra, tally.duplicates, tally.misnumbered) == {
        "lost": (1, 0, 0, 0),
        "twice": (0, 0, 1, 0),
        "changed": (1, 1, 0, 1),
        "place": (0, 0, 0, 1),
        "index": (0, 0, 0, 1),
    }[fault]


# --- hosts --------------------------------------------------------------------------------------


@pytest.mark.integration
def test_a_host_gets_what_follows_ethernet_and_writes_it_down(tmp_path):
    sent, _ = in_switches(20)
    folder = tmp_path / "receipts"
    folder.mkdir()
    card, host = NetworkCard(), LabHost("h1", folder / "h1.mold")
    for one in sent:
        host.take(card.read(one.frame))
    host.close()
    assert receipts(tmp_path, event_receipt) == {"h1": [event_receipt(f.frame[14:]) for f in sent]}
    assert host.delivered == 20
    assert not card.drops


def test_frames_of_other_ethertypes_are_judged_as_before():
    card = NetworkCard()
    event = next(event_frames(sensors.events(1), NETWORK.host("feed1"), REGISTRY)).frame
    for other in (b"\x90\x02", b"\x86\xdd"):
        assert card.read(event[:12] + other + event[14:]) is None
    assert card.drops == {"unknown_ethertype": 2}
    assert card.read(event[:14]) is None
    assert card.drops["truncated_frame"] == 1


def test_what_is_too_short_for_a_key_counts_as_extra(tmp_path):
    (tmp_path / "receipts").mkdir()
    (tmp_path / "receipts" / "h1.mold").write_bytes(b"\x00\x12" + bytes(18))
    outcome = compare(in_switches(1)[1], receipts(tmp_path, event_receipt), pruned=True)
    assert outcome.hosts["h1"].extra == 1
    with pytest.raises(LabError, match="NO_RECEIPTS"):
        receipts(tmp_path / "elsewhere", event_receipt)


# --- the report ---------------------------------------------------------------------------------


def test_bytes_that_unicast_and_broadcast_would_take_of_frames():
    sent, expectation = in_switches(1)
    (frame,) = [one.frame for one in sent]
    ((key),) = expectation.packets
    header = expectation.packets[key][0]
    expectation.deliveries.clear()
    expectation.deliveries["h5"][(*key, header)] = 1
    # feed1, s1, s2, s3, h5.
    assert unicast_bytes(NETWORK, "feed1", expectation, FRAMES) == 4 * len(frame)
    # To six hosts, from one, over two links.
    assert broadcast_bytes(NETWORK, expectation, FRAMES) == 9 * len(frame)


def test_the_report_shows_events_in_their_units_with_stacks():
    network = fabric(2, 2, 2, 2, 2)
    records = [(0, n, record) for n, record in enumerate(sensors.events(80, faults=0.1))]
    texts = [(host, "temperature < 3 and humidity > 20") for host in ("h1", "h5")]
    specification = REGISTRY.specification()
    read = event_reader("json", "id_pairs")
    showcase = Showcase(
        network, broadcast_trees(network), specification, "feed1", 20, read, REGISTRY
    )
    owed = expected(records, [batch(texts)], specification, TOPIC, read=read)
    samples = showcase.notifications(records, rules_of(texts), owed)
    assert samples
    for sample in samples:
        event = json.loads(records[sample["offset"]][2])
        shown = {k: v for k, v in sample["event"].items() if k != "timestamp"}
        assert {name: float(text) for name, text in shown.items()} == {
            name: value for name, value in event.items() if name != "timestamp"
        }
        assert event["temperature"] < 3
        assert sample["receivers"] == ["h1", "h5"]
        assert sample["labels"]
        assert len(sample["subscriptions"]) == 2
    json.dumps(samples)


def test_the_report_shows_the_way_through_switches_that_match():
    sent = islice(event_frames(sensors.events(80), NETWORK.host("feed1"), REGISTRY), 80)
    showcase = FilteredShowcase(
        NETWORK, REGISTRY.specification(), "feed1", frame_reader(), REGISTRY
    )
    rules = rules_of([("h5", "station == 301")], hosts=HOSTS)
    records = [(0, one.sequence, one.frame) for one in sent]
    owed = expected_in_network(records, rules, REGISTRY.specification(), frame_reader(), REGISTRY)
    samples = showcase.notifications(records, rules, owed)
    assert samples
    for sample in samples:
        assert sample["event"]["station"] == "301"
        assert sample["edges"] == [["feed1", "s1"], ["s1", "s2"], ["s2", "s3"], ["s3", "h5"]]
        assert sample["labels"] == []
