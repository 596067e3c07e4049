"""SQL over ``filter_entries`` and ``filter_leaves`` that answers "who would get this?".

Statements for Spark as texts; nothing is run here. See docs/how-to/ask-who-gets-an-event.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from stackcast.udfs.errors import SpecificationError
from stackcast.udfs.messages.attributes.attribute_field import AttributeField
from stackcast.udfs.messages.specification import Field, Specification

RANGES = "filter_ranges"
STATES = "filter_states"
TERMS = "filter_terms"
FUNCTION = "who_gets"

_MESSAGE_TYPE = "message_type"
_WHOLE = "CAST({} AS DECIMAL(20, 0))"
_STEPS = "ARRAY<STRUCT<field STRING, state INT, text STRING, next INT>>"
_OF_EVENT = "try_element_at(s.v, t.field)"
_FITS = (
    f"r.kind = 'default' OR if({_OF_EVENT} IS NULL, r.kind = 'absent',"
    f" r.kind != 'absent' AND {_OF_EVENT} BETWEEN r.low AND r.high)"
)
_SATISFIED = (
    "forall(c.predicates, p -> coalesce(exists(p.intervals,"
    " a -> try_element_at(s.v, p.field) BETWEEN a.low AND a.high), false))"
)
_ORDER = (
    "(a, b) -> CASE WHEN a = b THEN 0"
    " WHEN try_cast(a AS INT) IS NULL AND try_cast(b AS INT) IS NOT NULL THEN 1"
    " WHEN try_cast(a AS INT) IS NOT NULL AND try_cast(b AS INT) IS NULL THEN -1"
    " WHEN try_cast(a AS INT) < try_cast(b AS INT) THEN -1"
    " WHEN try_cast(a AS INT) > try_cast(b AS INT) THEN 1 WHEN a < b THEN -1 ELSE 1 END"
)
_UNITED = (
    "array_sort(array_union(t.receivers, flatten(transform("
    f"filter(i.terms, c -> {_SATISFIED}), c -> c.receivers))), {_ORDER})"
)


def ranges_view(entries: str) -> str:
    """Returns the statement that makes the view ``filter_ranges`` over the table ``entries``.

    One row a field, state and range of raw values, low and high included: every value of a field is
    in exactly one row of each state that reads it. Default rows are the gaps that they fill, and of
    a prefix only the values that no longer one takes are left. Events that lack the field take the
    row whose low and high are NULL. Columns: field, state, low, high (DECIMAL(20,0)), next, text.
    """
    whole = _WHOLE
    return f"""
