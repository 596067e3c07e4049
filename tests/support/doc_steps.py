"""The commands of the documentation that tests run, in groups that share a shell."""

from __future__ import annotations

from dataclasses import replace

from doc_shell import Step
from documents import DOOR

MINE = f"{DOOR} --properties-file conf/mine.conf"
LAB = f"{DOOR} --properties-file var/lab/lab.conf"

CAMUS = "docs/examples"
E = {" E": " --format camus.spec --rules camus.rules"}
ENCODE = "stackcast attributes encode events.jsonl --attributes attributes.jsonl"
WRITE_HEX = Step(f"{ENCODE} --encoding bitmask > events.hex", code=1)
WRITE_PCAP = Step(f"{ENCODE} --frames --encoding bitmask --out events.pcap", code=1)
GENERATE = Step(
    "stackcast itch generate --out day.itch --messages 100000 --seed 1", prints="100,000"
)
SUMMARY_KEY = Step('(umask 077; echo "1 $(openssl rand -hex 32)" > summary.keys)')
#: Commands that read and write files only.
FILES = (
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
    Step(ENCODE, code=1),
    WRITE_HEX,
    Step(
        "stackcast attributes decode events.hex --attributes attributes.jsonl --encoding bitmask",
        after=(WRITE_HEX,),
    ),
    WRITE_PCAP,
    Step("stackcast frames dissect events.pcap --attributes attributes.jsonl", after=(WRITE_PCAP,)),
    Step(
        "stackcast frames dissect FILE",
        {"FILE": "events.pcap"},
        prints="frame 3",
        after=(WRITE_PCAP,),
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
    GENERATE,
    Step(
        "stackcast itch inspect day.itch --type A --symbol GOOGL",
        prints="stock=GOOGL",
        after=(GENERATE,),
    ),
    Step("stackcast network check docs/examples/one-switch", prints="1 switch, 3 hosts, 3 links"),
    Step("stackcast network check FOLDER", {"FOLDER": "docs/examples/one-switch"}, prints="ok"),
    SUMMARY_KEY,
    Step("(umask 077; stackcast host-key summary.keys h3 > h3.keys)", after=(SUMMARY_KEY,)),
)
TSHARK = Step(
    "tshark -X lua_script:schemas/messages/stackcast.lua -r FILE "
    "-O stackcast,stackcast_moldudp64,stackcast_event",
    {"FILE": "events.pcap"},
    prints="Stackcast Attribute/Value Event",
    after=(WRITE_PCAP,),
)
#: Commands on files that take longer, most of them in a Spark.
SLOW_FILES = (
    Step(f"{DOOR} make structure --at REV", {"REV": "HEAD"}, prints="modules"),
    Step(f"{DOOR} docs/examples/match_history.py"),
    Step(f"{DOOR} jobs/load_topology.py --dry-run --topohub topozoo/Abilene", prints="switches"),
)

VIRTUAL_ETHERNET = Step("sudo ip link add veth0 type veth peer name host0")
VIRTUAL_ETHERNET_UP = Step(
    "sudo ip link set veth0 up && sudo ip link set host0 up", after=(VIRTUAL_ETHERNET,)
)
#: Commands that open interfaces. They run in a network namespace.
SWITCH_RUN = Step(
    "stackcast switch run --program p4/compiled/virtual_trees.json "
    "--p4info p4/compiled/virtual_trees.p4info.txtpb "
    "--grpc 127.0.0.1:9559 --device-id 1 --port 1=udp:127.0.0.1:5001/127.0.0.1:5002 "
    "--port 2=udp:127.0.0.1:5003/127.0.0.1:5004 --port 3=udp:127.0.0.1:5005/127.0.0.1:5006",
    ready='"p4runtime": "127.0.0.1:9559"',
)
ONE_SWITCH_TABLES = f"{DOOR} --conf spark.stackcast.tables=var/one-switch"
CREATE_ONE_SWITCH = Step(
    f"{ONE_SWITCH_TABLES} jobs/create_tables.py docs/examples/one-switch", prints="3 rows"
)
#: Commands that run while `SWITCH_RUN` does.
ONE_SWITCH = (
    CREATE_ONE_SWITCH,
    Step(
        f"{ONE_SWITCH_TABLES} jobs/refresh_switches.py --once",
        prints="switches in sync",
        after=(CREATE_ONE_SWITCH,),
    ),
)
INTERFACES = (
    VIRTUAL_ETHERNET,
    VIRTUAL_ETHERNET_UP,
    SWITCH_RUN,
    Step(
        "stackcast receive --interface eth1 --rerequest 10.64.0.9:26402",
        {"eth1": "lo"},
        ready="listening at",
    ),
    Step(
        "stackcast receive --interface eth1 --properties-file conf/mine.conf",
        {"eth1": "lo", "conf/mine.conf": "conf/kafka-example.conf"},
        ready="listening at",
    ),
    Step(
        "stackcast receive --event-frames bitmask --interface eth1 --summary-address 10.0.0.7 "
        "--rerequest 10.64.0.9:26402",
        {"eth1": "lo", "10.0.0.7": "127.0.0.1"},
        ready="listening at",
    ),
    Step(
        "stackcast switch run --tls-certificate switch.pem --tls-key switch.key --tls-ca ca.pem "
        "--role refresher=refresher --role =operator",
        {
            "switch run": "switch run --program p4/compiled/virtual_trees.json --p4info "
            "p4/compiled/virtual_trees.p4info.txtpb --grpc 127.0.0.1:0 --device-id 2 --port 1=host0"
        },
        ready='"p4runtime": "127.0.0.1:',
        after=(VIRTUAL_ETHERNET_UP,),
    ),
)

#: Variants of a command of `INTERFACES`.
RECEIVERS = (
    Step(
        "stackcast receive --interface lo --rerequest 127.0.0.1:26402 --drop 0.1 --order sequence",
        ready="discarding 10% of all datagrams",
    ),
    Step("stackcast receive", {"receive": "receive --interface lo"}, ready="listening at"),
)

LAB_UP = Step("stackcast lab up")
CREATE_TABLES = Step(f"{LAB} jobs/create_tables.py var/lab/network", after=(LAB_UP,))
#: Commands that bring a lab up, whose tables and switches are filled. Afterwards, `lab` writes
#: conf/mine.conf.
BRING_UP = (
    LAB_UP,
    CREATE_TABLES,
    Step(f"{LAB} jobs/refresh_switches.py --once", after=(CREATE_TABLES,)),
)
#: A deployment of ITCH has no attributes, and a command prints them.
ATTRIBUTE = Step(
    f'{LAB} jobs/run_sql.py "INSERT INTO attributes (id, name, type, scale, offset) '
    "VALUES (0, 'temp', 'decimal', 0.1, -100)\""
)
#: Commands that run while others use the lab.
SERVICES = (
    Step(
        f"{MINE} --conf spark.stackcast.metrics.port=9401 jobs/refresh_switches.py",
        {"9401": "0"},
        ready="switches in sync",
    ),
    Step(
        f"{MINE} --conf spark.stackcast.metrics.port=9400 jobs/itch_stream.py",
        {"9400": "0"},
        ready="workers ready",
    ),
)
#: Commands that bring up the stream of attribute/value events, and those that use it.
ATTRIBUTE_LAB = Step("stackcast lab up --subscriptions 0")
ATTRIBUTE_ROWS = Step("cp attributes.jsonl var/lab/network", after=(ATTRIBUTE_LAB,))
ATTRIBUTE_DEPLOYMENT = (
    ATTRIBUTE_LAB,
    ATTRIBUTE_ROWS,
    replace(CREATE_TABLES, after=(ATTRIBUTE_ROWS,)),
    BRING_UP[2],
    Step(
        "stackcast attributes publish events.jsonl --topic attributes.raw "
        "--properties-file var/lab/lab.conf",
        after=(ATTRIBUTE_LAB,),
    ),
)
#: Ready once it is known as the writer of the tables, which is later than its workers are.
ATTRIBUTE_STREAM = Step(f"{LAB} jobs/attribute_stream.py", ready="delivery: batch 0")
ATTRIBUTE_RULE = Step(
    'stackcast rules add h3 "temp < 30 and hum > 15" --properties-file var/lab/lab.conf',
    prints="live since version",
)
#: Commands that write rules while a stream runs.
ADD_RULE = Step(
    'stackcast rules add h3 "stock == GOOGL and shares >= 500" --id mine',
    prints="live since version",
)
REPLACE_RULE = Step(
    'stackcast rules add h3 "stock == GOOGL and shares >= 900" --id mine --replace',
    prints="live since version",
    after=(ADD_RULE,),
)
RULES = (
    ADD_RULE,
    REPLACE_RULE,
    Step("stackcast rules status mine", prints="mine  live since", after=(REPLACE_RULE,)),
    Step("stackcast rules show mine", prints="shares >= 900", after=(REPLACE_RULE,)),
    Step("stackcast rules list --subscriber h3", prints="mine", after=(REPLACE_RULE,)),
    Step("stackcast rules remove mine", prints="no longer live", after=(REPLACE_RULE,)),
)
WRITE_SQL = Step('echo "SHOW TABLES; SELECT count(*) FROM hosts" > statements.sql')
PUBLISH = Step("stackcast itch publish --generate 100000")
#: Commands that use a lab with a stream on it.
ON_A_STREAM = (
    Step(f"{MINE} jobs/rerequest.py", ready="listening for re-requests"),
    *RULES,
    PUBLISH,
    Step("stackcast itch publish day.itch", after=(GENERATE,)),
    Step("stackcast lab status", prints="deliveries"),
    Step("stackcast lab status --watch h3 --watch pod1-rack2,h3", ready="pod1-rack2,h3: bytes"),
    Step(
        "stackcast explain (--session S | --partition P) --sequence N "
        "[--properties-file conf/mine.conf] [--host H] [--json]",
        {
            "(--session S | --partition P)": "--partition 0",
            "--sequence N": "--sequence 4026531840",
            "[--properties-file conf/mine.conf]": "--properties-file conf/mine.conf",
            "[--host H]": "",
            "[--json]": "",
        },
        prints="4026531840",
        after=(PUBLISH,),
    ),
    Step("stackcast attributes export --out attributes.jsonl --properties-file conf/mine.conf"),
    Step("stackcast dead-letters --properties-file conf/mine.conf --limit 100"),
    Step("stackcast dead-letters"),
    Step(
        f"{MINE} jobs/run_sql.py "
        "\"SELECT receivers FROM who_gets(stock => 'GOOGL', price => '60.25')\"",
        prints="receivers",
    ),
    Step(
        f"{MINE} jobs/run_sql.py "
        '"SELECT id, since, messages FROM subscription_matches ORDER BY messages DESC LIMIT 20"',
        prints="messages",
    ),
    Step(
        f"{DOOR} --conf spark.stackcast.tables=var/lab/tables jobs/run_sql.py "
        '"SELECT subscriber, filter FROM subscriptions LIMIT 5" '
        '"SELECT subscriber, sum(messages) AS messages, sum(bytes) AS bytes '
        'FROM delivery_statistics GROUP BY subscriber" '
        '"SELECT field, state, text, next FROM filter_entries '
        "WHERE field = 'add_order.stock' LIMIT 5\"",
        prints="subscriber",
        after=(PUBLISH,),
    ),
    Step(
        f"{MINE} jobs/retune_trees.py --dry-run",
        prints="the report is",
        after=(PUBLISH,),
    ),
    Step(
        f"{MINE} jobs/deliver_from.py ID --from OFFSET|TIME",
        {"ID": "s0001", "OFFSET|TIME": "earliest"},
        after=(PUBLISH,),
    ),
    Step(f"{MINE} jobs/run_sql.py -f statements.sql", prints="rows", after=(WRITE_SQL,)),
    Step(f"{MINE} jobs/run_sql.py < statements.sql", prints="rows", after=(WRITE_SQL,)),
    Step(f"{MINE} jobs/console.py", {".py": ".py --listen 127.0.0.1:0"}, ready="the console:"),
)
#: These use tables of their own: `lab` writes conf/empty.conf.
EMPTY = {"conf/mine.conf": "conf/empty.conf"}
BACKUP = Step(f"{MINE} jobs/backup.py /backups/2026-05-04", {"/backups": "backups"})
#: Commands that use a lab after its stream has ended.
AFTER_A_STREAM = (
    Step(f"{MINE} jobs/itch_stream.py --take-over", ready="workers ready"),
    Step(f"{MINE} jobs/itch_stream.py --accept-truncation", ready="workers ready"),
    Step(f"{MINE} jobs/check_delivery.py var/lab"),
    BACKUP,
    Step(
        f"{MINE} jobs/backup.py --restore /backups/2026-05-04",
        {"/backups": "backups"} | EMPTY,
        after=(BACKUP,),
    ),
    Step("stackcast lab down"),
    Step("stackcast lab up --ready", prints="stream     ready after"),
)
#: Commands that fill empty tables with a network.
NETWORKS = tuple(
    Step(f"{MINE} jobs/load_topology.py {options}", EMPTY, prints="switches")
    for options in (
        "--fabric pods=8,racks=4,hosts=2,planes=2,spines=2",
        "--jellyfish switches=256,degree=8,seed=1 --hosts-per-switch 4",
        '--graphml mine.graphml --address-pattern "{switch}.lan:9559"',
    )
)
#: Commands that run while others use a switch that replicates states. Tests fill in the
#: addresses of its hosts.
STATE_SERVICES = (
    Step(
        "stackcast states controller --address 10.0.0.1 --bootstrap-servers kafka:9092",
        ready='"listen"',
    ),
    Step(
        "stackcast states middleware --address 10.0.0.2 --controller 10.0.0.1:65430",
        ready='"listen"',
    ),
)
STATE = "rooms"
PUBLISH_STATE = Step(f'echo "21 degrees" | stackcast states publish {STATE} --name sensor')
STATES = (
    PUBLISH_STATE,
    Step(
        f"stackcast states subscribe {STATE} --name reader",
        ready="21 degrees",
        after=(PUBLISH_STATE,),
    ),
)
STATE_CONTROLLER_JOB = Step(
    f"{MINE} jobs/replica_controller.py", ready="the replica controller listens"
)
STATES_IN_SPARK = (
    Step(f"{MINE} jobs/state_stream.py table:sales.prices --by city", ready="as state prices"),
    Step(
        f"{DOOR} ... jobs/state_stream.py topic:scanner.reports --by scanner "
        "--columns 'scanner INT, rssi INT'",
        ready="as state scanner.reports",
    ),
)
#: Variants of the main jobs, with a lab of their own.
VARIANTS = (
    Step(f"{DOOR} jobs/itch_stream.py --publishers 5", prints="exact"),
    Step(
        f"{DOOR} jobs/itch_stream.py --speed 1000 --messages 20000 --network topozoo/Arnes",
        prints="exact",
    ),
    Step(
        f"{DOOR} --conf spark.stackcast.match=network jobs/attribute_stream.py",
        prints="exact",
    ),
    Step(
        f"{DOOR} --conf spark.stackcast.match=network jobs/attribute_stream.py --network fabric "
        "--subscriptions 5000",
        prints="exact",
    ),
)
STEPS = (
    *FILES,
    TSHARK,
    *SLOW_FILES,
    *INTERFACES,
    *ONE_SWITCH,
    *RECEIVERS,
    *BRING_UP,
    *ATTRIBUTE_DEPLOYMENT,
    ATTRIBUTE_STREAM,
    ATTRIBUTE_RULE,
    *SERVICES,
    *ON_A_STREAM,
    *AFTER_A_STREAM,
    *NETWORKS,
    *STATE_SERVICES,
    *STATES,
    STATE_CONTROLLER_JOB,
    *STATES_IN_SPARK,
    *VARIANTS,
)
