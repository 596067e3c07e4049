"""Settings of the jobs: properties under ``spark.stackcast.``, checked before anything starts.

Every key is one field of `Settings`; `describe` prints the table of docs/operations.md. Keys under
``spark.stackcast.kafka.`` are handed to Kafka as they are (``security.protocol``, ``sasl.*``,
``ssl.*``), which is why they are the only open set.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from stackcast.installation import shipped, var_folder
from stackcast.udfs.errors import SettingsError, nearest
from stackcast.udfs.messages.attributes.events import Widths
from stackcast.udfs.network.encodings import ENCODINGS, WIDE_FORMS, label_format
from stackcast.udfs.network.labels import LabelFormat
from stackcast.udfs.network.publishers import several

PREFIX = "spark.stackcast."
KAFKA_PREFIX = "spark.stackcast.kafka."
#: How records are fetched, which conf/spark-defaults.conf sets: nothing of a deployment.
FETCHING = {"max.poll.records", "max.partition.fetch.bytes", "fetch.max.wait.ms"}


#: Spark's pages and logs hide a property whose key or value has a match, if this is the value of
#: ``spark.redaction.regex``, as in the files of ``conf``.
SECRET = r"(?i)secret|password|token|access[.]?key|jaas|keystore[.]key|PRIVATE KEY"

#: A jar of Spark's Kafka connector, in lists of jars. Its name alone is not a secret.
_TOKEN_JAR = re.compile(r"spark-token-provider-kafka[\w.-]*")

#: Spark counts in int64.
_LARGEST = (1 << 63) - 1


@dataclass(frozen=True)
class Form:
    """Form of a text value, and how an error says it."""

    pattern: str
    words: str


_UNITS = {"millisecond": 0.001, "second": 1.0, "minute": 60.0, "hour": 3600.0}
_INTERVAL = Form(r"\d+ (millisecond|second|minute|hour)s?", "a number and a unit, as in 10 seconds")
_OFFSETS = Form(r"earliest|latest|\{.*\}", "earliest, latest or offsets as JSON")
_STEP = r"(?=[0.]*[1-9])(\d{1,9}(\.\d{1,18})?|\.\d{1,18})"
_STEPS = Form(
    rf"([A-Za-z_]\w*=)?{_STEP}(\s*,\s*([A-Za-z_]\w*=)?{_STEP})*",
    "a number above 0, and numbers by name, as in 0.01,latitude=0.0000001",
)
_GROUP = Form(
    r"2(2[4-9]|3\d)(\.(\d\d?|1\d\d|2[0-4]\d|25[0-5])){3}",
    "an IPv4 multicast group, as in 233.54.12.1",
)
_PUBLISHERS = Form(
    r"\*|[^\s,*]+(\s*,\s*[^\s,*]+)*", "a host, several as in feed1,feed2, or * for all publishers"
)
_PUBLISHER_BY = Form(r"partition|(header|field):\S+", "partition, header:NAME or field:NAME")
_ENDPOINT = Form(r"|.+:\d{1,5}", "host:port")
#: Also among the settings of a batch in the ledger, where partitions stand in place of places.
INGRESSES = "sink.ingresses"
#: Formats that subscriptions may be written for, each for its own job.
FORMATS = ("itch", "attributes")
#: Room for a full stack and the longest message, with labels of 16 bits and with wider ones.
_LEAST_MTU, _LEAST_WIDE_MTU = 256, 384
#: Starts of keys that are no settings, the program that has options in place of them, and their
#: names.
OPTIONS = {
    "lab.": (
        "jobs/itch_stream.py",
        (
            *("folder", "network", "pods", "racks", "hosts", "planes", "spines", "publishers"),
            *("subscriptions", "seed", "messages", "symbols", "session", "speed"),
        ),
    ),
    "mobility.": (
        "examples/mobility/mobility_tracking.py",
        ("edges", "scanners", "reports", "speedup", "loss"),
    ),
}
#: Settings that only a deployment of one's own needs.
_DEPLOYMENT = {"tables", "checkpoint", "sink.udp.endpoint", "sink.af_packet.interface"}


def setting(
    key: str,
    default: Any,
    doc: str,
    choices: tuple[str, ...] = (),
    least: int = 0,
    most: int = _LARGEST,
    form: Form | None = None,
) -> Any:
    """One setting: its key without the prefix, its default, one sentence for the documentation.

    choices hold for what is written, form for texts, least and most for whole numbers.
    """
    limits = {"choices": choices, "least": least, "most": most, "form": form}
    return field(default=default, metadata={"key": key, "doc": doc, **limits})


@dataclass(frozen=True)
class Settings:
    """All settings, typed. Without `bootstrap_servers`, a job runs its own lab.

    Example:
        >>> Settings.read([("spark.stackcast.topic", "trades")]).topic
        'trades'
    """

    topic: str = setting("topic", "itch.raw", "Kafka topic of raw packets")
    dead_letter_topic: str = setting(
        "deadLetter.topic", "itch.dead", "Kafka topic for samples of what could not be read"
    )
    dead_letter_samples: int = setting(
        "deadLetter.samples", 100, "Most samples a task sends there in a batch; all are counted"
    )
    starting_offsets: str = setting(
        "startingOffsets",
        "earliest",
        "Where a stream without checkpoint begins",
        form=_OFFSETS,
    )
    max_offsets_per_trigger: int = setting(
        "maxOffsetsPerTrigger", 400_000, "Most Kafka records in a batch", least=1
    )
    max_bytes_per_trigger: int = setting(
        "maxBytesPerTrigger",
        268_435_456,
        "About as many bytes of values its records have at most; 0 bounds nothing",
    )
    fetch: str = setting(
        "fetch",
        "tasks",
        "Who reads records: the tasks, straight from Kafka's brokers, or Spark's connector, which "
        "also serves where tasks cannot (Kerberos, Java's key stores)",
        ("tasks", "connector"),
    )
    trigger: str = setting(
        "trigger", "0 seconds", "Interval of micro-batches; 0 is back to back", form=_INTERVAL
    )
    wait_seconds: int = setting(
        "waitSeconds", 60, "How long to wait at start for a broker, switch or executors"
    )
    format: str = setting(
        "format",
        "itch",
        "Message format: itch, a file of schemas/messages, or attributes, the table of that name",
        FORMATS,
    )
    attributes_input: str = setting(
        "attributes.input",
        "json",
        "How attribute/value events come from Kafka, one a record",
        ("json", "id_pairs", "bitmask"),
    )
    attributes_encoding: str = setting(
        "attributes.encoding",
        "bitmask",
        "How they go out: pairs of id and value, or a bitmask of ids before the values",
        ("id_pairs", "bitmask"),
    )
    attributes_id_bits: int = setting(
        "attributes.idBits", 8, "Width of an id in pairs of id and value", ("8", "16")
    )
    attributes_bitmask_bits: int = setting(
        "attributes.bitmaskBits",
        32,
        "Width of a bitmask, and how many ids there are; switches that match need a program for it",
        ("8", "16", "32", "64"),
    )
    attributes_unknown: str = setting(
        "attributes.unknown",
        "dead_letter",
        "What becomes of JSON names that the table lacks: register gives them an id",
        ("dead_letter", "register"),
    )
    attributes_steps: str = setting(
        "attributes.steps",
        "0.01",
        "Step of decimal attributes that names are registered as, and steps of single names, as in "
        "0.01,latitude=0.0000001; values are rounded to it, and a step never changes",
        form=_STEPS,
    )
    filter_order: str = setting(
        "filters.order",
        "specification",
        "Order of the fields' tables: as in the specification, or one chosen at the start, as "
        "attribute_stream does by default",
        ("specification", "auto"),
    )
    rule_quota: int = setting(
        "filters.quota",
        0,
        "Quota of each subscriber for enabled rules, counted once per host that a rule forwards "
        "to; its oldest rules stay live; 0: any number",
    )
    tables: str = setting(
        "tables", "var/tables", "Where the Delta tables are: a path, or catalog.schema"
    )
    checkpoint: str = setting("checkpoint", "var/checkpoint/itch", "Checkpoint of the stream")
    publisher: str = setting(
        "publisher",
        "feed1",
        "Host of the network that the frames leave from; or several, as in feed1,feed2, or *, all "
        "hosts with the role of publishers",
        form=_PUBLISHERS,
    )
    publisher_by: str = setting(
        "publisher.by",
        "partition",
        "What says whose a record is, of several publishers: partition, whose number modulo theirs "
        "is the place in the list from 0 on; header:NAME, a header of the record with the host's "
        "name; or field:NAME, a field of messages with the name, or a place from 1 on",
        form=_PUBLISHER_BY,
    )
    max_labels: int = setting(
        "maxLabels",
        64,
        "Most labels of a stack: as many as switches parse, 64, or 512 in encoding port_bitmaps",
        least=1,
        most=512,
    )
    encoding: str = setting(
        "encoding",
        "virtual_trees",
        "How stacks say where a notification goes; the switches' program must be for the same",
        ENCODINGS,
    )
    label_bits: int = setting(
        "label.bits",
        16,
        "Width of labels, where encodings have several; the switches' program must be for the same",
        ("16", "32"),
    )
    # 64 labels and the longest message need 230 bytes, wide labels 358.
    mtu: int = setting(
        "mtu", 1500, "Most bytes of a frame after its Ethernet header", least=256, most=65_535
    )
    group: str = setting("multicast.group", "233.54.12.1", "IPv4 group that hosts see", form=_GROUP)
    port: int = setting("multicast.port", 26400, "UDP port that hosts see", least=1, most=65_535)
    sink: str = setting("sink", "udp", "Where frames go", ("udp", "af_packet", "af_xdp", "pcap"))
    udp_endpoint: str = setting(
        "sink.udp.endpoint", "", "Far end of the UDP tunnel, host:port", form=_ENDPOINT
    )
    udp_window: int = setting(
        "sink.udp.window",
        0,
        "Frames that may be unacknowledged in the tunnel; 0 where the far end acknowledges none",
    )
    interface: str = setting(
        "sink.af_packet.interface", "", "Network interface to send on, of af_packet and af_xdp"
    )
    pcap_path: str = setting("sink.pcap.path", "var/frames", "Folder for pcap files")
    sink_places: str = setting(
        "sink.places",
        "",
        "Other tunnels, interfaces or folders for executors at some places, as in "
        "node1=eth1,node2=eth2, of several publishers as in feed1@node1=eth1; a place is "
        "STACKCAST_PLACE in the executor's environment, else its host name",
    )
    sink_ingresses: str = setting(
        INGRESSES,
        "",
        "Hosts with role publisher by whose links all enters that executors at some places send, "
        "whosever it is, as in node1=feed1,node2=feed2; elsewhere each publisher's enters by its "
        "own",
    )
    sink_publishers: str = setting(
        "sink.publishers",
        "",
        "Of several publishers, other tunnels or interfaces of some, as in feed1=eth1,feed2=eth2; "
        "in the sink's own setting and in ways of places {publisher} and {switch} stand for a "
        "publisher and its switch",
    )
    latency: str = setting(
        "latency",
        "auto",
        "realtime: milliseconds; microbatch: a quarter of a second, any number of partitions; or "
        "auto: real time where tasks fetch, slots suffice and no trigger is set",
        ("auto", "microbatch", "realtime"),
    )
    realtime_slice: str = setting(
        "realtime.slice",
        "1 second",
        "Length of a batch in real time",
        form=_INTERVAL,
    )
    ledger_interval: str = setting(
        "ledger.interval",
        "2 seconds",
        "How long rows of ledger and statistics may wait to be written together",
        form=_INTERVAL,
    )
    summary_port: int = setting(
        "summary.port",
        26401,
        "UDP port of the summaries that tell hosts what they should have received; 0 sends none",
        most=65_535,
    )
    summary_interval: str = setting(
        "summary.interval",
        "4 seconds",
        "How long hosts that little is for may wait for a summary; with 0 seconds each batch "
        "tells all",
        form=_INTERVAL,
    )
    summary_keys: str = setting(
        "summary.keys",
        "",
        "File of the keys that authenticate summaries, the first one does: lines of an id and 64 "
        "hex digits; none: they bear no tag",
    )
    rerequest_listen: str = setting(
        "rerequest.listen",
        "127.0.0.1:26402",
        "Where jobs/rerequest.py takes requests, host:port; loopback hears this machine alone",
        form=_ENDPOINT,
    )
    rerequest_identify: str = setting(
        "rerequest.identify",
        "address",
        "How it knows the asking host: by its IPv4 address, or by a name in the request",
        ("address", "name"),
    )
    metrics_port: int = setting(
        "metrics.port",
        0,
        "TCP port of metrics (/metrics) and health (/health); 0 serves none",
        most=65_535,
    )
    metrics_host: str = setting("metrics.host", "127.0.0.1", "Address that they are served at")
    metrics_hosts: int = setting(
        "metrics.hosts",
        200,
        "Where the stream sends to so many hosts or fewer, each has a series of its own; 0: never",
        least=0,
    )
    match: str = setting(
        "match",
        "spark",
        "Where events meet subscriptions: in the stream, or on the switches",
        ("spark", "network"),
    )
    p4_folder: str = setting(
        "p4.folder",
        "p4/compiled",
        "Folder of the compiled P4 programs: P4Info and what the target loads",
    )
    election_id: int = setting(
        "p4runtime.electionId", 1, "Election id towards the switches; the highest writes", least=1
    )
    read_back_seconds: int = setting(
        "p4runtime.readBackSeconds",
        30,
        "Time in which all entries of all switches are read back once; 0 disables this",
        least=0,
    )
    role: str = setting(
        "p4runtime.role",
        "",
        "P4Runtime role by which switches are read and written; empty: the default one, which may "
        "all",
    )
    tls_ca: str = setting(
        "p4runtime.tls.ca",
        "",
        "PEM file of who signs the switches' certificates; {switch} is a switch's name",
    )
    tls_certificate: str = setting(
        "p4runtime.tls.certificate", "", "PEM file of our certificate; {switch} is a switch's name"
    )
    tls_key: str = setting(
        "p4runtime.tls.key", "", "PEM file of its private key; {switch} is a switch's name"
    )
    states_topics: str = setting(
        "states.topics",
        "states",
        "What the replica controller's topics begin with: -control has its facts, -backlog updates",
    )
    states_checkpoint: str = setting(
        "states.checkpoint",
        "var/checkpoint/states",
        "Folder of the checkpoints of jobs/replica_controller.py and jobs/state_stream.py",
    )
    states_address: str = setting(
        "states.address",
        "",
        "IPv4 address, in the network of states, of the host that jobs/replica_controller.py runs "
        "on; empty: it only keeps the tables, for a controller that runs elsewhere",
    )
    states_listen: str = setting(
        "states.listen",
        "127.0.0.1:65430",
        "Where its controller waits for middlewares, host:port; loopback hears this machine alone",
        form=_ENDPOINT,
    )
    states_link: str = setting(
        "states.link",
        "",
        "Its tunnel to a switch's port, udp:NEAR:PORT/FAR:PORT; empty: the address's interface",
    )
    states_middleware: str = setting(
        "states.middleware",
        "127.0.0.1:65431",
        "The middleware of the host that jobs/state_stream.py runs on, host:port",
        form=_ENDPOINT,
    )
    states_tls_ca: str = setting(
        "states.tls.ca",
        "",
        "PEM file of the CA that signs the certificates of replica controller, middlewares and "
        "programs; set all three of these, or none for plain TCP",
    )
    states_tls_certificate: str = setting(
        "states.tls.certificate",
        "",
        "PEM file of the certificate of jobs/replica_controller.py or jobs/state_stream.py",
    )
    states_tls_key: str = setting("states.tls.key", "", "PEM file of its private key")

    #: Not to be printed: passwords are among them.
    kafka: dict[str, str] = field(default_factory=dict, repr=False)
    #: Keys that were given, without the prefix.
    given: frozenset[str] = frozenset()

    @property
    def embedded(self) -> bool:
        """True where no broker is configured: the job brings up the lab and uses it.

        Raises SettingsError NO_BROKER where other settings speak of a deployment: a misspelt
        broker must not turn into a run of the lab.
        """
        if "bootstrap.servers" in self.kafka:
            return False
        others = [KAFKA_PREFIX + key for key in self.kafka if key not in FETCHING]
        others += [PREFIX + key for key in self.given if key in _DEPLOYMENT]
        if others:
            raise SettingsError(
                "NO_BROKER",
                f"{', '.join(sorted(others))} is set, but {KAFKA_PREFIX}bootstrap.servers is not: "
                "set it, or none of them to run on the embedded lab",
            )
        return True

    @property
    def publisher_header(self) -> str:
        """The header of records that names their publisher; empty where none does."""
        kind, _, name = self.publisher_by.partition(":")
        return name if kind == "header" else ""

    def require_one_publisher(self, what: str) -> None:
        """Raises SettingsError SEVERAL_PUBLISHERS where there are several; what: what is for one
        alone."""
        if several(self.publisher):
            raise SettingsError(
                "SEVERAL_PUBLISHERS",
                f"{PREFIX}publisher is {self.publisher!r}, and {what} is for one publisher: name "
                "one, and give each a job of its own",
            )

    def require_broker(self) -> None:
        """Raises SettingsError NO_BROKER where no broker is named."""
        if "bootstrap.servers" not in self.kafka:
            raise SettingsError(
                "NO_BROKER",
                f"{KAFKA_PREFIX}bootstrap.servers is not set: give the properties of the stream "
                "whose topic is asked for",
            )

    @property
    def widths(self) -> Widths:
        """The widths of headers of attribute/value events."""
        return Widths(self.attributes_id_bits, self.attributes_bitmask_bits)

    @property
    def labels(self) -> LabelFormat:
        """The format of the network's labels."""
        return label_format(self.encoding, self.label_bits)

    @staticmethod
    def read(properties: Iterable[tuple[str, str]]) -> Settings:
        """Settings from Spark properties; keys outside ``spark.stackcast.`` are ignored.

        Raises SettingsError UNKNOWN_KEY (with the nearest key) or BAD_VALUE (with key and value).
        """
        known = {f.metadata["key"]: f for f in fields(Settings) if f.metadata}
        values: dict[str, Any] = {}
        kafka: dict[str, str] = {}
        for key, text in properties:
            if key.startswith(KAFKA_PREFIX):
                kafka[key.removeprefix(KAFKA_PREFIX)] = text
            elif key.startswith(PREFIX):
                name = key.removeprefix(PREFIX)
                if name not in known:
                    raise _unknown(key, name, known)
                values[known[name].name] = _parse(key, text, known[name])
        given = frozenset(f.metadata["key"] for f in known.values() if f.name in values)
        for setting_field in known.values():
            if setting_field.name not in values:
                values[setting_field.name] = at_home(setting_field.default)
        made = Settings(**values, kafka=kafka, given=given)
        if made.label_bits != 16 and made.encoding not in WIDE_FORMS:
            words = f"16 with {PREFIX}encoding {made.encoding}"
            raise _bad(f"{PREFIX}label.bits", str(made.label_bits), words)
        if made.max_labels > made.labels.max_labels:
            words = f"from 1 to {made.labels.max_labels} with {PREFIX}encoding {made.encoding}"
            raise _bad(f"{PREFIX}maxLabels", str(made.max_labels), words)
        least = _LEAST_MTU if made.labels.size == 2 else _LEAST_WIDE_MTU
        if made.mtu < least:
            words = f"{least} or more with labels of {made.labels.bits} bits"
            raise _bad(f"{PREFIX}mtu", str(made.mtu), words)
        if made.publisher_by != "partition" and not several(made.publisher):
            key = f"{PREFIX}publisher.by"
            raise _bad(key, made.publisher_by, f"partition where {PREFIX}publisher names one host")
        return made