CREATE OR REPLACE TEMPORARY VIEW {RANGES} AS
WITH held AS (
  SELECT field, state, kind, next, text,
    {whole.format("conv(hex(low), 16, 10)")} AS low,
    {whole.format("conv(hex(high), 16, 10)")} AS high
  FROM {entries}
), prefixes AS (
  SELECT *, high - low + 1 AS size FROM held WHERE kind = 'lpm'
), points AS (
  SELECT field, state, low AS point FROM prefixes
  UNION SELECT field, state, {whole.format("high + 1")} FROM prefixes
), parts AS (
  SELECT field, state, point AS low,
    lead(point) OVER (PARTITION BY field, state ORDER BY point) - 1 AS high
  FROM points
), parted AS (
  SELECT p.field, p.state, p.low, p.high,
    min(struct(x.size, x.next, x.text)) AS longest
  FROM parts p
  JOIN (SELECT DISTINCT field, state, size FROM prefixes) s
    ON s.field = p.field AND s.state = p.state
  JOIN prefixes x ON x.field = p.field AND x.state = p.state AND x.size = s.size
    AND x.low = p.low - p.low % s.size
  WHERE p.high IS NOT NULL
  GROUP BY p.field, p.state, p.low, p.high
), rows AS (
  SELECT field, state, low, high, next, text FROM held WHERE kind IN ('exact', 'range')
  UNION ALL SELECT field, state, low, high, longest.next, longest.text FROM parted
), edges AS (
  SELECT field, state, low, high FROM rows
  UNION ALL SELECT field, state, -1, -1 FROM held WHERE kind = 'default'
), gaps AS (
  SELECT field, state, high + 1 AS low,
    lead(low) OVER (PARTITION BY field, state ORDER BY low) - 1 AS high
  FROM edges
)
SELECT /*+ COALESCE(1) */ * FROM (
SELECT field, state, {whole.format("low")} AS low, {whole.format("high")} AS high, next, text
FROM rows
UNION ALL
SELECT g.field, g.state, {whole.format("g.low")}, {whole.format("coalesce(g.high, d.high)")},
  d.next, d.text
FROM gaps g JOIN held d ON d.field = g.field AND d.state = g.state AND d.kind = 'default'
WHERE g.low <= coalesce(g.high, d.high)
UNION ALL
SELECT d.field, d.state, NULL, NULL, coalesce(a.next, d.next), coalesce(a.text, d.text)
FROM (SELECT * FROM held WHERE kind = 'default') d
LEFT JOIN (SELECT * FROM held WHERE kind = 'absent') a
  ON a.field = d.field AND a.state = d.state
)"""


def states_query(entries: str, leaves: str) -> str:
    """Returns the query of the view ``filter_states``, one row a state, for a walk.

    ``entries``, ``leaves``: the tables ``filter_entries`` and ``filter_leaves``, or versions of
    them. Columns: state; field and rows (rank, kind, low, high, next, text), NULL at a leaf;
    receivers and actions, NULL elsewhere. Of the rows that fit a value the first is taken.
    """
    low, high = (_WHOLE.format(f"conv(hex({end}), 16, 10)") for end in ("low", "high"))
    return f"""
SELECT state, first(field) AS field, sort_array(collect_list(named_struct(
    'rank', CASE kind WHEN 'lpm' THEN {high} - {low} WHEN 'default' THEN {1 << 64} ELSE 0 END,
    'kind', kind, 'low', low, 'high', high, 'next', next, 'text', text))) AS rows,
  CAST(NULL AS ARRAY<STRING>) AS receivers, CAST(NULL AS ARRAY<STRING>) AS actions
