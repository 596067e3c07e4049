"""P4 programs as switches are given them: P4Info and what the target loads."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from google.protobuf import text_format
from p4.config.v1 import p4info_pb2

from udfs.errors import SwitchError
from udfs.switches.derivation import DERIVATIONS

_REASON = re.compile(r"^const reason_t (\w+) = (\d+);", re.MULTILINE)
_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


@dataclass(frozen=True)
class P4Program:
    """``p4info_text`` is P4Info in text format, ``device_config`` the target's form (BMv2 JSON)."""

    name: str
    p4info_text: str
    device_config: bytes = b""

    @classmethod
    def read(cls, folder: str | Path, name: str) -> P4Program:
        """``<name>.p4info.txtpb`` and ``<name>.json`` of a folder.

        Raises SwitchError ``NO_P4INFO``.
        """
        info, config = (Path(folder) / f"{name}{suffix}" for suffix in (".p4info.txtpb", ".json"))
        try:
            return cls(name, info.read_text(), config.read_bytes())
        except OSError as error:
            raise SwitchError(
                "NO_P4INFO",
                f"the program of pipeline {name!r} cannot be read at {error.filename} "
                f"({error.strerror}): point spark.stackcast.p4.folder at the project's p4 folder",
            ) from None

    @cached_property
    def serialized(self) -> bytes:
        """P4Info as bytes, always the same. Raises SwitchError ``NO_P4INFO`` for a text of none."""
        try:
            p4info = text_format.Parse(self.p4info_text, p4info_pb2.P4Info())
        except text_format.ParseError as error:
            raise SwitchError(
                "NO_P4INFO", f"the P4Info of pipeline {self.name!r} cannot be read: {error}"
            ) from None
        serialized: bytes = p4info.SerializeToString(deterministic=True)
        return serialized

    @property
    def p4info(self) -> p4info_pb2.P4Info:
        """A message of the caller's own. Raises SwitchError ``NO_P4INFO`` as `serialized` does.

        Protobuf's messages in Python change as they are read (a part that is not set is made), and
        switches are refreshed by threads, so that no two of them may have the same message.
        """
        return p4info_pb2.P4Info.FromString(self.serialized)

    @cached_property
    def tables(self) -> list[str]:
        """Names of its tables."""
        return [table.preamble.name for table in self.p4info.tables]

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Most entries of each table for which the program says it."""
        return {table.preamble.name: table.size for table in self.p4info.tables if table.size > 0}

    @cached_property
    def cookie(self) -> int:
        """Returns what P4Runtime tells programs apart by: 64 bits over both parts, never 0."""
        digest = hashlib.sha256(self.serialized)
        digest.update(self.device_config)
        return int.from_bytes(digest.digest()[:8], "big") or 1


class Programs:
    """Reads the compiled programs of a folder, each once."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._read: dict[str, P4Program] = {}
        self._reasons: dict[str, Mapping[int, str]] = {}

    def program(self, name: str) -> P4Program:
        """Raises SwitchError ``NO_P4INFO``, ``UNKNOWN_PIPELINE``."""
        known = self._read.get(name)
        if known is None:
            known = P4Program.read(self._folder, name)
            if name not in DERIVATIONS:
                raise SwitchError(
                    "UNKNOWN_PIPELINE",
                    f"nothing says what a switch with pipeline {name!r} should hold, so it stays "
                    f"as it is: column pipeline of switches knows {', '.join(DERIVATIONS)}",
                    pipeline=name,
                )
            self._read[name] = known
        return known

    def tables(self, name: str) -> list[str]:
        """Names of a program's tables; none where it cannot be read: its switches will tell."""
        try:
            return self.program(name).tables
        except SwitchError:
            return []

    def reasons(self, name: str) -> Mapping[int, str]:
        """Names of the reasons for which a program drops, by their indexes; none where its source
        does not lie beside what is compiled of it."""
        if name not in self._reasons:
            found: dict[int, str] = {}
            files = [Path(self._folder, f"{name}.p4")]
            while files:
                try:
                    text = files.pop().read_text()
                except OSError:
                    continue
                files += [Path(self._folder, part) for part in _INCLUDE.findall(text)]
                found |= {int(index): reason for reason, index in _REASON.findall(text)}
            self._reasons[name] = found
        return self._reasons[name]

    def sizes(self, name: str) -> dict[str, int]:
        """Most entries of the tables of a program; none where it cannot be read."""
        try:
            return self.program(name).sizes
        except SwitchError:
            return {}
