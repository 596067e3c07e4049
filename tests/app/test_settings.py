"""Settings: what is misspelt or malformed stops a job with its name, before anything starts."""

from __future__ import annotations

import ast
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import COMPILED_P4, ROOT

from stackcast.jobs.adapters.app.settings import (
    FETCHING,
    KAFKA_PREFIX,
    OPTIONS,
    PREFIX,
    Settings,
    describe,
)
from stackcast.jobs.adapters.retune.options import RetuneOptions
from stackcast.jobs.embedded.options import RunOptions
from stackcast.udfs.errors import SettingsError
from stackcast.udfs.network.labels import NARROW, WIDE
from stackcast.udfs.network.source_routes import WIDE_SOURCE_ROUTES

pytestmark = pytest.mark.unit


def read(**properties: str) -> Settings:
    """Settings of keys without the prefix, ``_`` for a dot."""
    return Settings.read((PREFIX + key.replace("_", "."), v) for key, v in properties.items())


def refused(key: str, value: str) -> SettingsError:
    with pytest.raises(SettingsError) as caught:
        Settings.read([(PREFIX + key, value)])
    return caught.value


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder is named by the environment, as where the package alone is installed."""
    monkeypatch.delenv("STACKCAST_HOME", raising=False)
    monkeypatch.delenv("STACKCAST_VAR", raising=False)


def test_without_any_setting_the_embedded_lab_is_meant():
    settings = Settings.read([])
    assert settings == Settings(p4_folder=str(COMPILED_P4)) and settings.embedded
    assert (settings.topic, settings.dead_letter_topic) == ("itch.raw", "itch.dead")
    assert settings.sink == "udp" and settings.tables == "var/tables"


def test_every_setting_can_be_given_by_its_key():
    for field in fields(Settings):
        if not field.metadata:
            continue
        if field.metadata["choices"]:
            given_text = field.metadata["choices"][-1]
            expected = type(field.default)(given_text)
        elif isinstance(field.default, int):
            expected = field.default - 1 if field.default > field.metadata["least"] else 7
            given_text = str(expected)
        else:
            given_text = expected = field.default or "10.0.0.9:26400"
        settings = Settings.read([(PREFIX + field.metadata["key"], given_text)])
        assert getattr(settings, field.name) == expected, field.name


def test_wide_labels_have_a_format_and_need_a_larger_mtu():
    wide = (PREFIX + "label.bits", "32")
    assert Settings.read([]).labels == NARROW and Settings.read([wide]).labels == WIDE
    assert Settings.read([wide, (PREFIX + "mtu", "384")]).mtu == 384
    with pytest.raises(SettingsError, match=r"BAD_VALUE.*mtu.*384 or more with labels of 32"):
        Settings.read([wide, (PREFIX + "mtu", "383")])


def test_the_keys_are_all_different_and_all_described():
    rows = describe()
    keys = [key for key, _, _ in rows]
    assert len(set(keys)) == len(keys) == sum(bool(f.metadata) for f in fields(Settings)) + 1
    assert all(key.startswith(PREFIX) and meaning for key, _, meaning in rows)
    assert (
        PREFIX + "sink",
        "udp",
        "Destination of frames. Valid values: udp, af_packet, af_xdp, pcap.",
    ) in rows
    assert keys[-1] == KAFKA_PREFIX + "*"


def test_properties_of_spark_itself_are_not_looked_at():
    properties = [("spark.master", "local[2]"), ("spark.stackcasts.topic", "x"), ("topic", "y")]
    assert Settings.read(properties) == Settings.read([])


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("topics", "topic"),
        ("summary.prt", "summary.port"),
        ("sink.udp.endpont", "sink.udp.endpoint"),
        ("maxLabel", "maxLabels"),
        ("Topic", "topic"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_one(key: str, nearest: str):
    error = refused(key, "1")
    assert error.code == "SETTINGS.UNKNOWN_KEY" and error.key == PREFIX + key
    assert PREFIX + key in error.message and f"did you mean {PREFIX}{nearest}?" in error.message


@pytest.mark.parametrize(
    ("key", "option"),
    [
        ("lab.speed", "jobs/itch_stream.py --speed"),
        ("lab.folder", "jobs/itch_stream.py --folder"),
        ("lab.sped", "jobs/itch_stream.py --speed"),
        ("mobility.edges", "examples/mobility/mobility_tracking.py --edges"),
    ],
)
def test_a_key_that_is_an_option_is_an_unknown_key_and_named_with_the_option(key: str, option: str):
    error = refused(key, "1")
    assert error.code == "SETTINGS.UNKNOWN_KEY" and error.key == PREFIX + key
    assert error.message.endswith(f"use an option of the program instead: {option}")


def test_no_option_is_named_that_the_program_does_not_have():
    error = refused("lab.foo", "1")
    assert error.message.endswith("; jobs/itch_stream.py --help lists its options")
    _, lab = OPTIONS["lab."]
    assert lab == tuple(option.name for option in fields(RunOptions))
    _, mobility = OPTIONS["mobility."]
    module = ast.parse((ROOT / "examples/mobility/city_run.py").read_text())
    (options,) = (node for node in module.body if getattr(node, "name", "") == "CityOptions")
    assert list(mobility) == [
        node.target.id for node in options.body if isinstance(node, ast.AnnAssign)
    ]


def test_an_unknown_key_that_is_near_to_none_leads_to_the_manual():
    assert "docs/reference/settings.md" in refused("zzzzzzzz", "1").message


def test_where_stacks_name_no_stored_trees_there_are_none_to_choose():
    hops = Settings.read([(PREFIX + "encoding", "hops")])
    assert RetuneOptions().names(hops.labels) == []
    with pytest.raises(
        SettingsError, match=r"BAD_VALUE.*'path' for encoding hops; available: none"
    ):
        RetuneOptions(strategies=("path",)).names(hops.labels)


def test_some_encodings_alone_have_widths_to_choose_from():
    wide = [(PREFIX + "encoding", "port"), (PREFIX + "label.bits", "32")]
    assert Settings.read(wide).labels == WIDE_SOURCE_ROUTES["port"]
    chosen = [(PREFIX + "encoding", "bitmask"), (PREFIX + "mtu", "1500")]
    assert Settings.read(chosen).labels.bits == 24
    with pytest.raises(SettingsError, match=r"16 with .*encoding bitmask"):
        Settings.read([*chosen, (PREFIX + "label.bits", "32")])
    with pytest.raises(SettingsError, match="384 or more with labels of 24 bits"):
        Settings.read([chosen[0], (PREFIX + "mtu", "300")])


def test_stacks_have_as_many_labels_as_the_program_of_their_encoding_parses():
    chosen, most = (PREFIX + "encoding", "port_bitmaps"), PREFIX + "maxLabels"
    assert Settings.read([chosen, (most, "512")]).max_labels == 512
    with pytest.raises(SettingsError, match=r"maxLabels is '512'.*1 to 64 with .*encoding hops"):
        Settings.read([(PREFIX + "encoding", "hops"), (most, "512")])
    with pytest.raises(SettingsError, match="from 1 to 512"):
        Settings.read([chosen, (most, "513")])


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("maxLabels", "many", "a whole number"),
        ("maxLabels", "", "a whole number"),
        ("maxLabels", "1.5", "a whole number"),
        ("maxOffsetsPerTrigger", "-1", "of 1 or more"),
        ("maxOffsetsPerTrigger", "9" * 30, "from 1 to 9223372036854775807"),
        ("p4runtime.electionId", str(1 << 63), "from 1 to 9223372036854775807"),
        ("startingOffsets", "{x}", "offsets as JSON"),
        ("maxOffsetsPerTrigger", "0", "of 1 or more"),
        ("multicast.port", "0", "from 1 to 65535"),
        ("multicast.port", "65536", "from 1 to 65535"),
        ("maxLabels", "65", "from 1 to 64"),
        ("mtu", "100", "from 256 to 65535"),
        ("encoding", "elmo", "one of virtual_trees, port, bitmask, mc_group, mixed, hops, "),
        ("label.bits", "24", "16 or 32"),
        ("label.bits", "wide", "a whole number"),
        ("sink", "UDP", "one of udp, af_packet, af_xdp, pcap"),
        ("format", "fix", "one of itch"),
        ("trigger", "often", "10 seconds"),
        ("trigger", "5", "10 seconds"),
        ("startingOffsets", "oldest", "earliest, latest"),
        ("multicast.group", "10.0.0.1", "multicast group"),
        ("multicast.group", "224.0.0.256", "multicast group"),
        ("sink.udp.endpoint", "switch1", "host:port"),
        ("topic", "", "non-empty text"),
        ("checkpoint", "  ", "non-empty text"),
    ],
)
def test_a_malformed_value_is_named_with_its_key(key: str, value: str, words: str):
    error = refused(key, value)
    assert error.code == "SETTINGS.BAD_VALUE" and error.key == PREFIX + key
    assert f"{PREFIX}{key} is {value!r}, but must be" in error.message
    assert words in error.message and "\n" not in error.message


def test_values_that_people_write_are_taken():
    settings = read(
        maxOffsetsPerTrigger="1_000_000", trigger="10 seconds", multicast_group="239.255.0.1"
    )
    assert (settings.max_offsets_per_trigger, settings.trigger) == (1_000_000, "10 seconds")
    assert settings.group == "239.255.0.1"
    assert read(startingOffsets='{"itch.raw":{"0":23}}').starting_offsets[0] == "{"
    assert read(sink_udp_endpoint="[::1]:9").udp_endpoint == "[::1]:9"
    assert read(sink_udp_endpoint="").udp_endpoint == ""


def test_kafka_options_are_handed_over_as_they_are():
    given_options = {
        "bootstrap.servers": "broker1:9093,broker2:9093",
        "security.protocol": "SASL_SSL",
        "sasl.jaas.config": 'org.example.Login required username="u" password="p";',
        "anything.new": "",
    }
    settings = Settings.read((KAFKA_PREFIX + k, v) for k, v in given_options.items())
    assert settings.kafka == given_options
    assert not settings.embedded


@pytest.mark.parametrize(
    "key", [KAFKA_PREFIX + "boostrap.servers", PREFIX + "tables", PREFIX + "checkpoint"]
)
def test_a_deployment_without_a_broker_never_turns_into_the_lab(key: str):
    with pytest.raises(SettingsError, match=r"NO_BROKER.*kafka\.bootstrap\.servers") as caught:
        assert Settings.read([(key, "/var/lib/stackcast")]).embedded
    assert key in str(caught.value)


def test_how_records_are_fetched_says_nothing_of_a_deployment():
    conf = ROOT / "conf" / "spark-defaults.conf"
    lines = [line.split() for line in conf.read_text().splitlines() if line.startswith(PREFIX)]
    settings = Settings.read((key, value) for key, value in lines)
    assert set(settings.kafka) == FETCHING
    assert settings.embedded


@pytest.mark.parametrize("example", ["kafka-example", "cluster-example"])
def test_example_files_hand_records_to_workers_as_the_defaults_do(example: str):
    """Spark reads no defaults beside a properties file."""

    def lines(name: str) -> dict[str, str]:
        conf = (ROOT / "conf" / f"{name}.conf").read_text()
        return dict(
            line.split(maxsplit=1) for line in conf.splitlines() if line.startswith("spark.")
        )

    handed = {f"{KAFKA_PREFIX}{key}" for key in FETCHING} | {
        "spark.sql.execution.arrow.maxRecordsPerBatch",
        "spark.python.worker.reuse",
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled",
        "spark.python.unix.domain.socket.enabled",
    }
    defaults = lines("spark-defaults")
    assert {key: lines(example).get(key) for key in handed} == {
        key: defaults[key] for key in handed
    }


def test_paths_by_default_are_those_of_the_project(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("STACKCAST_HOME", "/opt/stackcast")
    settings = Settings.read([])
    assert settings.tables == "/opt/stackcast/var/tables"
    # The programs are those of the package.
    assert settings.p4_folder == str(COMPILED_P4)
    monkeypatch.setenv("STACKCAST_VAR", "/data")
    assert Settings.read([]).tables == "/data/tables"
    assert Settings.read([(PREFIX + "tables", "var/tables")]).tables == "var/tables"


@given(st.text(max_size=30), st.text(max_size=30))
def test_no_property_makes_anything_but_settings_or_their_error(key: str, value: str):
    for name in (key, "maxLabels", "trigger", "multicast.group", "publisher.by"):
        try:
            Settings.read([(PREFIX + name, value)])
        except SettingsError as error:
            assert error.key == PREFIX + name
