"""Certificates for tests, made by openssl: authorities ``ca`` and ``other``, one file each."""

from __future__ import annotations

import subprocess
from pathlib import Path

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def make(folder: Path, *clients: str) -> Path:
    """``NAME.pem`` and ``NAME.key`` for ``server`` and ``client`` (signed by ``ca``), ``expired``
    (by ``ca``, until yesterday) and ``stranger`` (signed by ``other``), ``locked.key`` with a
    password; returns ``folder``. ``NAME.both.pem`` is key and certificate in one file.

    ``clients`` are further names signed by ``ca``.
    """
    for name in ("ca", "other"):
        _openssl(folder, "req", "-x509", *_KEY, *_named(name), "-days", "2", "-out", f"{name}.pem")
    for name in ("server", "client", *clients):
        sign(folder, name)
    sign(folder, "expired", days=-1)
    sign(folder, "stranger", "other")
    _openssl(
        folder, "ec", "-in", "server.key", "-aes128", "-passout", "pass:x", "-out", "locked.key"
    )
    return folder


def sign(
    folder: Path,
    name: str,
    authority: str = "ca",
    names: str = "IP:127.0.0.1,DNS:localhost",
    days: int = 2,
) -> None:
    """Write a new key and its certificate in a folder that `make` has written.

    Args:
        folder: where the files of the authority are.
        name: of the files, and common name of the certificate.
        authority: ``ca`` or ``other``.
        names: alternative names of the certificate, as openssl takes them.
        days: how long it is valid from now on.
    """
    (folder / "names").write_text(f"subjectAltName={names}\n")
    _openssl(folder, "req", "-new", *_KEY, *_named(name), "-out", f"{name}.csr")
    signer = ("-CA", f"{authority}.pem", "-CAkey", f"{authority}.key", "-CAcreateserial")
    extension = ("-days", str(days), "-extfile", "names", "-out", f"{name}.pem")
    _openssl(folder, "x509", "-req", "-in", f"{name}.csr", *signer, *extension)
    pair = [(folder / f"{name}.{end}").read_text() for end in ("key", "pem")]
    (folder / f"{name}.both.pem").write_text("".join(pair))


def _named(name: str) -> tuple[str, ...]:
    return ("-subj", f"/CN={name}", "-keyout", f"{name}.key")


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
