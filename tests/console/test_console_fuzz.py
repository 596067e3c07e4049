"""Every route of the console answers any request, and reports the fault of a bad one."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes

import pytest
from console_server import TOKEN
from console_server import console as console_of
from examples import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from pcap_deployment import NETWORK, RULES
from pyspark.sql import SparkSession

from stackcast.jobs.adapters.console.application import Console
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.udfs.names import name_fault, unsafe_character

pytestmark = pytest.mark.integration

TYPE = b"application/json"
#: Names of the fields that routes read, in the body or in the query.
FIELDS = (
    *("id", "subscriber", "filter", "enabled", "records", "session", "sequence", "batch"),
    *("wanted", "matched", "words", "kind", "u", "v"),
)
#: Texts that some route accepts, and texts that a route must refuse.
TEXTS = (
    *("", "mine", "h1", "price > 20", "both", "all", "switch", "link", "host", "7", "true"),
    *NETWORK.switches,
    *("9" * 5_000, "٣", "²", "-1", str(1 << 64), str((1 << 64) - 1), "8ZY63T0000", "1e400"),
    *("\ud800", "x\0", "\x1b[2J", "\u202e", "x" * 60_000, "(" * 8_000, "not " * 2_000, "a " * 120),
    *("count() > 1", "price > 9 : fwd(h1)", "stock == 'A", "#", "../../etc/passwd", "{}", "%00"),
)
texts = st.sampled_from(TEXTS) | st.text(st.characters(), max_size=20)
numbers = (
    st.integers()
    | st.sampled_from([0, 1, -1, 1 << 63, 1 << 64, 10**4_000])
    | st.floats()
    | st.booleans()
    | st.none()
)
values = st.recursive(
    texts | numbers,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
drafts = st.fixed_dictionaries(
    {"id": texts, "subscriber": texts, "filter": texts},
    optional={"enabled": st.booleans() | values, "records": st.integers(1, 30_000) | values},
)
objects = st.dictionaries(st.sampled_from(FIELDS) | texts, values, max_size=8) | drafts
bodies = objects.map(lambda draft: json.dumps(draft).encode()) | st.sampled_from(
    [
        *(b"", b"{}", b"[]", b"null", b"NaN", b'{"batch": Infinity}', b'{"id": "\\ud800"}'),
        *(b'{"batch": ' + b"9" * 5_000 + b"}", b"[" * 60_000, b'{"a":' * 10_000, b"\xff\xfe{}"),
        *(b" " * 70_000, b'{"id": "\xed\xa0\x80"}', b'{"id": 1, "id": 2}'),
    ]
)
bodies |= st.binary(max_size=30)
queries = st.dictionaries(
    st.sampled_from(FIELDS) | texts,
    st.sampled_from(TEXTS).map(lambda text: text.encode("utf-8", "surrogatepass"))
    | st.binary(max_size=20),
    max_size=4,
).map(
    lambda values: "&".join(
        f"{quote_from_bytes(name.encode('utf-8', 'surrogatepass'))}={quote_from_bytes(value)}"
        for name, value in values.items()
    ).encode()
)
headers = st.fixed_dictionaries(
    {
        b"host": st.just(b"127.0.0.1") | st.sampled_from([b"", b"[", b"evil.example", b"\xff"]),
        b"authorization": st.just(f"Bearer {TOKEN}".encode())
        | st.sampled_from([b"", b"\xff", b"Bearer " + b"x" * 9_000]),
        b"content-type": st.just(TYPE) | st.sampled_from([b"", b"text/plain", b"\xff;", b";"]),
    }
)


async def answered(
    console: Console, method: str, path: str, query: bytes, fields: dict[bytes, bytes], body: bytes
) -> tuple[int, dict[bytes, bytes], bytes]:
    """Returns status, headers and content of an answer; the client then disconnects."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode("utf-8", "surrogatepass"),
        "query_string": query,
        "root_path": "",
        "headers": list(fields.items()),
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await console.application(scope, receive, send)
    content = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], dict(sent[0]["headers"]), content


@pytest.fixture(scope="module")
def served(
    spark: SparkSession, filled: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Console, Tables]:
    folder = tmp_path_factory.mktemp("fuzzed") / "tables"
    shutil.copytree(filled, folder)
    tables = open_tables(spark, str(folder))
    return console_of(tables), tables


def check(answer: tuple[int, dict[bytes, bytes], bytes]) -> None:
    status, fields, content = answer
    assert status < 500, content
    if fields.get(b"content-type") == TYPE:
        error = json.loads(content).get("error") if status >= 400 else None
        assert status < 400 or (error["code"].partition(".")[2] and error["message"])


def test_no_route_fails_for_any_request(served: tuple[Console, Tables]):
    """The routes are those of the application, so new ones are included."""
    application, tables = served
    routes = application.application.routes
    assert len(routes) > 15
    methods = st.sampled_from(["GET", "POST", "HEAD", "PUT", "OPTIONS", "\u202e"])
    for route in routes:
        usual = "POST" if "POST" in route.methods else "GET"

        @examples(250, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
        @given(st.just(route.path), st.just(usual) | methods, queries, headers, bodies)
        def send(
            path: str, method: str, query: bytes, fields: dict[bytes, bytes], body: bytes
        ) -> None:
            check(asyncio.run(answered(application, method, path, query, fields, body)))

        send()
    # Every page and command can show the rows that were saved.
    for row in tables.rows("subscriptions"):
        assert name_fault(row["id"]) is None and unsafe_character(row["filter"]) is None
    ids = {row["id"] for row in tables.rows("subscriptions")}
    assert ids >= set(RULES).difference(TEXTS), "only rules that a request names are deleted"


@examples(60)
@given(texts.map(lambda text: f"/{text}") | st.just("/api/health/"), headers)
def test_no_other_path_fails(served: tuple[Console, Tables], path: str, fields: dict[bytes, bytes]):
    answer = asyncio.run(answered(served[0], "GET", path, b"", fields, b""))
    check(answer)
    assert path == "/" or answer[0] in (400, 404)


USUAL = {b"host": b"127.0.0.1", b"authorization": f"Bearer {TOKEN}".encode(), b"content-type": TYPE}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/explain", {"session": "8ZY63T0000", "sequence": "9" * 5_000}),
        ("/api/explain", {"session": "8ZY63T0000", "sequence": str(1 << 64)}),
        ("/api/explain", {"session": "8ZY63T0000", "sequence": "٣"}),
        ("/api/explain", {"session": "\ud800", "sequence": "1"}),
        ("/api/explain", {"session": "\0", "sequence": "1"}),
        ("/api/events", {"wanted": "\ud800"}),
        ("/api/events", {"wanted": "price > 1", "records": float("nan")}),
        ("/api/save", {"id": "a", "subscriber": "h1", "filter": "price > 1", "\ud800": 1}),
        ("/api/replay", {"batch": 10**4_000}),
    ],
)
def test_a_request_without_meaning_is_refused_with_a_reason(
    served: tuple[Console, Tables], path: str, body: dict[str, Any]
):
    sent = json.dumps(body).encode()
    status, _, content = asyncio.run(answered(served[0], "POST", path, b"", USUAL, sent))
    assert 400 <= status < 500 and json.loads(content)["error"]["message"]
