"""Writes a trading session into a file.

python -m lab.traffic.generate --messages N --seed S --symbols K --out FILE [--packets]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from lab.traffic.packets import packetize, write_records
from lab.traffic.trading_session import TradingSession
from udfs.errors import LabError, StackcastError

_PROGRESS_EVERY = 20_000  # messages

Progress = Callable[[int], None]


def generate(
    out: str | Path,
    messages: int = 100_000,
    seed: int = 1,
    symbols: int = 200,
    packets: bool = False,
    progress: Progress | None = None,
) -> int:
    """Writes a session as a Nasdaq BinaryFILE, packed if ``out`` ends in ``.gz``.

    Parameters
    ----------
    packets: records are MoldUDP64 packets of 1 to 12 messages, not messages.
    progress: called now and then with the number of messages written.

    Returns the number of records. Errors: ``LabError`` ``BAD_SESSION``, ``NOT_WRITTEN``.
    """
    session: Iterable[bytes] = TradingSession(messages, seed, symbols)
    if progress is not None:
        session = _counted(session, progress)
    try:
        return write_records(out, packetize(session, seed=seed) if packets else session)
    except OSError as error:
        raise LabError(
            "NOT_WRITTEN", f"cannot write {out}: {error.strerror}", path=str(out)
        ) from None


def _counted(messages: Iterable[bytes], progress: Progress) -> Iterator[bytes]:
    for number, message in enumerate(messages, 1):
        if number % _PROGRESS_EVERY == 0:
            progress(number)
        yield message


def main(arguments: list[str] | None = None) -> int:
    """Writes the session of the command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        "lab.traffic.generate", description="Writes a trading session."
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--symbols", type=int, default=200)
    parser.add_argument("--packets", action="store_true")
    options = parser.parse_args(arguments)
    try:
        generate(**vars(options))
    except StackcastError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
