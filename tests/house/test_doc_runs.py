"""Commands of documents run as they are pasted, on a lab that they share, and print what is shown.

With ``--clone`` in a clone with an environment of its own, and with those that take minutes.
`ELSEWHERE` and `NOT_HERE` name the others: where a test runs them, or why none can. A command that
is in none of these lists fails `test_each_command_is_run_or_said_why_not`.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import textwrap
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import certificates
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from doc_commands import commands
from fresh_clone import made
from paths import ROOT
from state_hosts import StateHosts, endpoint, state_hosts

from lab.traffic.publisher import ensure_topic
from lab.up.broker import Broker

pytestmark = [pytest.mark.integration, pytest.mark.slow]

DOOR = "./spark-submit.sh"
MINE = f"{DOOR} --properties-file conf/mine.conf"
#: On a busy machine a job takes minutes, seconds.
PATIENCE = 600.0
ENVIRONMENT = 'eval "$(./spark-submit.sh env)"'


@dataclass(frozen=True)
class Step:
    """A command as documents show it. paste: what a reader puts in place of words. folder: where
    the document says it is run. says: among what it prints. until: it runs on until Ctrl-C once it
    has printed this. code: that it ends with."""

    line: str
    paste: Mapping[str, str] = field(default_factory=dict)
    says: str = ""
    until: str = ""
    folder: str = "."
    code: int = 0

    @property
    def pasted(self) -> str:
        line = self.line
        for word, instead in self.paste.items():
            assert word in line, (word, line)
            line = line.replace(word, instead)
        return line

    def here(self, words: Mapping[str, str]) -> Step:
        """Returns the same with those of the words that it has."""
        return replace(self, paste={w: i for w, i in words.items() if w in self.line})


E = {" E": " --format camus.spec --rules camus.rules"}
CAMUS = "docs/examples"
#: Files and one line alone.
ALONE = (
    Step("stackcast filters check E", E, folder=CAMUS),
    Step("stackcast filters compile E", E, folder=CAMUS),
    Step(
        "stackcast filters match E --events camus.events.jsonl --with-rules",
        E,
        folder=CAMUS,
        code=1,
    ),
    Step(
        """stackcast filters explain E --event '{"shares": 200, "stock": "MSFT"}'""",
        E,
        folder=CAMUS,
    ),
    Step("stackcast filters explain E --rule 2", E, folder=CAMUS),
    Step(
        "head -6 camus.events.jsonl | stackcast filters why-not E --host 3 --events -",
        E,
        folder=CAMUS,
    ),
    *(
        Step(
            f"stackcast filters match --format {use}.spec --rules {use}.rules "
            f"--events {use}.events.jsonl --with-rules",
            folder=CAMUS,
        )
        for use in ("identifiers", "balance", "cache")
    ),
    Step(f"{DOOR} docs/examples/match_history.py"),
    Step("stackcast attributes encode events.jsonl --attributes attributes.jsonl", code=1),
    Step(
        "stackcast attributes encode events.jsonl --attributes attributes.jsonl "
        "--encoding bitmask > events.hex",
        code=1,
    ),
    Step("stackcast attributes decode events.hex --attributes attributes.jsonl --encoding bitmask"),
    Step(
        "stackcast attributes encode events.jsonl --attributes attributes.jsonl --frames "
        "--encoding bitmask --out events.pcap",
        code=1,
    ),
    Step("stackcast frames dissect events.pcap --attributes attributes.jsonl"),
    Step("stackcast frames dissect FILE", {"FILE": "events.pcap"}, says="frame 3"),
    Step(
        "tshark -X lua_script:schemas/messages/stackcast.lua -r FILE "
        "-O stackcast,stackcast_moldudp64,stackcast_event",
        {"FILE": "events.pcap"},
        says="Stackcast Attribute/Value Event",
    ),
    Step("stackcast attributes publish --sensors 1000 --encoding bitmask --tunnel 127.0.0.1:15001"),
    Step(
        "stackcast filters explain --format attributes.jsonl --rules my.rules "
        """--event '{"temp": 25.5, "hum": 30}'"""
    ),
    Step(
        "stackcast frames send tree:1 stop:3 --source-mac 02:00:0a:40:00:01 --source 10.64.0.1 "
        "| stackcast frames dissect"
    ),
    Step("stackcast itch generate --out day.itch --messages 100000 --seed 1", says="100,000"),
    Step("stackcast itch inspect day.itch --type A --symbol GOOGL", says="stock=GOOGL"),
    Step('(umask 077; echo "1 $(openssl rand -hex 32)" > summary.keys)'),
    Step("(umask 077; stackcast host-key summary.keys h3 > h3.keys)"),
    Step(f"{DOOR} jobs/load_topology.py --dry-run --topohub topozoo/Abilene", says="switches"),
    Step(f"{DOOR} make structure --at REV", {"REV": "HEAD"}, says="modules"),
)
#: In a network of their own, where `sudo` has nobody to ask.
INTERFACES = (
    Step("sudo ip link add veth0 type veth peer name host0"),
    Step("sudo ip link set veth0 up && sudo ip link set host0 up"),
    Step(
        "stackcast lab switch --json p4/virtual_trees.json --p4info p4/virtual_trees.p4info.txtpb "
        "--grpc 127.0.0.1:9559 --device-id 1 --port 1=udp:127.0.0.1:5001/127.0.0.1:5002 "
        "--port 2=veth0",
        until='"p4runtime": "127.0.0.1:9559"',
    ),
    Step(
        "stackcast receive --interface eth1 --rerequest 10.64.0.9:26402",
        {"eth1": "lo"},
        until="listening at",
    ),
    Step(
        "stackcast receive --interface lo --rerequest 127.0.0.1:26402 --drop 0.1 --order sequence",
        until="a trial that loses 10%",
    ),
    Step("stackcast receive", {"receive": "receive --interface lo"}, until="listening at"),
    Step(
        "stackcast receive --events bitmask --interface eth1 --summary-address 10.0.0.7 "
        "--rerequest 10.64.0.9:26402",
        {"eth1": "lo", "10.0.0.7": "127.0.0.1"},
        until="listening at",
    ),
    Step(
        "stackcast lab switch --tls-certificate switch.pem --tls-key switch.key --tls-ca ca.pem "
        "--role refresher=refresher --role =operator",
        {
            "lab switch": "lab switch --json p4/virtual_trees.json --p4info "
            "p4/virtual_trees.p4info.txtpb --grpc 127.0.0.1:0 --device-id 2 --port 1=host0"
        },
        until='"p4runtime": "127.0.0.1:',
    ),
)
ADDRESS = "$(awk '/bootstrap.servers/ {print $2}' var/lab/lab.conf)"
LAB = f"{DOOR} --properties-file var/lab/lab.conf"
#: A lab with all that runs beside a stream; conf/mine.conf is that of the lab.
UP = (
    Step("stackcast lab up"),
    Step(f"{LAB} jobs/create_tables.py var/lab/network"),
    Step(f"{LAB} jobs/refresh_switches.py --once"),
)
BESIDE = (
    Step(
        f"{MINE} --conf spark.stackcast.metrics.port=9401 jobs/refresh_switches.py",
        {"9401": "0"},
        until="switches in step",
    ),
    Step(
        f"{MINE} --conf spark.stackcast.metrics.port=9400 jobs/itch_stream.py",
        {"9400": "0"},
        until="workers ready",
    ),
)
RUNNING = (
    Step(f"{MINE} jobs/rerequest.py", until="re-requests are taken"),
    Step("stackcast itch publish --generate 100000 --bootstrap ADDRESS", {"ADDRESS": ADDRESS}),
    Step("stackcast itch publish day.itch --bootstrap 127.0.0.1:9092", {"127.0.0.1:9092": ADDRESS}),
    Step("stackcast lab status", says="deliveries"),
    Step("stackcast lab status --watch h3 --watch pod1-rack2,h3", until="pod1-rack2,h3: bytes"),
    Step(
        "stackcast explain --session S --sequence N [--properties-file conf/mine.conf] [--host H] "
        "[--json]",
        {
            "--session S": "--session 8ZY63T0000",
            "--sequence N": "--sequence 4026531840",
            "[--properties-file conf/mine.conf]": "--properties-file conf/mine.conf",
            "[--host H]": "",
            "[--json]": "",
        },
        says="8ZY63T0000",
    ),
    Step(
        f"{MINE} jobs/run_sql.py "
        '"SELECT to_json(struct(id, name, type, scale, offset)) FROM attributes ORDER BY id" '
        "| grep -o '{.*}' > attributes.jsonl"
    ),
    Step(
        f"{MINE} jobs/run_sql.py "
        "\"SELECT receivers FROM who_gets(stock => 'GOOGL', price => '60.25')\"",
        says="receivers",
    ),
    Step(
        f"{MINE} jobs/run_sql.py "
        '"SELECT id, since, messages FROM subscription_matches ORDER BY messages DESC LIMIT 20"',
        says="messages",
    ),
    Step(
        f"{DOOR} --conf spark.stackcast.tables=var/lab/tables jobs/run_sql.py "
        '"SELECT subscriber, filter FROM subscriptions LIMIT 5" '
        '"SELECT subscriber, sum(messages) AS messages, sum(bytes) AS bytes '
        'FROM delivery_statistics GROUP BY subscriber" '
        '"SELECT field, state, text, next FROM filter_entries '
        "WHERE field = 'add_order.stock' LIMIT 5\"",
        says="subscriber",
    ),
    Step(
        f"{DOOR} jobs/retune_trees.py --dry-run",
        {DOOR: f"{DOOR} --conf spark.stackcast.tables=var/lab/tables"},
        says="the report is",
    ),
    Step(
        f"{MINE} jobs/deliver_from.py ID --from OFFSET|TIME",
        {"ID": "s0001", "OFFSET|TIME": "earliest"},
    ),
    Step(f"{MINE} jobs/console.py", {".py": ".py --listen 127.0.0.1:0"}, until="the console:"),
)
#: So that a deployment of ITCH has attributes to tell.
ATTRIBUTE = (
    "INSERT INTO attributes (id, name, type, scale, offset) "
    "VALUES (0, 'temp', 'decimal', 0.1, -100)"
)
EMPTY = {"conf/mine.conf": "conf/empty.conf"}
#: Once the stream has ended, and on tables of their own.
AFTER = (
    Step(f"{MINE} jobs/itch_stream.py --take-over", until="workers ready"),
    Step(f"{MINE} jobs/check_delivery.py var/lab"),
    Step(f"{MINE} jobs/backup.py /backups/2026-05-04", {"/backups": "backups"}),
    Step(f"{MINE} jobs/backup.py --restore /backups/2026-05-04", {"/backups": "backups"} | EMPTY),
    Step("stackcast lab down"),
)
LOADED = tuple(
    Step(f"{MINE} jobs/load_topology.py {how}", EMPTY, says="switches")
    for how in (
        "--fabric pods=8,racks=4,hosts=2,planes=2,spines=2",
        "--jellyfish switches=256,degree=8,seed=1 --hosts-per-switch 4",
        '--graphml mine.graphml --address-pattern "{switch}.lan:9559"',
    )
)
#: On a switch of states that has a host behind each port, as `_of_states` fills in.
STATES = (
    Step(
        "stackcast states controller --address 10.0.0.1 --bootstrap-servers kafka:9092",
        until='"listen"',
    ),
    Step(
        "stackcast states middleware --address 10.0.0.2 --controller 10.0.0.1:65430",
        until='"listen"',
    ),
    Step('echo "21 degrees" | stackcast states publish rooms --name sensor'),
    Step("stackcast states subscribe rooms --name reader", until="21 degrees"),
)
STATES_IN_SPARK = (
    Step(f"{MINE} jobs/replica_controller.py", until="the replica controller listens"),
    Step(f"{MINE} jobs/state_stream.py table:sales.prices --by city", until="as state prices"),
    Step(
        f"{DOOR} ... jobs/state_stream.py topic:scanner.reports --by scanner "
        "--columns 'scanner INT, rssi INT'",
        until="as state scanner.reports",
    ),
)
#: Of a clone alone: they take minutes.
LONG = (
    Step(f"{DOOR} --conf spark.stackcast.lab.publishers=5 jobs/itch_stream.py", says="exact"),
    Step(
        f"{DOOR} --conf spark.stackcast.match=network jobs/attribute_stream.py",
        says="exact",
    ),
    Step(
        f"{DOOR} --conf spark.stackcast.match=network --conf spark.stackcast.lab.network=fabric "
        "--conf spark.stackcast.lab.subscriptions=5000 jobs/attribute_stream.py",
        says="exact",
    ),
)
GROUPS = (ALONE, INTERFACES, UP, BESIDE, RUNNING, AFTER, LOADED, STATES, STATES_IN_SPARK, LONG)

EMBEDDED = "tests/lab/test_embedded.py"
#: Run by other tests, as they are.
ELSEWHERE = {
    f"{DOOR} jobs/itch_stream.py": EMBEDDED,
    f"{DOOR} jobs/console.py --demo": EMBEDDED,
    f"{DOOR} --conf spark.stackcast.match=network jobs/itch_stream.py": EMBEDDED,
    f"{DOOR} jobs/attribute_stream.py": EMBEDDED,
    f"{DOOR} jobs/mobility_tracking.py": "tests/lab/test_mobility_command.py",
    ENVIRONMENT: "tests/house/test_tutorial.py",
    "ruff check && ruff format --check && mypy && lint-imports": "tests/house/test_house.py",
    f"{DOOR} make docs": "tests/house/test_docs.py",
    f"{MINE} jobs/retune_trees.py --window 1d --rules 40 --max-changed-rules 500 --wait 120": (
        "tests/retuning/test_retune.py"
    ),
    f"{MINE} jobs/retune_trees.py --window 1h --every 15m --wait 120": (
        "tests/retuning/test_retune_service.py"
    ),
}
CLUSTER = "tests/cluster/test_standalone_cluster.py runs it with names of this machine"
MACHINE = "changes accounts, services or rights of the machine"
MINUTES = "measures for minutes; tests/benchmarks hold its parts"
BMV2 = "BMv2 is not there; tests/software_switch has the same program on switches of ours"
TESTS = "starts these tests"
#: Not run, and why.
NOT_HERE = {
    r"sudo simple_switch_grpc .*": BMV2,
    r"for pair in .*": BMV2,
    r".* spark\.stackcast\.tables=var/three .*": BMV2,
    r"stackcast frames send .* --interface (feed1|h1) .*": BMV2,
    r"sudo ethtool .*": "ethtool may not be there, and another network namespace has no offloads",
    r"sudo (chgrp|setcap) .*|useradd .*|install .*|systemctl .*|cp conf/systemd.*": MACHINE,
    r"python3 -m venv /opt/.*|for list in build runtime.*|/opt/stackcast/bin/.*": MACHINE,
    r"(STACKCAST_PLACE=rack1 )?spark-class .*|spark-submit .*|java -cp .*": CLUSTER,
    r"\./spark-submit\.sh bench .*": MINUTES,
    r"\./spark-submit\.sh test( .*)?": TESTS,
    r"\./spark-submit\.sh make p4 .*": "needs p4c; tests/p4_program holds what it makes",
    r"\./spark-submit\.sh make packages .*": "asks the package registry for every package",
    r"stackcast states switch-controller .*": "tests/support/state_hosts.py starts one beside its "
    "switches",
    r"python3 -m venv s3 .*": "a package that only `test --s3` needs",
    r"stackcast lab feed .*": "needs switches that match; tests/network_match has them",
}
#: README's table names others' commands in short: what stands for which.
IN_SHORT = {
    "stackcast filters check": "stackcast filters check E",
    f"{DOOR} jobs/backup.py FOLDER": f"{MINE} jobs/backup.py /backups/2026-05-04",
    f"{DOOR} jobs/rerequest.py": f"{MINE} jobs/rerequest.py",
    f"{DOOR} jobs/deliver_from.py ID --from TIME": f"{MINE} jobs/deliver_from.py ID "
    "--from OFFSET|TIME",
    f"{DOOR} jobs/load_topology.py": f"{MINE} jobs/load_topology.py --fabric "
    "pods=8,racks=4,hosts=2,planes=2,spines=2",
    f"{DOOR} jobs/check_delivery.py FOLDER": f"{MINE} jobs/check_delivery.py var/lab",
    f"{DOOR} jobs/refresh_switches.py": f"{LAB} jobs/refresh_switches.py --once",
    f"{MINE} jobs/itch_stream.py": f"{LAB} jobs/itch_stream.py",
    f"{MINE} jobs/retune_trees.py --dry-run": f"{DOOR} jobs/retune_trees.py --dry-run",
    f'{DOOR} jobs/run_sql.py "SELECT ..."': f"{LAB} jobs/run_sql.py",
    "stackcast itch generate": "stackcast itch generate --out day.itch --messages 100000 --seed 1",
    "stackcast attributes encode": "stackcast attributes encode events.jsonl --attributes "
    "attributes.jsonl",
    "stackcast explain --session S --sequence N": "stackcast explain --session 8ZY63T0000 "
    "--sequence 4026531840 --properties-file var/lab/lab.conf",
    "stackcast states controller": "stackcast states controller --address 10.0.0.1 "
    "--bootstrap-servers kafka:9092",
    f"{DOOR} jobs/state_stream.py table:NAME": f"{MINE} jobs/state_stream.py table:sales.prices "
    "--by city",
}


def test_each_command_is_run_or_said_why_not():
    """The list of what is run is that of the documents, and the others' reasons are in use."""
    shown = {command.line for command in commands()}
    tutorial = {c.line for c in commands() if c.document == "tutorial.md"}
    run = {step.line for group in GROUPS for step in group}
    assert run - shown == set(), "no document shows it"
    for line in shown - run - tutorial - ELSEWHERE.keys():
        full = IN_SHORT.get(line, line)
        reasons = [why for pattern, why in NOT_HERE.items() if re.fullmatch(pattern, full, re.S)]
        assert reasons or full in run | tutorial | ELSEWHERE.keys(), line
    for pattern in NOT_HERE:
        assert any(re.fullmatch(pattern, line, re.S) for line in shown), pattern
    assert IN_SHORT.keys() | ELSEWHERE.keys() <= shown
    for where in ELSEWHERE.values():
        assert (ROOT / where).is_file()


