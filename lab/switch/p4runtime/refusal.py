"""Why a request is refused, and the checks of values that all requests share."""

from __future__ import annotations

from google.rpc import code_pb2


class Refusal(Exception):  # noqa: N818 - an answer to a client, not a fault of the server
    """Why a request or an update is refused: a ``google.rpc.Code`` and words."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def invalid(message: str) -> Refusal:
    """A `Refusal` with INVALID_ARGUMENT."""
    return Refusal(code_pb2.INVALID_ARGUMENT, message)


def unimplemented(message: str) -> Refusal:
    """A `Refusal` with UNIMPLEMENTED."""
    return Refusal(code_pb2.UNIMPLEMENTED, message)


def number(given: bytes, bits: int, what: str) -> int:
    """The unsigned integer of a byte string. Leading zeros are taken, as clients of an older
    program with wider fields send them.

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
    """An index into an array of ``size`` cells; INVALID_ARGUMENT below 0, OUT_OF_RANGE above."""
    if index < 0:
        raise invalid(f"{what}: index {index} is negative")
    if index >= size:
        raise Refusal(code_pb2.OUT_OF_RANGE, f"{what} has {size} cells: there is no cell {index}")
    return index
