"""Nothing that others write is obeyed by a terminal, or looks like a line of the log."""

from __future__ import annotations

import contextlib
import io
import logging
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT

from stackcast.cli import explain, lab_control
from stackcast.jobs import check_delivery, refresh_switches
from stackcast.jobs.adapters.app.logs import OneLine
from stackcast.jobs.adapters.switches.results import Comparison
from stackcast.lab.proof.verdict import DeliveryVerdict, Fault
from stackcast.lab.report import page
from stackcast.udfs.switches.entry import SwitchEntry

pytestmark = pytest.mark.unit

#: Clears the screen, sets the title, writes over the line, ends it, and turns the text around.
HOSTILE = "h\x1b[2J\x1b]0;owned\x07\r\x08\x9b31m\u202e\x00\u2028\x85end"
FORGED = "h1\n2026-01-01 00:00:00,000 ERROR   jobs: all is lost"


def obeyed(text: str) -> list[str]:
    """What a terminal would not just show, but for ends of lines and tabs."""
    return [c for c in text if not c.isprintable() and c not in "\n\t"]


def test_a_record_of_the_log_is_one_line_whatever_it_names():
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(OneLine("%(levelname)s %(message)s"))
    log = logging.Logger("test")
    log.addHandler(handler)
    for name in (HOSTILE, FORGED):
        log.warning("host %s asks", name)
        log.error(name)
    assert len(out.getvalue().splitlines()) == len(out.getvalue().split("\n")) - 1 == 4
    assert not obeyed(out.getvalue())
    assert "\\x1b[2J" in out.getvalue() and "h1\\n2026" in out.getvalue()


def test_a_traceback_keeps_its_lines_and_nothing_else():
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(OneLine("%(message)s"))
    log = logging.Logger("test")
    log.addHandler(handler)
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        log.exception("failed")
    assert not obeyed(out.getvalue()) and "Traceback" in out.getvalue()


def run(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, timeout=600, check=False
    )


@pytest.mark.integration
@pytest.mark.parametrize(
    "arguments",
    [
        ("itch", "inspect", HOSTILE.replace("\0", "")),
        ("frames", "dissect", HOSTILE.replace("\0", "")),
        ("receive", "--listen", HOSTILE.replace("\0", "")),
        (HOSTILE.replace("\0", ""),),
    ],
    ids=["inspect", "dissect", "receive", "unknown command"],
)
def test_a_command_writes_out_what_does_not_print(arguments: tuple[str, ...]):
    ended = run("-m", "stackcast.cli.main", *arguments)
    assert ended.returncode != 0
    told = (ended.stdout + ended.stderr).decode()
    assert not obeyed(told) and "end" in told


@pytest.mark.integration
def test_rules_and_hosts_of_files_are_shown_and_not_obeyed(tmp_path: Path):
    rules = tmp_path / "rules"
    rules.write_text(f"stock == GOOGL : fwd({HOSTILE})\n")
    ended = run("-m", "stackcast.cli.main", "filters", "check", str(rules))
    told = (ended.stdout + ended.stderr).decode()
    assert told and not obeyed(told)


@pytest.mark.integration
def test_what_a_job_prints_is_written_out():
    told = run(
        "-c", f"from stackcast.jobs.adapters.app.logs import set_up; set_up(); print({HOSTILE!r})"
    )
    assert told.returncode == 0
    assert not obeyed(told.stdout.decode()) and b"end" in told.stdout


#: Names as nobody means them: each may end a line, or be obeyed.
hostile = st.text(
    st.sampled_from("h1\n\r\t\x0b\x0c\x1b\x85\u2028\u2029\u202e\x00\x9b;[J "),
    min_size=1,
    max_size=12,
)


def entry(switch: str, key: str) -> SwitchEntry:
    return SwitchEntry(switch, key, ((key, "exact", b"1"),), key, ((key, b"1"),))


def shown_refresh(name: str) -> None:
    found = Comparison([entry(name, name)], [entry(name, name)], [], name)
    both = {name: found}
    refresh_switches.show(SimpleNamespace(compare=lambda: both))


def shown_verdict(name: str) -> None:
    verdict = DeliveryVerdict()
    for kind in ("missing", "foreign"):
        verdict.add(Fault(kind, name, name.encode(), 1 << 26, 0, f"owed to {name}"))
    check_delivery.tell(verdict)


def shown_hosts(name: str) -> None:
    page.print_table({"exact": True}, [{"host": name}])


def shown_addresses(name: str) -> None:
    state = {
        "bootstrap_servers": "b",
        "p4runtime": "p",
        "switches": [],
        "ingress": {name: "a"},
        "hosts": [name],
        "external": {name: "a"},
    }
    print(lab_control.addresses_text(state))


def shown_explanation(name: str) -> None:
    rule = {"id": name, "subscriber": name, "filter": name, "matches": True, "verdicts": []}
    found = {
        "session": name,
        "sequence": 1,
        "topic": name,
        "partition": 0,
        "offset": 0,
        "message_index": 0,
        "batch": 1,
        "started_us": 0,
        "versions": {},
        "settings": {},
        "receivers": [name],
        "host": name,
        "received": True,
        "events": [{name: name}],
        "rules": [rule],
        "frames": [
            {"publisher": name, "entry": name, "receivers": [name], "bytes": 0, "labels": [name]}
            | {"paths": {name: [name]}, "hex": ""}
        ],
    }
    print(explain.text_of(found))


@pytest.mark.parametrize(
    "show", [shown_refresh, shown_verdict, shown_hosts, shown_addresses, shown_explanation]
)
@given(name=hostile)
def test_what_commands_print_of_names_has_the_lines_that_it_should_have(show, name):
    def printed(what: str) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            show(what)
        return out.getvalue()

    told, plain = printed(name), printed("h1")
    # Every way to end a line that any reader knows.
    assert len(told.splitlines()) == len(plain.splitlines()) == plain.count("\n")
    assert all(c.isprintable() or c == "\n" for c in told)
