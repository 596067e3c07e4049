"""The command ``stackcast`` in the process of the tests: a process of its own takes two seconds."""

from __future__ import annotations

import io
import sys
from typing import NamedTuple
from unittest import mock

from stackcast.cli import main


class Result(NamedTuple):
    """Exit code and output of a command."""

    code: int
    stdout: str
    stderr: str


def stackcast(*arguments: object) -> Result:
    """Run the command line ``stackcast ARGUMENTS`` in the current folder."""
    files = io.BytesIO(), io.BytesIO()
    streams = [io.TextIOWrapper(file, "utf-8", write_through=True) for file in files]
    words = ["stackcast", *map(str, arguments)]
    code: object = 0
    with (
        mock.patch.object(sys, "argv", words),
        mock.patch.object(sys, "stdout", streams[0]),
        mock.patch.object(sys, "stderr", streams[1]),
    ):
        try:
            main.main()
        except SystemExit as end:
            code = end.code or 0
        # The command may have replaced them.
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        texts = [file.getvalue().decode() for file in files]
    assert isinstance(code, int), code
    return Result(code, *texts)
