"""The console on real tables: what its pages are told, what they may write, and to whom."""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from browser import MISSING, Browser, browser, there
from console_server import TOKEN, console, serving
from pcap_deployment import NETWORK, PARTITIONS, RULES, Deployment, records
from ports import free_port
from prometheus_client import CollectorRegistry
from starlette.testclient import TestClient
from waiting import until

from stackcast.jobs import console as job
from stackcast.jobs.adapters.app.health import Health
from stackcast.jobs.adapters.app.metrics_server import serve
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.console.application import Console
from stackcast.jobs.adapters.planning.versions import LINK_STATES
from stackcast.jobs.adapters.tables.folder_tables import FolderTables
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.udfs.errors import SubscriptionError
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.messages.reference import read_message, read_packet
from stackcast.udfs.messages.specification import Specification

pytestmark = pytest.mark.integration

WRITES = {"Authorization": f"Bearer {TOKEN}"}
NOW = dt.datetime(2026, 11, 23, 12, tzinfo=dt.UTC)
NASTY = (
    "</script><script>document.title='broken'</script><img src=x onerror=\"document.title='x'\">"
)


def client(of: Console, headers: dict[str, str] | None = None) -> TestClient:
    """Returns a client that bears the token, unless it is given other headers."""
    headers = WRITES if headers is None else headers
    return TestClient(of.application, base_url="http://127.0.0.1", headers=headers)


def take_up(tables: Tables, rejected: tuple[str, ...] = (), version: int | None = None) -> None:
    """What a stream writes when it has compiled the subscriptions."""
    version = tables.version("subscriptions") if version is None else version
    rows = [row for row in tables.rows("subscriptions") if row["enabled"]]
    told = {"subscriptions_version": version}
    tables.overwrite(
        "live_subscriptions",
        [
            {name: row[name] for name in ("id", "subscriber", "filter")}
            | {"since_version": version, "since": NOW}
            | told
            for row in rows
            if row["id"] not in rejected
        ],
    )
    wrong = {"code": "SUBSCRIPTION.SYNTAX", "line": 1, "column": 3, "message": f"^ {NASTY}"}
    tables.overwrite(
        "rejected_subscriptions",
        [
            {"id": row["id"], "subscriber": row["subscriber"]} | wrong | told
            for row in rows
            if row["id"] in rejected
        ],
    )


def batch(number: int, versions: dict[str, int]) -> dict[str, object]:
    counts = dict.fromkeys(("packets", "messages", "matched", "frames", "bytes"), 100 + number)
    started = NOW + dt.timedelta(seconds=number)
    return {
        **counts,
        "batch_id": number,
        "topic": "itch.raw",
        "topic_id": "",
        "generation": 0,
        "partitions": [],
        "versions": versions,
        "dead_letters": 2 if number == 3 else 0,
        "started_at": started,
        "seconds": 0.25,
        "settings": None,
    }


@pytest.fixture
def filled_tables(tables: Tables, filled: Path) -> Tables:
    shutil.copytree(filled, tables.location, dirs_exist_ok=True)
    return open_tables(tables._spark, tables.location)


def test_health_tells_batches_switches_and_which_versions_wait(filled_tables: Tables):
    tables = filled_tables
    tables.append("egress_ledger", [batch(n, {"subscriptions": 0}) for n in range(150)])
    status = {"entries_version": 4, "desired": 9, "installed": 9, "seconds": 0.1}
    for step, (in_sync, errors) in enumerate([(True, []), (False, [NASTY])]):
        at = NOW + dt.timedelta(seconds=step)
        row = {"switch": "pod1-rack1", "in_sync": in_sync, "errors": errors, "checked_at": at}
        tables.append("switch_status", [row | status])
    found = client(console(tables)).get("/api/health").json()
    assert found["stream"] == {"reached": None}
    assert [row["batch_id"] for row in found["batches"]] == list(range(30, 150))
    (version,) = found["versions"]
    assert (version["version"], version["newest"]) == (0, tables.version("subscriptions"))
    assert version["since"] is not None
    by_name = {row["switch"]: row for row in found["switches"]}
    assert set(by_name) == set(NETWORK.switches)
    # The newest look at a switch counts.
    assert by_name["pod1-rack1"]["in_sync"] is False
    assert by_name["pod1-rack1"]["errors"] == [NASTY]