FROM (SELECT /*+ COALESCE(1) */ * FROM {entries}) GROUP BY state
UNION ALL
SELECT state, NULL, NULL, receivers, actions FROM {leaves} WHERE predicates IS NULL"""


def terms_query(leaves: str) -> str:
    """Returns the query of the view ``filter_terms``: one row, all terms of the index.

    ``leaves``: the table ``filter_leaves``. Column: terms, an array of (receivers, predicates).
    """
    return (
        "SELECT collect_list(named_struct('receivers', receivers, 'predicates', predicates))"
        f" AS terms FROM {leaves} WHERE predicates IS NOT NULL"
    )


def who_gets_function(fields: Sequence[str], root: int, specification: Specification) -> str:
    """Returns the statement that makes the table function ``who_gets`` over ``filter_states``.

    ``fields``: those of ``filter_entries``, in any order. ``root``: the state to start in.
    The receivers of terms in ``filter_terms`` that the event satisfies are among its receivers.
    Its arguments are the fields by name (``argument``) and ``message_type``, as text in people's
    units, NULL for absent fields. It gives one row: receivers, actions, leaf, and steps, an
    array of (field, state, text, next).
    """
    lanes = {
        lane.qualified: (field, at)
        for field in specification.fields.values()
        for at, lane in enumerate(field.lanes())
    }
    named = {lanes[name][0].qualified: lanes[name][0] for name in sorted(fields) if name in lanes}
    arguments = {argument(field, specification): field for field in named.values()}
    declared = ", ".join(f"`{name}` STRING DEFAULT NULL" for name in (*arguments, _MESSAGE_TYPE))
    of_field = {field.qualified: name for name, field in arguments.items()}
    type_value = _type_value(arguments, specification)
    values = [f"{_text(_MESSAGE_TYPE)}, {_bytes(type_value, _MESSAGE_TYPE, 8)}"]
    for name in fields:
        if name in lanes:
            field, at = lanes[name]
            value = _value(of_field[field.qualified], field, at)
            values.append(f"{_text(name)}, {_bytes(value, name, field.lanes()[at].bits)}")
        elif name != _MESSAGE_TYPE:
            values.append(f"{_text(name)}, {_bytes(_empty(name, specification), name, 64)}")
    steps = [
        f"s0 AS (SELECT map({', '.join(values)}) AS v, {root} AS state, CAST(array() AS {_STEPS})"
        " AS steps)"
    ]
    for at in range(len(fields)):
        # A state that no table reads is a leaf, which the event keeps.
        steps.append(
            f"t{at} AS (SELECT /*+ BROADCAST(t) */ s.v, s.state, s.steps, t.field,"
            f" get(filter(t.rows, r -> {_FITS}), 0) AS r"
            f" FROM s{at} s JOIN {STATES} t ON t.state = s.state)"
        )
        steps.append(
            f"s{at + 1} AS (SELECT v, coalesce(r.next, state) AS state,"
            " if(r IS NULL, steps, concat(steps, array(named_struct('field', field,"
            f" 'state', state, 'text', r.text, 'next', r.next)))) AS steps FROM t{at})"
        )
    return (
        f"CREATE OR REPLACE TEMPORARY FUNCTION {FUNCTION}({declared})\n"
        "RETURNS TABLE (receivers ARRAY<STRING>, actions ARRAY<STRING>, leaf INT,"
        f" steps {_STEPS})\n"
        "RETURN WITH " + ",\n".join(steps) + "\n"
        f"SELECT /*+ BROADCAST(t) */ {_UNITED}, t.actions, s.state, s.steps\n"
        f"FROM s{len(fields)} s JOIN {STATES} t ON t.state = s.state CROSS JOIN {TERMS} i"
    )


def argument(field: Field, specification: Specification) -> str:
    """Returns the name of a field among the arguments: the short one if rules may use it, else
    ``header_field``."""
    try:
        if specification.field(field.name) == field and field.name != _MESSAGE_TYPE:
            return field.name
    except SpecificationError:
        pass
    return f"{field.header}_{field.name}"


def _type_value(arguments: dict[str, Field], specification: Specification) -> str:
    """Returns SQL of the type as given, or that of the header of which a field is given."""
    cases = []
    for header in specification.headers:
        own = [name for name, field in arguments.items() if field.header == header.name]
        if header.message_type is not None and own:
            given = " OR ".join(f"`{name}` IS NOT NULL" for name in own)
            cases.append(f"WHEN {given} THEN {header.message_type}")
    derived = f"CASE {' '.join(cases)} END" if cases else "NULL"
    return f"CAST(coalesce(ascii(`{_MESSAGE_TYPE}`), {derived}) AS DECIMAL(20, 0))"


def _value(name: str, field: Field, lane: int) -> str:
    """Returns SQL of the raw value of an argument, or of a lane of it."""
    given = f"`{name}`"
    if isinstance(field, AttributeField):
        return _attribute_value(given, field)
    if len(field.lanes()) > 1:
        digits = (field.bits + 3) // 4
        whole = f"lpad({_digits(given, field)}, {digits}, '0')"
        after = sum(one.bits for one in field.lanes()[lane + 1 :]) // 4
        width = (field.lanes()[lane].bits + 3) // 4
        part = f"substr({whole}, {digits - after - width + 1}, {width})"
        return f"CAST(conv({part}, 16, 10) AS DECIMAL(20, 0))"
    if field.kind == "string":
        return f"CAST(conv({_digits(given, field)}, 16, 10) AS DECIMAL(20, 0))"
    scaled = f"CAST({given} AS DECIMAL(38, {field.decimals})) * {10**field.decimals}"
    if field.decimals:
        refused = f"'{name} has more than {field.decimals} decimals'"
        exact = f"CAST({given} AS DECIMAL(38, 18)) = CAST({given} AS DECIMAL(38, {field.decimals}))"
        scaled = f"if({exact}, {scaled}, raise_error({refused}))"
        return f"if({given} IS NULL, NULL, CAST({scaled} AS DECIMAL(20, 0)))"
    cases = f"WHEN {given} LIKE '0x%' THEN conv(substr({given}, 3), 16, 10) "
    if field.bits == 32:
        parts = " + ".join(
            f"CAST(split_part({given}, '.', {at + 1}) AS BIGINT) * {256 ** (3 - at)}"
            for at in range(4)
        )
        cases += f"WHEN {given} LIKE '%.%.%.%' THEN CAST({parts} AS STRING) "
    if field.bits == 48:
        cases += f"WHEN {given} LIKE '%:%' THEN conv(replace({given}, ':', ''), 16, 10) "
    if field.bits % 8 == 0:
        blank = f"rpad({given}, {field.bits // 8}, ' ')"
        cases += f"WHEN {given} RLIKE '^[A-Za-z]' THEN conv(hex({blank}), 16, 10) "
    return f"CAST(CASE {cases}ELSE {given} END AS DECIMAL(20, 0))"


def _attribute_value(given: str, field: AttributeField) -> str:
    """Returns SQL of the raw value of a text in units of an attribute, rounded as events are."""
    if field.of.type == "text":
        return f"CAST(conv({_digits(given, field)}, 16, 10) AS DECIMAL(20, 0))"
    if field.of.type == "float":
        return _float_value(given)
    number = f"CAST({given} AS DOUBLE)"
    if field.of.type == "timestamp":
        # Micros by whole numbers, in UTC unless the text says otherwise.
        time = f"unix_micros(CAST({given} AS TIMESTAMP)) / 1000000D"
        number = f"if({given} LIKE '____-%', {time}, {number})"
    raw = f"rint(({number} - {float(field.of.offset)!r}D) / {float(field.of.scale)!r}D)"
    return f"CAST({raw} AS DECIMAL(20, 0))"


def _float_value(given: str) -> str:
    """Returns SQL of the raw value of a float: its sign, and its bits by exponent and fraction."""
    number = f"CAST(CAST({given} AS FLOAT) AS DOUBLE)"
    # Logarithms are near; the powers of two are exact, and say which of two exponents it is.
    near = f"greatest(floor(log2(abs({number}))), -126)"
    power = f"(CASE WHEN abs({number}) < pow(2D, {near}) THEN greatest({near} - 1, -126) "
    power += f"WHEN abs({number}) >= pow(2D, {near} + 1) THEN {near} + 1 ELSE {near} END)"
    bits = f"(({power} + 126) * 8388608D + abs({number}) / pow(2D, {power} - 23))"
    raw = f"2147483648D + if({number} = 0, 0D, sign({number}) * {bits})"
    return f"CAST({raw} AS DECIMAL(20, 0))"


def _bytes(value: str, name: str, bits: int) -> str:
    """Returns SQL of a raw value as the tables hold it: big-endian, as wide as the field."""
    refused = _text(f"{name} has {bits} bits, and the value is not one of them")
    digits = f"conv(CAST({value} AS STRING), 10, 16)"
    fits = f"coalesce({value} BETWEEN 0 AND {(1 << bits) - 1}, true)"
    padded = f"unhex(lpad({digits}, {2 * ((bits + 7) // 8)}, '0'))"
    return f"if({fits}, {padded}, raise_error({refused}))"


def _digits(given: str, field: Field) -> str:
    """Returns SQL of the hexadecimal digits of a text, padded; of a wide number in hex, its own."""
    if field.kind == "string":
        zeros = f"rpad(hex({given}), {field.bits // 4}, '{ord(field.padding):02X}')"
        refused = f"'longer than {field.bits // 8} characters'"
        fits = f"length({given}) <= {field.bits // 8}"
        return f"if({fits}, {zeros}, if({given} IS NULL, NULL, raise_error({refused})))"
    return f"substr({given}, 3)"


def _empty(cell: str, specification: Specification) -> str:
    """Returns SQL of the value that the first event finds in a cell."""
    value = "NULL"
    variable, _, _ = cell.partition(" of ")
    if specification.counter(variable) is not None or cell.startswith(("count(", "sum(")):
        value = "0"
    elif cell.startswith(("changed(", "moved(")):
        # Fields come before cells, and what asks for this one asks that its field is there.
        value = "1"
    return f"CAST({value} AS DECIMAL(20, 0))"


def _text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