def at_home(default: Any) -> Any:
    """Return the value of a default that names a file or folder.

    ``var/NAME`` is ``NAME`` in the folder of what programs write, and ``p4/compiled`` is the folder
    of the compiled P4 programs that the package is shipped with.
    """
    if not isinstance(default, str):
        return default
    if default.startswith("var/"):
        return str(var_folder() / default.removeprefix("var/"))
    return str(shipped(default)) if default == "p4/compiled" else default


def secret_keys(properties: Mapping[str, str]) -> list[str]:
    """Returns the keys of Spark properties that are, or lead to, a secret."""
    hidden = re.compile(SECRET)
    return sorted(
        key
        for key, text in properties.items()
        if not key.startswith("spark.redaction.")
        and text
        and (
            key == f"{PREFIX}summary.keys"
            or hidden.search(key)
            or hidden.search(_TOKEN_JAR.sub("", text))
        )
    )


def seconds_of(interval: str) -> float:
    """Seconds of an interval as settings have it, as in ``5 minutes``."""
    count, unit = interval.split()
    return float(count) * _UNITS[unit.removesuffix("s")]


def describe() -> list[tuple[str, str, str]]:
    """Rows (key, default, meaning) of all settings, for the documentation."""
    rows = [
        (PREFIX + f.metadata["key"], str(f.default), _meaning(f))
        for f in fields(Settings)
        if f.metadata
    ]
    return [
        *rows,
        (KAFKA_PREFIX + "*", "", "Options of the Kafka client, such as bootstrap.servers"),
    ]