class Shell:
    """Bash in a folder. prefix: before each command."""

    def __init__(self, folder: Path, prefix: list[str]) -> None:
        self._folder = folder
        self._prefix = prefix
        # Of a clone its own; else the one of the tests.
        self._environment = f"{ENVIRONMENT}; " if (folder / "var" / "env").exists() else ""
        self._shown = {command.line: command.shown for command in commands() if command.shown}

    def run(self, step: Step) -> None:
        with self.running(step) as (process, output):
            if step.until:
                return
            process.wait(PATIENCE)
            said = output.read_text()
            assert process.returncode == step.code, f"{step.pasted}: {said[-4000:]}"
            assert step.says in said, f"{step.pasted}: {said[-4000:]}"
            self._compare(step, said)

    @contextmanager
    def running(self, step: Step) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
        """Starts it, and waits for what it prints; Ctrl-C at the end, where it runs on."""
        output = self._folder / f"said-{time.monotonic_ns()}"
        with output.open("wb") as said:
            process = subprocess.Popen(
                [
                    *self._prefix,
                    "bash",
                    "-c",
                    f'sudo() {{ "$@"; }}; {self._environment}{step.pasted}',
                ],
                cwd=self._folder / step.folder,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            ends = time.monotonic() + PATIENCE
            while step.until and step.until not in output.read_text(errors="replace"):
                told = f"{step.pasted}: {output.read_text(errors='replace')[-4000:]}"
                assert process.poll() is None and time.monotonic() < ends, told
                time.sleep(0.1)
            yield process, output
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
                process.wait(PATIENCE)
        if step.until:
            told = output.read_text(errors="replace")
            assert process.returncode in (0, 130, -signal.SIGINT), f"{step.pasted}: {told[-4000:]}"

    def _compare(self, step: Step, said: str) -> None:
        """Each line that the document shows is there; dots stand for more of them."""
        lines = {_without_time(line) for line in said.splitlines()}
        for line in self._shown.get(step.line, ()):
            wanted = _without_time(line)
            if wanted.strip() and wanted.strip() != "...":
                assert wanted in lines, f"{step.pasted}: {line!r} is not in {said[-4000:]}"


def _without_time(line: str) -> str:
    return re.sub(r"\d+\.\d+ s$", "", line.rstrip())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Path]:
    """A fresh clone, or a folder like one, with the files that documents speak of."""
    with pytest.MonkeyPatch.context() as patched:
        clone = pytestconfig.getoption("--clone")
        folder = made(tmp_path_factory.mktemp("pasted"), patched, clone)
        pems = certificates.make(tmp_path_factory.mktemp("tls"))
        for file, name in (("server.pem", "switch.pem"), ("server.key", "switch.key")):
            shutil.copy(pems / file, folder / name)
        shutil.copy(pems / "ca.pem", folder)
        for name in ("attributes.jsonl", "events.jsonl", "my.rules"):
            (folder / name).write_text(_of_attributes(name))
        (folder / "mine.graphml").write_text(GRAPHML)
        yield folder


