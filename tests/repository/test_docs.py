"""The documents match the code: settings, error codes, links, example files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import ROOT

from stackcast.jobs.adapters.app.settings import KAFKA_PREFIX, PREFIX, Settings, describe
from stackcast.udfs import errors
from stackcast.udfs.messages.readers import REASONS
from tests.make.docs import COMMAND, GENERATED_TABLES, REFERENCE, GeneratedTable

pytestmark = pytest.mark.unit

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SOURCES = sorted(
    [
        *(
            path
            for folder in ("jobs", "udfs", "lab", "switch", "cli", "examples")
            for path in (ROOT / folder).rglob("*.py")
        ),
        *(ROOT / "stackcast").glob("*.py"),
    ]
)

CODE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
AREAS = {
    name: kind.area
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.StackcastError)
}
#: Functions that take the second part of a code, by module and name, with the first part.
MAKERS = {
    ("jobs/adapters/tables/folder_tables.py", "NeedsSparkError"): "TABLE.",
    ("udfs/messages/fields.py", "_refuse"): "SPECIFICATION.CONSTANT_",
    ("udfs/messages/specification.py", "_error"): "SPECIFICATION.",
    ("udfs/messages/specification.py", "specification_error"): "SPECIFICATION.",
    ("udfs/messages/specification_errors.py", "specification_error"): "SPECIFICATION.",
    ("udfs/filters/language/rule.py", "subscription_error"): "SUBSCRIPTION.",
    ("udfs/filters/language/syntax_errors.py", "subscription_error"): "SUBSCRIPTION.",
    ("udfs/filters/language/resolver.py", "_error"): "SUBSCRIPTION.",
    ("udfs/filters/language/resolver.py", "_warn"): "SUBSCRIPTION.",
    ("udfs/filters/rule_warnings.py", "RuleWarning"): "SUBSCRIPTION.",
    ("udfs/filters/variable_warnings.py", "subscription_error"): "SUBSCRIPTION.",
    ("udfs/filters/row_matcher.py", "subscription_error"): "SUBSCRIPTION.",
    ("udfs/filters/grants.py", "subscription_error"): "SUBSCRIPTION.",
    ("udfs/filters/subscriptions.py", "subscription_error"): "SUBSCRIPTION.",
    ("udfs/network/faults.py", "_fault"): "NETWORK.",
    ("jobs/adapters/switches/p4runtime.py", "_failed"): "SWITCH.",
}
#: Names of these functions. A module that has none of them needs no parsing.
FUNCTIONS = {*AREAS, *(function for _, function in MAKERS)}
#: Modules in which tuples start with the second part of a code, with the first part.
TABLES = {
    "jobs/adapters/app/error_texts.py": "TABLE.",
    "jobs/adapters/wire/sendmmsg.py": "SINK.",
    "udfs/filters/subscriptions.py": "SUBSCRIPTION.",
}
#: Modules that construct errors from a code that a caller or one of the two lists above gives.
HANDED_ON = {
    "jobs/adapters/app/error_texts.py",
    "jobs/adapters/switches/lead.py",
    "jobs/adapters/switches/p4runtime.py",
    "jobs/adapters/wire/af_packet.py",
    "jobs/adapters/wire/sendmmsg.py",
    "lab/fabric/standalone.py",
    "udfs/network/faults.py",
    "udfs/filters/language/rule.py",
    "udfs/filters/language/resolver.py",
    "udfs/filters/subscriptions.py",
    "udfs/filters/language/syntax_errors.py",
    "udfs/filters/row_matcher.py",
    "udfs/messages/fields.py",
    "udfs/messages/specification.py",
    "udfs/messages/specification_errors.py",
    "udfs/stacks/dissect.py",
}


def codes_in(path: Path) -> Iterator[str]:
    """Yield the error codes that a module can raise. Fail if the source does not show a code."""
    name = path.relative_to(ROOT).as_posix()
    text = path.read_text()
    if name not in TABLES and not any(function in text for function in FUNCTIONS):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and node.args:
            called = node.func
            function = getattr(called, "id", None) or getattr(called, "attr", "")
            area = f"{AREAS[function]}." if function in AREAS else MAKERS.get((name, function))
            code = node.args[0]
            if area is None:
                continue
            if isinstance(code, ast.Constant):
                yield f"{area}{code.value}"
            elif function in AREAS:
                assert name in HANDED_ON, f"{name}:{node.lineno} hides its code from this test"
        elif isinstance(node, ast.Tuple) and name in TABLES and node.elts:
            first = node.elts[0]
            text = first.value if isinstance(first, ast.Constant) else None
            if isinstance(text, str) and CODE.fullmatch(text):
                yield f"{TABLES[name]}{text}"


def anchors(document: Path) -> set[str]:
    """Return the anchors that GitHub generates for the headings of a document."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def properties(path: Path) -> list[tuple[str, str]]:
    lines = [line.strip() for line in path.read_text().splitlines()]
    pairs = [line.split(None, 1) for line in lines if line and not line.startswith("#")]
    return [(key, value.strip()) for key, value in pairs]


@pytest.mark.parametrize("table", GENERATED_TABLES, ids=lambda table: table.page.name)
def test_the_tables_of_settings_and_options_match_the_code(table: GeneratedTable):
    assert table.page.read_text() == table.updated(), f"run: {COMMAND}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_every_link_has_a_target(document: Path):
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (document.parent / path) if path else document
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


@pytest.mark.integration
def test_every_error_code_is_documented():
    texts = "".join(page.read_text() for page in sorted(REFERENCE.glob("*.md")))
    areas = "|".join(AREAS.values())
    documented = set(re.findall(rf"`((?:{areas})\.[A-Z0-9_]+)`", texts))
    raised = {code for path in SOURCES for code in codes_in(path)}
    assert len(raised) > 100
    assert raised - documented == set()
    assert documented - raised == set(), "documented, but nothing raises them"


def test_every_reason_of_a_dead_letter_is_documented():
    page = (REFERENCE / "dead-letters.md").read_text()
    reasons = set(re.findall(r"^\| `([a-z_]+)` \|", page, re.MULTILINE))
    assert set(REASONS.values()) <= reasons


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_every_setting_in_a_document_exists(document: Path):
    settings = {key for key, _, _ in describe()}
    for key in re.findall(r"spark\.stackcast\.[A-Za-z0-9_.]*[A-Za-z0-9_]", document.read_text()):
        is_prefix = any(setting.startswith(f"{key}.") for setting in settings)
        assert key in settings or is_prefix or key.startswith(KAFKA_PREFIX), key


@pytest.mark.parametrize("path", sorted((ROOT / "conf").glob("*-example.conf")), ids=str)
def test_the_example_files_are_valid(path: Path):
    pairs = properties(path)
    settings = Settings.read(pairs)
    assert not settings.embedded
    assert len(dict(pairs)) == len(pairs)
    assert all(key.startswith("spark.") for key, _ in pairs)
    assert any(key.startswith(PREFIX) for key, _ in pairs)


def test_the_first_tutorial_names_buttons_and_views_as_the_console_shows_them():
    folder = ROOT / "jobs" / "adapters" / "console"
    page = "\n".join(
        path.read_text() for path in folder.iterdir() if path.suffix in (".html", ".js")
    )
    tutorial = (ROOT / "docs" / "tutorials" / "write-a-rule.md").read_text()
    labels = re.findall(r"\*\*(.+?)\*\*", tutorial)
    assert {"New rule", "Preview", "Save"} <= set(labels)
    for label in labels:
        assert re.search(rf'[>"]{label}[<"]', page), label
