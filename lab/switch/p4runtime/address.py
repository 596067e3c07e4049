"""Where a server may listen."""

from __future__ import annotations

import errno
import socket
from ipaddress import AddressValueError, IPv6Address

from udfs.errors import LabError


def check_listen(listen: str) -> None:
    """Look at ``HOST:PORT`` before a server is made: gRPC does not say what is wrong with it.

    HOST is a name or an address of this machine, an IPv6 address in brackets. Whether PORT is free
    is for the server to find out. Raises LabError ``BAD_ADDRESS``.
    """
    host, _, port = listen.rpartition(":")
    if not (host and port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise _bad(listen, "give HOST:PORT with a port of 0 to 65535")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        try:
            IPv6Address(host)
        except AddressValueError:
            raise _bad(listen, f"{host!r} is no IPv6 address") from None
    elif ":" in host or "/" in host:
        raise _bad(listen, f"{host!r} is no host; an IPv6 address is written in brackets")
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise _bad(listen, f"there is no host {host!r}") from None
    if not any(_is_ours(family, address) for family, _, _, _, address in found):
        raise _bad(listen, f"{host!r} is no address of this machine")


def _is_ours(family: int, address: object) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(address)
    except OSError as error:
        return error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EINVAL)
    return True


def _bad(listen: str, why: str) -> LabError:
    return LabError("BAD_ADDRESS", f"{listen} cannot be listened on: {why}", listen=listen)
