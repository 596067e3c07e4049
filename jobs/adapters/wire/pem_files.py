"""Certificates and a private key, given as paths of PEM files."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from stackcast.udfs.errors import StackcastError

# OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED.
_NOT_NOW = (9, 10)

Contents = tuple[bytes | None, bytes | None, bytes | None]


@dataclass(frozen=True)
class PemFiles:
    """Paths of PEM files; all empty means plain text.

    Nothing of a file's content is ever in a message, a log line or a ``repr``.

    Attributes:
        ca: the authority that signs the certificates of the other side.
        certificate: the certificate that we show; its file may also contain intermediate ones.
        key: the private key of this certificate, without a password.
        error: class of the errors that a subclass raises.
    """

    ca: str = ""
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    error: ClassVar[type[StackcastError]] = StackcastError

    @property
    def plain(self) -> bool:
        """Whether there is nothing to secure a connection by."""
        return not (self.ca or self.certificate or self.key)

    def load(self, context: ssl.SSLContext) -> Contents:
        """Check the files and load them into a context.

        Returns:
            Contents of ca, key and certificate, in gRPC's order; None for one that is not set.

        Raises:
            StackcastError: of class `error`, ``BAD_TLS``. A file cannot be read or holds no PEM,
                the key does not belong to the certificate or has a password, only one of the two
                is set, or the certificate has expired or is not valid yet: the other side would
                end the connection without a reason.
        """
        if bool(self.certificate) != bool(self.key):
            raise self.error(
                "BAD_TLS", "a certificate requires its key and a key its certificate: set both"
            )
        contents = (self._read(self.ca), self._read(self.key), self._read(self.certificate))
        if self.ca:
            self._try(
                self.ca, "contains no certificate", lambda: context.load_verify_locations(self.ca)
            )
        if self.key:
            self._try(
                self.key,
                "does not contain a private key without password that belongs to "
                f"{self.certificate}",
                # Without a password given, OpenSSL would ask the terminal for one.
                lambda: context.load_cert_chain(self.certificate, self.key, password=""),
            )
            self.describe_certificate()
        return contents

    def describe_certificate(self) -> dict[str, Any]:
        """Return our certificate as `ssl.SSLSocket.getpeercert` describes one.

        Raises:
            StackcastError: of class `error`, ``BAD_TLS``, if it has expired or is not valid yet.
        """
        try:
            return _shown_to_ourselves(self.certificate, self.key)
        except ssl.SSLCertVerificationError as error:
            if error.verify_code in _NOT_NOW:
                raise self.error(
                    "BAD_TLS",
                    f"{self.certificate}: {error.verify_message}",
                    path=self.certificate,
                ) from None
            return {}

    def _read(self, path: str) -> bytes | None:
        try:
            return Path(path).read_bytes() if path else None
        except OSError as error:
            reason = error.strerror
        except ValueError as error:  # a null byte
            reason = str(error)
        raise self.error("BAD_TLS", f"{path}: {reason}", path=path)

    def _try(self, path: str, fault: str, load: Callable[[], None]) -> None:
        try:
            load()
        except (OSError, ValueError):
            raise self.error("BAD_TLS", f"{path} {fault}", path=path) from None


def _shown_to_ourselves(certificate: str, key: str) -> dict[str, Any]:
    """Show a certificate to ourselves, because Python's ssl only describes a peer's certificate."""
    shows, looks = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    shows.load_cert_chain(certificate, key, password="")
    looks.check_hostname = False
    looks.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    looks.load_verify_locations(certificate)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = looks.wrap_bio(back, there), shows.wrap_bio(there, back, server_side=True)
    for end in (*ends, ends[0]):
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    return dict(ends[0].getpeercert() or {})
