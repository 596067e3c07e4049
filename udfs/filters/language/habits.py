"""Advice for habits of other languages: SQL, jq, packet filters, Snort, Python.

Each form that people bring along is a pattern with the word that is wrong, and what to write
instead. They are tried only on texts that do not follow the grammar, where the parser stopped.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

HIDDEN = re.compile(r"#[^\n]*|\"[^\"\n]*\"|'[^'\n]*'")
"""Comments and texts in quotes."""

_FLAGS = re.IGNORECASE | re.VERBOSE
_FIELD = r"(?P<field>[A-Za-z_][\w.]*)"
_VALUE = r"(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s()'\",;:]+)"
_SIGN = r"(?:==|!=|<=|>=|[=<>≠≤≥])"
_WORDS_OF_SIGNS = {
    "eq": "==",
    "equals": "==",
    "is": "==",
    "ne": "!=",
    "neq": "!=",
    "gt": ">",
    "lt": "<",
    "ge": ">=",
    "gte": ">=",
    "le": "<=",
    "lte": "<=",
}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "≤": ">=", "≥": "<="}
_TARGETS = re.compile(r"fwd\s*\(([^()]*)\)", re.IGNORECASE)


class Habit(NamedTuple):
    """A form that the language has not: the position of its wrong word, and what to write."""

    position: int
    message: str


def habit_at(text: str, position: int) -> Habit | None:
    """Returns the habit at which the parser stopped: at ``position``, from 0."""
    # Columns stay, and nothing in quotes or a comment is taken for a word of the rule.
    seen = HIDDEN.sub(lambda m: _blank(m[0]), text)
    for pattern, say in _HABITS:
        for found in pattern.finditer(seen):
            if found.start() <= position <= found.end():
                words = {name: text[slice(*found.span(name))] for name in found.groupdict()}
                return Habit(found.start("word"), say(words))
    return None


def begins_with(field: str, start: str) -> str:
    """Returns the condition that a field of text begins with ``start``."""
    if re.fullmatch(r"[A-Za-z0-9]+", start) and start[-1] not in "zZ9":
        return f"{field} >= {start} and {field} < {start[:-1]}{chr(ord(start[-1]) + 1)}"
    return f"{field} >= GOO and {field} < GOP"


def _blank(part: str) -> str:
    if part[0] == "#":
        return " " * len(part)
    return part[0] + "x" * (len(part) - 2) + part[-1]


def _pattern(words: dict[str, str]) -> str:
    field, word = words["field"], words["word"].lower()
    start = re.split(r"[*%?.$\[(]", words["value"].strip("\"'/^"))[0]
    example = begins_with(field, start)
    if not start or word.startswith(("end", "contain", "include")):
        return (
            f"patterns are not supported; list the values, as in {field} in {{A, B}}, or use "
            f"a range, as in {example}"
        )
    if words.get("not") or word.startswith("!"):
        return (
            f"patterns are not supported; to match values that do not begin with {start}, write "
            f"not ({example})"
        )
    return f"patterns are not supported; to match values that begin with {start}, write {example}"


def _null(words: dict[str, str]) -> str:
    if words["not"]:
        return (
            "a comparison matches only events that contain the field, so this test is "
            "redundant: remove it, or, to test only for presence, write a comparison that "
            "every value satisfies, such as price >= 0"
        )
    return (
        "NULL is not supported, and no rule can test for a missing field: remove this test, "
        "or compare a field that such events contain"
    )


def _sign(words: dict[str, str]) -> str:
    sign = _WORDS_OF_SIGNS.get(words["word"].lower(), "==")
    return f"write {words['field']} {sign} {words['value'] or '50'}"


def _macro_on_the_right(words: dict[str, str]) -> str:
    return (
        "the right side of a comparison must be a constant, and two values of an event cannot "
        f"be compared; write {words['word']}(...) on the left, as in avg(price) > 50"
    )


def _method(words: dict[str, str]) -> str:
    if words["word"].lower().startswith(("starts", "begins", "has_prefix", "match")):
        return _pattern(words)
    return f"fields have no methods; write a comparison, such as {words['field']} == A"


def _drop(words: dict[str, str]) -> str:
    return (
        "rules cannot drop events, because an event goes only to hosts to which a rule "
        "forwards it: remove this rule, or exclude the events in the other rules, as in stock "
        "!= GOOGL"
    )


def _several(words: dict[str, str]) -> str:
    targets = ", ".join(part.strip() for part in _TARGETS.findall(words["all"]))
    end = "';' ends the rule, and " if words["sign"] == ";" else ""
    return f"{end}a single fwd lists all receivers: write fwd({targets})"


def _chain(words: dict[str, str]) -> str:
    field, sign, value = words["field"], words["sign"], words["value"]
    if words.get("low") is not None:
        turned = _TURNED.get(words["low_sign"], words["low_sign"])
        first = f"{field} {turned} {words['low']}"
    else:
        first = f"{field} {words['first_sign']} {words['first']}"
    return f"each comparison needs its own field: write {first} and {field} {sign} {value}"


def _repeated(words: dict[str, str]) -> str:
    field, first, value = words["field"], words["first"], words["word"]
    return f"write {field} in {{{first}, {value}}}, or {field} == {first} or {field} == {value}"


def _set(words: dict[str, str]) -> str:
    return f"a set is written in braces, as in {words['field']} in {{1, 2}}, " + (
        f"and a range with between, as in {words['field']} between 1 and 5"
    )


def _leading(words: dict[str, str]) -> str:
    return (
        f"a rule starts with its condition: remove '{words['word']}', as in stock == GOOGL "
        "and price > 50 : fwd(h1)"
    )


def _packet_filter(words: dict[str, str]) -> str:
    return (
        f"'{words['word']}' is not part of the rule language: write comparisons of message "
        "fields with constants, such as dst_port == 80"
    )


_Say = Callable[[dict[str, str]], str]

_TABLE: tuple[tuple[str, _Say], ...] = (
    (
        r"\A\s*(?P<word>where|if|when|filter|match|select|delete|from)\b"
        r"(?!\s*(?:[=<>!≠≤≥]|not\b|in\b|between\b)).*",
        _leading,
    ),
    (r"\A\s*(?P<word>subscribe(?:\s+to)?)\s.*", _leading),
    (
        r"\A\s*(?P<word>tcp6?|udp6?|icmp6?|ip6?|arp|ether|host|net|port|portrange|src|dst|proto|"
        r"vlan|alert|log|pass|less|greater)\s+(?![=<>!≠≤≥]|(?:not|in|between)\b)\S.*",
        _packet_filter,
    ),
    (
        r"\A\s*(?P<word>\*|true|any|everything|always)\s*(?=:|;|\Z)",
        lambda words: "to match every event, write all, as in all : fwd(h1)",
    ),
    (
        r"(?<![\w.)])(?P<word>\.(?P<field>[A-Za-z_]\w*))",
        lambda words: f"a field name does not start with a dot: write {words['field']}",
    ),
    (
        rf"{_FIELD}\s+(?P<not>not\s+)?(?P<word>i?like|rlike|regexp?|glob|similar\s+to|matches|match|"
        rf"starts_?with|begins_?with|begins\s+with|starts\s+with|ends_?with|ends\s+with|contains|"
        rf"includes)\b\s*\(?\s*(?:{_VALUE})?",
        _pattern,
    ),
    (rf"{_FIELD}\s*(?P<word>=~|!~\*?|~[*=]?)\s*(?:{_VALUE})?", _pattern),
    (
        rf"(?P<word>starts_?with|begins_?with|ends_?with|contains|like|matches)\s*\(\s*{_FIELD}"
        rf"\s*,\s*(?:{_VALUE})?",
        _pattern,
    ),
    (rf"{_FIELD}\.(?P<word>[A-Za-z_]\w*)\s*\(\s*(?:{_VALUE})?", _method),
    (rf"{_FIELD}\s+(?P<word>is\s+(?P<not>not\s+)?(?:null|none|nil|missing|unknown))\b", _null),
    (
        rf"{_FIELD}\s+(?P<word>eq|equals|is|neq?|gte?|lte?|ge|le)\s+(?:{_VALUE})?",
        _sign,
    ),
    (
        # Not of an action, which has a slip of its own: seen = count().
        rf"(?<![:{{;])(?<![:{{;]\s)\b[A-Za-z_][\w.]*\)?\s*{_SIGN}\s*"
        r"(?P<word>[A-Za-z_]\w*)\s*\(",
        _macro_on_the_right,
    ),
    (
        r":\s*\{?\s*(?P<word>drop|discard|deny|reject|block|ignore|pass|accept|none|nothing)\b\s*"
        r"(?=;|\Z|\})",
        _drop,
    ),
    (
        r"(?P<all>fwd\s*\([^()]*\)\s*(?P<sign>,|;|&&?|\band\b)?\s*(?P<word>fwd)\s*\([^()]*\)"
        r"(?:[\s,;&]*fwd\s*\([^()]*\))*)",
        _several,
    ),
    (
        r":[^{}]*\)\s*(?P<word>[,;])\s*[A-Za-z_]\w*\s*(?:\(|<-|←)",
        lambda words: "enclose several actions in braces, as in { fwd(1); seen <- count() }",
    ),
    (
        r":\s*(?P<word>fwd|forward|forwards|send|to|output|deliver)\s+(?:to\s+)?"
        r"(?P<host>[\w.\-]+)",
        lambda words: f"enclose the receivers in parentheses: write fwd({words['host']})",
    ),
    (
        r":\s*(?P<word>[A-Za-z_][\w.\-]*)\s*(?=;|\Z)",
        lambda words: f"enclose the receivers in fwd(...): write fwd({words['word']})",
    ),
    (
        r"(?P<word>->|=>|-->|\?|\bthen\b|\bdo\b|(?<!:)(?<!:\s)\bfwd)\s*(?:fwd|forward|[A-Za-z_]\w*)?\s*\(",
        lambda words: "actions follow a colon: write : fwd(h1)",
    ),
    (
        rf"(?P<low>[\w.]+)\s*(?P<low_sign>[<>]=?|[≤≥])\s*{_FIELD}\s*(?P<sign>[<>]=?|[≤≥])"
        rf"\s*(?P<value>[\w.]+)(?P<word>)",
        _chain,
    ),
    (
        rf"{_FIELD}\s*(?P<first_sign>{_SIGN})\s*(?P<first>[\w.]+)\s*(?P<word>(?P<sign>{_SIGN}))"
        rf"\s*(?P<value>[\w.]+)",
        _chain,
    ),
    (
        rf"{_FIELD}\s*(?P<first_sign>{_SIGN})\s*(?P<first>\S+)\s+(?:and|or|&&|\|\|)\s*"
        rf"(?P<word>(?P<sign>{_SIGN}))\s*(?P<value>[\w.]+)",
        _chain,
    ),
    (
        rf"{_FIELD}\s*==?\s*(?P<first>[\w.\-]+)\s*(?:\bor\b|\|\|?)\s*"
        rf"(?P<word>[\w.\-]+)\s*(?=\bor\b|\||:|;|\)|\Z)",
        _repeated,
    ),
    (rf"\b(?!not\b){_FIELD}\s+in\s+(?P<word>[^\s({{\[]+)", _set),
    (
        rf"{_FIELD}\s+between\s+(?P<first>[\w.]+)\s*(?P<word>,|to\b|\.\.|-)\s*(?P<value>[\w.]+)",
        lambda words: (
            f"expected 'and': write {words['field']} between {words['first']} and {words['value']}"
        ),
    ),
    (
        r"[\w.)]\s*(?P<word>[*/+%])",
        lambda words: (
            "arithmetic is not supported: compare a field with a constant, as in price > 50"
        ),
    ),
    (
        r"\b(?P<word>xor)\b",
        lambda words: "'xor' is not supported: write a and not b or b and not a",
    ),
    (
        rf"(?:[\w.)}}]|[\"'])(?<!\band)(?<!\bor)(?<!\bnot)\s+"
        rf"(?P<word>(?!(?:and|or|not|in|between)\b)[A-Za-z_][\w.]*)\s*"
        rf"(?:{_SIGN}|in\b|between\b)",
        lambda words: "comparisons must be joined by 'and' or 'or'",
    ),
)
_HABITS = [(re.compile(pattern, _FLAGS | re.DOTALL), say) for pattern, say in _TABLE]
