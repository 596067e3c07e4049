"""Who we are to a switch: certificates and a private key, given as paths, and a role."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from udfs.errors import SwitchError

_SWITCH = "{switch}"


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
        belong to the certificate, is locked by a password, or only one of the two is set.
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
