"""What a P4Runtime server proves itself by, and what it wants of its clients (TLS)."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from udfs.errors import LabError


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
            raise _bad(f"{self.certificate} and {self.key}", error) from None
        if self.ca is not None:
            try:
                context.load_verify_locations(self.ca)
            except (ssl.SSLError, OSError) as error:
                raise _bad(str(self.ca), error) from None
        return grpc.ssl_server_credentials(
            [(pems[self.key], pems[self.certificate])],
            root_certificates=pems[self.ca] if self.ca else None,
            require_client_auth=self.ca is not None,
        )


class _LockedError(Exception):
    """The key has a password."""


def _no_password() -> str:
    # Without this, the ssl module would ask at the terminal.
    raise _LockedError("the key has a password; give one without")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise LabError("BAD_TLS", f"{path}: {error.strerror}", path=str(path)) from None


def _bad(what: str, error: Exception) -> LabError:
    reason = getattr(error, "reason", None) or str(error) or "no PEM file"
    return LabError("BAD_TLS", f"{what} cannot be used for TLS: {reason}", path=what)
