"""Stackcast and Spark read the same properties from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT
from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app.properties_file import default_properties, read_properties
from stackcast.udfs.errors import SettingsError

TEXT = """
# a comment = 1
  ! another one
spark.master   local[2]
spark.stackcast.topic=trades
spark.stackcast.kafka.sasl.jaas.config : a.Module required user="u" password="p=1 :";
spark.name = two \\
    lines
spark.folder C:\\\\data
spark.letter \\u00e9\\t.
spark.empty
spark.stackcast.topic = quotes\t
"""


@pytest.mark.unit
def test_keys_and_values_are_those_of_java(tmp_path: Path):
    file = tmp_path / "mine.conf"
    file.write_text(TEXT)
    assert read_properties(file) == {
        "spark.master": "local[2]",
        "spark.stackcast.topic": "quotes",
        "spark.stackcast.kafka.sasl.jaas.config": 'a.Module required user="u" password="p=1 :";',
        "spark.name": "two lines",
        "spark.folder": "C:\\data",
        "spark.letter": "é\t.",
        "spark.empty": "",
    }


@pytest.mark.integration
@examples(100)
@given(
    st.lists(st.sampled_from([*"ab=: \\#!\t\f\n\r", "\\\n", "é", "\\t", "\\u0041"]), max_size=20)
)
def test_any_text_is_read_as_java_reads_it(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, parts: list[str]
):
    text = "".join(parts)
    jvm: Any = spark._jvm
    properties = jvm.java.util.Properties()
    properties.load(jvm.java.io.StringReader(text))
    file = tmp_path_factory.getbasetemp() / "any.conf"
    file.write_bytes(text.encode())
    blanks = "".join(map(chr, range(33))).replace("\n", "").replace("\r", "")
    expected = {key: properties[key].strip(blanks) for key in properties if key}
    assert read_properties(file) == expected


@pytest.mark.unit
def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path):
    binary = tmp_path / "binary.conf"
    binary.write_bytes(b"spark.master local\nspark.name \xff\xfe\n")
    for path, reason in [
        (tmp_path / "none.conf", "no such file or directory"),
        (tmp_path, "is a directory"),
        (binary, "line 2 is not UTF-8"),
    ]:
        with pytest.raises(SettingsError) as caught:
            read_properties(path)
        assert caught.value.code == "SETTINGS.UNREADABLE_FILE"
        assert f"properties file {path} cannot be read: {reason};" in caught.value.message


@pytest.mark.unit
def test_without_a_file_the_defaults_of_spark_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("SPARK_CONF_DIR", str(ROOT / "conf"))
    assert default_properties()["spark.master"] == "local[*,4]"
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert default_properties() == {}
    monkeypatch.delenv("SPARK_CONF_DIR")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.stackcast.topic t\n")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert default_properties() == {"spark.stackcast.topic": "t"}
    monkeypatch.delenv("SPARK_HOME")
    assert default_properties() == {}
