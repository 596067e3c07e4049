"""SQL text of people: parts it into statements, and finds the words of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

#: A token that matters for the ends of statements, as Spark's lexer reads it. ``open`` is the
#: beginning of a text or name that has no end.
_TOKEN = re.compile(
    r"""(?P<text> [rR]'[^']*' | [rR]"[^"]*" | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" )
    | `(?P<name>(?:[^`]|``)*)`
    | (?P<comment> --[^\n]* | /\* )
    | (?P<open> ['"`] )
    | (?P<word> \w+ )
    | (?P<end> ; )
    | (?P<other> \S )""",
    re.DOTALL | re.VERBOSE,
)
_BRACKET = re.compile(r"/\*|\*/")
#: Words after END that end a part of a script other than a block or a CASE.
_PARTS = {"if", "while", "for", "loop", "repeat"}
#: First words of statements that write.
_WRITING = {"insert", "update", "delete", "merge", "truncate", "restore", "replace", "optimize"}
#: First words of statements that write if they have INSERT further on.
_PERHAPS_WRITING = {"with", "from"}


@dataclass(frozen=True)
class Statement:
    """A statement without its semicolon, and the line of the text on which it begins, from 1."""

    text: str
    line: int

    @property
    def words(self) -> list[str]:
        """Keywords and names in lower case, in their order, without texts and comments."""
        return [word for kind, word, *_ in _tokens(self.text) if kind in ("word", "name")]

    @property
    def writing_words(self) -> list[str]:
        """The words from the one that writes on; none if the statement does not write rows."""
        words = self.words
        first = words[0] if words else ""
        if first in _PERHAPS_WRITING and "insert" in words:
            return words[words.index("insert") :]
        return words if first in _WRITING else []


def split(text: str) -> tuple[list[Statement], Statement]:
    """Parts a text at its semicolons.

    Semicolons in texts, quoted names, comments and BEGIN ... END scripts end no statement.

    Returns:
        The statements, and the text after the last semicolon. Its text is empty if it consists of
        blanks and comments.
    """
    statements: list[Statement] = []
    start = 0
    first: int | None = None
    script = _Script()
    for kind, word, begin, end in _tokens(text):
        if kind == "end" and not script.is_open:
            if first is not None:
                statements.append(_statement(text, first, begin))
            start, first, script = end, None, _Script()
            continue
        if kind == "comment" and word:
            continue
        # A comment without an end is not complete, as a text without one is.
        first = begin if first is None else first
        script.take(word if kind == "word" else "", kind == "end")
    remainder = _statement(text, start if first is None else first, len(text))
    return statements, remainder if first is not None else Statement("", remainder.line)


def _statement(text: str, begin: int, end: int) -> Statement:
    return Statement(text[begin:end].strip(), text.count("\n", 0, begin) + 1)


def _tokens(text: str) -> Iterator[tuple[str, str, int, int]]:
    """Yields kind, word, begin and end of tokens. The word of a comment says whether it ends."""
    position = 0
    while match := _TOKEN.search(text, position):
        kind = match.lastgroup or ""
        begin, position = match.span()
        word = match[kind].lower()
        if word == "/*":
            position, ended = _end_of_comment(text, position)
            word = "/*" if ended else ""
        elif kind == "open":
            position = len(text)
        yield kind, word, begin, position


def _end_of_comment(text: str, position: int) -> tuple[int, bool]:
    """Returns where a comment in brackets ends, which may contain others, and whether it does."""
    depth = 1
    while match := _BRACKET.search(text, position):
        position = match.end()
        depth += 1 if match[0] == "/*" else -1
        if not depth:
            return position, True
    return len(text), False


class _Script:
    """Counts the open blocks of a statement that begins with BEGIN: a script of SQL."""

    def __init__(self) -> None:
        self._depth = 0
        #: None before the first word.
        self._is_script: bool | None = None
        self._before = ""

    @property
    def is_open(self) -> bool:
        return self._depth > 0

    def take(self, word: str, ends: bool) -> None:
        """Takes the next word, empty for other tokens. ends: whether it is a semicolon."""
        if self._is_script is None:
            self._is_script = word == "begin"
            self._depth = int(self._is_script)
        elif self._is_script:
            if word in ("begin", "case") and self._before != "end":
                self._depth += 1
            elif word == "end":
                self._depth -= 1
            elif word in _PARTS and self._before == "end":
                self._depth += 1
        self._before = "" if ends else word