GRAPHML = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<graph edgedefault="undirected"><node id="a"/><node id="b"/><node id="c"/>
<edge source="a" target="b"/><edge source="b" target="c"/></graph></graphml>
"""


def _of_attributes(name: str) -> str:
    """A file that docs/attributes.md shows."""
    text = (ROOT / "docs" / "attributes.md").read_text()
    if name == "my.rules":
        found = re.search(r"with one rule,\s+`([^`]+)`, in `my\.rules`", text)
        assert found
        return f"{found[1]}\n"
    _, _, after = text.partition(f"`{name}`")
    block = re.search(r"(?:^    \{.*\n)+", after, re.MULTILINE)
    assert block
    return textwrap.dedent(block[0])


def test_commands_on_files_print_what_is_shown(place: Path):
    shell = Shell(place, [])
    for step in ALONE:
        if step.line.startswith("tshark") and not shutil.which("tshark"):
            continue
        shell.run(step)


#: All addresses lead to its loopback; then it waits.
NETWORK = "ip link set lo up && ip route add default dev lo && echo up && exec sleep 3600"


def test_commands_on_interfaces_open_them(place: Path, namespace: list[str]):
    # One network for all of them: a shell that waits holds it.
    held = subprocess.Popen(
        [*namespace, "sh", "-c", NETWORK],
        stdout=subprocess.PIPE,
    )
    try:
        assert held.stdout is not None and held.stdout.readline() == b"up\n"
        users = [] if os.geteuid() == 0 else ["-U", "--preserve-credentials"]
        shell = Shell(place, ["nsenter", *users, "-n", "-t", str(held.pid)])
        for step in INTERFACES:
            shell.run(step)
    finally:
        held.kill()
        held.wait()


def test_commands_on_a_deployment_do_what_is_said(place: Path):
    shell = Shell(place, [])
    if not (place / "day.itch").exists():
        shell.run(next(step for step in ALONE if "itch generate" in step.line))
    with ExitStack() as ending:
        ending.callback(shell.run, Step("stackcast lab down || true"))
        for step in UP:
            shell.run(step)
        _make_configurations(place)
        shell.run(Step(f'{LAB} jobs/run_sql.py "{ATTRIBUTE}"'))
        with ExitStack() as stack:
            for step in BESIDE:
                stack.enter_context(shell.running(step))
            for step in RUNNING:
                shell.run(step)
        for step in AFTER:
            shell.run(step)
        _load_networks(shell, place / "var" / "empty" / "tables")


def test_commands_on_states_do_what_is_said(place: Path, broker: Broker, empty_tables: Path):
    ensure_topic(broker.bootstrap_servers, "scanner.reports", 1)
    shutil.copytree(empty_tables, place / "var" / "states" / "tables")
    feed = {"delta.enableChangeDataFeed": "true"}
    prices = pa.table({"city": ["turin"], "price": [5]})
    write_deltalake(place / "var" / "prices", prices, configuration=feed)
    with state_hosts(2, started=False) as hosts:
        shell, here = Shell(place, []), _of_states(hosts, broker)
        (place / "conf" / "states.conf").write_text(
            f"spark.stackcast.kafka.bootstrap.servers {broker.bootstrap_servers}\n"
            "spark.stackcast.tables var/states/tables\n"
            "spark.stackcast.states.checkpoint var/states/checkpoint\n"
            "spark.stackcast.states.topics pasted\n"
            "spark.stackcast.states.address 10.0.0.1\n"
            f"spark.stackcast.states.link {_link(hosts, 1)}\n"
            f"spark.stackcast.states.listen {endpoint(hosts.listen[1])}\n"
            f"spark.stackcast.states.middleware {endpoint(hosts.listen[2])}\n"
        )
        with ExitStack() as middleware, ExitStack() as controller:
            for step, stack in zip(STATES, (controller, middleware), strict=False):
                stack.enter_context(shell.running(step.here(here)))
            for step in STATES[2:]:
                shell.run(step.here(here))
            controller.close()
            controller.enter_context(shell.running(STATES_IN_SPARK[0].here(here)))
            for step in STATES_IN_SPARK[1:]:
                shell.run(step.here(here))


def _of_states(hosts: StateHosts, broker: Broker) -> dict[str, str]:
    """What a reader puts in place of words, where all hosts are on one machine."""
    return {
        "--address 10.0.0.1": f"--address 10.0.0.1 --link {_link(hosts, 1)} "
        f"--listen {endpoint(hosts.listen[1])} --topics pasted",
        "kafka:9092": broker.bootstrap_servers,
        "--address 10.0.0.2": f"--address 10.0.0.2 --link {_link(hosts, 2)} "
        f"--listen {endpoint(hosts.listen[2])}",
        "10.0.0.1:65430": endpoint(hosts.listen[1]),
        "--name": f"--middleware {endpoint(hosts.listen[2])} --name",
        "conf/mine.conf": "conf/states.conf",
        " ... ": " --properties-file conf/states.conf ",
        "sales.prices": "$PWD/var/prices",
    }


def _link(hosts: StateHosts, port: int) -> str:
    return f"udp:{endpoint(hosts.far[port])}/{endpoint(hosts.near[port])}"


@pytest.mark.clone
@pytest.mark.parametrize("step", LONG)
def test_commands_that_take_minutes_do_what_is_said(step: Step, place: Path):
    Shell(place, []).run(step)


def _load_networks(shell: Shell, tables: Path) -> None:
    """Each into tables of its own that were just made."""
    shutil.rmtree(tables)
    shell.run(Step(f"{DOOR} --properties-file conf/empty.conf jobs/create_tables.py"))
    made = tables.rename(tables.with_name("made"))
    for step in LOADED:
        shutil.copytree(made, tables)
        shell.run(step)
        shutil.rmtree(tables)


def _make_configurations(place: Path) -> None:
    """conf/mine.conf as of the lab; conf/empty.conf the same, with tables and checkpoint of its
    own."""
    lab = (place / "var" / "lab" / "lab.conf").read_text()
    (place / "conf" / "mine.conf").write_text(lab)
    own = re.sub(
        r"^(spark\.stackcast\.(tables|checkpoint)\s+).*$", r"\1var/empty/\2", lab, flags=re.M
    )
    assert own != lab
    (place / "conf" / "empty.conf").write_text(own)
