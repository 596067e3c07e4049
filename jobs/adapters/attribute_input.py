"""Records of JSON to names and values by Spark, and the names that no attribute has yet."""

from __future__ import annotations

from pyspark.sql import DataFrame, functions

from udfs.messages.attributes.pairs import FLAT_IN_JAVA
from udfs.messages.attributes.registry import Registry, is_name

MOST_NAMES = 1000
"""New names of a batch that are looked at: a registry has room for 32."""

_OPTIONS = {"allowNonNumericNumbers": "true", "allowSingleQuotes": "false", "mode": "PERMISSIVE"}


def with_pairs(records: DataFrame, longest: int) -> DataFrame:
    """Records (column ``value``, binary) with a column ``pairs``, map<string, string>.

    Pairs are the names and the JSON texts of the values of one flat object, as
    `udfs.messages.attributes.pairs` reads them: text keeps its quotes, a name that is there twice
    stays so. They are null where a record has more than ``longest`` bytes or is anything else.
    """
    value = functions.col("value")
    text = value.cast("string")
    # Spark's reader takes much that is no object, as what follows one: it is asked only where the
    # record is right by its grammar. The conditions are apart, so that the cheap ones come first.
    parsed = functions.from_json(text, "map<string, variant>", _OPTIONS)
    pairs = functions.transform_values(parsed, lambda _, each: functions.to_json(each))
    flat = functions.when(text.rlike(FLAT_IN_JAVA), pairs)
    valid = functions.when(functions.is_valid_utf8(text), flat)
    return records.withColumn(
        "pairs", functions.when(functions.octet_length(value) <= longest, valid)
    )


def unknown_names(records: DataFrame, registry: Registry) -> list[str]:
    """Names in column ``pairs`` that the registry lacks and that could be registered, sorted.

    A name whose value is null is not asked for. Of more than `MOST_NAMES` some are left out; where
    all ids are in use it is none, without a look at the records.
    """
    if not registry.free:
        return []
    given = functions.map_filter("pairs", lambda _, text: text != "null")
    names = records.select(functions.explode(functions.map_keys(given)).alias("name")).distinct()
    known = sorted(registry.by_name)
    if known:
        names = names.where(~functions.col("name").isin(known))
    # RLIKE, not `is_name`, so that names that are no words do not use up the limit.
    names = names.where(functions.col("name").rlike(r"\A[A-Za-z_][A-Za-z0-9_]{0,62}\z"))
    found = names.limit(MOST_NAMES).toArrow().column("name").to_pylist()
    return sorted(name for name in found if is_name(name))