def test_a_stream_that_does_not_answer_is_told_as_such(filled_tables: Tables):
    port = free_port()
    made = job.console(
        Settings(tables=filled_tables.location), f"http://127.0.0.1:{port}", TOKEN, "127.0.0.1"
    )
    stream = client(made).get("/api/health").json()["stream"]
    assert stream["reached"] is False and "refused" in stream["problems"][0]


def test_problems_and_versions_are_those_that_the_stream_tells(filled_tables: Tables):
    tables = filled_tables
    versions = {"subscriptions": tables.version("subscriptions"), LINK_STATES: 0}
    told = Health((NASTY,), ("a remark",), {"versions": versions, "lag_by_partition": {0: 7}})
    settings = Settings(tables=tables.location, metrics_port=free_port())
    # By default the console asks where the same properties have the stream serve.
    with serve(settings, CollectorRegistry(), lambda: told):
        made = job.console(settings, None, TOKEN, "127.0.0.1")
        found = client(made).get("/api/health").json()
    # With problems the stream answers 503, which is an answer.
    assert found["stream"]["reached"] is True and found["stream"]["status"] == "unhealthy"
    assert found["stream"]["problems"] == [NASTY]
    assert found["stream"]["lag_by_partition"] == {"0": 7}
    by_name = {row["name"]: row for row in found["versions"]}
    assert by_name["subscriptions"]["since"] is None
    assert by_name[LINK_STATES]["newest"] == tables.version("links") > 0


def test_each_subscription_has_the_state_that_the_stream_gave_it(filled_tables: Tables):
    tables = filled_tables
    take_up(tables, rejected=("side",))
    ask = client(console(tables))
    found = ask.get("/api/subscriptions").json()
    assert {row["id"]: row["state"] for row in found["rows"]} == {
        "both": "live",
        "high": "live",
        "side": "rejected",
    }
    (rejected,) = found["rejected"]
    assert rejected["remarks"][0]["code"] == "SUBSCRIPTION.SYNTAX"
    words = ask.get("/api/subscriptions", params={"words": "PRICE live h1"}).json()
    assert {row["id"] for row in words["rows"]} == {"high", "both"}


def test_a_draft_is_judged_by_the_grammar_the_network_and_the_grants(filled_tables: Tables):
    tables = filled_tables
    ask = client(console(tables))

    def judged(**changes: str) -> dict[str, object]:
        draft = {"id": "mine", "subscriber": "h1", "filter": "price > 20"} | changes
        return ask.post("/api/check", json=draft).json()

    assert judged() == {"error": None, "warnings": []}
    error = judged(filter="price > 20 and prise < 4")["error"]
    assert (error["code"], error["column"]) == ("SUBSCRIPTION.UNKNOWN_FIELD", 16)
    assert error["message"].splitlines()[-1] == " " * 17 + "^", "the caret stands below the word"
    assert judged(subscriber="nobody")["error"]
    assert judged(filter="price > 20 and price < 10")["warnings"][0]["code"].endswith("NEVER_TRUE")
    reading = {"filter": "price > 20 and recent > 5"}
    (warning,) = judged(**reading)["warnings"]
    assert warning["code"] == "SUBSCRIPTION.NEVER_UPDATED" and warning["column"] == 16
    row = {"format": "itch", "filter": "all : recent <- count()", "enabled": True}
    row |= {"updated_by": None, "updated_at": None}
    tables.append("subscriptions", [row | {"id": "updates", "subscriber": "h2"}])
    assert len(judged(**reading)["warnings"]) == 1, "each subscriber has its own variables"
    assert judged(**reading, subscriber="h2")["warnings"] == []
    assert len(judged(**reading, subscriber="h2", id="updates")["warnings"]) == 1, "it is replaced"
    grant = {"id": "g", "subscriber": "h2", "format": "itch", "filter": "all"}
    tables.append("grants", [grant | {"updated_by": None, "updated_at": None}])
    assert judged()["error"], "a grant that came since counts"
    assert judged(subscriber="h2")["error"] is None


