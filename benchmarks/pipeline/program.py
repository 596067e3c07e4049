"""A way as a process of its own: it reads commands by line and answers each by one.

    go TOPIC PARTITIONS RECORDS ONCE WORK   reads the topic, from its end on again unless ONCE is 1
    look                                    PASS RECORDS SECONDS: so many were done at that time
    halt                                    ends reading

A look's PASS is 0 where nothing is to be measured: nothing flows yet, or a pass ends. SECONDS are
since 1970. WORK is how much is done of a record; ways that know of one do all. Where it is a sink,
all is done, and that has the frames; else the tunnel has them.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import NamedTuple, TextIO

from stackcast.jobs.adapters.app.settings import Settings

#: Sinks that put frames onto the interface, as WORK.
SINKS = ("af_packet", "af_xdp")


class Order(NamedTuple):
    """The arguments of ``go``."""

    topic: str
    partitions: int
    records: int
    once: bool
    work: str


def sending(settings: Settings, work: str, interface: str) -> Settings:
    """Returns the settings by which frames leave as a WORK says."""
    return replace(settings, sink=work, interface=interface) if work in SINKS else settings


class Look(NamedTuple):
    """So many ``records`` were done by ``seconds``, since 1970, in pass ``turn``."""

    turn: int
    records: int
    seconds: float


class Program(ABC):
    """Reads a topic in a thread, pass by pass, while the main thread answers."""

    def __init__(self) -> None:
        self.halting = threading.Event()
        self.seen = Look(0, 0, 0.0)
        self._failed = ""

    @abstractmethod
    def read(self, order: Order, number: int) -> None:
        """One pass over the topic; keeps `seen` up to date, and ends soon once it is halting."""

    def serve(self, out: TextIO) -> None:
        """Answers until the commands end."""
        print("ready", file=out, flush=True)
        reader: threading.Thread | None = None
        for line in sys.stdin:
            command, *words = line.split()
            answer = command
            if command == "go":
                topic, partitions, records, once, work = words
                order = Order(topic, int(partitions), int(records), once == "1", work)
                self.halting.clear()
                reader = threading.Thread(target=self._read, args=(order,), daemon=True)
                reader.start()
            elif command == "look":
                turn, done, seconds = self.seen
                answer = f"failed {self._failed}" if self._failed else f"{turn} {done} {seconds!r}"
            elif reader is not None:
                self.halting.set()
                reader.join()
                self.seen = Look(0, self.seen.records, 0.0)
            print(answer, file=out, flush=True)

    def _read(self, order: Order) -> None:
        number = 0
        try:
            while not self.halting.is_set():
                number += 1
                self.read(order, number)
                self.seen = Look(0, self.seen.records, time.time())
                if order.once:
                    return
        except Exception as error:
            traceback.print_exc()
            self._failed = repr(error).replace("\n", " ")[:300]


def own_output() -> TextIO:
    """Returns the standard output, and leads what else is written there to the log."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers
