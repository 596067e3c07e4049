"""Refusals of requests, the checks of values that all requests share, and the status sent back.

The status of a refused Write or Read has one ``p4.v1.Error`` for each of its parts. It travels in a
trailer of the answer. A gRPC client takes trailers of 8 KB unless told otherwise, and what is
beyond costs it the whole status. So a status that would be longer is made shorter: first the words
of each error are cut, then left out, at last there are no errors of parts at all, and a client that
must know sends the parts again in smaller requests.
"""

from __future__ import annotations

from collections.abc import Sequence

from google.rpc import code_pb2, status_pb2

from stackcast.schemas.p4runtime import p4runtime_pb2


class Refusal(Exception):  # noqa: N818 - an answer to a client, not a fault of the server
    """A refused request or update: a ``google.rpc.Code`` and words."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def invalid(message: str) -> Refusal:
    """Returns a `Refusal` with INVALID_ARGUMENT."""
    return Refusal(code_pb2.INVALID_ARGUMENT, message)


def unimplemented(message: str) -> Refusal:
    """Returns a `Refusal` with UNIMPLEMENTED."""
    return Refusal(code_pb2.UNIMPLEMENTED, message)


def number(given: bytes, bits: int, what: str) -> int:
    """Returns the unsigned integer of a byte string. Leading zeros are taken, as clients of an
    older program with wider fields send them.

    Raises `Refusal` INVALID_ARGUMENT without a byte, OUT_OF_RANGE beyond ``bits``; ``what`` names
    the value.
    """
    if not given:
        raise invalid(f"{what}: a value needs at least one byte")
    value = int.from_bytes(given, "big")
    if value >> bits:
        raise Refusal(code_pb2.OUT_OF_RANGE, f"{what}: {value:#x} does not fit {bits} bits")
    return value


def cell(index: int, size: int, what: str) -> int:
    """Returns an index into an array of ``size`` cells; INVALID_ARGUMENT below 0, OUT_OF_RANGE
    above.
    """
    if index < 0:
        raise invalid(f"{what}: index {index} is negative")
    if index >= size:
        raise Refusal(code_pb2.OUT_OF_RANGE, f"{what} has {size} cells: there is no cell {index}")
    return index


LONGEST = 7_000
"""Bytes of a status with its words, which travel twice."""

_LONGEST_WORDS = 400
_CUT_WORDS = 60
# An answer without words, in its shortest form: the name of its type and a code.
_SHORTEST = 16


def batch_status(answers: Sequence[Refusal | None]) -> status_pb2.Status:
    """Returns the status of a refused request.

    answers: to each part, one of which at least is a refusal.
    """
    first = next(answer for answer in answers if answer is not None)
    refused = sum(answer is not None for answer in answers)
    more = f" (and {refused - 1} more)" if refused > 1 else ""
    words = _cut(first.message, _LONGEST_WORDS) + more
    if len(answers) * _SHORTEST < LONGEST:
        for longest in (_LONGEST_WORDS, _CUT_WORDS, 0):
            status = _status(words, answers, longest)
            if status.ByteSize() + len(words.encode()) <= LONGEST:
                return status
    return status_pb2.Status(code=code_pb2.UNKNOWN, message=words)


def _status(words: str, answers: Sequence[Refusal | None], longest: int) -> status_pb2.Status:
    status = status_pb2.Status(code=code_pb2.UNKNOWN, message=words)
    # A URL of a type needs no host; this half of each answer can be spared.
    host = "type.googleapis.com/" if longest else ""
    for answer in answers:
        error = p4runtime_pb2.Error(canonical_code=code_pb2.OK)
        if answer is not None:
            error.canonical_code, error.message = answer.code, _cut(answer.message, longest)
        status.details.add().Pack(error, type_url_prefix=host)
    return status


def _cut(words: str, longest: int) -> str:
    if len(words) <= longest:
        return words
    return f"{words[: longest - 3]}..." if longest else ""
