"""Keys that authenticate summaries: read from text, derived for hosts and sessions, and tags.

A tag is a keyed digest (RFC 7693), so that a host can tell the summaries that are made for it from
what others make up. A host has a key of its own, which says nothing about the others'::

    key of a host     BLAKE2b-256(key: master key, "host " + name of the host)
    key of a session  BLAKE2b-256(key: key of the host, "session " + session)
    tag               BLAKE2b-128(key: key of the session, summary + id of the key)

The id is that of the master key and is part of each summary. The bytes are shown in
docs/reference/sessions-and-summaries.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from hmac import compare_digest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.errors import SettingsError
from stackcast.udfs.messages.sequence import SESSION_LENGTH
from stackcast.udfs.messages.summaries import (
    AUTHENTICATED_SIZE,
    KEY_ID,
    SIZE,
    TAG_SIZE,
    authentication,
)

#: Bytes of a key.
KEY_SIZE = 32
#: Bytes that a tag is of.
_HEAD = SIZE + KEY_ID.size


@dataclass(frozen=True, slots=True)
class SummaryKey:
    """Holds a key and its id: a master key, or one that a host has. ``repr`` shows the id alone."""

    id: int
    secret: bytes = field(repr=False)

    def for_host(self, host: str) -> SummaryKey:
        """Returns the key of a host, of a master key."""
        return SummaryKey(self.id, _derived(self.secret, b"host " + host.encode()))

    def sign(self, summary: bytes) -> bytes:
        """Returns a summary of 52 bytes with id and tag behind it, 72 bytes; of a host's key."""
        head = summary + KEY_ID.pack(self.id)
        return head + _tag(self._session(head), head)

    def proves(self, datagram: bytes) -> bool:
        """Returns True if the tag is what a host's key makes of these 72 bytes."""
        head, tag = datagram[:_HEAD], datagram[_HEAD:]
        return compare_digest(tag, _tag(self._session(head), head))

    def _session(self, summary: bytes) -> bytes:
        return session_secret(self.secret, summary[:SESSION_LENGTH])


class HostKeys:
    """Decide whether summaries are authentic, by the keys of one host.

    Args:
        keys: one key, or several while keys change.

    Example:
        >>> keys = HostKeys(read_keys("7 " + "ab" * 32, "h3.keys"))
        >>> keys.proves(b"a datagram without a tag")
        False
    """

    def __init__(self, keys: Iterable[SummaryKey]) -> None:
        self._keys = {key.id: key for key in keys}

    def proves(self, datagram: bytes) -> bool:
        """Returns True for a summary with a tag that is right by the key which it names."""
        found = authentication(datagram)
        key = self._keys.get(found[0]) if found else None
        return key is not None and key.proves(datagram)


class SummarySigner:
    """Adds tags to the summaries of many hosts, a range at a time.

    It has the keys of these hosts, not the master key that they are derived from; and pickles
    without what it remembers.
    """

    def __init__(self, master: SummaryKey, hosts: Sequence[str]) -> None:
        self._id = KEY_ID.pack(master.id)
        self._secrets = [master.for_host(host).secret for host in hosts]
        self._sessions: dict[bytes, list[bytes]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_sessions": {}}

    def sign(self, rows: NDArray[np.uint8], hosts: Iterable[int]) -> NDArray[np.uint8]:
        """Returns summaries of one session with ids and tags behind them: uint8[h, 52] to
        uint8[h, 72].

        hosts: places of the h hosts that they are for, among those that this was made with.
        """
        out = np.empty((len(rows), AUTHENTICATED_SIZE), np.uint8)
        out[:, :SIZE] = rows
        out[:, SIZE:_HEAD] = np.frombuffer(self._id, np.uint8)
        session = rows[:1, :SESSION_LENGTH].tobytes()
        if session not in self._sessions:
            self._sessions[session] = [session_secret(each, session) for each in self._secrets]
        secrets = self._sessions[session]
        heads = out[:, :_HEAD].tobytes()
        tags = b"".join(
            _tag(secrets[host], heads[at : at + _HEAD])
            for host, at in zip(hosts, range(0, len(heads), _HEAD), strict=True)
        )
        out[:, _HEAD:] = np.frombuffer(tags, np.uint8).reshape(-1, TAG_SIZE)
        return out


def read_keys(text: str, name: str) -> list[SummaryKey]:
    """Read keys from lines ``ID HEX``; ``#`` begins a comment.

    Args:
        text: lines with a number of 32 bits and a key of 32 bytes in hexadecimal digits.
        name: of the file, for errors.

    Raises:
        SettingsError: ``BAD_KEYS``, with the number of the line, but never with its text.

    Example:
        >>> [key.id for key in read_keys("7 " + "ab" * 32 + "  # since May", "h3.keys")]
        [7]
    """
    found: dict[int, SummaryKey] = {}
    for line, words in enumerate((row.partition("#")[0].split() for row in text.split("\n")), 1):
        if not words:
            continue
        if len(words) != 2:
            raise _bad(name, line, "expected an id and a key, separated by a blank")
        number, digits = words
        if not re.fullmatch(r"\d{1,10}", number, re.ASCII) or int(number) >= 1 << 32:
            raise _bad(name, line, "the id must be a number from 0 to 4294967295")
        try:
            secret = bytes.fromhex(digits)
        except ValueError:
            secret = b""
        if len(secret) != KEY_SIZE:
            raise _bad(name, line, f"the key must have {2 * KEY_SIZE} hex digits")
        if int(number) in found:
            raise _bad(name, line, f"id {int(number)} is used twice")
        found[int(number)] = SummaryKey(int(number), secret)
    if not found:
        raise _bad(name, 1, "the file contains no key")
    return list(found.values())


def session_secret(secret: bytes, session: bytes) -> bytes:
    """Returns the key of a session, by that of a host."""
    return _derived(secret, b"session " + session)


def _derived(secret: bytes, what: bytes) -> bytes:
    return blake2b(what, key=secret, digest_size=KEY_SIZE).digest()


def _tag(secret: bytes, head: bytes) -> bytes:
    return blake2b(head, key=secret, digest_size=TAG_SIZE).digest()


def _bad(name: str, line: int, what: str) -> SettingsError:
    return SettingsError("BAD_KEYS", f"{name}, line {line}: {what}", line=line)
