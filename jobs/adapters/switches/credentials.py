"""Who we are to a switch: certificates and a private key, given as paths, and a role."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from stackcast.udfs.errors import SwitchError

_SWITCH = "{switch}"
# OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED.
_NOT_NOW = (9, 10)


@dataclass(frozen=True)
class Credentials:
    """Paths of PEM files; all empty means plain text.

    ca: who signs the switches' certificates; empty: the certificate authorities of this machine.
    certificate, key: what we show the switch, both or neither. ``{switch}`` in a path stands for
    the name of the switch, so that each can have its own. Nothing of a file's content is ever in
    a message, a log line or a ``repr``. role: of P4Runtime; empty: the default one.
    """

    ca: str = ""
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    role: str = ""

    @property
    def plain(self) -> bool:
        """Says whether there is nothing to secure a connection by."""
        return not (self.ca or self.certificate or self.key)

    def for_switch(self, name: str) -> Credentials:
        """The same with a switch's name put in. Raises SwitchError ``BAD_TLS``."""
        paths = (self.ca, self.certificate, self.key)
        if any(_SWITCH in path for path in paths) and (name.startswith(".") or "/" in name):
            raise SwitchError(
                "BAD_TLS", f"switch {name!r}: its name cannot be part of a path of credentials"
            )
        ca, certificate, key = (path.replace(_SWITCH, name) for path in paths)
        return Credentials(ca, certificate, key, self.role)

    def pems(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        """Contents of ca, key and certificate, in gRPC's order; None for one that is not set.

        Raises SwitchError ``BAD_TLS``: a file cannot be read or holds no PEM, the key does not
        belong to the certificate, is locked by a password, only one of the two is set, or the
        certificate's time is over or has not begun: a switch would end the connection without a
        word.
        """
        if bool(self.certificate) != bool(self.key):
            raise SwitchError(
                "BAD_TLS", "a certificate needs its key, and a key its certificate: set both"
            )
        contents = tuple(_read(path) for path in (self.ca, self.key, self.certificate))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.ca:
            _try(self.ca, "holds no certificate", lambda: context.load_verify_locations(self.ca))
        if self.key:
            _try(
                self.key,
                f"is no private key without password that belongs to {self.certificate}",
                # Without a password given, OpenSSL would ask the terminal for one.
                lambda: context.load_cert_chain(self.certificate, self.key, password=""),
            )
            _check_time(self.certificate, self.key)
        return contents[0], contents[1], contents[2]


def _read(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes() if path else None
    except OSError as error:
        raise SwitchError("BAD_TLS", f"{path}: {error.strerror}", path=path) from None


def _try(path: str, fault: str, load: Callable[[], None]) -> None:
    try:
        load()
    except (ssl.SSLError, ValueError):
        raise SwitchError("BAD_TLS", f"{path} {fault}", path=path) from None


def _check_time(certificate: str, key: str) -> None:
    """Shows a certificate to ourselves, as Python's ssl reads dates of authorities alone."""
    shows, looks = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    shows.load_cert_chain(certificate, key, password="")
    looks.check_hostname = False
    looks.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    looks.load_verify_locations(certificate)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = looks.wrap_bio(back, there), shows.wrap_bio(there, back, server_side=True)
    try:
        for end in (*ends, ends[0]):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    except ssl.SSLCertVerificationError as error:
        if error.verify_code in _NOT_NOW:
            raise SwitchError(
                "BAD_TLS", f"{certificate}: {error.verify_message}", path=certificate
            ) from None
