"""Runs a simulated stream where Spark, Delta and Kafka, files and sleep are forbidden.

    python tests/support/simulation_program.py

A first run loads modules and compiled kernels. In the second run, no file may be opened.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any, NoReturn

LIBRARIES = ("pyspark", "py4j", "delta", "deltalake", "kafka")
EVENTS = ("open", "os.mkdir", "os.remove", "os.rename", "socket.connect", "subprocess.Popen")
"""Events of Python's audit hooks that are forbidden."""


class ForbiddenError(Exception):
    """A simulation has used something outside its process."""


class Blocker(MetaPathFinder):
    """Fails imports of the libraries of external systems."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: Any = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] in LIBRARIES:
            raise ForbiddenError(f"import of {name}")
        return None


def sleep(seconds: float) -> NoReturn:
    raise ForbiddenError(f"sleep of {seconds} s")


def main() -> None:
    sys.meta_path.insert(0, Blocker())
    time.sleep = sleep
    from simulated_stream import Deployment, Kill, tell  # noqa: PLC0415 - after the blocker

    effects = tell(Deployment(), [])[0]
    running, used = True, list[str]()

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if running and event in EVENTS:
            used.append(f"{event} {arguments[0]}")

    sys.addaudithook(audit)
    deployment = Deployment()
    tell(deployment, [Kill(effects // 3), Kill(effects // 3)])
    running = False
    if used:
        raise ForbiddenError("; ".join(used))
    verdict = deployment.verdict()
    print(*verdict.lines(), sep="\n")
    sys.exit(not verdict.proved or verdict.waiting > 0)


if __name__ == "__main__":
    main()
