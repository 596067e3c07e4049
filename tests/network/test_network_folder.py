"""``stackcast network check`` names each problem of a folder with its file, line and column."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT
from typer.testing import CliRunner

from stackcast.cli.main import app
from stackcast.jobs.adapters.tables.definitions import NAMES, definition
from stackcast.jobs.adapters.tables.network_folder import check_folder
from stackcast.jobs.adapters.tables.row_files import read_rows
from stackcast.udfs.errors import StackcastError
from stackcast.udfs.network.labels import WIDE
from stackcast.udfs.network.rows import (
    network_from_rows,
    network_to_rows,
    tree_from_row,
    tree_to_row,
)
from stackcast.udfs.network.topology import line
from stackcast.udfs.switches.derivation import derive
from stackcast.udfs.switches.rollout import NetworkVersion, check_meaning
from stackcast.udfs.trees.broadcast import broadcast_trees

pytestmark = pytest.mark.unit

ONE_SWITCH = ROOT / "docs" / "examples" / "one-switch"
Tables = dict[str, list[dict[str, Any]]]

NETWORK = line(3)
ROWS: Tables = {
    **network_to_rows(NETWORK, {name: f"{name}.lan:9559" for name in NETWORK.switches}),
    "virtual_trees": [tree_to_row(tree) for tree in broadcast_trees(NETWORK, 1)],
}


def write(folder: Path, tables: Tables) -> Path:
    folder.mkdir(exist_ok=True)
    for name, rows in tables.items():
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text)
    return folder


def check(folder: Path, *options: str) -> tuple[int, list[str], str]:
    """Return exit code, lines of the output without the folder, and the error output."""
    result = CliRunner().invoke(app, ["network", "check", str(folder), *options])
    lines = [text.replace(f"{folder}/", "") for text in result.stdout.splitlines()]
    return result.exit_code, lines, result.stderr


def problems(folder: Path, tables: Tables) -> list[str]:
    return [p.text.replace(f"{folder}/", "") for p in check_folder(write(folder, tables)).problems]


def changed(table: str, row: int, **values: Any) -> Tables:
    tables = copy.deepcopy(ROWS)
    tables[table][row] |= values
    return tables


def test_the_example_has_no_problem_and_is_counted():
    assert check(ONE_SWITCH) == (0, ["1 switch, 3 hosts, 3 links, 1 stored tree: ok"], "")


def test_mac_addresses_may_be_text():
    (feed, first, _) = read_rows(ONE_SWITCH / "hosts.jsonl", definition("hosts").columns)
    assert (feed["mac"], first["mac"]) == (0x02000A400001, 0x02000A000001)


@pytest.mark.parametrize("mac", ["02:00:0a:00:00:01", "02-00-0A-00-00-01", 0x02000A000001])
def test_each_way_to_write_a_mac_address_is_the_same_row(mac: object, tmp_path: Path):
    write(tmp_path, changed("hosts", 0, mac=mac))
    (row, *_) = read_rows(tmp_path / "hosts.jsonl", definition("hosts").columns)
    assert row["mac"] == 0x02000A000001
    tunnel = {"ipv4": "10.9.0.1", "mac": mac, "next_hop": mac}
    write(tmp_path, changed("links", 0, tunnel=tunnel))
    (row, *_) = read_rows(tmp_path / "links.jsonl", definition("links").columns)
    assert row["tunnel"] == {"ipv4": "10.9.0.1", "mac": 0x02000A000001, "next_hop": 0x02000A000001}


@pytest.mark.parametrize("mac", ["02:00:00:00:00", "02:00-00:00:00:01", "0x020000000001", "", True])
def test_what_is_no_mac_address_is_named(mac: object, tmp_path: Path):
    (problem,) = problems(tmp_path, changed("hosts", 1, mac=mac))
    assert problem.startswith("hosts.jsonl, line 2: column 'mac' is ")
    assert "must be a MAC address, such as 02:00:00:00:00:01" in problem


def test_only_mac_addresses_may_be_text(tmp_path: Path):
    (problem,) = problems(tmp_path, changed("switches", 0, device_id="02:00:00:00:00:01"))
    assert "column 'device_id'" in problem and "whole number" in problem


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        (changed("links", 0, neighbor="s9"), ("links.jsonl, line 1: column 'neighbor'", "'s9'")),
        (changed("links", 2, switch="s9"), ("links.jsonl, line 3: column 'switch'", "'s9'")),
        (
            changed("hosts", 1, switch="s9"),
            ("hosts.jsonl, line 2: column 'switch'", "'s9' is not a switch of the network"),
        ),
        (
            changed("hosts", 1, port=9),
            ("hosts.jsonl, line 2: column 'port'", "must be attached to s2:9"),
        ),
        (changed("hosts", 1, ipv4="10.0.0.1"), ("hosts.jsonl, line 2: column 'ipv4'", "h1, h2")),
        (changed("hosts", 1, ipv4="10.0.0"), ("hosts.jsonl, line 2: column 'ipv4'", "not an IPv4")),
        (changed("hosts", 1, role="reader"), ("hosts.jsonl, line 2: column 'role'", "subscriber")),
        (changed("switches", 1, device_id=1), ("switches.jsonl, line 2: column 'device_id'", "1")),
        (
            changed("switches", 2, pipeline="virtual_tree"),
            ("switches.jsonl, line 3: column 'pipeline'", "did you mean 'virtual_trees'?"),
        ),
        (
            changed("switches", 2, pipeline="virtual_trees_32"),
            ("switches.jsonl, line 3: column 'pipeline'", "WRONG_PIPELINE"),
        ),
        (changed("switches", 0, address="s1.lan"), ("column 'address'", "host:port")),
        (changed("switches", 0, address="s1.lan:70000"), ("column 'address'", "65535")),
        (changed("links", 0, weight=0), ("links.jsonl, line 1: column 'weight'", "weight > 0")),
        (
            changed("virtual_trees", 0, edges=[{"u": "s1", "v": "s3"}]),
            ("virtual_trees.jsonl, line 1: column 'edges'", "there is no link from 's1' to 's3'"),
        ),
        (
            changed("virtual_trees", 0, edges=[{"u": "s1", "v": "s1"}]),
            ("virtual_trees.jsonl, line 1: column 'edges'", "NOT_A_TREE"),
        ),
        (
            changed("virtual_trees", 0, tree_id=20_000),
            ("virtual_trees.jsonl, line 1: column 'tree_id'", "does not fit in a label"),
        ),
    ],
)
def test_a_row_that_does_not_fit_the_others_is_named(
    tables: Tables, expected: tuple[str, ...], tmp_path: Path
):
    found = problems(tmp_path, tables)
    assert any(all(words in problem for words in expected) for problem in found), found


def test_a_row_with_a_wrong_value_has_one_problem(tmp_path: Path):
    assert len(problems(tmp_path, changed("links", 0, weight=0))) == 1
    assert len(problems(tmp_path, changed("hosts", 0, mac=-1))) == 1


def test_all_problems_are_listed_in_the_order_of_files_and_lines(tmp_path: Path):
    tables = copy.deepcopy(ROWS)
    tables["links"][0]["neighbor"] = "nobody"
    tables["links"].append(tables["links"][1] | {"link_id": 90})
    tables["hosts"][2]["mac"] = tables["hosts"][0]["mac"]
    write(tmp_path, tables)
    code, lines, error = check(tmp_path)
    assert code == 1
    places = [text.split(": ")[0] for text in lines]
    assert places == sorted(places, key=lambda place: (place.split(",")[0], place))
    assert {
        "hosts.jsonl, line 3",
        "links.jsonl, line 1",
        f"links.jsonl, line {len(tables['links'])}",
    } <= {*places}
    assert error.strip() == f"{len(lines)} problems"


def test_ingresses_name_publishers_and_have_different_keys(tmp_path: Path):
    row = {"place": "rack1", "publisher": "feed1", "transport": "far:1"}
    rows = [row, row | {"publisher": "h1"}, {"transport": "far:1"}, row]
    folder = tmp_path / "ingresses"
    wrong, duplicate = problems(folder, {**ROWS, "ingresses": rows})
    assert wrong.startswith("ingresses.jsonl, line 2: column 'publisher': 'h1' is not a host")
    assert duplicate.startswith("ingresses.jsonl, line 4: column 'place': TABLE.DUPLICATE_KEY")
    assert problems(folder, {**ROWS, "ingresses": rows[::2]}) == []


def test_rows_that_cannot_be_read_are_all_named_before_the_network_is_checked(tmp_path: Path):
    write(tmp_path, ROWS)
    hosts = tmp_path / "hosts.jsonl"
    hosts.write_text(hosts.read_text() + '\n{"host": "h9", "mak": 1, "port": "2"}\n{"host"\n[]\n')
    (tmp_path / "link.jsonl").write_text("")
    code, lines, error = check(tmp_path)
    number = len(ROWS["hosts"]) + 2
    assert code == 1
    assert [text.split(";")[0] for text in lines] == [
        f"hosts.jsonl, line {number}: column 'ipv4' is missing",
        f"hosts.jsonl, line {number}: column 'mac' is missing",
        f"hosts.jsonl, line {number}: column 'mak' does not exist",
        f"hosts.jsonl, line {number}: column 'port' is \"2\", but must be a whole number of 32 "
        "bits",
        f"hosts.jsonl, line {number}: column 'role' is missing",
        f"hosts.jsonl, line {number}: column 'switch' is missing",
        lines[6],
        f"hosts.jsonl, line {number + 2}: not a JSON object",
        "link.jsonl: table 'link' does not exist",
    ]
    assert lines[6].startswith(f"hosts.jsonl, line {number + 1}: not valid JSON (")
    assert "9 problems; the network itself is checked when all its rows can be read" in error


def test_missing_files_are_named(tmp_path: Path):
    write(tmp_path, {"hosts": ROWS["hosts"]})
    assert check(tmp_path)[1] == [
        "links.jsonl: the file is missing, but every network needs it",
        "switches.jsonl: the file is missing, but every network needs it",
    ]
    (tmp_path / "links.jsonl").write_bytes(b"\xff")
    assert "not UTF-8 text" in check(tmp_path)[1][0]


def test_a_folder_without_rows_is_an_error(tmp_path: Path):
    for folder in (tmp_path, tmp_path / "none"):
        result = CliRunner().invoke(app, ["network", "check", str(folder)])
        assert isinstance(result.exception, StackcastError)
        assert result.exception.code == "TABLE.NO_ROWS"


def test_hosts_behind_failed_links_are_noted(tmp_path: Path):
    tables = copy.deepcopy(ROWS)
    for row in tables["links"]:
        row["up"] = {row["switch"], row["neighbor"]} != {"s2", "s3"}
    code, lines, _ = check(write(tmp_path, tables))
    assert code == 0
    assert lines[0] == "note: failed links separate these hosts from publishers: h3"


def test_a_network_without_publishers_is_noted(tmp_path: Path):
    tables = copy.deepcopy(ROWS)
    for row in tables["hosts"]:
        row["role"] = "subscriber"
    code, lines, _ = check(write(tmp_path, tables))
    assert (code, lines[0]) == (0, "note: no host has the role publisher, so nothing can be sent")


def test_the_labels_are_those_of_the_programs_or_of_the_option(tmp_path: Path):
    wide = line(3, labels=WIDE)
    tables: Tables = {**network_to_rows(wide, dict.fromkeys(wide.switches, "h:1"))}
    tables["virtual_trees"] = [tree_to_row(tree) for tree in broadcast_trees(wide, 1, 20_000)]
    write(tmp_path, tables)
    assert check(tmp_path)[0] == 0
    code, lines, _ = check(tmp_path, "--encoding", "virtual_trees")
    assert code == 1 and all("WRONG_PIPELINE" in text or "label" in text for text in lines)
    assert check(tmp_path, "--encoding", "virtual_trees", "--label-bits", "32")[0] == 0
    for options in (("--encoding", "none"), ("--label-bits", "24")):
        assert check(tmp_path, *options)[0] == 2


def loads(folder: Path) -> bool:
    """Return whether jobs accept the rows: those that read tables, and the refresher."""
    try:
        rows = {
            name: read_rows(folder / f"{name}.jsonl", definition(name).columns) for name in ROWS
        }
        network = network_from_rows(rows["switches"], rows["hosts"], rows["links"])
        source = NetworkVersion(network, [tree_from_row(row) for row in rows["virtual_trees"]])
        check_meaning(source, ())
        pipelines = {row["switch"]: row["pipeline"] for row in rows["switches"]}
        derive(source, (), pipelines, {})
    except StackcastError:
        return False
    return True


VALUES = {
    "switch": ["s1", "s2", "s3", "s9", "h1", ""],
    "host": ["h1", "h2", "feed1", "s1", "h9"],
    "neighbor": ["s1", "s2", "s3", "h1", "h3", "x"],
    "device_id": [1, 2, 3, 7],
    "port": [1, 2, 3, 4, 511, 512, "1"],
    "neighbor_port": [None, 1, 2, 3, 4],
    "link_id": [1, 2, 9, 16383, 16384],
    "mac": [1, "02:00:0a:00:00:01", "02:00:0a:00:00:99"],
    "ipv4": ["10.0.0.1", "10.0.0.2", "10.0.0.99", "10.0.0"],
    "weight": [1, 0.5, 2e12],
    "up": [True, False, 1],
    "tree_id": [1, 2, 16384],
}
CHANGES = st.lists(
    st.sampled_from(sorted(ROWS)).flatmap(
        lambda table: st.tuples(
            st.just(table),
            st.integers(0, len(ROWS[table]) - 1),
            st.sampled_from(
                [(column, value) for column in ROWS[table][0] for value in VALUES.get(column, ())]
                + [("", "remove"), ("", "repeat")]
            ),
        )
    ),
    max_size=3,
)


@examples(150)
@given(changes=CHANGES)
def test_a_folder_without_problems_is_one_that_jobs_accept(
    changes: list[tuple[str, int, tuple[str, Any]]], tmp_path_factory: pytest.TempPathFactory
):
    tables = copy.deepcopy(ROWS)
    for table, number, (column, value) in changes:
        rows = tables[table]
        if column and rows:
            rows[number % len(rows)][column] = value
        elif rows and value == "remove":
            del rows[number % len(rows)]
        elif rows:
            rows.append(dict(rows[number % len(rows)]))
    folder = write(tmp_path_factory.mktemp("rows"), tables)
    found = check_folder(folder).problems
    assert bool(found) != loads(folder), found


def test_the_check_needs_neither_spark_nor_compiled_kernels():
    code = (
        "import sys; from stackcast.cli.network import check; "
        "from pathlib import Path; check(Path(sys.argv[1])); "
        "print(*({'pyspark', 'numba', 'networkx', 'kafka', 'grpc'} & sys.modules.keys()))"
    )
    output = subprocess.check_output([sys.executable, "-c", code, str(ONE_SWITCH)], text=True)
    assert output.splitlines()[-1] == ""


def test_every_table_may_be_in_the_folder(tmp_path: Path):
    write(tmp_path, ROWS)
    for name in set(NAMES) - ROWS.keys():
        (tmp_path / f"{name}.jsonl").write_text("")
    assert check(tmp_path)[0] == 0
