"""Settings of the jobs: properties under ``spark.stackcast.``, checked before anything starts.

Every key is a field of `Settings`. `describe` returns the table of docs/reference/settings.md. Keys
under ``spark.stackcast.kafka.`` are passed to Kafka unchanged (``security.protocol``, ``sasl.*``,
``ssl.*``) and are the only keys that are not checked.
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
#: Kafka options for fetching, which conf/spark-defaults.conf sets. They do not imply a deployment.
FETCHING = {"max.poll.records", "max.partition.fetch.bytes", "fetch.max.wait.ms"}


#: Spark's pages and logs hide properties whose key or value matches ``spark.redaction.regex``. The
#: files in ``conf`` set it to this expression.
SECRET = r"(?i)secret|password|token|access[.]?key|jaas|keystore[.]key|PRIVATE KEY"

#: A jar of Spark's Kafka connector in lists of jars. Its name contains "token", but is no secret.
_TOKEN_JAR = re.compile(r"spark-token-provider-kafka[\w.-]*")

#: Largest int64, the type of Spark's numbers.
_LARGEST = (1 << 63) - 1


@dataclass(frozen=True)
class Form:
    """Pattern of a text value, and its description in errors."""

    pattern: str
    words: str


_UNITS = {"millisecond": 0.001, "second": 1.0, "minute": 60.0, "hour": 3600.0}
_INTERVAL = Form(
    r"\d+ (millisecond|second|minute|hour)s?", "a number with a unit, such as 10 seconds"
)
_OFFSETS = Form(r"earliest|latest|\{.*\}", "earliest, latest or offsets as JSON")
_STEP = r"(?=[0.]*[1-9])(\d{1,9}(\.\d{1,18})?|\.\d{1,18})"
_STEPS = Form(
    rf"([A-Za-z_]\w*=)?{_STEP}(\s*,\s*([A-Za-z_]\w*=)?{_STEP})*",
    "positive numbers, with or without a name, as in 0.01,latitude=0.0000001",
)
_GROUP = Form(
    r"2(2[4-9]|3\d)(\.(\d\d?|1\d\d|2[0-4]\d|25[0-5])){3}",
    "an IPv4 multicast group such as 233.54.12.1",
)
_PUBLISHERS = Form(
    r"\*|[^\s,*]+(\s*,\s*[^\s,*]+)*",
    "a host, a list of hosts such as feed1,feed2, or * for all publishers",
)
_PUBLISHER_BY = Form(r"partition|(header|field):\S+", "partition, header:NAME or field:NAME")
_ENDPOINT = Form(r"|.+:\d{1,5}", "host:port")
#: Formats of subscriptions. Each format has its own job.
FORMATS = ("itch", "attributes")
#: Smallest MTU for a full stack and the longest message, with labels of 16 bits and wider ones.
_LEAST_MTU, _LEAST_WIDE_MTU = 256, 384
#: Prefixes of keys that are not settings, the program that has options instead, and their names.
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
#: Settings that only a deployment needs.
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
    """Define a setting.

    Args:
        key: key without the prefix.
        default: default value, which determines the type.
        doc: description for the documentation, without a period at the end.
        choices: valid values as they are written.
        least: smallest valid integer.
        most: largest valid integer.
        form: valid texts.
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
        "deadLetter.topic", "itch.dead", "Kafka topic for samples of dead letters"
    )
    dead_letter_samples: int = setting(
        "deadLetter.samples",
        100,
        "Maximum number of dead-letter samples per task and batch; all dead letters are counted",
    )
    starting_offsets: str = setting(
        "startingOffsets",
        "earliest",
        "Offsets at which a stream without a checkpoint starts: earliest, latest or JSON",
        form=_OFFSETS,
    )
    max_offsets_per_trigger: int = setting(
        "maxOffsetsPerTrigger", 400_000, "Maximum number of Kafka records per batch", least=1
    )
    max_bytes_per_trigger: int = setting(
        "maxBytesPerTrigger",
        268_435_456,
        "Approximate maximum bytes of record values per batch; 0 means unlimited",
    )
    fetch: str = setting(
        "fetch",
        "tasks",
        "Component that reads Kafka records: Spark tasks, which fetch records directly from the "
        "brokers, or Spark's connector, which also supports Kerberos and Java key stores",
        ("tasks", "connector"),
    )
    trigger: str = setting(
        "trigger",
        "0 seconds",
        "Interval between micro-batches; 0 seconds starts each batch when the previous one ends",
        form=_INTERVAL,
    )
    wait_seconds: int = setting(
        "waitSeconds",
        60,
        "Maximum time in seconds to wait at startup for a broker, a switch or executors",
    )
    format: str = setting(
        "format",
        "itch",
        "Message format: itch is specified by a file in schemas/messages, attributes by the table "
        "of that name",
        FORMATS,
    )
    attributes_input: str = setting(
        "attributes.input",
        "json",
        "Encoding of attribute/value events in Kafka, with one event per record",
        ("json", "id_pairs", "bitmask"),
    )
    attributes_encoding: str = setting(
        "attributes.encoding",
        "bitmask",
        "Encoding of outgoing attribute/value events: pairs of id and value, or a bitmask of ids "
        "followed by the values",
        ("id_pairs", "bitmask"),
    )
    attributes_id_bits: int = setting(
        "attributes.idBits",
        8,
        "Width of attribute ids in bits in the id_pairs encoding",
        ("8", "16"),
    )
    attributes_bitmask_bits: int = setting(
        "attributes.bitmaskBits",
        32,
        "Width of the attribute bitmask in bits, which is also the maximum number of ids; "
        "switches that match events need a program that was compiled for this width",
        ("8", "16", "32", "64"),
    )
    attributes_unknown: str = setting(
        "attributes.unknown",
        "dead_letter",
        "Handling of JSON names that are not in table attributes: the event becomes a dead letter, "
        "or the name is registered with a new id",
        ("dead_letter", "register"),
    )
    attributes_steps: str = setting(
        "attributes.steps",
        "0.01",
        "Step size of decimal attributes that the stream registers, optionally followed by step "
        "sizes of individual attributes, as in 0.01,latitude=0.0000001; values are rounded to the "
        "step size, which never changes",
        form=_STEPS,
    )
    filter_order: str = setting(
        "filters.order",
        "specification",
        "Order in which the compiled filter evaluates fields: the order of the specification, or "
        "one that the stream chooses when it starts; attribute_stream uses auto by default",
        ("specification", "auto"),
    )
    rule_quota: int = setting(
        "filters.quota",
        0,
        "Maximum number of enabled rules per subscriber, where a rule counts once per host that "
        "it forwards to; the oldest rules stay live; 0 means unlimited",
    )
    tables: str = setting(
        "tables", "var/tables", "Location of the Delta tables: a path or catalog.schema"
    )
    checkpoint: str = setting(
        "checkpoint", "var/checkpoint/itch", "Folder of the stream's checkpoint"
    )
    publisher: str = setting(
        "publisher",
        "feed1",
        "Hosts that publish events: one name, several names as in feed1,feed2, or * for all hosts "
        "with the role publisher",
        form=_PUBLISHERS,
    )
    publisher_by: str = setting(
        "publisher.by",
        "partition",
        "How to determine the publisher of a record if there are several publishers: partition "
        "(the partition number modulo the number of publishers is an index into the list, starting "
        "at 0), header:NAME (a record header contains the host name), or field:NAME (a message "
        "field contains the host name, or an index starting at 1)",
        form=_PUBLISHER_BY,
    )
    max_labels: int = setting(
        "maxLabels",
        64,
        "Maximum number of labels in a header stack; switches parse 64 labels, or 512 with "
        "encoding port_bitmaps",
        least=1,
        most=512,
    )
    encoding: str = setting(
        "encoding",
        "virtual_trees",
        "Encoding of paths in header stacks; the switches' program must use the same encoding",
        ENCODINGS,
    )
    label_bits: int = setting(
        "label.bits",
        16,
        "Width of labels in bits, for encodings that support several widths; the switches' "
        "program must use the same width",
        ("16", "32"),
    )
    # 64 labels and the longest message need 230 bytes, wide labels 358.
    mtu: int = setting(
        "mtu",
        1500,
        "Maximum size of a frame in bytes, without its Ethernet header",
        least=256,
        most=65_535,
    )
    group: str = setting(
        "multicast.group",
        "233.54.12.1",
        "IPv4 multicast address of the notifications that hosts receive",
        form=_GROUP,
    )
    port: int = setting(
        "multicast.port",
        26400,
        "Destination UDP port of the notifications that hosts receive",
        least=1,
        most=65_535,
    )
    sink: str = setting(
        "sink", "udp", "Destination of frames", ("udp", "af_packet", "af_xdp", "pcap")
    )
    udp_endpoint: str = setting(
        "sink.udp.endpoint",
        "",
        "Remote end of the UDP tunnel, as host:port, for frames without a transport in table "
        "ingresses; {publisher} and {switch} are replaced by a publisher and its switch",
        form=_ENDPOINT,
    )
    udp_window: int = setting(
        "sink.udp.window",
        0,
        "Maximum number of unacknowledged frames in the UDP tunnel; set 0 if the remote end does "
        "not acknowledge frames",
    )
    interface: str = setting(
        "sink.af_packet.interface",
        "",
        "Network interface of the sinks af_packet and af_xdp, for frames without a transport in "
        "table ingresses; {publisher} and {switch} are replaced by a publisher and its switch",
    )
    pcap_path: str = setting("sink.pcap.path", "var/frames", "Folder for pcap files")
    latency: str = setting(
        "latency",
        "auto",
        "Processing mode: realtime has a latency of milliseconds; microbatch has a latency of "
        "about 250 ms and supports any number of partitions; auto selects realtime if tasks fetch "
        "records, there are enough slots and no trigger is set",
        ("auto", "microbatch", "realtime"),
    )
    realtime_slice: str = setting(
        "realtime.slice",
        "1 second",
        "Duration of a batch in real-time mode",
        form=_INTERVAL,
    )
    ledger_interval: str = setting(
        "ledger.interval",
        "2 seconds",
        "Maximum time for which ledger and statistics rows are buffered before they are written",
        form=_INTERVAL,
    )
    summary_port: int = setting(
        "summary.port",
        26401,
        "UDP port for summaries, with which hosts detect lost notifications; 0 disables summaries",
        most=65_535,
    )
    summary_interval: str = setting(
        "summary.interval",
        "4 seconds",
        "Maximum time between two summaries to a host that receives few notifications; with 0 "
        "seconds, all hosts get a summary after each batch",
        form=_INTERVAL,
    )
    summary_keys: str = setting(
        "summary.keys",
        "",
        "File with the keys that authenticate summaries, one id and 64 hex digits per line; the "
        "first key is used for signing; empty means that summaries have no tag",
    )
    rerequest_listen: str = setting(
        "rerequest.listen",
        "127.0.0.1:26402",
        "Address at which jobs/rerequest.py receives requests, as host:port; a loopback address "
        "accepts requests from this machine only",
        form=_ENDPOINT,
    )
    rerequest_identify: str = setting(
        "rerequest.identify",
        "address",
        "Identification of the requesting host: by its IPv4 address, or by a name in the request",
        ("address", "name"),
    )
    metrics_port: int = setting(
        "metrics.port",
        0,
        "TCP port for /metrics and /health; 0 disables the server",
        most=65_535,
    )
    metrics_host: str = setting(
        "metrics.host", "127.0.0.1", "Address at which metrics and health are served"
    )
    metrics_hosts: int = setting(
        "metrics.hosts",
        200,
        "Maximum number of hosts with individual metrics; if there are more hosts, no per-host "
        "metrics are exported; 0 disables these metrics",
        least=0,
    )
    match: str = setting(
        "match",
        "spark",
        "Component that matches events against subscriptions: the stream or the switches",
        ("spark", "network"),
    )
    p4_folder: str = setting(
        "p4.folder",
        "p4/compiled",
        "Folder of the compiled P4 programs: their P4Info files and the files for the target",
    )
    election_id: int = setting(
        "p4runtime.electionId",
        1,
        "P4Runtime election id; the client with the highest id writes to the switches",
        least=1,
    )
    read_back_seconds: int = setting(
        "p4runtime.readBackSeconds",
        30,
        "Interval in seconds at which all switch entries are read back; 0 disables the check",
        least=0,
    )
    role: str = setting(
        "p4runtime.role",
        "",
        "P4Runtime role on the switches; empty means the default role, which has full access",
    )
    tls_ca: str = setting(
        "p4runtime.tls.ca",
        "",
        "PEM file of the CA that signs a switch's certificate; {switch} is replaced by its name",
    )
    tls_certificate: str = setting(
        "p4runtime.tls.certificate",
        "",
        "PEM file of the client certificate for a switch; {switch} is replaced by its name",
    )
    tls_key: str = setting(
        "p4runtime.tls.key",
        "",
        "PEM file of the client's private key for a switch; {switch} is replaced by its name",
    )
    states_topics: str = setting(
        "states.topics",
        "states",
        "Prefix of the replica controller's topics, which are PREFIX-control for facts and "
        "PREFIX-backlog for updates",
    )
    states_checkpoint: str = setting(
        "states.checkpoint",
        "var/checkpoint/states",
        "Folder of the checkpoints of jobs/replica_controller.py and jobs/state_stream.py",
    )
    states_address: str = setting(
        "states.address",
        "",
        "IPv4 address of the host that runs jobs/replica_controller.py, in the network for "
        "replicated state; empty means that the job only writes tables for a controller that runs "
        "elsewhere",
    )
    states_listen: str = setting(
        "states.listen",
        "127.0.0.1:65430",
        "Address at which the replica controller accepts connections from middlewares, as "
        "host:port; a loopback address accepts connections from this machine only",
        form=_ENDPOINT,
    )
    states_link: str = setting(
        "states.link",
        "",
        "UDP tunnel from the replica controller to a port of a switch, as udp:NEAR:PORT/FAR:PORT; "
        "empty means the network interface that has the address",
    )
    states_middleware: str = setting(
        "states.middleware",
        "127.0.0.1:65431",
        "Address of the middleware on the host that runs jobs/state_stream.py, as host:port",
        form=_ENDPOINT,
    )
    states_tls_ca: str = setting(
        "states.tls.ca",
        "",
        "PEM file of the CA that signs the certificates of the replica controller, middlewares "
        "and programs; set all three states.tls settings, or leave all three empty to use TCP "
        "without TLS",
    )
    states_tls_certificate: str = setting(
        "states.tls.certificate",
        "",
        "PEM file of the certificate of jobs/replica_controller.py or jobs/state_stream.py",
    )
    states_tls_key: str = setting(
        "states.tls.key",
        "",
        "PEM file of the private key of jobs/replica_controller.py or jobs/state_stream.py",
    )

    #: Never print these options: they may contain passwords.
    kafka: dict[str, str] = field(default_factory=dict, repr=False)
    #: Keys that were set explicitly, without the prefix.
    given: frozenset[str] = frozenset()

    @property
    def embedded(self) -> bool:
        """True if no broker is configured, so that the job starts the lab and uses it.

        Raises SettingsError NO_BROKER if other settings imply a deployment, because a misspelled
        broker setting must not start the lab.
        """
        if "bootstrap.servers" in self.kafka:
            return False
        deployment = [KAFKA_PREFIX + key for key in self.kafka if key not in FETCHING]
        deployment += [PREFIX + key for key in self.given if key in _DEPLOYMENT]
        if deployment:
            raise SettingsError(
                "NO_BROKER",
                f"{', '.join(sorted(deployment))} is set, but {KAFKA_PREFIX}bootstrap.servers is "
                "not: set both, or neither to run on the embedded lab",
            )
        return True

    @property
    def publisher_header(self) -> str:
        """The record header that names the publisher; empty if there is none."""
        kind, _, name = self.publisher_by.partition(":")
        return name if kind == "header" else ""

    def require_one_publisher(self, what: str) -> None:
        """Raise SettingsError SEVERAL_PUBLISHERS if there are several publishers.

        Args:
            what: object of the error message that supports a single publisher only.
        """
        if several(self.publisher):
            raise SettingsError(
                "SEVERAL_PUBLISHERS",
                f"{PREFIX}publisher is {self.publisher!r}, but {what} supports one publisher only: "
                "name one publisher, and run a separate job for each",
            )

    def require_broker(self) -> None:
        """Raise SettingsError NO_BROKER if no broker is configured."""
        if "bootstrap.servers" not in self.kafka:
            raise SettingsError(
                "NO_BROKER",
                f"{KAFKA_PREFIX}bootstrap.servers is not set: use the properties of the stream "
                "that reads the topic",
            )

    @property
    def widths(self) -> Widths:
        """The widths of ids and bitmasks of attribute/value events."""
        return Widths(self.attributes_id_bits, self.attributes_bitmask_bits)

    @property
    def labels(self) -> LabelFormat:
        """The format of the labels in the network."""
        return label_format(self.encoding, self.label_bits)

    @staticmethod
    def read(properties: Iterable[tuple[str, str]]) -> Settings:
        """Parse settings from Spark properties; keys outside ``spark.stackcast.`` are ignored.

        Raises SettingsError UNKNOWN_KEY (with the nearest key) or BAD_VALUE (with key and value).
        """
        by_key = {f.metadata["key"]: f for f in fields(Settings) if f.metadata}
        values: dict[str, Any] = {}
        kafka: dict[str, str] = {}
        for key, text in properties:
            if key.startswith(KAFKA_PREFIX):
                kafka[key.removeprefix(KAFKA_PREFIX)] = text
            elif key.startswith(PREFIX):
                name = key.removeprefix(PREFIX)
                if name not in by_key:
                    raise _unknown(key, name, by_key)
                values[by_key[name].name] = _parse(key, text, by_key[name])
        explicit = frozenset(f.metadata["key"] for f in by_key.values() if f.name in values)
        for setting_field in by_key.values():
            if setting_field.name not in values:
                values[setting_field.name] = at_home(setting_field.default)
        settings = Settings(**values, kafka=kafka, given=explicit)
        if settings.label_bits != 16 and settings.encoding not in WIDE_FORMS:
            words = f"16 with {PREFIX}encoding {settings.encoding}"
            raise _bad(f"{PREFIX}label.bits", str(settings.label_bits), words)
        if settings.max_labels > settings.labels.max_labels:
            words = (
                f"from 1 to {settings.labels.max_labels} with {PREFIX}encoding {settings.encoding}"
            )
            raise _bad(f"{PREFIX}maxLabels", str(settings.max_labels), words)
        least = _LEAST_MTU if settings.labels.size == 2 else _LEAST_WIDE_MTU
        if settings.mtu < least:
            words = f"{least} or more with labels of {settings.labels.bits} bits"
            raise _bad(f"{PREFIX}mtu", str(settings.mtu), words)
        if settings.publisher_by != "partition" and not several(settings.publisher):
            key = f"{PREFIX}publisher.by"
            raise _bad(key, settings.publisher_by, f"partition if {PREFIX}publisher names one host")
        return settings