def _meaning(setting_field: Any) -> str:
    choices = setting_field.metadata["choices"]
    return str(setting_field.metadata["doc"]) + (f" ({', '.join(choices)})" if choices else "")


def _unknown(key: str, name: str, known: dict[str, Any]) -> SettingsError:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {PREFIX}{near[0]}?" if near else "; docs/operations.md lists all keys"
    for start, (program, options) in OPTIONS.items():
        if name.startswith(start):
            hint = _option_hint(name.removeprefix(start), program, options)
    return SettingsError("UNKNOWN_KEY", f"there is no setting {key}{hint}", key=key)


def _option_hint(name: str, program: str, options: tuple[str, ...]) -> str:
    """Return the end of the error for a key that is an option of a program, or similar to one."""
    option = name if name in options else nearest(name, options)
    if option is None:
        return f"; {program} --help lists its options"
    return f"; give an option to the program, as in {program} --{option}"


def _parse(key: str, text: str, setting_field: Any) -> Any:
    limits = setting_field.metadata
    if isinstance(setting_field.default, int):
        try:
            number = int(text.replace("_", ""))
        except ValueError:
            raise _bad(key, text, "a whole number") from None
        if limits["choices"]:
            if str(number) not in limits["choices"]:
                raise _bad(key, text, " or ".join(limits["choices"]))
            return number
        if not limits["least"] <= number <= limits["most"]:
            span = f"of {limits['least']} or more"
            if limits["most"] != _LARGEST or number > _LARGEST:
                span = f"from {limits['least']} to {limits['most']}"
            raise _bad(key, text, f"a whole number {span}")
        return number
    if limits["choices"] and text not in limits["choices"]:
        raise _bad(key, text, f"one of {', '.join(limits['choices'])}")
    if limits["form"] is _OFFSETS and text.startswith("{"):
        try:
            json.loads(text)
        except ValueError:
            raise _bad(key, text, _OFFSETS.words) from None
    if limits["form"] and not re.fullmatch(limits["form"].pattern, text, re.ASCII):
        raise _bad(key, text, limits["form"].words)
    if setting_field.default and not text.strip():
        raise _bad(key, text, "something")
    return text


def _bad(key: str, text: str, wanted: str) -> SettingsError:
    return SettingsError("BAD_VALUE", f"{key} is {text!r}, but must be {wanted}", key=key)