def test_who_saves_bears_the_token_and_the_row_is_live_when_the_stream_says_so(
    filled_tables: Tables,
):
    tables = filled_tables
    ask = client(console(tables), {})
    draft = {"id": "mine", "subscriber": "h1", "filter": "price > 20"}
    before = tables.version("subscriptions")
    for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": "Bearer wrong"}):
        answer = ask.post("/api/save", json=draft, headers=headers)
        assert answer.status_code == 401 and answer.json()["error"]["code"] == "CONSOLE.NO_TOKEN"
    refused = ask.post("/api/save", json=draft | {"filter": "prise > 1"}, headers=WRITES)
    assert refused.json()["error"]["code"] == "CONSOLE.REFUSED"
    assert tables.version("subscriptions") == before

    version = ask.post("/api/save", json=draft, headers=WRITES).json()["version"]
    assert version > before
    rows = {row["id"]: row for row in tables.rows("subscriptions")}
    assert set(rows) == {*RULES, "mine"} and rows["mine"]["filter"] == "price > 20"
    assert ask.get("/api/subscription", params={"id": "mine"}).json()["state"] == "pending"
    take_up(tables)
    found = ask.get("/api/subscription", params={"id": "mine"}).json()
    assert (found["state"], found["since_version"]) == ("live", version)
    changed = draft | {"filter": "price > 30", "enabled": False}
    ask.post("/api/save", json=changed, headers=WRITES)
    assert ask.get("/api/subscription", params={"id": "mine"}).json()["state"] == "disabled"
    assert len(tables.rows("subscriptions")) == len(RULES) + 1


HOSTILE = ("x\0", "x\x1b[2J", "\u202ex", "x\ny", "x" * 60_000, "é" * 128)


def test_a_rule_that_cannot_be_shown_safely_is_not_saved_not_even_disabled(
    filled_tables: Tables,
):
    tables = filled_tables
    ask = client(console(tables))
    draft = {"id": "mine", "subscriber": "h1", "filter": "price > 20"}
    before = tables.version("subscriptions")
    wrong = [draft | {field: text} for field in ("id", "subscriber") for text in HOSTILE]
    wrong.append(draft | {"filter": "price > 20 # \x1b]0;owned\x07"})
    wrong.append(draft | {"filter": f"price > 20 # {'x' * 10_000}"})
    for row in wrong:
        for enabled in (True, False):
            answer = ask.post("/api/save", json=row | {"enabled": enabled})
            assert (answer.status_code, answer.json()["error"]["code"]) == (
                400,
                "CONSOLE.REFUSED",
            )
            assert len(answer.content) < 2_000
        assert ask.post("/api/check", json=row).json()["error"]["code"] in (
            "SUBSCRIPTION.BAD_NAME",
            "SUBSCRIPTION.BAD_CHARACTER",
            "SUBSCRIPTION.TOO_LONG",
        )
    # Half a pair of surrogates is no text at all.
    for field in draft:
        content = json.dumps(draft | {field: "a\ud800"})
        headers = {"Content-Type": "application/json"}
        assert ask.post("/api/save", content=content, headers=headers).status_code == 400
    assert tables.version("subscriptions") == before


def test_rows_with_such_ids_from_other_editors_are_listed_and_can_be_opened(filled_tables: Tables):
    tables = filled_tables
    row = {"subscriber": "h1", "format": "itch", "filter": "price > 1", "enabled": True}
    common = row | {"updated_by": None, "updated_at": None}
    tables.append("subscriptions", [{"id": name} | common for name in HOSTILE])
    take_up(tables, rejected=HOSTILE)
    ask = client(console(tables))
    found = ask.get("/api/subscriptions").json()
    assert {row["id"] for row in found["rejected"]} == set(HOSTILE)
    assert {row["id"] for row in found["rows"] if row["state"] == "live"} == set(RULES)
    for name in HOSTILE[:4]:
        assert ask.get("/api/subscription", params={"id": name}).json()["state"] == "rejected"