def at_home(default: Any) -> Any:
    """Return a default with its path resolved, if it is the path of a file or folder.

    ``var/NAME`` becomes ``NAME`` in the folder for generated files, and ``p4/compiled`` becomes the
    folder of compiled P4 programs in the package.
    """
    if not isinstance(default, str):
        return default
    if default.startswith("var/"):
        return str(var_folder() / default.removeprefix("var/"))
    return str(shipped(default)) if default == "p4/compiled" else default


def secret_keys(properties: Mapping[str, str]) -> list[str]:
    """Return the keys of Spark properties that contain a secret or name a file with one."""
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
    """Return the seconds of an interval in the format of settings, such as ``5 minutes``."""
    count, unit = interval.split()
    return float(count) * _UNITS[unit.removesuffix("s")]


def describe() -> list[tuple[str, str, str]]:
    """Return rows of key, default and description of all settings, for the documentation."""
    rows = [
        (PREFIX + f.metadata["key"], str(f.default), _meaning(f))
        for f in fields(Settings)
        if f.metadata
    ]
    return [
        *rows,
        (KAFKA_PREFIX + "*", "", "Options of the Kafka client, such as bootstrap.servers."),
    ]


def _meaning(setting_field: Any) -> str:
    choices = setting_field.metadata["choices"]
    values = f" Valid values: {', '.join(choices)}." if choices else ""
    return f"{setting_field.metadata['doc']}.{values}"


def _unknown(key: str, name: str, by_key: dict[str, Any]) -> SettingsError:
    near = difflib.get_close_matches(name, by_key, n=1)
    hint = f"; did you mean {PREFIX}{near[0]}?" if near else "; see docs/reference/settings.md"
    for start, (program, options) in OPTIONS.items():
        if name.startswith(start):
            hint = _option_hint(name.removeprefix(start), program, options)
    return SettingsError("UNKNOWN_KEY", f"there is no setting {key}{hint}", key=key)


def _option_hint(name: str, program: str, options: tuple[str, ...]) -> str:
    """Return the end of the error for a key that is, or resembles, an option of a program."""
    option = name if name in options else nearest(name, options)
    if option is None:
        return f"; {program} --help lists its options"
    return f"; use an option of the program instead: {program} --{option}"


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
        raise _bad(key, text, "non-empty text")
    return text


def _bad(key: str, text: str, expected: str) -> SettingsError:
    return SettingsError("BAD_VALUE", f"{key} is {text!r}, but must be {expected}", key=key)
