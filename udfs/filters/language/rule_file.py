"""The texts of the rules of a file.

A rule ends with ``;`` outside quotes and the braces of actions, or with a line's end, unless

* the line ends with an operator, a comma, a colon, an opening parenthesis or brace,
* the next line begins with an operator (of two sides), a comma, a colon or a brace, or
* a parenthesis is open, and the next line begins with a closing one, or with the opening one of a
  function; or a brace of actions is, and ``;`` stands between two of them.

No rule can go on otherwise: two of its words that stand side by side, with nothing of this between
them, are two rules. So a parenthesis left open spoils its own rule, and not those in the lines
after it.

Operators are ``and or not in between``, ``<-``, and the signs that stand for them or compare. A
word right after a comparison is a constant, as in ``stock == AND``. Comments are no part of a line,
and a line that has nothing else is passed over. An empty line ends a rule in any case.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MAX_INDENT = 1000
"""Blanks put before a rule that begins within a line."""
MAX_INDENTS = 10_000_000
"""Blanks put before all rules of a file; rules behind that have none."""

_HIDDEN = re.compile(r""""[^"\n]*"|'[^'\n]*'|#[^\n]*""")
_COMMENT = re.compile(r"#[^\n]*")
_BREAKS = re.compile(r"[(){};]")
_NESTED = re.compile(r"\([^()\n]*[\n(]")
_INFIX = "&|^∧∨=<>≠≤≥:,←"
_PREFIX = "!¬"
_LAST_LETTERS = frozenset("dDrRtTnN")
_LAST_SIGNS = frozenset(_INFIX + _PREFIX + "({")
_LAST_WORD = re.compile(r"(?:^|[^=<>≠≤≥\s])\s*(?<![\w.])(?:and|or|not|in|between)$", re.IGNORECASE)
_GOES_ON = re.compile(
    rf"\s* (?: (?:and|or|(?:not\s+)?(?:in|between))(?![\w.]) | != | [{_INFIX}{{}}] )",
    re.IGNORECASE | re.VERBOSE,
)
_FUNCTION = re.compile(r"(?:^|[^=<>≠≤≥\s])\s*(?<![\w.])(?:count|sum|avg|min|max)$")
#: A rule may begin with a name and parentheses, too, and then compares.
_ACTION = re.compile(
    r"\s* (?: \} | [A-Za-z_]\w* \s* (?: \([^()]* (?: $ | \)\s*(?:[;}]|$) ) | <- | ← | $ ) )",
    re.VERBOSE,
)
_MAY_GO_ON = re.compile(rf"(?:and|or|not|in|between)(?![\w.])|!=|[{_INFIX}{{}}]", re.IGNORECASE)


def split_rules(text: str) -> list[tuple[str, int]]:
    """Splits a file into rules: each one's text, without its ``;``, and the line where it begins.

    Lines count from 1. A text may have several lines; blanks before it keep its columns those of
    the file, up to 1,000, and ten million in all. Comments are cut off. Any text can be split:
    ``parse_rule`` finds faults of the parts, and `in_file` puts its errors into the file's lines.
    """
    lines = text.split("\n")
    bare = _shown(text)
    shown = list(map(str.rstrip, bare.split("\n")))
    if _is_one_a_line(bare, shown):
        cut = [line[: len(seen)] for line, seen in zip(lines, shown, strict=True)]
        if ";" in bare:
            cut = [rule.rstrip(";").rstrip() for rule in cut]
        return [(rule, at) for at, rule in enumerate(cut, 1) if rule and not rule.isspace()]
    return _split(lines, shown)


def _shown(text: str) -> str:
    """Returns the text without its comments, and an x for each character in quotes."""
    if '"' in text or "'" in text:
        return _HIDDEN.sub(lambda m: "" if m[0][0] == "#" else "x" * len(m[0]), text)
    return _COMMENT.sub("", text) if "#" in text else text


def _is_one_a_line(text: str, shown: Sequence[str]) -> bool:
    """Returns True if every line is plainly a rule. Quick, for files of 100,000 lines.

    ``shown`` are the lines of ``text``, without blanks at their ends.
    """
    if "{" in text:
        return False
    ends = {line[-1:] for line in shown}
    if ends & _LAST_SIGNS or "-" in ends:
        return False
    if ends & _LAST_LETTERS and any(map(_is_open, shown)):
        return False
    if any(map(_MAY_GO_ON.match, {line[:9] for line in map(str.lstrip, shown)})):
        return False
    if ";" in text and text.count(";") != sum([line[-1:] == ";" for line in shown]):
        return False
    if text.count("(") == text.count(")") and not _NESTED.search(text + "\n"):
        return True
    return all(line.count("(") == line.count(")") for line in shown)


def _is_open(line: str) -> bool:
    """Returns True if the line ends with an operator, a comma, a colon, or what opens a bracket."""
    last = line[-1:]
    if last in _LAST_LETTERS:
        return _LAST_WORD.search(line) is not None
    return last in _LAST_SIGNS or line.endswith("<-")


def _closes_or_takes(before: str, line: str) -> bool:
    """Returns True if a line within parentheses closes one, or opens that of a function."""
    sign = line.lstrip()[:1]
    return sign == ")" or (sign == "(" and _FUNCTION.search(before) is not None)


def _acts_again(before: str, line: str) -> bool:
    """Returns True if a line within the braces of actions has the next of them."""
    if line.lstrip()[:1] == ";":
        return True
    return before[-1:] == ";" and _ACTION.match(line) is not None


def _split(lines: Sequence[str], shown: Sequence[str]) -> list[tuple[str, int]]:
    rules: list[tuple[str, int]] = []
    pieces: list[str] = []
    parentheses = braces = first = indents = 0
    # In the braces of actions, which alone have ``;`` in them.
    acting = False
    before = ""

    def end() -> None:
        nonlocal parentheses, braces, acting
        if pieces:
            rules.append(("\n".join(pieces).rstrip(), first))
            pieces.clear()
        parentheses = braces = 0
        acting = False

    def add(number: int, start: int, stop: int) -> None:
        nonlocal first, indents
        piece = lines[number - 1][start:stop]
        if not pieces:
            if not piece.strip():
                return
            first = number
            indent = min(start, MAX_INDENT, MAX_INDENTS - indents)
            indents += indent
            piece = " " * indent + piece
        pieces.append(piece)

    for number, bare in enumerate(shown, 1):
        if not bare:
            if not lines[number - 1].strip():
                end()
            elif pieces:
                pieces.append("")
            continue
        goes_on = _is_open(before) or _GOES_ON.match(bare) is not None
        if parentheses > 0:
            goes_on = goes_on or _closes_or_takes(before, bare)
        if acting:
            goes_on = goes_on or _acts_again(before, bare)
        if pieces and not goes_on:
            end()
        start = 0
        for found in _BREAKS.finditer(bare):
            sign = found[0]
            if sign == ";":
                if not acting:
                    add(number, start, found.start())
                    end()
                    start = found.end()
            elif sign in "()":
                parentheses += 1 if sign == "(" else -1
            elif sign == "{":
                braces += 1
                head = bare[start : found.start()].rstrip() or before
                acting = acting or head.endswith(":")
            else:
                braces -= 1
                acting = acting and braces > 0
        add(number, start, len(bare))
        before = bare[start:]
    end()
    return rules
