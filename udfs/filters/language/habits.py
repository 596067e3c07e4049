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
            f"there are no patterns; list the values, as in {field} in {{A, B}}, "
            f"or give a range, as in {example}"
        )
    if words.get("not") or word.startswith("!"):
        return f"there are no patterns; what does not begin with {start} is not ({example})"
    return f"there are no patterns; what begins with {start} is {example}"


def _null(words: dict[str, str]) -> str:
    if words["not"]:
        return (
            "a comparison holds only for events that have the field, so leave this out; "
            "to ask for nothing else, write a comparison that any value meets, as in price >= 0"
        )
    return (
        "there is no NULL, and no rule for events that lack a field: "
        "leave this out, or ask for a field that such events have"
    )


def _sign(words: dict[str, str]) -> str:
    sign = _WORDS_OF_SIGNS.get(words["word"].lower(), "==")
    return f"write {words['field']} {sign} {words['value'] or '50'}"


def _macro_on_the_right(words: dict[str, str]) -> str:
    return (
        "a comparison has a constant on its right, so two values of events are not compared; "
        f"{words['word']}(...) stands on the left, as in avg(price) > 50"
    )


def _method(words: dict[str, str]) -> str:
    if words["word"].lower().startswith(("starts", "begins", "has_prefix", "match")):
        return _pattern(words)
    return f"fields have no functions; write the field, then a comparison: {words['field']} == A"


def _drop(words: dict[str, str]) -> str:
    return (
        "no rule drops: an event goes only where a rule forwards it, so leave the rule out, "
        "or name in the other rules what they are not to have, as in stock != GOOGL"
    )


def _several(words: dict[str, str]) -> str:
    targets = ", ".join(part.strip() for part in _TARGETS.findall(words["all"]))
    end = "behind ';' is the end of the rule, and " if words["sign"] == ";" else ""
    return f"{end}one fwd names all receivers: write fwd({targets})"


def _chain(words: dict[str, str]) -> str:
    field, sign, value = words["field"], words["sign"], words["value"]
    if words.get("low") is not None:
        turned = _TURNED.get(words["low_sign"], words["low_sign"])
        first = f"{field} {turned} {words['low']}"
    else:
        first = f"{field} {words['first_sign']} {words['first']}"
    return f"each comparison names its field: write {first} and {field} {sign} {value}"


def _repeated(words: dict[str, str]) -> str:
    field, first, value = words["field"], words["first"], words["word"]
    return f"write {field} in {{{first}, {value}}}, or {field} == {first} or {field} == {value}"


def _set(words: dict[str, str]) -> str:
    return f"the members of a set stand in braces, {words['field']} in {{1, 2}}; " + (
        f"a range is {words['field']} between 1 and 5"
    )


def _leading(words: dict[str, str]) -> str:
    return (
        f"a rule begins with its condition: leave '{words['word']}' out, "
        "as in stock == GOOGL and price > 50 : fwd(h1)"
    )


def _packet_filter(words: dict[str, str]) -> str:
    return (
        f"'{words['word']}' is of another language: a rule compares fields of the message format "
        "with constants, as in dst_port == 80"
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
        lambda words: "the rule for every event is all, as in all : fwd(h1)",
    ),
    (
        r"(?<![\w.)])(?P<word>\.(?P<field>[A-Za-z_]\w*))",
        lambda words: f"names of fields have no dot before them: write {words['field']}",
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
        lambda words: "several actions stand in braces: { fwd(1); seen <- count() }",
    ),
    (
        r":\s*(?P<word>fwd|forward|forwards|send|to|output|deliver)\s+(?:to\s+)?"
        r"(?P<host>[\w.\-]+)",
        lambda words: f"receivers stand in parentheses: write fwd({words['host']})",
    ),
    (
        r":\s*(?P<word>[A-Za-z_][\w.\-]*)\s*(?=;|\Z)",
        lambda words: f"receivers stand in fwd(...): write fwd({words['word']})",
    ),
    (
        r"(?P<word>->|=>|-->|\?|\bthen\b|\bdo\b|(?<!:)(?<!:\s)\bfwd)\s*(?:fwd|forward|[A-Za-z_]\w*)?\s*\(",
        lambda words: "actions stand behind a colon: write : fwd(h1)",
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
            "there is no arithmetic: a field is compared with a constant, as in price > 50"
        ),
    ),
    (
        r"\b(?P<word>xor)\b",
        lambda words: "there is no 'xor'; write a and not b or b and not a",
    ),
    (
        rf"(?:[\w.)}}]|[\"'])\s+(?P<word>(?!(?:and|or|not|in|between)\b)[A-Za-z_][\w.]*)\s*"
        rf"(?:{_SIGN}|in\b|between\b)",
        lambda words: "write 'and' or 'or' between two comparisons",
    ),
)
_HABITS = [(re.compile(pattern, _FLAGS | re.DOTALL), say) for pattern, say in _TABLE]