def test_a_rejected_duplicate_is_told_from_the_live_row_of_its_id(filled_tables: Tables):
    tables = filled_tables
    name, (subscriber, text) = next(iter(RULES.items()))
    take_up(tables)
    row = {"id": name, "subscriber": "h4", "format": "itch", "filter": "price > 1"}
    tables.append(
        "subscriptions", [row | {"enabled": True, "updated_by": None, "updated_at": None}]
    )
    wrong = {"code": "SUBSCRIPTION.DUPLICATE_ID", "line": 1, "column": 1, "message": "taken"}
    rejection = {"id": name, "subscriber": "h4", "subscriptions_version": 2}
    tables.overwrite("rejected_subscriptions", [rejection | wrong])
    ask = client(console(tables))
    rows = ask.get("/api/subscriptions", params={"words": name}).json()["rows"]
    states = {r["subscriber"]: (r["state"], len(r["remarks"])) for r in rows if r["id"] == name}
    assert states == {subscriber: ("live", 0), "h4": ("rejected", 1)}
    opened = ask.get("/api/subscription", params={"id": name}).json()
    assert (opened["subscriber"], opened["filter"]) == (subscriber, text)
    # A draft of another subscriber does not replace the row either.
    before = tables.version("subscriptions")
    draft = {"id": name, "subscriber": "h3", "filter": "price > 3"}
    told = ask.post("/api/check", json=draft, headers=WRITES).json()["error"]
    assert told["code"] == "SUBSCRIPTION.DUPLICATE_ID"
    assert ask.post("/api/save", json=draft, headers=WRITES).status_code == 400
    assert tables.version("subscriptions") == before


@pytest.mark.parametrize("empty", [False, True], ids=["other rules", "no rule yet"])
def test_of_two_users_who_save_one_new_rule_at_once_one_gets_a_conflict(
    filled_tables: Tables, monkeypatch: pytest.MonkeyPatch, empty: bool
):
    tables = filled_tables
    if empty:
        tables.overwrite("subscriptions", [])
    answer = save_at_once(tables, monkeypatch, {"filter": "price > 30"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "CONSOLE.CONFLICT")
    rows = {row["id"]: row["filter"] for row in tables.rows("subscriptions")}
    assert len(tables.rows("subscriptions")) == len(rows) == 1 + len(RULES) * (not empty)
    assert rows["mine"] == "price > 30"


def test_a_row_of_another_id_that_is_saved_in_the_meantime_is_no_conflict(
    filled_tables: Tables, monkeypatch: pytest.MonkeyPatch
):
    assert save_at_once(filled_tables, monkeypatch, {"id": "other"}).status_code == 200
    rows = filled_tables.rows("subscriptions")
    assert {row["id"] for row in rows} == {*RULES, "mine", "other"}


RULE = min(RULES)


@pytest.mark.parametrize(
    "change",
    [{"filter": "price > 30"}, {"subscriber": "h3"}, {"enabled": False}, {"format": "other"}, None],
)
def test_a_row_that_another_user_has_changed_since_it_was_opened_is_not_replaced(
    filled_tables: Tables, change: dict[str, Any] | None
):
    tables = filled_tables
    ask = client(console(tables))
    opened = ask.get("/api/subscription", params={"id": RULE}).json()
    rows = [row for row in tables.rows("subscriptions") if row["id"] != RULE]
    if change is not None:
        rows += [row | change for row in tables.rows("subscriptions") if row["id"] == RULE]
    tables.overwrite("subscriptions", rows)
    draft = {"id": RULE, "subscriber": "h1", "filter": "price > 20", "opened": opened}
    answer = ask.post("/api/save", json=draft)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "CONSOLE.CONFLICT")
    assert sorted(map(str, tables.rows("subscriptions"))) == sorted(map(str, rows))
    if change is not None:
        opened = ask.get("/api/subscription", params={"id": RULE}).json()
    else:
        opened = None
    # The id may belong to another subscriber now.
    draft["subscriber"] = (change or {}).get("subscriber", "h1")
    saved = ask.post("/api/save", json=draft | {"opened": opened})
    assert saved.status_code == 200
    # A page goes on with the row that it has saved.
    again = draft | {"filter": "price > 21", "opened": saved.json()["row"]}
    assert ask.post("/api/save", json=again).status_code == 200
    (row,) = [row for row in tables.rows("subscriptions") if row["id"] == RULE]
    assert row["filter"] == "price > 21"


def test_a_new_rule_does_not_replace_one_with_its_id(filled_tables: Tables):
    ask = client(console(filled_tables))
    draft = {"id": RULE, "subscriber": "h1", "filter": "price > 20"}
    answer = ask.post("/api/save", json=draft | {"opened": None})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "CONSOLE.CONFLICT")
    # A program that does not say what it has read replaces the row.
    assert ask.post("/api/save", json=draft).status_code == 200
    assert ask.post("/api/save", json=draft | {"opened": "all"}).status_code == 400


