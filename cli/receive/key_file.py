"""The file with the keys of a host, which ``stackcast receive`` reads again when it changes."""

from __future__ import annotations

from pathlib import Path

from stackcast.cli.receive.failures import tell
from stackcast.jobs.adapters.app.key_files import keys_in
from stackcast.udfs.errors import SettingsError
from stackcast.udfs.messages.summary_keys import HostKeys

#: Time between two checks whether the file has changed, in seconds.
_SECONDS = 1.0


class KeyFile:
    """The keys of a host from a file that may change while they are in use.

    Args:
        path: the file.

    Raises:
        SettingsError: an error of `keys_in`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = self._state()
        self._keys = HostKeys(keys_in(path))
        self._next = 0.0

    def keys(self, moment: float) -> HostKeys:
        """Return the keys of the file, or its last valid keys.

        Args:
            moment: monotonic clock, in seconds.
        """
        if moment >= self._next:
            self._next = moment + _SECONDS
            if (state := self._state()) != self._seen:
                self._seen = state
                try:
                    self._keys = HostKeys(keys_in(self._path))
                    tell(f"{self._path}: the keys were read again")
                except SettingsError as error:
                    tell(f"{error}; the previous keys stay in use")
        return self._keys

    def _state(self) -> tuple[int, ...]:
        try:
            status = self._path.stat()
        except OSError:
            return ()
        return status.st_mtime_ns, status.st_ino, status.st_size, status.st_mode
