"""Compiled P4 programs: the P4Info, and the configuration that the target loads."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from google.protobuf import text_format

from stackcast.schemas.p4runtime import p4info_pb2
from stackcast.udfs.errors import SwitchError
from stackcast.udfs.switches.derivation import DERIVATIONS

_REASON = re.compile(r"^const reason_t (\w+) = (\d+);", re.MULTILINE)
_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


@dataclass(frozen=True)
class P4Program:
    """A compiled P4 program.

    Attributes:
        name: name of the pipeline.
        p4info_text: P4Info in text format.
        device_config: the program in the form that the target loads, for example BMv2 JSON.
    """

    name: str
    p4info_text: str
    device_config: bytes = b""

    @classmethod
    def read(cls, folder: str | Path, name: str) -> P4Program:
        """Read ``<name>.p4info.txtpb`` and ``<name>.json`` from a folder.

        Raises:
            SwitchError: ``NO_P4INFO``, if a file cannot be read, or its name cannot be one.
        """
        info, config = (Path(folder) / f"{name}{suffix}" for suffix in (".p4info.txtpb", ".json"))
        try:
            return cls(name, info.read_text(encoding="utf-8"), config.read_bytes())
        except OSError as error:
            place, reason = error.filename, error.strerror
        except ValueError as error:  # a null byte in the name, or a file that is not UTF-8
            place, reason = str(info), str(error)
        raise SwitchError(
            "NO_P4INFO",
            f"the program of pipeline {name!r} cannot be read at {place} ({reason}): set "
            "spark.stackcast.p4.folder to a folder of compiled programs, such as p4/compiled",
        )

    @cached_property
    def serialized(self) -> bytes:
        """The P4Info in binary form; equal messages have equal bytes.

        Raises:
            SwitchError: ``NO_P4INFO``, if the text is not a P4Info.
        """
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
        """A new P4Info message for each access.

        Python's protobuf messages change when they are read, because a part that is not set is
        created then. Switches are refreshed by several threads, which must not share a message.

        Raises:
            SwitchError: ``NO_P4INFO``, if the text is not a P4Info.
        """
        return p4info_pb2.P4Info.FromString(self.serialized)

    @cached_property
    def tables(self) -> list[str]:
        """Names of the tables of the program."""
        return [table.preamble.name for table in self.p4info.tables]

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Maximum number of entries by table, for the tables whose size the program declares."""
        return {table.preamble.name: table.size for table in self.p4info.tables if table.size > 0}

    @cached_property
    def cookie(self) -> int:
        """P4Runtime's identifier of the program: 64 bits of a hash of both parts, never 0."""
        digest = hashlib.sha256(self.serialized)
        digest.update(self.device_config)
        return int.from_bytes(digest.digest()[:8], "big") or 1


class Programs:
    """Reads the compiled programs of a folder, and caches them."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._programs: dict[str, P4Program] = {}
        self._reasons: dict[str, Mapping[int, str]] = {}

    def program(self, name: str) -> P4Program:
        """Return the program of a pipeline.

        Raises:
            SwitchError: ``NO_P4INFO``, if a file cannot be read; ``UNKNOWN_PIPELINE``, if entries
                cannot be derived for the program.
        """
        program = self._programs.get(name)
        if program is None:
            program = P4Program.read(self._folder, name)
            if name not in DERIVATIONS:
                raise SwitchError(
                    "UNKNOWN_PIPELINE",
                    f"no entries can be derived for pipeline {name!r}, so its switches remain "
                    "unchanged: set column pipeline of table switches to one of "
                    f"{', '.join(DERIVATIONS)}",
                    pipeline=name,
                )
            self._programs[name] = program
        return program

    def tables(self, name: str) -> list[str]:
        """Return the names of the tables of a program; none if it cannot be used.

        Refreshes of its switches report the error.
        """
        try:
            return self.program(name).tables
        except SwitchError:
            return []

    def reasons(self, name: str) -> Mapping[int, str]:
        """Return the names of the reasons for which a program drops packets, by their indexes.

        They are constants in the P4 source of the program, which is in the parent of the folder of
        compiled programs. Files that are not there are ignored.
        """
        if name not in self._reasons:
            reasons: dict[int, str] = {}
            sources = Path(self._folder).parent
            files = [sources / f"{name}.p4"]
            while files:
                try:
                    text = files.pop().read_text()
                except OSError:
                    continue
                files += [sources / part for part in _INCLUDE.findall(text)]
                reasons |= {int(index): reason for reason, index in _REASON.findall(text)}
            self._reasons[name] = reasons
        return self._reasons[name]

    def sizes(self, name: str) -> dict[str, int]:
        """Return the maximum number of entries by table of a program; none if it cannot be used."""
        try:
            return self.program(name).sizes
        except SwitchError:
            return {}
