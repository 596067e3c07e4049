"""The endpoint of a P4Runtime server: the address that it listens at, and its TLS credentials."""

from __future__ import annotations

import errno
import socket
import ssl
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address
from pathlib import Path

import grpc

from stackcast.udfs.errors import LabError


def check_listen(listen: str) -> None:
    """Look at ``HOST:PORT`` before a server is made: gRPC does not say what is wrong with it.

    HOST is a name or an address of this machine, an IPv6 address in brackets. Whether PORT is free
    is for the server to find out. Raises LabError ``BAD_ADDRESS``.
    """
    host, _, port = listen.rpartition(":")
    if not (host and port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise _bad_address(listen, "expected HOST:PORT with a port from 0 to 65535")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        try:
            IPv6Address(host)
        except AddressValueError:
            raise _bad_address(listen, f"{host!r} is not an IPv6 address") from None
    elif ":" in host or "/" in host:
        raise _bad_address(listen, f"{host!r} is not a host; write an IPv6 address in brackets")
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise _bad_address(listen, f"host {host!r} was not found") from None
    if not any(_is_ours(family, address) for family, _, _, _, address in found):
        raise _bad_address(listen, f"{host!r} is not an address of this machine")


def _is_ours(family: int, address: object) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(address)
    except OSError as error:
        return error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EINVAL)
    return True


def _bad_address(listen: str, why: str) -> LabError:
    return LabError("BAD_ADDRESS", f"cannot listen on {listen}: {why}", listen=listen)


@dataclass(frozen=True)
class ServerCredentials:
    """PEM files. With ``ca``, only clients with a certificate that it signed may connect.

    ``certificate`` may hold intermediate certificates after the server's own. ``key`` is the
    certificate's, without a password.
    """

    certificate: Path
    key: Path
    ca: Path | None = None

    def load(self) -> grpc.ServerCredentials:
        """Read and compare the files.

        Raises LabError ``BAD_TLS`` naming the file that is missing, is no PEM or does not belong.
        """
        pems = {path: _read(path) for path in (self.certificate, self.key, self.ca) if path}
        # gRPC says nothing of what is wrong with a file; the ssl module does.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.certificate, self.key, password=_no_password)
        except (ssl.SSLError, OSError, _LockedError) as error:
            raise _bad_tls(f"{self.certificate} and {self.key}", error) from None
        if self.ca is not None:
            try:
                context.load_verify_locations(self.ca)
            except (ssl.SSLError, OSError) as error:
                raise _bad_tls(str(self.ca), error) from None
        return grpc.ssl_server_credentials(
            [(pems[self.key], pems[self.certificate])],
            root_certificates=pems[self.ca] if self.ca else None,
            require_client_auth=self.ca is not None,
        )


class _LockedError(Exception):
    """The key has a password."""


def _no_password() -> str:
    # Without this, the ssl module would ask at the terminal.
    raise _LockedError("the key has a password; use a key without one")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise LabError("BAD_TLS", f"{path}: {error.strerror}", path=str(path)) from None


def _bad_tls(what: str, error: Exception) -> LabError:
    reason = getattr(error, "reason", None) or str(error) or "not a PEM file"
    return LabError("BAD_TLS", f"{what} cannot be used for TLS: {reason}", path=what)
