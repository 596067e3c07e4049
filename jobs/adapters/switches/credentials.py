"""Who we are to a switch: certificates and a private key, given as paths, and a role."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from stackcast.jobs.adapters.wire.pem_files import Contents, PemFiles
from stackcast.udfs.errors import SwitchError

_SWITCH = "{switch}"


@dataclass(frozen=True)
class Credentials(PemFiles):
    """PEM files for connections to switches, and a role.

    ca: who signs the switches' certificates; empty: the certificate authorities of this machine.
    certificate, key: what we show the switch, both or neither. ``{switch}`` in a path stands for
    the name of the switch, so that each can have its own. role: of P4Runtime; empty: the default
    one.
    """

    role: str = ""
    error = SwitchError

    def for_switch(self, name: str) -> Credentials:
        """The same with a switch's name put in. Raises SwitchError ``BAD_TLS``."""
        paths = (self.ca, self.certificate, self.key)
        if any(_SWITCH in path for path in paths) and (name.startswith(".") or "/" in name):
            raise SwitchError(
                "BAD_TLS",
                (
                    f"switch {name!r} needs another name, because credentials are read from a "
                    "path that contains it, and this name cannot be part of a path"
                ),
            )
        ca, certificate, key = (path.replace(_SWITCH, name) for path in paths)
        return Credentials(ca, certificate, key, self.role)

    def pems(self) -> Contents:
        """Contents of ca, key and certificate, in gRPC's order; None for one that is not set.

        Raises SwitchError ``BAD_TLS``, see `PemFiles.load`.
        """
        return self.load(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
