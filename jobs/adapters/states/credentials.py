"""TLS between programs, middlewares and the replica controller: both sides show a certificate."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path
from typing import Any

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.wire.pem_files import PemFiles
from stackcast.udfs.errors import StateError

log = logging.getLogger(__name__)

#: Record with the fatal alert protocol_version (RFC 8446, 6.2).
_PROTOCOL_VERSION = bytes([21, 3, 3, 0, 2, 2, 70])
_SET_BOTH = "set spark.stackcast.states.tls.* or --tls-* on both sides"


@dataclass(frozen=True)
class StateCredentials(PemFiles):
    """PEM files of a program, a middleware or the replica controller; all or none are set."""

    error = StateError

    @staticmethod
    def from_settings(settings: Settings) -> StateCredentials:
        """Return the files that ``spark.stackcast.states.tls.*`` names."""
        return StateCredentials(
            settings.states_tls_ca, settings.states_tls_certificate, settings.states_tls_key
        )

    def context(self, *, server_side: bool) -> ssl.SSLContext:
        """Return a context that shows our certificate and accepts only those of the CA.

        Raises:
            StateError: ``BAD_TLS``, see `PemFiles.load`, or one of the three files is not set.
        """
        if not (self.ca and self.certificate and self.key):
            raise StateError(
                "BAD_TLS",
                "TLS for states requires a CA, a certificate and its key: set all three, or none "
                "of them for plain text",
            )
        context = ssl.SSLContext(
            ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT
        )
        # Both ends are of Stackcast.
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        if server_side:
            context.num_tickets = 0  # no connection is resumed
        self.load(context)
        return context

    def versions(self) -> list[tuple[int, ...]]:
        """Return numbers that change when one of the files is replaced or written."""
        return [_version(path) for path in (self.ca, self.certificate, self.key)]


class TlsSockets:
    """Puts TLS on sockets, with the files as they are when the connection begins.

    Raises StateError ``BAD_TLS``. Files that do not fit later, as in the middle of a rotation, are
    logged, and new connections use the ones before.
    """

    def __init__(self, credentials: StateCredentials, *, server_side: bool) -> None:
        self._credentials = credentials
        self._is_server = server_side
        # First the versions: files that are replaced meanwhile are then read once more.
        self._versions = credentials.versions()
        self._context = credentials.context(server_side=server_side)

    def wrap(self, peer: socket.socket, host: str | None = None) -> ssl.SSLSocket:
        """Return a connection of a connected socket, before its handshake.

        Args:
            peer: the socket; it is closed if this fails.
            host: for a client, the name or address that the server's certificate must have.

        Raises:
            OSError: the other side has ended the connection.
        """
        versions = self._credentials.versions()
        if versions != self._versions:
            self._versions = versions
            try:
                self._context = self._credentials.context(server_side=self._is_server)
                log.info("reloaded %s and its key", self._credentials.certificate)
            except StateError as error:
                log.warning("%s; the previously loaded files remain in use", error)
        return self._context.wrap_socket(
            peer,
            server_side=self._is_server,
            do_handshake_on_connect=False,
            server_hostname=host,
        )


def addresses_in(certificate: Mapping[str, Any] | None) -> frozenset[int]:
    """Return the IPv4 addresses that a certificate names, as `ssl.SSLSocket.getpeercert` has it."""
    addresses = set()
    for kind, value in (certificate or {}).get("subjectAltName", ()):
        if kind == "IP Address":
            try:
                addresses.add(int(IPv4Address(value)))
            except AddressValueError:
                continue
    return frozenset(addresses)


def handshake_error(error: OSError) -> StateError:
    """Return the error for a handshake that failed, or a connection that TLS ended."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return StateError(
            "BAD_TLS", f"the certificate of the other side is not valid: {error.verify_message}"
        )
    reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    words = reason.partition("ALERT_")[2].replace("_", " ").lower()
    if words and words != "protocol version":
        return StateError("BAD_TLS", f"the other side rejected our certificate: {words}")
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return StateError("BAD_TLS", f"the other side sent no certificate: {_SET_BOTH}")
    words = reason.replace("_", " ").lower() or error.strerror or str(error)
    return StateError("BAD_TLS", f"the other side does not seem to use TLS ({words}): {_SET_BOTH}")


def refuse_plain(peer: ssl.SSLSocket, error: OSError) -> None:
    """Send an alert to a client that does not speak TLS, because OpenSSL sends none."""
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        with contextlib.suppress(OSError):
            socket.socket.send(peer, _PROTOCOL_VERSION)


def _version(path: str) -> tuple[int, ...]:
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns
