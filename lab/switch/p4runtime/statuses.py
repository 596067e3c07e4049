"""The status of a refused Write or Read: one ``p4.v1.Error`` for each of its parts.

It travels in a trailer of the answer. A gRPC client takes trailers of 8 KB unless told otherwise,
and what is beyond costs it the whole status. So a status that would be longer is made shorter:
first the words of each error are cut, then left out, at last there are no errors of parts at all,
and a client that must know sends the parts again in smaller requests.
"""

from __future__ import annotations

from collections.abc import Sequence

from google.rpc import code_pb2, status_pb2
from p4.v1 import p4runtime_pb2

from lab.switch.p4runtime.refusal import Refusal

LONGEST = 7_000
"""Bytes of a status with its words, which travel twice."""

_LONGEST_WORDS = 400
_CUT_WORDS = 60
# An answer without words, in its shortest form: the name of its type and a code.
_SHORTEST = 16


def batch_status(answers: Sequence[Refusal | None]) -> status_pb2.Status:
    """``answers``: to each part, one of which at least is a refusal."""
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
