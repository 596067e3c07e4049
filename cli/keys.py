"""``stackcast host-key``, and the file of keys that ``stackcast receive`` follows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stackcast.cli.receive.failures import tell
from stackcast.jobs.adapters.app.key_files import keys_in
from stackcast.udfs.errors import SettingsError
from stackcast.udfs.messages.summary_keys import HostKeys

#: A file of keys is looked at so often, seconds.
_SECONDS = 1.0


def host_key(
    master: Annotated[
        Path, typer.Argument(help="File of master keys, each line an id and a key in hex.")
    ],
    host: Annotated[str, typer.Argument(help="Name of the host in table hosts.")],
) -> None:
    """Print the keys of one host, for its `stackcast receive --key-file`.

    A holder of these keys can verify and forge summaries for this host, and for no other host.
    """
    for key in keys_in(master):
        typer.echo(f"{key.id} {key.for_host(host).secret.hex()}")


class KeyFile:
    """The file of a host's keys, which may change while they are in use. Raises as `keys_in`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = self._state()
        self._keys = HostKeys(keys_in(path))
        self._next = 0.0

    def keys(self, now: float) -> HostKeys:
        """The keys at a time; of a file that has become wrong, those that it had."""
        if now >= self._next:
            self._next = now + _SECONDS
            if (state := self._state()) != self._seen:
                self._seen = state
                try:
                    self._keys = HostKeys(keys_in(self._path))
                    tell(f"{self._path}: keys were read anew")
                except SettingsError as error:
                    tell(f"{error}; the keys that were read before stay in use")
        return self._keys

    def _state(self) -> tuple[int, ...]:
        try:
            about = self._path.stat()
        except OSError:
            return ()
        return about.st_mtime_ns, about.st_ino, about.st_size, about.st_mode
