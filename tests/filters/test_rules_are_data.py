"""Rules are never executed as Python."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from paths import ROOT

pytestmark = pytest.mark.unit

RULES = [
    "1 + 1",
    "shares > 1 + 1",
    "price > (2)",
    "stock == GOOGL",
    "__import__('os').getcwd()",
    "shares > __import__('os').getpid()",
    "stock == 'GOOGL' : fwd(__import__('os').getcwd())",
    'stock == "\'; DROP TABLE subscriptions; --"',
    "import os",
]
#: Prints the texts that Python compiles while it checks rules. An audit hook cannot be removed, so
#: this runs in a process of its own.
PROGRAM = """
import json, sys
from stackcast import schemas
from stackcast.udfs.filters.subscriptions import Subscription, check
from stackcast.udfs.messages.specification import parse_specification

specification = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
compiled = None

def audit(event, arguments):
    if compiled is not None and event == "compile" and arguments[0] is not None:
        compiled.append(repr(arguments[0]))

def check_rules(texts):
    check([Subscription("x", "h1", text) for text in texts], specification, ["h1"], "feed1")

check_rules(["shares > 1"])  # imports, and caches that compile texts of libraries
sys.addaudithook(audit)
compiled = []
for text in json.loads(sys.argv[1]):
    check_rules([text])
    check_rules([f"{text} # {number}" for number in range(1000)])
print(json.dumps(compiled))
"""


@pytest.mark.integration
def test_no_part_of_a_rule_is_compiled_or_run_as_python() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(RULES)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
