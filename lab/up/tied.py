"""Becomes a program that ends with the process that started it.

`stackcast.lab.up.process.start_tied` gives Python this text, which imports nothing of the project,
with the process id of the parent, and the program with its arguments.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, *command: str) -> None:
    # Both outlast the change of program; what Python itself ignores shall not.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    # Linux alone has it; elsewhere the end of the input has to do.
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it died before the kernel was told to watch it
        sys.exit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