def test_one_of_two_rows_of_an_id_that_was_opened_can_be_saved_in_place_of_both(
    filled_tables: Tables,
):
    tables = filled_tables
    (row,) = [row for row in tables.rows("subscriptions") if row["id"] == RULE]
    tables.append("subscriptions", [row | {"filter": "price > 30"}])
    ask = client(console(tables))
    opened = ask.get("/api/subscription", params={"id": RULE}).json()
    draft = {"id": RULE, "subscriber": "h1", "filter": "price > 20", "opened": opened}
    assert ask.post("/api/save", json=draft).status_code == 200
    rows = [row["filter"] for row in tables.rows("subscriptions") if row["id"] == RULE]
    assert rows == ["price > 20"]


def deletion(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the body of a request that deletes a row that a page has opened."""
    return {"id": row["id"], "opened": row}


def test_a_rule_that_was_opened_is_deleted_and_all_others_stay(filled_tables: Tables):
    tables = filled_tables
    others = [row for row in tables.rows("subscriptions") if row["id"] != RULE]
    ask = client(console(tables))
    opened = ask.get("/api/subscription", params={"id": RULE}).json()
    before = tables.version("subscriptions")
    answer = ask.post("/api/delete", json=deletion(opened))
    assert (answer.status_code, answer.json()) == (200, {"version": before + 1})
    assert sorted(map(str, tables.rows("subscriptions"))) == sorted(map(str, others))
    assert ask.get("/api/subscription", params={"id": RULE}).status_code == 404
    # Earlier versions of the table still have it.
    assert RULE in {row["id"] for row in tables.rows("subscriptions", before)}
    again = ask.post("/api/delete", json=deletion(opened))
    assert (again.status_code, again.json()["error"]["code"]) == (404, "CONSOLE.NO_SUBSCRIPTION")
    # A page writes the rule again as a new one.
    draft = {name: opened[name] for name in ("id", "subscriber", "filter")}
    assert ask.post("/api/save", json=draft | {"opened": None}).status_code == 200
    assert RULE in {row["id"] for row in tables.rows("subscriptions")}


def test_a_rule_is_deleted_only_with_the_token_and_only_as_it_was_opened(filled_tables: Tables):
    tables = filled_tables
    ask = client(console(tables))
    opened = ask.get("/api/subscription", params={"id": RULE}).json()
    without = client(console(tables), {}).post("/api/delete", json=deletion(opened))
    assert (without.status_code, without.json()["error"]["code"]) == (401, "CONSOLE.NO_TOKEN")
    for body in (
        {},
        {"id": ""},
        {"id": 7},
        {"id": RULE, "opened": None},
        {"id": RULE, "opened": 1},
    ):
        answer = ask.post("/api/delete", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "CONSOLE.BAD_REQUEST")
    before = tables.version("subscriptions")
    for change in ({"filter": "price > 1"}, {"subscriber": "h3"}, {"enabled": False}):
        answer = ask.post("/api/delete", json=deletion(opened | change))
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "CONSOLE.CONFLICT")
    assert tables.version("subscriptions") == before
    # A program that does not say what it has read deletes the row as it is.
    assert ask.post("/api/delete", json={"id": RULE}).status_code == 200
    assert RULE not in {row["id"] for row in tables.rows("subscriptions")}


def test_of_two_rows_of_an_id_only_the_one_that_was_opened_is_deleted(filled_tables: Tables):
    tables = filled_tables
    take_up(tables)
    (row,) = [row for row in tables.rows("subscriptions") if row["id"] == RULE]
    tables.append("subscriptions", [row | {"subscriber": "h4", "filter": "price > 30"}])
    ask = client(console(tables))
    opened = ask.get("/api/subscription", params={"id": RULE}).json()
    assert ask.post("/api/delete", json=deletion(opened)).status_code == 200
    rows = [row["filter"] for row in tables.rows("subscriptions") if row["id"] == RULE]
    assert rows == ["price > 30"]
    assert len(tables.rows("subscriptions")) == len(RULES)


def test_a_rule_that_another_user_saves_during_its_deletion_is_not_deleted(
    filled_tables: Tables, monkeypatch: pytest.MonkeyPatch
):
    tables = filled_tables
    first, second = (client(console(open_tables(tables._spark, tables.location))) for _ in range(2))
    opened = first.get("/api/subscription", params={"id": RULE}).json()
    draft = {"id": RULE, "subscriber": opened["subscriber"], "filter": "price > 33"}
    merge = FolderTables.merge
    calls: list[int] = []

    def meanwhile(self: FolderTables, *arguments: Any) -> bool:
        calls.append(len(calls))
        if len(calls) == 1:
            assert second.post("/api/save", json=draft).status_code == 200
        return merge(self, *arguments)

    monkeypatch.setattr(FolderTables, "merge", meanwhile)
    answer = first.post("/api/delete", json=deletion(opened))
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "CONSOLE.CONFLICT")
    rows = {row["id"]: row["filter"] for row in tables.rows("subscriptions")}
    assert rows[RULE] == "price > 33" and len(rows) == len(RULES)


def test_the_editor_offers_exactly_the_fields_that_a_rule_may_ask_for(
    filled_tables: Tables, itch: Specification
):
    page = client(console(filled_tables)).get("/").text
    content = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert content is not None
    offered = json.loads(content[1])["fields"]

    def is_asked(name: str) -> bool:
        try:
            parse_rule(f"{name} == 1", itch)
        except SubscriptionError as error:
            return error.what == "BAD_CONSTANT"
        return True

    assert sorted(offered) == sorted(filter(is_asked, itch.fields))
    assert offered[: len(itch.queries)] == list(itch.queries)


def save_at_once(tables: Tables, patch: pytest.MonkeyPatch, other: dict[str, str]) -> Any:
    """Saves a rule in a console, and another one in a second console while the first one writes.

    Args:
        tables: tables of both consoles.
        patch: undone at the end of the test.
        other: fields in which the second rule differs.

    Returns:
        The answer of the first console.
    """
    first, second = (client(console(open_tables(tables._spark, tables.location))) for _ in range(2))
    draft = {"id": "mine", "subscriber": "h1", "filter": "price > 20"}
    merge = FolderTables.merge
    tries: list[int] = []

    def meanwhile(self: FolderTables, *arguments: Any) -> bool:
        tries.append(len(tries))
        if len(tries) == 1:
            assert second.post("/api/save", json=draft | other).status_code == 200
        return merge(self, *arguments)

    patch.setattr(FolderTables, "merge", meanwhile)
    return first.post("/api/save", json=draft)


def test_a_page_of_somebody_else_cannot_use_the_console(filled_tables: Tables):
    ask = client(console(filled_tables))
    assert ask.get("/api/health", headers={"Host": "attacker.example"}).status_code == 400
    form = {"Content-Type": "text/plain", **WRITES}
    assert ask.post("/api/save", content=b"{}", headers=form).status_code == 400
    assert ask.post("/api/check", content=b" " * 70_000).status_code == 413
    assert client(console(filled_tables), {}).post("/api/check", json={}).status_code == 401
    page = ask.get("/")
    assert "default-src 'none'" in page.text and "connect-src 'self'" in page.text
    assert page.headers["Content-Security-Policy"] == "frame-ancestors 'none'"


def test_a_preview_counts_what_the_last_records_have(deployment: Deployment, itch: Specification):
    tables = deployment.tables
    packets = records()
    deployment.publish(packets)
    made = console(
        tables,
        topic=deployment.settings.topic,
        kafka=deployment.settings.kafka,
        publisher=deployment.settings.publisher,
    )
    draft = {"id": "mine", "subscriber": "h3", "filter": "price > 150"}
    most = 100
    found = client(made).post("/api/preview", json=draft | {"records": most}).json()
    # Packets went to partitions in turns, so their newest are the last of all.
    each = most // PARTITIONS
    last = [p for n in range(PARTITIONS) for p in packets[n::PARTITIONS][-each:]]
    events = [read_message(itch, each) for packet in last for each in read_packet(packet)[2]]
    mine = parse_rule(draft["filter"], itch).condition
    matched = [event for event in events if matches(mine, event)]
    assert (found["events"], found["matched"]) == (len(events), len(matched))
    assert 0 < len(matched) < len(events) and found["hosts"] == ["h3"]
    wanted: dict[str, int] = {}
    for event in matched:
        hosts = set()
        for host, text in RULES.values():
            rule = parse_rule(text, itch)
            if matches(rule.condition, event):
                hosts |= set(rule.actions[0].targets if rule.actions else (host,))
        for host in hosts:
            wanted[host] = wanted.get(host, 0) + 1
    assert {row["host"]: row["events"] for row in found["also"]} == wanted


@pytest.fixture
def served(filled_tables: Tables) -> Iterator[tuple[Tables, str]]:
    """The console with a rejected rule and batches, as a browser reaches it."""
    tables = filled_tables
    row = {"id": NASTY, "subscriber": "h1", "format": "itch", "filter": NASTY, "enabled": True}
    tables.append("subscriptions", [row | {"updated_by": None, "updated_at": None}])
    take_up(tables, rejected=(NASTY,))
    tables.append("egress_ledger", [batch(n, {"subscriptions": 1}) for n in range(40)])
    with serving(console(tables)) as address:
        yield tables, address


@pytest.mark.skipif(not there(), reason=MISSING)
def test_a_rule_is_written_in_a_browser_and_seen_to_go_live(
    served: tuple[Tables, str], tmp_path: Path
):
    tables, address = served
    with browser(tmp_path) as page:
        page.size(1280, 900)
        page.open(f"{address}/#health&token={TOKEN}")
        page.wait_for("document.documentElement.dataset.ready === 'yes'")
        assert TOKEN not in page.run("return location.href")
        check_health(page, tmp_path)
        page.open(f"{address}/#subscriptions")
        page.wait_for("document.querySelector('#rows tbody')")
        assert NASTY in page.text("#rows") and NASTY in page.text("#rejected")
        page.type("#rule-id", "mine")
        page.type("#rule-subscriber", "h1")
        page.type("#rule-filter", "prise > 20")
        page.wait_for("document.getElementById('checked').innerText.includes('^')")
        assert "did you mean 'price'" in page.text("#checked")
        page.picture(tmp_path / "subscriptions.png")
        page.type("#rule-filter", "price > 20")
        page.wait_for("document.getElementById('checked').innerText === 'The rule is valid.'")
        page.click("#save")
        page.wait_for("document.getElementById('told').innerText.includes('not applied it yet')")
        version = tables.version("subscriptions")
        take_up(tables, rejected=(NASTY,))
        page.wait_for(
            f"document.getElementById('told').innerText.includes('live since version {version}')"
        )
        assert page.run("return document.title") == "Stackcast: console"
        # Another user changes the rule; the page replaces it only after it has opened it again.
        row = {"id": "mine", "subscriber": "h1", "filter": "price > 30"}
        assert httpx.post(f"{address}/api/save", json=row, headers=WRITES).status_code == 200
        page.click("#save")
        page.wait_for("document.getElementById('told').innerText.includes('CONSOLE.CONFLICT')")
        page.open(f"{address}/#health")
        page.open(f"{address}/#subscriptions=mine")
        page.wait_for("document.getElementById('rule-filter').value === 'price > 30'")
        for text in ("price > 40", "price > 50"):
            page.type("#rule-filter", text)
            page.click("#save")
            until(lambda text=text: text in {r["filter"] for r in tables.rows("subscriptions")})
        check_deletion(page, tables)


def check_deletion(page: Browser, tables: Tables) -> None:
    """Delete the rule that is open, after a confirmation, and write it again."""

    def is_there() -> bool:
        return "mine" in {row["id"] for row in tables.rows("subscriptions")}

    page.click("#delete")
    page.wait_for("document.getElementById('deletion').open")
    assert "mine" in page.text("#deletion-rule")
    page.click("#deletion-no")
    page.wait_for("!document.getElementById('deletion').open")
    page.click("#delete")
    page.press("Escape")
    page.wait_for("!document.getElementById('deletion').open")
    assert is_there()
    page.click("#delete")
    page.click("#deletion-yes")
    page.wait_for("document.getElementById('told').innerText.includes('Deleted in version')")
    until(lambda: not is_there())
    page.wait_for("!document.getElementById('rows').innerText.includes('mine')")
    assert page.run("return [document.getElementById('delete').hidden, location.hash]") == [
        True,
        "#subscriptions",
    ]
    version = tables.version("subscriptions")
    tables.append("egress_ledger", [batch(40, {"subscriptions": version})])
    page.wait_for(
        f"document.getElementById('told').innerText.includes('the stream uses version {version}')"
    )
    page.click("#save")
    until(is_there)


def check_health(page: Browser, folder: Path) -> None:
    assert "39" in page.text("#headline") and "tables only" in page.text("#verdict")
    assert page.run("return document.querySelectorAll('#throughput .histogram i').length") == 40
    assert "StackcastSwitchOutOfSync" in page.text("#switches")
    page.picture(folder / "health.png")
